"""Shrinks a failing run to a short script. Without any one of its actions, the fault disappears.

The shrinker first removes unneeded sources of faults from the plan, then actions in ever smaller portions (ddmin,
Zeller and Hildebrandt 2002), then the time after the last action. A shorter run counts if it violates the same
invariant, or fails with the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.simulation.plan import REDUCTIONS
from tests.simulation.run import Result, run_script
from tests.simulation.script import Action, Script

T = TypeVar("T")

_INVARIANT = re.compile(r"I\d+: ")
_PARTICULARS = re.compile(r"[0-9a-f-]*\d[0-9a-f-]*|'[^']*'")
_WORDS = 8


def kind_of(fault: str) -> str:
    """What faults with the same cause have in common: their invariant, or the first words of their text without
    numbers.
    """
    invariant = _INVARIANT.match(fault)
    return invariant[0] if invariant else " ".join(_PARTICULARS.sub("#", fault).split()[:_WORDS])


class Shrinker:
    """Shrinks one failing run, in at most `runs_max` runs."""

    def __init__(self, runs_max: int) -> None:
        self.runs = 0
        self._runs_max = runs_max
        self._kinds: set[str] = set()

    def shrink(self, result: Result, seconds: float | None) -> Script | None:
        """The shortest script found that fails like this result; None if the actions do not reproduce the fault."""
        self._kinds = set(map(kind_of, result.faults))
        script = Script(seed=result.seed, seconds=seconds, actions=result.actions)
        if not self._fails(script):
            return None
        for name in REDUCTIONS:
            reduced_script = replace(script, reductions=(*script.reductions, name))
            script = reduced_script if self._fails(reduced_script) else script
        script = replace(
            script, actions=minimal(script.actions, lambda actions: self._fails(replace(script, actions=actions)))
        )
        ends_s = max((action.at_s for action in script.actions), default=0.0) + 1.0
        shorter = replace(script, ends_s=ends_s)
        script = shorter if self._fails(shorter) else script
        return self._described(script)

    def _fails(self, script: Script) -> bool:
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        return bool(self._kinds & set(map(kind_of, run_script(script).faults)))

    def _described(self, script: Script) -> Script:
        """The script with the current descriptions of its actions, and with the fault that it shows."""
        result = run_script(script)
        descriptions = {(action.author, action.number, action.key): action.description for action in result.actions}
        actions = [
            replace(action, description=descriptions.get((action.author, action.number, action.key), ""))
            for action in script.actions
        ]
        return replace(script, actions=actions, fault=result.faults[0] if result.faults else "")


def minimal(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A minimal failing subset of these, in their order. Without any one of its items, the rest does not fail."""
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


def text_of(actions: Sequence[Action]) -> Iterator[str]:
    """One line of text per action."""
    for action in actions:
        about = f" {action.key} #{action.number}" if action.key else ""
        late = f" {action.after_s:.2f} s later" if action.after_s else ""
        details = f"  {action.description}" if action.description else ""
        yield f"{action.at_s:9.3f} s  {action.author}  {action.what}{about}{late}{details}"
