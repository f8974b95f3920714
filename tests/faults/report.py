"""The output of a run: a line per fault, and a summary of effects and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.faults.fault import Fault
from tests.faults.run import TrialResult
from tests.faults.sampling import highest_samples
from tests.faults.world import World

UNKNOWN = ("unknown", "deadline_exceeded", "unavailable", "cancelled", "internal")


class Report:
    """The report of one run over one or both engines."""

    def __init__(self) -> None:
        self.failed = 0
        self.is_complete = False
        """Whether the run completed."""
        self._engine = ""
        self._next = ""
        self._all: dict[str, list[TrialResult]] = {}
        self._kills: Counter[str] = Counter()
        self._highest: dict[str, dict[str, float]] = {}

    def engine_started(self, engine: str) -> None:
        self._engine = engine
        print(f"{engine}: every process is ready", flush=True)

    def trial_started(self, faults: Sequence[Fault]) -> None:
        """Remember the faults of the next trial."""
        self._next = " + ".join(fault.name for fault in faults)

    def trial_broke(self) -> None:
        """Report a trial that raised an exception."""
        self.failed += 1
        print(f"FAILED {self._next:40} ended without a verdict")
        self._print_repeat(self._next)

    def pair_hidden(self, result: TrialResult) -> None:
        """Report a pair in which one fault hid the other, without other problems. It is no failure, but proves less."""
        self._print("hidden", result)

    def trial_finished(self, result: TrialResult) -> None:
        """Print one line for a finished trial, and one for each problem."""
        problems = result.problems
        self.failed += bool(problems)
        self._print("FAILED" if problems else "ok", result)
        for problem in problems:
            print(f"       {problem}")
        if problems:
            self._print_repeat(" + ".join(result.names))

    def _print(self, verdict: str, result: TrialResult) -> None:
        self._all.setdefault(self._engine, []).append(result)
        shown = ", ".join(f"{count} {what}" for what, count in result.evidence.items())
        print(
            f"{verdict:6} {' + '.join(result.names):40} {shown}; "
            f"{result.answered} commands answered, {_unknown(result)} attempts unknown, {result.verdict.lost} lost, "
            f"{result.verdict.doubled} doubled; longest wait {max(result.waits_s):.1f} s, "
            f"commands after {result.recovery_s:.1f} s and rest after {result.verdict.rest_s:.1f} s from healing",
            flush=True,
        )

    def _print_repeat(self, names: str) -> None:
        print(f"       repeat with: python -m tests.faults --engine {self._engine} --only '{names}'", flush=True)

    def engine_finished(self, world: World) -> None:
        """Store the figures of an engine for the summary."""
        self._kills[self._engine] += world.kills
        self._highest[self._engine] = highest_samples(world)

    def summarise(self) -> None:
        for engine, found in self._all.items():
            waits = sorted(wait for result in found for wait in result.waits_s if "killed" in " ".join(result.names))
            print(
                f"{engine}: {len(found)} faults and pairs, "
                f"{sum(bool(result.plane_problems) for result in found)} with problems, "
                f"{sum(not result.has_evidence for result in found)} hidden; "
                f"{self._kills[engine]} kill cycles, {sum(result.answered for result in found)} commands answered, "
                f"{sum(map(_unknown, found))} attempts unknown, {sum(t.verdict.lost for t in found)} lost, "
                f"{sum(t.verdict.doubled for t in found)} doubled"
                + "".join(f"; at most {value:.0f} {what}" for what, value in self._highest.get(engine, {}).items())
                + (
                    f"; longest wait at a kill p50 {_quantile(waits, 0.5)}, p99 {_quantile(waits, 0.99)}"
                    if waits
                    else ""
                )
            )


def _unknown(result: TrialResult) -> int:
    return sum(result.outcomes[what] for what in UNKNOWN)


def _quantile(ordered: list[float], share: float) -> str:
    return f"{ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.2f} s"
