"""Who may use the HTTP service: tokens from the environment or a file, and what goes without one.

A token is kept as its digest and compared in constant time; it appears in no message. Without any token only this
machine itself is served. Does not know HTTP frameworks nor what is served.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from kb_ray.env_vars import BENCH_TOKEN, BENCH_TOKEN_FILE
from kb_ray.errors import ConfigError

LOCAL = "local"
"""Owner of all requests where no token is needed."""
SHORTEST = 16
"""Characters of a token at least."""


class Access:
    """The tokens in force. None: requests of this machine alone are let in, without one."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._digests = {owner: _digest(token.encode()) for owner, token in tokens.items()}

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return bool(self._digests)

    def owner(self, authorization: str | None, peer: str | None) -> str | None:
        """Whose request it is, by its Authorization header and its sender's address; None: not let in."""
        if not self.guarded:
            return LOCAL if is_loopback(peer) else None
        kind, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip().encode() if kind.lower() == "bearer" else b"")
        # All of them, whichever fits: time must not tell how far down the list it stands.
        matches = [owner for owner, known in self._digests.items() if hmac.compare_digest(given, known)]
        return matches[0] if matches else None


def read_access(token_file: str | None = None, environment: Mapping[str, str] = os.environ) -> Access:
    """The tokens of this process: KB_BENCH_TOKEN, else the file (`token_file`, else KB_BENCH_TOKEN_FILE).

    A file has one `NAME TOKEN` a line, or a single token; only its owner may read it. ConfigError says what is wrong
    with either, never what it holds.
    """
    if token := environment.get(BENCH_TOKEN, "").strip():
        return Access(_checked({"token": token}, BENCH_TOKEN))
    named = token_file or environment.get(BENCH_TOKEN_FILE)
    return Access(_from_file(Path(os.path.expanduser(named))) if named else {})


def check_bound(access: Access, host: str) -> None:
    """ConfigError where others could reach `host` and no token keeps them out."""
    if not access.guarded and not is_loopback(host):
        raise ConfigError(
            f"evaluation over HTTP on {host} needs a token: set {BENCH_TOKEN} or {BENCH_TOKEN_FILE} where Ray runs, "
            "or listen on 127.0.0.1"
        )


def is_loopback(host: str | None) -> bool:
    """Whether an address is this machine's own, unreachable from others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address((host or "").strip("[]")).is_loopback
    except ValueError:
        return False


def _from_file(path: Path) -> dict[str, str]:
    try:
        # The open file is asked, not its name: what is checked is what is read.
        with path.open(encoding="utf-8") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"tokens in {path} cannot be read: {why}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"tokens in {path} can be read by others: chmod 600 {path}")
    tokens: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        owner = words[0] if len(words) == 2 else "token"
        if len(words) > 2 or owner in tokens:
            raise ConfigError(f"tokens in {path}: line {number} is no NAME TOKEN, or repeats a name")
        tokens[owner] = words[-1]
    if not tokens:
        raise ConfigError(f"no token in {path}: write one NAME TOKEN a line")
    return _checked(tokens, str(path))


def _checked(tokens: dict[str, str], where: str) -> dict[str, str]:
    short = [owner for owner, token in tokens.items() if len(token) < SHORTEST]
    if short:
        raise ConfigError(f"the token {short[0]} in {where} is shorter than {SHORTEST} characters: make a longer one")
    return tokens


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
