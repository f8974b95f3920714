"""Argo CD in a simulation: it says of each Application what tests/support/peers.py decides.

An Application appears when a DPUService wants it, is synced, becomes healthy or fails at random, and goes when nothing
wants it any more.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from projections.kubernetes.foreign.applications import observe
from projections.resources.kinds import APPLICATION
from projections.resources.wanted import Wanted
from tests.simulation.history import History
from tests.simulation.peers import Item, item_of, observed_text
from tests.support.peers import next_application
from tests.support.virtual_loop import current_loop

FAILURE = 0.3


class ArgoCd:
    """The controller of Applications."""

    kinds = (APPLICATION,)

    def __init__(self, history: History) -> None:
        self._failure = FAILURE
        self._history = history
        self._items: dict[str, Item] = {}

    def heal(self) -> None:
        self._failure = 0.0

    async def advance(self, wanted: Mapping[str, Wanted], rng: random.Random, position: int) -> None:
        for key in [key for key in self._items if key not in wanted]:
            del self._items[key]
        for key, each in wanted.items():
            item = self._items[key] = item_of(each, self._items.get(key, {}))
            status = next_application(item, rng.random(), self._failure)
            if status is not None:
                if status["health"]["status"] == "Degraded":
                    self._history.note(current_loop().time(), "Application degraded", key)
                item["status"] = status

    def observed(self) -> dict[str, str]:
        return {key: observed_text(item, observe) for key, item in self._items.items()}
