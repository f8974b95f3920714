"""The deeds of a run: drawn from the seed and recorded, or replayed from a script.

A deed is one command of a client, one fault of the nemesis, or the fate of one append to the log. Each has a numbered
random generator of its own, so a script without some deeds repeats the others unchanged, and a failing run can be
reduced to the few deeds that cause the failure. `says` is for people; no code reads it.
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


class Deed(msgspec.Struct, omit_defaults=True):
    """One action in a run, its author and its time. `number` is that of its generator; for the fate of an append it is
    the number among the appends of `key`.
    """

    at_s: float
    who: str
    what: str
    number: int
    key: str = ""
    after_s: float = 0.0
    says: str = ""

    def rng(self, seed: int) -> random.Random:
        """The generator of all details of this deed."""
        return random.Random(f"{seed}/{self.who}/{self.number}")


class Script(msgspec.Struct, kw_only=True):
    """A run by its deeds. Its plan is that of the seed, with `seconds` as its length if given, and without the faults
    that `calm` names (see `plan.CALM`); no fault occurs from `ends_s` on, if that is earlier.
    """

    seed: int
    seconds: float | None
    ends_s: float | None = None
    calm: tuple[str, ...] = ()
    fault: str = ""
    deeds: list[Deed]

    def write(self, path: Path) -> None:
        """Write the script as JSON, one deed per line."""
        head = msgspec.to_builtins(self) | {"deeds": []}
        lines = ",\n".join("  " + msgspec.json.encode(deed).decode() for deed in self.deeds)
        path.write_text(msgspec.json.encode(head).decode().replace('"deeds":[]', f'"deeds":[\n{lines}\n]') + "\n")


def read_script(path: Path) -> Script:
    """Read a script that `write` wrote. Raises PermanentError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script)
    except (OSError, msgspec.DecodeError) as error:
        raise PermanentError(f"script {path}: it cannot be read: {error}") from error


Draw = Callable[[random.Random], tuple[float, str]]
"""How long to wait before the next deed, and what it is."""


class Director:
    """Schedules the deeds of every author; `done` lists all executed deeds."""

    def __init__(self, seed: int, script: Script | None) -> None:
        self.done: list[Deed] = []
        self._seed = seed
        self._script = script
        self._fates = {(deed.key, deed.number): deed for deed in self._scripted(LOG)}

    async def deeds(self, who: str, draw: Draw) -> AsyncIterator[Deed]:
        """The deeds of an author, each at its time or as soon as the one before has ended."""
        clock = current_loop().time
        if self._script is None:
            for number in count():
                pause_s, what = draw(random.Random(f"{self._seed}/{who}/when/{number}"))
                await asyncio.sleep(pause_s)
                yield self._noted(Deed(clock(), who, what, number))
        else:
            for deed in self._scripted(who):
                await asyncio.sleep(max(deed.at_s - clock(), 0.0))
                yield self._noted(msgspec.structs.replace(deed, at_s=clock(), says=""))

    def fate(self, key: str, number: int, draw: Callable[[], tuple[str, float]]) -> tuple[str, float]:
        """The fate of an append, and its delay if it lands late."""
        if self._script is None:
            what, after_s = draw()
        else:
            scripted = self._fates.get((key, number))
            what, after_s = (scripted.what, scripted.after_s) if scripted else ("", 0.0)
        if what:
            self._noted(Deed(current_loop().time(), LOG, what, number, key, after_s))
        return what, after_s

    def _scripted(self, who: str) -> Iterator[Deed]:
        return (deed for deed in (self._script.deeds if self._script else ()) if deed.who == who)

    def _noted(self, deed: Deed) -> Deed:
        self.done.append(deed)
        return deed
