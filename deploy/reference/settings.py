"""The page of settings: flag, variable and default of each."""

from __future__ import annotations

from typing import Any

import click
from pydantic.fields import FieldInfo

from deploy.cli.processes.serve import serve
from deploy.reference.markdown import code, table
from deploy.reference.markdown import page as whole
from deploy.settings.settings import ENVIRONMENT_PREFIX, Settings


def page() -> str:
    """The page of settings."""
    flags = {param.name: "/".join([*param.opts, *param.secondary_opts]) for param in serve.params if _is_option(param)}
    rows = [
        (
            code(name),
            code(flags.get(name, "")),
            code(f"{ENVIRONMENT_PREFIX}{name.upper()}"),
            _default(field),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]
    return whole(
        "Settings of a process",
        "The sources of a value, in this order: the flag of `dpuplane serve`; the environment; the YAML file of "
        "`--config` (with the names of the first column); the default.",
        table(("setting", "flag", "environment", "default", ""), rows),
    )


def _is_option(param: click.Parameter) -> bool:
    return isinstance(param, click.Option)


def _default(field: FieldInfo) -> str:
    default: Any = field.default
    return "" if default is None or default == "" else code(str(default))
