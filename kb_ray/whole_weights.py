"""Refuses weights that are not whole: damaged, missing, left over, of another size, NaN or infinite.

What is missing from a file of weights the libraries would draw at random, and an adapter whose names match nothing
would leave its base as it is: both answer and learn, and say nothing of the checkpoint. Imports no library: weights
are torch's tensors, known by what these offer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from kb_ray.errors import ConfigError
from kb_ray.out_of_memory import ran_out

_INSTALL = "pip install 'kb-ray[train]'"
_EIGHT_BITS = "bitsandbytes"
"""Not among those of `train`: it is large, and needed for --load-in-8bit alone."""
_AGAIN = "copy or save it again, or name another"
_RECOMPUTED = ("rotary_emb.inv_freq",)
"""Ends of names that old files hold though no model reads them."""
_NAMED = 3
_LONGEST_TEXT = 200
_Loaded = TypeVar("_Loaded")


def read(what: str, part: str, how: Callable[[], _Loaded]) -> _Loaded:
    """What `how` returns. ConfigError, whatever it raises: that depends on the library, and on where a file ends.

    `what`: the model or adapter, `part`: what of it is read. Where memory ran out the error stays: what helps then only
    the caller knows.
    """
    try:
        return how()
    except ImportError as error:
        raise packages_missing(what, error) from error
    except Exception as error:
        if ran_out(error):
            raise
        raise ConfigError(f"{what} cannot be loaded: {part}: {one_line(error)}; {_AGAIN}") from error


def packages_missing(what: str, error: ImportError) -> ConfigError:
    """To be raised where `what` needs a package that is not installed."""
    install = f"pip install {_EIGHT_BITS}" if _EIGHT_BITS in str(error) else _INSTALL
    return ConfigError(f"{what} needs more packages ({one_line(error)}): {install}")


def refuse_parts(
    what: str, missing: Collection[str], unexpected: Collection[str], other_sizes: Collection[str] = ()
) -> None:
    """ConfigError where weights are missing, left over or of another size. Tied ones, such as lm_head, the libraries
    count as there."""
    parts = (
        ("lacks", missing),
        ("holds, for no layer of this model,", [name for name in unexpected if not name.endswith(_RECOMPUTED)]),
        ("holds in another size than the configuration says", other_sizes),
    )
    if told := [f"{kind} {_some(names)}" for kind, names in parts if names]:
        raise ConfigError(f"{what} is not whole: its file of weights {' and '.join(told)}; {_AGAIN}")


def refuse_loaded(what: str, told: dict[str, Any]) -> None:
    """The same, of what transformers tells of its loading where sizes that do not fit are let pass."""
    sizes = {name[0] if isinstance(name, tuple) else name for name in told["mismatched_keys"]}
    refuse_parts(what, told["missing_keys"], told["unexpected_keys"], sizes)


def refuse_odd_numbers(what: str, weights: Iterable[tuple[str, Any]]) -> None:
    """ConfigError where a weight is NaN or infinite: no step could be taken, and answers are of any tokens.

    `weights`: names and tensors; what is quantized, or not in memory, is not looked at.
    """
    odd = [name for name, one in weights if _is_held(one) and not _finite(one)]
    if odd:
        raise ConfigError(f"{what} is of no use: its weights are NaN or infinite in {_some(odd)}; {_AGAIN}")


def one_line(error: BaseException) -> str:
    """An error's text, its kind before it where the text may be a mere name."""
    text = " ".join(str(error).split())[:_LONGEST_TEXT]
    # These two say what they mean.
    return text if text and isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {text}"


def _is_held(weights: Any) -> bool:
    # Numbers of one byte are of a quantized model, and have no least one.
    return weights.is_floating_point() and weights.element_size() > 1 and not weights.is_meta and weights.numel() > 0


def _finite(weights: Any) -> bool:
    # The least and the largest of them: no second tensor of that size, for which a GPU may have no room.
    return all(bool(edge.isfinite()) for edge in weights.detach().aminmax())


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
