"""Who is let in to the HTTP service: tokens, where they come from, and what is said of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.bench.access import LOCAL, Access, check_bound, is_loopback, read_access
from kb_ray.env_vars import BENCH_TOKEN, BENCH_TOKEN_FILE
from kb_ray.errors import ConfigError

SECRET = "correct-horse-battery"
OTHER = "staple-and-some-more"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("authorization", "owner"),
    [
        (f"Bearer {SECRET}", "training"),
        (f"bearer  {OTHER} ", "evals"),
        (SECRET, None),
        (f"Basic {SECRET}", None),
        (f"Bearer {SECRET}x", None),
        (f"Bearer {SECRET[:-1]}", None),
        ("Bearer ", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_says_whose_request_it_is_wherever_it_comes_from(authorization: str | None, owner: str | None) -> None:
    access = Access({"training": SECRET, "evals": OTHER})
    assert access.owner(authorization, "127.0.0.1") == access.owner(authorization, "10.0.0.7") == owner


@pytest.mark.parametrize(
    ("peer", "owner"),
    [("127.0.0.1", LOCAL), ("::1", LOCAL), ("10.0.0.7", None), ("::ffff:10.0.0.7", None), ("", None), (None, None)],
)
def test_without_tokens_only_this_machine_is_let_in(peer: str | None, owner: str | None) -> None:
    assert Access({}).owner("Bearer anything-at-all", peer) == owner


def test_tokens_come_from_the_environment_before_a_file(tmp_path: Path) -> None:
    file = str(written(tmp_path / "tokens", f"# who\n\ntraining {OTHER}\n"))
    assert read_access(None, {}).guarded is False
    assert read_access(file, {}).owner(f"Bearer {OTHER}", None) == "training"
    assert read_access(None, {BENCH_TOKEN_FILE: file}).owner(f"Bearer {OTHER}", None) == "training"
    both = read_access(file, {BENCH_TOKEN: SECRET})
    assert (both.owner(f"Bearer {SECRET}", None), both.owner(f"Bearer {OTHER}", None)) == ("token", None)


def test_a_file_may_hold_a_single_token(tmp_path: Path) -> None:
    assert read_access(str(written(tmp_path / "t", SECRET)), {}).owner(f"Bearer {SECRET}", None) == "token"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (f"a {SECRET}\n", 0o644, "chmod 600"),
        ("", 0o600, "no token"),
        ("a short\n", 0o600, "shorter than 16"),
        (f"a {SECRET} more\n", 0o600, "line 1"),
        (f"a {SECRET}\na {OTHER}\n", 0o600, "line 2"),
    ],
)
def test_a_file_that_will_not_do_is_one_line_without_its_tokens(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    file = written(tmp_path / "tokens", text, mode)
    with pytest.raises(ConfigError, match=said) as error:
        read_access(str(file), {})
    assert "\n" not in str(error.value)
    assert not any(secret in str(error.value) for secret in (SECRET, OTHER, "short\n"))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="/no/such/file cannot be read: No such file"):
        read_access("/no/such/file", {})


def test_the_tokens_themselves_are_not_kept() -> None:
    access = Access({"a": SECRET})
    assert SECRET not in repr(vars(access))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "kb.example.org", ""])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    assert not is_loopback(host)
    check_bound(Access({"a": SECRET}), host)
    with pytest.raises(ConfigError, match=BENCH_TOKEN):
        check_bound(Access({}), host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_loopback_needs_none(host: str) -> None:
    check_bound(Access({}), host)
