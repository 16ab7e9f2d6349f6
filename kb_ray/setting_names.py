"""What settings are called: by a model's own names, and by those under which other projects know them.

Says in one line what was meant by a name that is none, and what is wrong with a value. Does not know where values come
from.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from kb_ray.config import Fixed
from kb_ray.env_vars import SETTING_PREFIX
from kb_ray.errors import ConfigError

_BOUNDS = {
    "greater_than_equal": ("ge", ">="), "greater_than": ("gt", ">"),
    "less_than_equal": ("le", "<="), "less_than": ("lt", "<"),
}  # fmt: skip
"""Kind of pydantic's error -> (where its bound stands, sign)."""
_KINDS = {
    "int_parsing": "must be a whole number", "int_from_float": "must be a whole number",
    "int_type": "must be a whole number", "int_parsing_size": "must be a whole number",
    "float_parsing": "must be a number", "float_type": "must be a number", "finite_number": "must be a number",
    "bool_parsing": "must be true or false", "bool_type": "must be true or false",
    "tuple_type": "must be a list", "list_type": "must be a list", "string_type": "must be text",
}  # fmt: skip
"""Kind of pydantic's error -> what a value must be."""
_MUCH_ALIKE = 0.7
_SHORTEST_PART = 3
_ONE_SLIP = 0.8
OF_OTHER_COMMANDS = ("mode", "model", "sft_batch_size", "sft_max_tokens")
"""Settings that some commands have, and that are nearly called as one of a command that has not."""


def flag(name: str) -> str:
    """The flag of a setting."""
    # What would hide something of Python's or pydantic's ends in a dash below.
    return "--" + name.rstrip("_").replace("_", "-")


def mistake(detail: Any) -> str:
    """What is wrong with a value, and the value: from one of pydantic's `ValidationError.errors()`."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _BOUNDS:
        key, sign = _BOUNDS[kind]
        problem = f"must be {sign} {context[key]}"
    elif kind == "literal_error":
        problem = f"must be one of {context['expected']}"
    elif kind == "value_error":
        problem = str(context["error"])
    else:
        problem = _KINDS.get(kind, str(detail["msg"]))
    return f"{problem} (got {detail['input']})"


def groups(model: type[BaseModel]) -> Collection[str]:
    """Names under which other projects group settings that `model` has flat."""
    found: Collection[str] = getattr(model, "groups", ())
    return found


def known(model: type[BaseModel], key: str, where: str, value: Any) -> str | None:
    """The setting of that name, or of another name for it; None for one that can only be as it is given.

    A model's `other_names` and `fixed` say what other projects call its settings, and what of theirs has no choice.
    """
    group, _, rest = key.strip().rpartition(".")
    name = (rest if not group or group in groups(model) else key.strip()).replace("-", "_")
    fixed: Mapping[str, Fixed] = getattr(model, "fixed", {})
    if name in fixed:
        if str(value).lower() not in {str(allowed).lower() for allowed in fixed[name].values}:
            only = " or ".join(str(allowed).lower() for allowed in fixed[name].values)
            raise ConfigError(f"{where}{key}: can only be {only} here: {fixed[name].why} (got {value})")
        return None
    names: Mapping[str, str] = getattr(model, "other_names", {})
    name = name if name in model.model_fields else names.get(name, name)
    if name in model.model_fields:
        return name
    advice = nearest(name, list(model.model_fields)) or "; settings are named like the flags in --help"
    raise ConfigError(f"{where}unknown setting {key!r}{advice}")


def own_flags(model: type[BaseModel], argv: Sequence[str]) -> list[str]:
    """`argv` with flags under other names for settings, `--prompt` or `--prompt=X`, under the model's own ones."""
    names: Mapping[str, str] = getattr(model, "other_names", {})
    found = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else ""
        if name not in model.model_fields and names.get(name) in model.model_fields:
            argument = f"--{names[name].replace('_', '-')}{equals}{value}"
        found.append(argument)
    return found


def misspelt(given: Collection[str], known: Sequence[str]) -> str:
    """One line on a name that is nearly one of those known and not given; empty where there is none. What is far from
    all of them is somebody else's, as other columns of a data set."""
    left = [name for name in known if name not in given]
    for name in given:
        if name not in known and (close := difflib.get_close_matches(name, left, n=1, cutoff=0.85)):
            return f"{name}: no such field; did you mean {close[0]}?"
    return ""


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of an error's line that asks whether the nearest known name was meant; empty where none is near."""
    meant = near(name, known)
    return f"; did you mean {meant}?" if meant else ""


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that was meant: one of which `name` is a part by whole words, or the beginning, or the other way
    round, else one that is spelt much alike. Dashes before a flag count for nothing: with them short ones look alike.
    """
    bare = _bare(name)
    ranked = sorted(
        ((_are_parts(bare, _bare(one)), _likeness(bare, _bare(one)), one) for one in known),
        key=lambda found: (-found[0], -found[1]),
    )
    return next((one for part, likeness, one in ranked if part or likeness >= _MUCH_ALIKE), None)


def _bare(name: str) -> str:
    return name.strip("-_").replace("-", "_").lower()


def _are_parts(first: str, second: str) -> bool:
    short, long = sorted((first, second), key=len)
    if len(short) < _SHORTEST_PART:
        return False
    return set(short.split("_")) <= set(long.split("_")) or long.replace("_", "").startswith(short.replace("_", ""))


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def misspelt_variable(variable: str, model: type[BaseModel]) -> str:
    """What the environment variable of a setting would be called that `variable` is nearly; empty where it is one, or
    far from all: others may begin so too, as those that a deployment file names."""
    name = variable.removeprefix(SETTING_PREFIX).lower()
    if name in model.model_fields or name in OF_OTHER_COMMANDS:
        return ""
    close = difflib.get_close_matches(name, [*model.model_fields], n=1, cutoff=_ONE_SLIP)
    return SETTING_PREFIX + close[0].upper() if close else ""
