"""The option that injects failures into simulated DPUs, shared by `serve` and `simulator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deploy.cli.shared.param_types import joined
from drivers.backends.simulated_failures import FORM
from projections.attempt_limits import FAILURE_KINDS
from projections.zones.dpus.phases import STEP_NAMES

F = TypeVar("F", bound=Callable[..., Any])

_HELP = (
    "Fail the first TIMES attempts at a step, of one simulated DPU or of each."
    f" STEP: {', '.join(STEP_NAMES)}. KIND: {', '.join(FAILURE_KINDS)}. Repeatable."
)


def fail_option(name: str) -> Callable[[F], F]:
    """The option that injects failures, under this name. Its value is one comma-separated text, or None if the option
    is not given, so that the environment variable applies."""
    return click.option(name, multiple=True, callback=joined, metavar=FORM, help=_HELP)
