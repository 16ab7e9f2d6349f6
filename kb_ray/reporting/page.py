"""The page: content, style, scripts and libraries as one HTML file that loads nothing from anywhere.

Content stands in it packed, so that no text of a model is ever read as markup; the page's policy lets run only the
scripts that are in it, by their hashes. Knows no store.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from kb_ray.reporting.packing import pack

_LIBRARIES = ("vendor/d3.min.js", "vendor/plot.umd.min.js", "vendor/highlight.min.js")
_SCRIPTS = ("dom.js", "headline.js", "plots.js", "tasks.js", "verdict.js", "viewer.js", "main.js")


def page(title: str, content: Any, chunks: Sequence[str], *, live: bool = False) -> str:
    """The whole page. `chunks` are packed episodes, unpacked when they are looked at.

    With `live` it asks its server for changes.
    """
    scripts = _scripts()
    data = [_data("content", pack(content)), *(_data(f"chunk-{at}", chunk) for at, chunk in enumerate(chunks))]
    parts = {
        "policy": _policy(scripts, live),
        "title": html.escape(title),
        "style": _asset("report.css"),
        "data": "\n".join(data),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    # In one pass: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("report.html"))


def waiting_page(title: str, why: str) -> str:
    """A page that says what is missing, and looks again by itself."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><p>{html.escape(why)}</p></html>"
    )


@cache
def _scripts() -> tuple[str, ...]:
    own = '"use strict";\n' + "\n".join(_asset(name) for name in _SCRIPTS)
    return (*(_asset(name) for name in _LIBRARIES), own)


def _policy(scripts: Sequence[str], live: bool) -> str:
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    allowed = "'self'" if live else "'none'"
    # The plot library puts a style element into each plot.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src blob: data:; "
        f"connect-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


@cache
def _asset(name: str) -> str:
    # A browser hashes a script with its line ends as \n.
    return files("kb_ray.reporting").joinpath("page", name).read_text(encoding="utf-8").replace("\r\n", "\n")
