"""The option that injects failures into simulated DPUs, as `serve` and `simulator` share it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from drivers.backends.simulated_failures import STEPS
from projections.tries import KINDS

FAIL_WORDS = f"STEP: {', '.join(STEPS)}. KIND: {', '.join(KINDS)}."


def joined(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> str | None:
    """Callback: the failures of a repeated option as one list; None if none was given, so that a variable counts."""
    return ",".join(given) if given else None
