"""Coverage goals of state machines: a machine that never reaches a full index proves nothing about full indices.

A machine counts events by name. After all of its examples, every name must have been counted. HYPOTHESIS_PROFILE sets
the number of examples: `ci` (the default) fits the time of `make test` and is derandomized, so that a goal cannot be
missed by chance; `dev` is 100 fresh examples of 50 steps, `nightly` 20,000 of 200. A failure is printed with the data
that reproduces it.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine

PROFILES: dict[str, tuple[int, int]] = {"dev": (100, 50), "nightly": (20_000, 200)}


class Sometimes:
    """Counts by name; each name must be counted at least once in a whole run."""

    def __init__(self, *names: str) -> None:
        self.counts = Counter(dict.fromkeys(names, 0))

    def saw(self, name: str, times: int = 1) -> None:
        """Count an event. The name must be one of the goals."""
        assert name in self.counts, f"{name!r} is not a goal of this machine"
        self.counts[name] += times

    def check(self) -> None:
        """Raise if a goal was never counted."""
        never = [name for name, count in self.counts.items() if not count]
        assert not never, f"in the whole run this never happened: {', '.join(never)}; {dict(self.counts)}"


def sized(machine: type[RuleBasedStateMachine], examples: int, steps: int, sometimes: Sometimes) -> Any:
    """The test case of a machine: so many examples in CI, then a check of the goals."""
    profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")
    examples, steps = PROFILES.get(profile, (examples, steps))
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=profile == "ci",
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )

    class Sized(case):  # type: ignore[misc]
        @classmethod
        def tearDownClass(cls) -> None:
            print(machine.__name__, dict(sometimes.counts))
            sometimes.check()

    return Sized
