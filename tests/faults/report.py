"""The output of a run: a line per fault, and a summary of effects and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.faults.fault import Fault
from tests.faults.run import TrialResult
from tests.faults.sampling import most_held
from tests.faults.world import World

UNKNOWN = ("unknown", "deadline_exceeded", "unavailable", "cancelled", "internal")


class Report:
    """The report of one run over one or both engines."""

    def __init__(self) -> None:
        self.failed = 0
        self.is_whole = False
        """Whether it came to its end."""
        self._engine = ""
        self._next = ""
        self._all: dict[str, list[TrialResult]] = {}
        self._kills: Counter[str] = Counter()
        self._most: dict[str, dict[str, float]] = {}

    def began(self, engine: str) -> None:
        self._engine = engine
        print(f"{engine}: everybody is up", flush=True)

    def tries(self, faults: Sequence[Fault]) -> None:
        """Print the faults of the next trial."""
        self._next = " + ".join(fault.name for fault in faults)

    def broke(self) -> None:
        """Report a trial that ended without a verdict."""
        self.failed += 1
        print(f"FAILED {self._next:40} came to no end")
        self._advise(self._next)

    def hid(self, tried: TrialResult) -> None:
        """Report a pair in which one fault hid the other, without other problems: it proves less, but is no failure."""
        self._print("hidden", tried)

    def tried(self, tried: TrialResult) -> None:
        """Print one line for a trial, and one for each problem."""
        problems = tried.problems
        self.failed += bool(problems)
        self._print("FAILED" if problems else "ok", tried)
        for problem in problems:
            print(f"       {problem}")
        if problems:
            self._advise(" + ".join(tried.names))

    def _print(self, verdict: str, tried: TrialResult) -> None:
        self._all.setdefault(self._engine, []).append(tried)
        shown = ", ".join(f"{count} {what}" for what, count in tried.evidence.items())
        print(
            f"{verdict:6} {' + '.join(tried.names):40} {shown}; "
            f"{tried.finished} commands answered, {_unknown(tried)} tries unknown, {tried.verdict.lost} lost, "
            f"{tried.verdict.doubled} doubled; longest wait {max(tried.waits_s):.1f} s, "
            f"flow {tried.flows_after_s:.1f} s and rest {tried.verdict.rest_s:.1f} s after healing",
            flush=True,
        )

    def _advise(self, names: str) -> None:
        print(f"       try again: python -m tests.faults --engine {self._engine} --only '{names}'", flush=True)

    def ended(self, world: World) -> None:
        """Print the summary of an engine."""
        self._kills[self._engine] += world.kills
        self._most[self._engine] = most_held(world)

    def summarise(self) -> None:
        for engine, found in self._all.items():
            waits = sorted(wait for tried in found for wait in tried.waits_s if "killed" in " ".join(tried.names))
            print(
                f"{engine}: {len(found)} faults and pairs, {sum(bool(tried.wrong) for tried in found)} went wrong, "
                f"{sum(not tried.is_shown for tried in found)} hidden; "
                f"{self._kills[engine]} kill cycles, {sum(tried.finished for tried in found)} commands answered, "
                f"{sum(map(_unknown, found))} tries unknown, {sum(t.verdict.lost for t in found)} lost, "
                f"{sum(t.verdict.doubled for t in found)} doubled"
                + "".join(f"; at most {most:.0f} {what}" for what, most in self._most.get(engine, {}).items())
                + (
                    f"; longest wait at a kill p50 {_quantile(waits, 0.5)}, p99 {_quantile(waits, 0.99)}"
                    if waits
                    else ""
                )
            )


def _unknown(tried: TrialResult) -> int:
    return sum(tried.outcomes[what] for what in UNKNOWN)


def _quantile(ordered: list[float], share: float) -> str:
    return f"{ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.2f} s"
