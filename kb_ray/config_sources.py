"""From command line, YAML, `.env` and environment to one frozen config, each mistake in one line.

Flags are built from the model's fields; nothing is listed twice. Precedence: flags and --set, then the
--config file, then the environment (`.env` included), then defaults. Serves any frozen pydantic model;
knows nothing of what the settings mean.
"""

from __future__ import annotations

import argparse
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from kb_ray.config import Shown
from kb_ray.env_vars import ALIASES, SETTING_PREFIX, load_dotenv
from kb_ray.errors import ConfigError
from kb_ray.flag_parser import FlagParser
from kb_ray.plain_yaml import load_yaml
from kb_ray.setting_names import flag, groups, known, misspelt_variable, mistake, nearest, own_flags

Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True)
class _Value:
    value: Any
    origin: str
    """How the user named it: `--max-turns`, `KB_RAY_MAX_TURNS`, `run.yaml: max_turns`."""


def parse_command(
    model: type[Config], argv: Sequence[str], *, prog: str, warn: Callable[[str], None] | None = None
) -> Config:
    """The config that `argv`, its --config file, the environment and defaults amount to.

    Raises ConfigError with one line naming the setting as the user wrote it. `--help` prints and exits. `warn` is
    told of variables that look like a setting's name misspelt; by default stderr is.
    """
    load_dotenv()
    flags = _flag_values(model, argv, prog)
    for line in _misspelt_variables(model, os.environ):
        (warn or _to_stderr)(line)
    config_file = flags.pop("config", None)
    overrides = flags.pop("set", None)
    layers = [_environment(model, os.environ)]
    if config_file:
        layers.append(_yaml_file(model, Path(config_file.value)))
    if overrides:
        layers.append(_assignments(model, overrides.value))
    merged: dict[str, _Value] = {}
    for layer in [*layers, flags]:
        merged.update(layer)
    return validate(model, merged)


def validate(model: type[Config], values: Mapping[str, _Value]) -> Config:
    """The config of `values`; every unusable one is named in a single ConfigError line."""
    try:
        return model.model_validate({name: found.value for name, found in values.items()})
    except ValidationError as error:
        lines = [_explain(detail, values) for detail in error.errors()]
        raise ConfigError("; ".join(lines)) from None


def build_parser(model: type[BaseModel], prog: str) -> argparse.ArgumentParser:
    """The command's parser: one flag for each field, with default, range and unit in its help."""
    parser = FlagParser(
        prog=prog,
        description=model.__doc__,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
        epilog="Settings may also be given as key=value, in a --config file, or as KB_RAY_<NAME>.",
    )

    def add(target: Any, *names: str, **options: Any) -> None:
        field = model.model_fields[options["dest"]]
        options["help"] = _help(field).replace("%", "%%")
        if "metavar" in options:
            options["metavar"] = _metavar(field)
        target.add_argument(*names, **options)

    CliSettingsSource(_settings_class(model), root_parser=parser, add_argument_method=add, cli_parse_args=False)
    parser.add_argument(
        "--config",
        default=argparse.SUPPRESS,
        metavar="FILE.yaml",
        help="Settings as a YAML mapping of flag names to values. [default: none; range: readable file; unit: path]",
    )
    parser.add_argument(
        "--set",
        default=argparse.SUPPRESS,
        metavar="KEY=VALUE",
        action="append",
        help="One setting by name, repeatable; the flag itself wins. "
        "[default: none; range: any flag's name; unit: key=value]",
    )
    return parser


def _settings_class(model: type[BaseModel]) -> type[BaseSettings]:
    config = SettingsConfigDict(cli_kebab_case=True, cli_implicit_flags=True, cli_hide_none_type=True)
    return types.new_class(
        f"{model.__name__}Flags",
        (BaseSettings, model),
        {},
        lambda body: body.update({"model_config": config, "__module__": model.__module__}),
    )


def _flag_values(model: type[BaseModel], argv: Sequence[str], prog: str) -> dict[str, _Value]:
    parser = build_parser(model, prog)
    namespace, rest = parser.parse_known_args(own_flags(model, argv))
    found = {name: _Value(value, flag(name)) for name, value in vars(namespace).items()}
    assignments = [item for item in rest if "=" in item and not item.startswith("-")]
    for item in rest:
        if item not in assignments:
            raise ConfigError(_unknown_argument(model, item, prog))
    if assignments:
        earlier = found["set"].value if "set" in found else []
        found["set"] = _Value([*earlier, *assignments], "--set")
    return found


def _unknown_argument(model: type[BaseModel], item: str, prog: str) -> str:
    if not item.startswith("-"):
        return f"unexpected argument {item!r}: settings are flags or key=value, see {prog} --help"
    name = item.partition("=")[0]
    flags = [flag(field) for field in model.model_fields] + ["--config", "--set", "--help"]
    return f"unknown flag {name}{nearest(name, flags)}; {prog} --help lists all"


def _environment(model: type[BaseModel], environ: Mapping[str, str]) -> dict[str, _Value]:
    found = {}
    for name, field in model.model_fields.items():
        for variable in (SETTING_PREFIX + name.upper(), ALIASES.get(name, "")):
            if environ.get(variable):
                found[name] = _Value(_from_text(field, environ[variable], variable), variable)
                break
    return found


def _misspelt_variables(model: type[BaseModel], environ: Mapping[str, str]) -> Iterator[str]:
    """No errors: what is far from a setting here may be one there, or somebody else's."""
    for variable in sorted(name for name in environ if name.startswith(SETTING_PREFIX) and environ[name]):
        if meant := misspelt_variable(variable, model):
            yield f"warning: {variable} is no setting and does nothing; did you mean {meant}?"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _yaml_file(model: type[BaseModel], path: Path) -> dict[str, _Value]:
    try:
        loaded = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"--config: cannot read {path}: {reason}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"--config: {path}{where} is not valid YAML; fix it there") from None
    if not isinstance(loaded or {}, dict):
        raise ConfigError(f"--config: {path} must be a mapping of settings to values")
    return _settings_in(model, loaded or {}, path)


def _settings_in(model: type[BaseModel], loaded: Mapping[Any, Any], path: Path) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for key, value in loaded.items():
        if key in groups(model) and isinstance(value, dict):
            found |= _settings_in(model, value, path)
        elif (name := known(model, str(key), f"{path}: ", value)) is not None:
            found[name] = _Value(_from_yaml(model.model_fields[name], value), f"{path}: {key}")
    return found


def _assignments(model: type[BaseModel], items: Sequence[str]) -> dict[str, _Value]:
    found = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected key=value, got {item!r}")
        name = known(model, key, "--set: ", text)
        if name is not None:
            found[name] = _Value(_from_text(model.model_fields[name], text, key), key)
    return found


def _from_text(field: FieldInfo, text: str, origin: str) -> Any:
    """A value written as text: lists by white space or as YAML `[a, b]`, nothing as `null` or `none`."""
    if _is_list(field):
        try:
            return yaml.safe_load(text) if text.startswith("[") else text.split()
        except yaml.YAMLError:
            raise ConfigError(f"{origin}: {text!r} is no list; write [a, b] or separate with spaces") from None
    if text.lower() in ("null", "none") and field.default is None:
        return None
    return text


def _from_yaml(field: FieldInfo, value: Any) -> Any:
    if isinstance(value, bool) and _is_number(field):
        # Pydantic would take `yes` for 1.
        return str(value).lower()
    alone = str if get_args(field.annotation)[:1] != (int,) else str | int
    return [value] if _is_list(field) and isinstance(value, alone) else value


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _is_number(field: FieldInfo) -> bool:
    return bool({field.annotation, *get_args(field.annotation)} & {int, float})


def _explain(detail: Any, values: Mapping[str, _Value]) -> str:
    if not detail["loc"]:
        # About several settings together, which it names itself.
        return str(detail["ctx"]["error"])
    name = str(detail["loc"][0])
    origin = values[name].origin if name in values else flag(name)
    return f"{origin}: {mistake(detail)}"


def _help(field: FieldInfo) -> str:
    shown = _shown(field)
    text = " ".join((field.description or "").split())
    return f"{text} [default: {_default(field, shown)}; range: {_range(field, shown)}; unit: {shown.unit}]"


def _shown(field: FieldInfo) -> Shown:
    return next(item for item in field.metadata if isinstance(item, Shown))


def _default(field: FieldInfo, shown: Shown) -> str:
    if shown.default is not None:
        return shown.default
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    return f"{field.default}"


def _range(field: FieldInfo, shown: Shown) -> str:
    if shown.range is not None:
        return shown.range
    if field.annotation is bool:
        return "on or off"
    if get_origin(field.annotation) is Literal:
        return ", ".join(get_args(field.annotation))
    return _bounds(field.metadata)


def _bounds(constraints: Sequence[Any]) -> str:
    low = high = ""
    for item in constraints:
        if isinstance(item, annotated_types.Ge):
            low = f"{item.ge}"
        elif isinstance(item, annotated_types.Gt):
            low = f"above {item.gt}"
        elif isinstance(item, annotated_types.Le):
            high = f"{item.le}"
    return f"{low} to {high}"


def _metavar(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "{" + ",".join(get_args(field.annotation)) + "}"
    if _is_list(field):
        return "SPEC"
    return "N" if _is_number(field) else _shown(field).unit.split()[0].upper()
