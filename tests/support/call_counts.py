"""The number of calls of a piece of code: a measure of its work that no busy machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any


def count_calls(work: Callable[[], object]) -> int:
    """Run this, and count the calls of functions of Python and C that it makes."""
    count = 0

    def on_event(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@contextmanager
def calls_of(code: CodeType) -> Iterator[Callable[[], int]]:
    """Count the calls of the function with this code by any task while the context lasts."""
    count = 0

    def on_event(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is code

    sys.setprofile(on_event)
    try:
        yield lambda: count
    finally:
        sys.setprofile(None)
