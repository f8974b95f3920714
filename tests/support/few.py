"""State machines in which already few are many: the ways of thousands, met by machines that know a handful."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine


def with_few(machine: type[RuleBasedStateMachine], few: int, *modules: ModuleType) -> type[RuleBasedStateMachine]:
    """The same machine, while which runs `_FEW` of these modules is this."""
    base: Any = machine

    class WithFew(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.patch = pytest.MonkeyPatch()
            for module in modules:
                self.patch.setattr(module, "_FEW", few)
            super().__init__()

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.patch.undo()

    WithFew.__name__ = f"{machine.__name__}WithFew"
    return WithFew
