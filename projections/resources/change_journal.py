"""The keys of the objects that changed last, so that a derivation beside a state can follow it.

A journal belongs to the state of one process. It is not part of the folded state: it is never saved, and no decision
reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

KEYS_MAX = 20_000
"""Maximum number of remembered keys. A reader that is further behind reads all objects again."""


class ChangeJournal:
    """The revision of a state, which grows with each change, and the keys that changed since earlier revisions."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self.revision = 0
        self._keys_max = keys_max
        self._changed: dict[str, int] = {}
        """The revision of the last change of each key, in order of revisions."""
        self._forgotten = 0
        """The last revision whose changes are not known any more."""

    def record(self, keys: Iterable[str]) -> None:
        """Remember that these objects have changed."""
        self.revision += 1
        for key in keys:
            self._changed.pop(key, None)
            self._changed[key] = self.revision
        while len(self._changed) > self._keys_max:
            oldest = next(iter(self._changed))
            self._forgotten = self._changed.pop(oldest)

    def restart(self) -> None:
        """Remember that any object may have changed."""
        self.revision += 1
        self._changed.clear()
        self._forgotten = self.revision

    def since(self, revision: int) -> list[str] | None:
        """The keys that changed after a revision; None if they are not known any more."""
        if revision < self._forgotten:
            return None
        found = []
        for key in reversed(self._changed):
            if self._changed[key] <= revision:
                break
            found.append(key)
        return found


class JournalReader:
    """The place of one reader of a journal. The journal waits for no reader: one that is too far behind learns that any
    object may have changed. The first read says the same, and so does the first read of another journal."""

    def __init__(self) -> None:
        self._journal: ChangeJournal | None = None
        self._revision = 0

    def is_behind(self, journal: ChangeJournal) -> bool:
        """Whether the journal has changed since the last read."""
        return journal is not self._journal or journal.revision != self._revision

    def read(self, journal: ChangeJournal) -> list[str] | None:
        """The keys that changed since the last read; None if any may have changed."""
        changed = journal.since(self._revision) if journal is self._journal else None
        self._journal, self._revision = journal, journal.revision
        return changed
