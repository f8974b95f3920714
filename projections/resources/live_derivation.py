"""The derivation of a state that changes while it is read: updated with the keys that changed since the last read."""

from __future__ import annotations

from itertools import islice

from projections.resources.derivation import Derivation
from projections.resources.state import ResourcesState

SLICE_KEYS = 50
"""Number of objects of one update: about a millisecond if each is a host."""


class LiveDerivation:
    """A derivation and the changes that it lacks. It is never stored: a restart derives everything again."""

    def __init__(self, slice_keys: int = SLICE_KEYS) -> None:
        self._slice_keys = slice_keys
        self.derivation = Derivation()
        self._state: ResourcesState | None = None
        self._revision = -1
        self._pending: dict[str, None] = {}

    def advance(self, state: ResourcesState) -> bool:
        """Take over the next few changes of the state. Returns whether the derivation has all of them."""
        self._take_changes(state)
        keys = [*islice(self._pending, self._slice_keys)]
        if keys:
            self.derivation.update(state, keys)
            for key in keys:
                del self._pending[key]
        return not self._pending

    def _take_changes(self, state: ResourcesState) -> None:
        if state is self._state and state.journal.revision == self._revision:
            return
        changed = state.journal.since(self._revision) if state is self._state else None
        if changed is None:
            self.derivation, self._pending = Derivation(), dict.fromkeys(state.objects.rows)
        else:
            self._pending |= dict.fromkeys(changed)
        self._state, self._revision = state, state.journal.revision
