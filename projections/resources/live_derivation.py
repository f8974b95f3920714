"""The derivation of a state that changes while it is read: updated with the keys that changed since the last read.

A state has one derivation, which all its readers share, since it takes as much memory as the state. Each reader
advances it before it reads, and finds no work if another reader has. Between two slices the derivation is inconsistent:
read it in the step in which `advance` has returned True, or while `is_consistent`. A reader that acts on changes has a
`JournalReader` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from projections.resources.change_journal import ChangeJournal, JournalReader
from projections.resources.derivation import Derivation
from projections.resources.state import ResourcesState

SLICE_KEYS = 50
"""Number of objects of one update: about a millisecond if each is a host."""


class LiveDerivation:
    """A derivation and the changes that it lacks. It is never stored: a restart derives everything again."""

    def __init__(self, slice_keys: int = SLICE_KEYS) -> None:
        self._slice_keys = slice_keys
        self.derivation = Derivation()
        self.changed = ChangeJournal()
        """The keys of the wanted objects that changed last."""
        self.is_consistent = False
        """Whether the derivation has all changes that were taken over so far."""
        self._taken = JournalReader()
        self._pending: dict[str, None] = {}
        self._update: Iterator[None] = iter(())
        """The update under way, which may take several slices."""
        self._found: dict[str, None] = {}
        """The keys of the wanted objects that the last slice changed."""

    def advance(self, state: ResourcesState) -> bool:
        """Take over the next few changes of the state. Returns whether the derivation has all of them."""
        self._take_changes(state)
        self.is_consistent = self._advance(state)
        if self._found:
            self.changed.record(self._found)
            self._found.clear()
        return self.is_consistent

    def _advance(self, state: ResourcesState) -> bool:
        for _ in self._update:
            return False
        keys = [*islice(self._pending, self._slice_keys)]
        for key in keys:
            del self._pending[key]
        if keys:
            self._update = self.derivation.updating(state, keys, self._found)
            for _ in self._update:
                return False
        return not self._pending

    def _take_changes(self, state: ResourcesState) -> None:
        if not self._taken.is_behind(state.journal):
            return
        changed = self._taken.read(state.journal)
        if changed is None:
            self.derivation, self._pending = Derivation(), dict.fromkeys((*state.objects.rows, *state.observed.rows))
            self._update = iter(())
            self.changed.restart()
        else:
            self._pending |= dict.fromkeys(changed)


def live_derivation(state: ResourcesState) -> LiveDerivation:
    """The derivation of a state. It is made for the first reader, since most states are never read."""
    if not isinstance(state.live, LiveDerivation):
        state.live = LiveDerivation()
    return state.live
