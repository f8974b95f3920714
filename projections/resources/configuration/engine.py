"""The template engine of the built-in templates: Jinja2 in its sandbox, without anything that is not a function of its
input. An undefined name is an error."""

from __future__ import annotations

import json
import shlex
from typing import Any

from jinja2 import DictLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from projections.resources.configuration.scripts import TEMPLATES


def expanded(name: str, **values: Any) -> str:
    """A built-in template with these values."""
    return _ENVIRONMENT.get_template(name).render(values)


def _toml(text: str) -> str:
    """A text as a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text)


def _environment() -> SandboxedEnvironment:
    made = SandboxedEnvironment(
        loader=DictLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        cache_size=len(TEMPLATES),
        auto_reload=False,
    )
    made.globals = {}
    made.filters = {"shell": shlex.quote, "toml": _toml}
    return made


_ENVIRONMENT = _environment()
