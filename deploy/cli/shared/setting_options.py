"""Options of commands from the model of settings, which declares each setting once: name, default, help text, value.

`serve` and `doctor` take every setting as text, so that the model alone checks values from flags, environment and file.
Commands that read the log directly take only the settings for the location of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from pydantic.fields import FieldInfo

from deploy.cli.shared.param_types import joined
from deploy.cli.shared.simulated_failures import fail_option
from deploy.kafka.security import KafkaSecurity
from deploy.settings.addresses import Address
from deploy.settings.settings import ENVIRONMENT_PREFIX, Settings

F = TypeVar("F", bound=Callable[..., Any])

_VALUES = {Path: "FILE", int: "N", float: "N", Address: "HOST:PORT"}


def setting_options(function: F) -> F:
    """Add the options of all settings; None for an option that was not given."""
    for name in reversed(Settings.model_fields):
        function = _option(name)(function)
    return function


def _option(name: str) -> Callable[[F], F]:
    if name == "simulate_fail":
        return fail_option("--simulate-fail")
    return setting_option(name, multiple=True, callback=joined) if name == "kubeconfig" else setting_option(name)


def kafka_access_options(function: F) -> F:
    """Add the options for the connection to Kafka, for a command that has no other settings."""
    for name in reversed(KafkaSecurity._fields):
        function = log_setting_option(f"kafka_{name}")(function)
    return function


def take_access(given: dict[str, Any]) -> KafkaSecurity:
    """Take the values of `kafka_access_options` out of the parameters of a command. Raises UsageError."""
    named = {name: given.pop(f"kafka_{name}") for name in KafkaSecurity._fields}
    access = KafkaSecurity(**{name: value for name, value in named.items() if value is not None})
    if fault := access.fault():
        raise click.UsageError(fault)
    return access


def log_setting_option(name: str, **changed: Any) -> Callable[[F], F]:
    """The option of a setting that locates the log, with its environment variable and its type."""
    kinds = _kinds(Settings.model_fields[name])
    choices = list(dict.fromkeys(word for kind in kinds for word in (kind, *get_args(kind)) if isinstance(word, str)))
    kind = click.Path(dir_okay=False, path_type=Path) if Path in kinds else str
    typed = {"type": click.Choice(choices) if choices else kind, "envvar": f"{ENVIRONMENT_PREFIX}{name.upper()}"}
    return setting_option(name, **typed | changed)


def setting_option(name: str, **changed: Any) -> Callable[[F], F]:
    """The option of a setting, with changed parameters."""
    field, flag = Settings.model_fields[name], name.replace("_", "-")
    kinds = _kinds(field)
    if bool in kinds:
        return click.option(f"--{flag}/--no-{flag}", default=None, help=_help(field))
    value = field.title or next((value for kind, value in _VALUES.items() if kind in kinds), "NAME")
    return click.option(f"--{flag}", **{"metavar": value, "help": _help(field)} | changed)


def _kinds(field: FieldInfo) -> tuple[Any, ...]:
    return (field.annotation, *get_args(field.annotation))


def _help(field: FieldInfo) -> str:
    """The description with flags in place of the names of settings, and the default."""
    text = re.sub(r"`(\w+)`", _as_flag, field.description or "")
    default = field.default
    if default in (None, "", 0):
        return text
    if default is True:
        return f"{text}  [true]"
    return f"{text}  [{default:g}]" if isinstance(default, float) else f"{text}  [{default}]"


def _as_flag(quoted: re.Match[str]) -> str:
    return f"--{quoted[1].replace('_', '-')}" if quoted[1] in Settings.model_fields else quoted[0]
