"""The actions of a run: drawn from the seed and recorded, or replayed from a script.

An action is one command of a client, one fault of the nemesis, or the fate of one append to the log. Each action has
its own random generator, so a script without some actions repeats the others unchanged. A failing run can therefore be
reduced to the few actions that cause the failure. No code reads `description`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from eventstore.errors import PermanentError
from tests.support.virtual_loop import current_loop

LOG = "log"
NEMESIS = "nemesis"


class Action(msgspec.Struct, omit_defaults=True):
    """One action in a run, with its author and its time. `number` selects the random generator. For the fate of an
    append, it is the number of the append among those with the same `key`.
    """

    at_s: float
    author: str
    what: str
    number: int
    key: str = ""
    after_s: float = 0.0
    description: str = ""

    def rng(self, seed: int) -> random.Random:
        """The random generator of the details of this action."""
        return random.Random(f"{seed}/{self.author}/{self.number}")


class Script(msgspec.Struct, kw_only=True):
    """A run by its actions. Its plan is that of the seed. `seconds` replaces the length of the plan, `reductions` (see
    `plan.REDUCTIONS`) remove sources of faults, and `ends_s` ends the fault phase earlier.
    """

    seed: int
    seconds: float | None
    ends_s: float | None = None
    reductions: tuple[str, ...] = ()
    fault: str = ""
    actions: list[Action]

    def write(self, path: Path) -> None:
        """Write the script as JSON, one action per line."""
        head = msgspec.to_builtins(self) | {"actions": []}
        lines = ",\n".join("  " + msgspec.json.encode(action).decode() for action in self.actions)
        path.write_text(msgspec.json.encode(head).decode().replace('"actions":[]', f'"actions":[\n{lines}\n]') + "\n")


def read_script(path: Path) -> Script:
    """Read a script that `write` wrote. Raises PermanentError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script)
    except (OSError, msgspec.DecodeError) as error:
        raise PermanentError(f"script {path}: it cannot be read: {error}") from error


Draw = Callable[[random.Random], tuple[float, str]]
"""Draws the pause before the next action, and its kind."""


class Director:
    """Schedules the actions of every author. `done` lists all executed actions."""

    def __init__(self, seed: int, script: Script | None) -> None:
        self.done: list[Action] = []
        self._seed = seed
        self._script = script
        self._fates = {(action.key, action.number): action for action in self._scripted(LOG)}

    async def actions(self, author: str, draw: Draw) -> AsyncIterator[Action]:
        """The actions of an author, each at its time, or as soon as the previous one has ended."""
        clock = current_loop().time
        if self._script is None:
            for number in count():
                pause_s, what = draw(random.Random(f"{self._seed}/{author}/when/{number}"))
                await asyncio.sleep(pause_s)
                yield self._recorded_action(Action(clock(), author, what, number))
        else:
            for action in self._scripted(author):
                await asyncio.sleep(max(action.at_s - clock(), 0.0))
                yield self._recorded_action(msgspec.structs.replace(action, at_s=clock(), description=""))

    def fate(self, key: str, number: int, draw: Callable[[], tuple[str, float]]) -> tuple[str, float]:
        """The fate of an append, and its delay in seconds if it lands late."""
        if self._script is None:
            what, after_s = draw()
        else:
            scripted = self._fates.get((key, number))
            what, after_s = (scripted.what, scripted.after_s) if scripted else ("", 0.0)
        if what:
            self._recorded_action(Action(current_loop().time(), LOG, what, number, key, after_s))
        return what, after_s

    def _scripted(self, author: str) -> Iterator[Action]:
        return (action for action in (self._script.actions if self._script else ()) if action.author == author)

    def _recorded_action(self, action: Action) -> Action:
        self.done.append(action)
        return action
