"""Shrinks a failing run to a script that a person can read: without any one of its deeds the fault disappears.

First every source of faults that is not needed is removed from the plan, then deeds are removed in ever smaller
portions (ddmin, Zeller and Hildebrandt 2002), then the end is moved to the last deed. A shorter run counts if it fails
by the same invariant, or with the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.simulation.plan import CALM
from tests.simulation.run import Result, follow
from tests.simulation.script import Deed, Script

T = TypeVar("T")

_INVARIANT = re.compile(r"I\d+: ")
_PARTICULARS = re.compile(r"[0-9a-f-]*\d[0-9a-f-]*|'[^']*'")
_WORDS = 8


def kind_of(fault: str) -> str:
    """The common part of faults with one cause, as far as their texts show it."""
    invariant = _INVARIANT.match(fault)
    return invariant[0] if invariant else " ".join(_PARTICULARS.sub("#", fault).split()[:_WORDS])


class Shrinker:
    """Shrinks one failing run, in at most so many runs."""

    def __init__(self, runs_max: int) -> None:
        self.runs = 0
        self._runs_max = runs_max
        self._kinds: set[str] = set()

    def shrink(self, result: Result, seconds: float | None) -> Script | None:
        """The shortest script found that fails as this result did; None if its deeds do not reproduce the fault."""
        self._kinds = set(map(kind_of, result.faults))
        script = Script(seed=result.seed, seconds=seconds, deeds=result.deeds)
        if not self._fails(script):
            return None
        for name in CALM:
            calmer = replace(script, calm=(*script.calm, name))
            script = calmer if self._fails(calmer) else script
        script = replace(script, deeds=minimal(script.deeds, lambda deeds: self._fails(replace(script, deeds=deeds))))
        ends_s = max((deed.at_s for deed in script.deeds), default=0.0) + 1.0
        shorter = replace(script, ends_s=ends_s)
        script = shorter if self._fails(shorter) else script
        return self._told(script)

    def _fails(self, script: Script) -> bool:
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        return bool(self._kinds & set(map(kind_of, follow(script).faults)))

    def _told(self, script: Script) -> Script:
        """The script with the current texts of its deeds, and the fault at its end."""
        result = follow(script)
        said = {(deed.who, deed.number, deed.key): deed.says for deed in result.deeds}
        deeds = [replace(deed, says=said.get((deed.who, deed.number, deed.key), "")) for deed in script.deeds]
        return replace(script, deeds=deeds, fault=result.faults[0] if result.faults else "")


def minimal(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """As few of these as still fail, in their order: without any one of them the rest does not fail."""
    kept, portion = list(items), max(len(items) // 2, 1)
    while True:
        start, before = 0, len(kept)
        while start < len(kept):
            without = kept[:start] + kept[start + portion :]
            if fails(without):
                kept = without
            else:
                start += portion
        if portion == 1 and len(kept) == before:
            return kept
        portion = max(portion // 2, 1)


def shown(deeds: Sequence[Deed]) -> Iterator[str]:
    """One line for each deed."""
    for deed in deeds:
        about = f" {deed.key} #{deed.number}" if deed.key else ""
        late = f" {deed.after_s:.2f} s later" if deed.after_s else ""
        yield f"{deed.at_s:9.3f} s  {deed.who}  {deed.what}{about}{late}{'  ' if deed.says else ''}{deed.says}"
