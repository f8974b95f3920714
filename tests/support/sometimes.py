"""What state machines must have met: a machine that never reaches a full index proves nothing about full indices.

A machine counts what happens; when all of its examples have run, everything that was to happen must have. Machines are
sized by the profile that HYPOTHESIS_PROFILE names: `ci` (the default) is what `make test` has time for, the same every
time, so that what must happen cannot fail to by chance; `dev` is 100 fresh examples of 50 steps, `nightly` 20,000 of
200. What fails is printed with what reproduces it.
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
        """It happened now. Only what was promised is counted."""
        assert name in self.counts, f"{name!r} is not among what must happen"
        self.counts[name] += times

    def check(self) -> None:
        """Raise for what never happened."""
        never = [name for name, count in self.counts.items() if not count]
        assert not never, f"in the whole run this never happened: {', '.join(never)}; {dict(self.counts)}"


def sized(machine: type[RuleBasedStateMachine], examples: int, steps: int, sometimes: Sometimes) -> Any:
    """The test case of a machine: so many examples in CI, and at their end a look at what they met."""
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
