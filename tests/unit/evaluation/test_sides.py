"""The two sides of a comparison: stores as they are, checkpoints each in a folder that tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray import checkpoints, local_checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.evaluation.options import parse
from kb_ray.evaluation.sides import results_of, sides_of
from kb_ray.traces.store import LocalStore


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two checkpoints of one run, and one of another."""
    for name in ("one/step-A/adapter", "one/step-B/adapter", "two/step-A/adapter", "final"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "adapter_config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def s3(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that are folders: s3://b/run has two checkpoints, all else is empty."""
    monkeypatch.setattr(local_checkpoints, "open_store", lambda uri: LocalStore(f"{runs}/s3/{uri[5:]}"))
    for step in (1, 2):
        told = Checkpoint(step=step, base_model="base", fingerprint="f")
        checkpoints.save(LocalStore(f"{runs}/s3/b/run"), told, {"adapter/adapter_config.json": b"{}"})


@pytest.mark.parametrize(
    ("first", "second", "called"),
    [
        ("final", "one/step-A/adapter", ["final", "adapter"]),
        ("one/step-A/adapter", "one/step-B/adapter/", ["step-A-adapter", "step-B-adapter"]),
        ("one/step-A/adapter", "two/step-A/adapter", ["one-step-A-adapter", "two-step-A-adapter"]),
    ],
)
def test_checkpoints_are_called_by_as_much_of_their_paths_as_differs(
    runs: Path, first: str, second: str, called: list[str]
) -> None:
    names = [f"{runs}/{first}", f"{runs}/{second}"]
    assert sides_of(names, "out/") == dict(zip(names, [f"out/{name}" for name in called], strict=True))


@pytest.mark.parametrize("output", ["s3://bucket/compared", "out"])
@pytest.mark.parametrize("results", [None, "mine"])
def test_no_side_overwrites_the_results_of_the_other(runs: Path, output: str, results: str | None) -> None:
    sides = sides_of([f"{runs}/final", f"{runs}/one/step-A/adapter"], output)
    options = [
        parse(["--model-path", name])[0].model_copy(update={"output": uri, "results": results_of(uri, results)})
        for name, uri in sides.items()
    ]
    folders = {str(one.results_folder) for one in options}
    root = f"{results or 'evaluation'}/{{}}" if "://" in output else "out/{}/evaluation"
    assert folders == {root.format("final"), root.format("adapter")}


def test_checkpoints_on_s3_are_told_from_stores_and_called_by_what_differs(s3: None, runs: Path) -> None:
    early = "s3://b/run/checkpoints/step000001"
    assert sides_of([early, "s3://b/run"], "out") == {early: "out/step000001", "s3://b/run": "out/run"}
    assert sides_of([early, f"{early[:-1]}2/"], "out") == {early: "out/step000001", f"{early[:-1]}2/": "out/step000002"}
    assert sides_of(["s3://b/traces/", "s3://b/run/"], "out") == {
        "s3://b/traces/": "s3://b/traces/", "s3://b/run/": "out/run",
    }  # fmt: skip


@pytest.mark.usefixtures("s3")
def test_stores_are_what_they_are(runs: Path) -> None:
    assert sides_of([f"{runs}/store", "s3://b/p"], "out") == {f"{runs}/store": f"{runs}/store", "s3://b/p": "s3://b/p"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3://b/p", "s3://b/p/"), ("{}/store", "{}/other/../store/"), ("{}/link", "{}/final"),
        ("{}/final", "{}/final"), ("s3://b/run", "s3://b/run/checkpoints/step000002/adapter/"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("s3")
def test_one_and_the_same_is_refused_however_it_is_written(runs: Path, first: str, second: str) -> None:
    (runs / "link").symlink_to(runs / "final")
    with pytest.raises(ConfigError, match="are one and the same, name two"):
        sides_of([first.format(runs), second.format(runs)], "out")


def test_a_checkpoint_is_not_kept_in_the_store_that_it_is_compared_with(runs: Path) -> None:
    with pytest.raises(ConfigError, match="name another --output"):
        sides_of([f"{runs}/final", f"{runs}/out/final"], f"{runs}/out")
