"""`python -m kb_ray.report STORE`: a trace store as one HTML page that needs no network.

Thin: options, errors to exit codes, where the page goes. What is on it is made in kb_ray.reporting.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from kb_ray.command_options import parse_options
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.evaluation.attempts import counted
from kb_ray.evaluation.origins import notes_of
from kb_ray.exiting import end
from kb_ray.reporting.drawing import check_available, draw_all
from kb_ray.reporting.live import LivePage, live_server
from kb_ray.reporting.writing import EPISODES_SHOWN, Report, make_report
from kb_ray.score.summary import Summary
from kb_ray.traces.reading import Survey, survey
from kb_ray.traces.store import Store, local_path, open_store, open_to_read

PAGE_NAME = "report.html"
_PORT = 8790


_LocalPath = Annotated[Path, AfterValidator(lambda path: local_path(str(path)))]


class ReportOptions(BaseModel):
    """Show a trace store as one HTML page: metrics, plots, tasks, and episodes turn by turn."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.report",
        use_attribute_docstrings=True,
        frozen=True,
        cli_implicit_flags=True,
        cli_kebab_case=True,
    )

    store: CliPositionalArg[str]
    """Folder or s3://bucket/prefix of a run."""
    output: _LocalPath | None = None
    """File of the page. Default: report.html in the store's folder; for a store on S3, here."""
    plots: _LocalPath | None = None
    """Folder for each plot as PNG and SVG (needs the extra `report`)."""
    episodes: int = Field(EPISODES_SHOWN, ge=0)
    """Episodes at most that can be read whole on the page; others only count."""
    seed: int = 0
    """Of the draw of those episodes."""
    gpu_hour_price: float | None = Field(None, ge=0, le=10_000)
    """Price of a GPU hour, from which the cost of verdicts follows."""
    skip_corrupt: bool = False
    """Leave damaged files out, naming them, in place of refusing the store."""
    open: bool = False
    """Show the page in the browser."""
    live: bool = False
    """Serve the page on this machine, made again as the run goes on, until Ctrl-C. Writes no file."""
    port: int | None = Field(None, ge=0, le=65535)
    """Port of --live on 127.0.0.1, 8790 unless named; 0 takes a free one."""

    def check(self) -> None:
        """ConfigError where settings exclude each other, or would make a folder of the name `s3:`."""
        places = {"--output": self.output, "--plots": self.plots}
        named = {flag: path for flag, path in places.items() if path is not None}
        if self.live and named:
            raise ConfigError(f"--live and {' and '.join(named)} exclude each other: a live page writes no file")
        if not self.live and self.port is not None:
            raise ConfigError("--port: only a page of --live is served")
        for flag, path in named.items():
            if path.parts and path.parts[0].endswith(":"):
                raise ConfigError(f"{flag}: {path} is no local path: name one, and copy it from there")


def write_report(
    store: Store | str,
    path: Path | str,
    *,
    episodes: int = EPISODES_SHOWN,
    seed: int = 0,
    skip_corrupt: bool = False,
    plots: Path | None = None,
    gpu_hour_price: float | None = None,
    summary: Summary | None = None,
) -> Report:
    """Write the page of a store to `path`, whole or not at all, and each plot to the folder `plots`.

    `summary`, the metrics of the whole store with flagged tasks apart, saves making them a second time.
    ConfigError for a store that is empty, damaged or of a newer schema, and where `path` cannot be written.
    StoreError where the store fails.
    """
    opened = open_to_read(store) if isinstance(store, str) else store
    if plots is not None:
        check_available()
    attempts = counted(survey(opened, skip_corrupt=skip_corrupt))
    return write_page(
        attempts.found,
        path,
        episodes=episodes,
        seed=seed,
        plots=plots,
        gpu_hour_price=gpu_hour_price,
        summary=summary,
        notes=notes_of(attempts.found, len(attempts.retried)),
    )


def write_page(
    found: Survey,
    path: Path | str,
    *,
    episodes: int = EPISODES_SHOWN,
    seed: int = 0,
    plots: Path | None = None,
    gpu_hour_price: float | None = None,
    summary: Summary | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """The same of a store that was looked at, or of the part of it that `found` is about. `notes` stand at the top."""
    price = gpu_hour_price
    report = make_report(found, episodes=episodes, seed=seed, gpu_hour_price=price, summary=summary, notes=notes)
    try:
        _replace(Path(path), report.html)
        if plots is not None:
            draw_all(report.content["scopes"][0]["figures"], plots)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or path}: {error.strerror}, choose another place") from error
    return report


def live_page(store: Store, mark: str, options: ReportOptions) -> str:
    """The page of a store as it is now, `mark` telling it from later ones. Errors as `write_report`."""
    # Hashing every file again for each part that comes would cost more than it tells.
    attempts = counted(survey(store, skip_corrupt=options.skip_corrupt, verify=False))
    return make_report(
        attempts.found,
        episodes=options.episodes,
        seed=options.seed,
        live=mark,
        gpu_hour_price=options.gpu_hour_price,
        notes=notes_of(attempts.found, len(attempts.retried)),
    ).html


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for unusable input, 1 where the store fails."""
    try:
        load_dotenv()
        options = parse_options(ReportOptions, sys.argv[1:] if argv is None else argv)
        options.check()
        return _serve(options) if options.live else _write(options)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def _write(options: ReportOptions) -> int:
    store = open_to_read(options.store)
    here = Path() if store.uri.startswith("s3://") else Path(store.uri)
    path = options.output or here / PAGE_NAME
    if path.is_dir():
        path = path / PAGE_NAME
    report = write_report(
        store,
        path,
        episodes=options.episodes,
        seed=options.seed,
        skip_corrupt=options.skip_corrupt,
        plots=options.plots,
        gpu_hour_price=options.gpu_hour_price,
    )
    for file in report.content["damaged"]:
        print(f"skipped {file['key']}: {file['reason']}", file=sys.stderr)
    size = path.stat().st_size / 1e6
    print(f"{report.episodes} episodes, {report.shown} of them to read, {size:.1f} MB: {path.resolve().as_uri()}")
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _serve(options: ReportOptions) -> int:
    # Of a run that has yet to begin it is made again when there is something to show.
    store = open_store(options.store)
    port = _PORT if options.port is None else options.port
    server = live_server(LivePage(store, lambda mark: live_page(store, mark, options)), port)
    url = f"http://127.0.0.1:{server.server_port}/"
    print(f"{store.uri}: {url} until Ctrl-C", flush=True)
    if options.open:
        webbrowser.open(url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    end(main)
