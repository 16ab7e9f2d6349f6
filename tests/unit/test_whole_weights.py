"""What is said where a package is missing that a model needs."""

from __future__ import annotations

import pytest

from kb_ray.errors import ConfigError
from kb_ray.whole_weights import read


@pytest.mark.parametrize(
    ("said", "install"),
    [
        ("Using `bitsandbytes` 8-bit quantization requires bitsandbytes", "pip install bitsandbytes"),
        ("No module named 'peft'", "pip install 'kb-ray[train]'"),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(said: str, install: str) -> None:
    def load() -> None:
        raise ImportError(said)

    with pytest.raises(ConfigError) as caught:
        read("model m", "its weights", load)
    assert str(caught.value) == f"model m needs more packages (ImportError: {said}): {install}"
