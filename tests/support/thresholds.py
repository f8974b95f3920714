"""State machines with lowered thresholds, so that a few items reach code paths meant for thousands."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine


def with_threshold(
    machine: type[RuleBasedStateMachine], value: int, *constants: tuple[ModuleType, str]
) -> type[RuleBasedStateMachine]:
    """The same machine, with this value in each of these module constants during the run."""
    base: Any = machine

    class WithThreshold(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.patch = pytest.MonkeyPatch()
            for module, name in constants:
                self.patch.setattr(module, name, value)
            super().__init__()

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.patch.undo()

    WithThreshold.__name__ = f"{machine.__name__}WithThreshold"
    return WithThreshold
