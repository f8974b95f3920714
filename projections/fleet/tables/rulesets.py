"""One set of rule tables: its version, and the recent changes of its addresses.

The fold only records each change with its version. Readers compute the prefixes (covers), so a replay computes none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from projections.fleet.membership.address_index import Address
from projections.rules.lists import SetKey

INCREMENTAL_MAX = 256
"""Maximum number of changes that are applied one by one to a small set. The maximum of a large set is 1/128 of its
addresses.

One change costs about 3 us, the whole cover 0.04 us for each address of the set.
"""

CHANGES_KEPT = 256
"""Maximum number of last changes of a set whose append times are retained, for readers that skip versions."""


def incremental_max(addresses: int) -> int:
    """The maximum number of changes that are applied one by one to a set with this many addresses."""
    return max(INCREMENTAL_MAX, addresses // 128)


class AddressChange(NamedTuple):
    """The addresses that entered and left a set at a version."""

    version: int
    added: Sequence[Address]
    removed: Sequence[Address]


class RuleSet:
    """A set of one or more zones' tables.

    `changed` has the version and the earliest append time of its last changes. `filled_at` is the version of the first
    change of a set that began empty: 0 before that change. It is -1 if the set is older than this state.
    """

    def __init__(self, key: SetKey, text: str, version: int, earliest_ms: int) -> None:
        self.key = key
        self.text = text
        self.version = version
        self.earliest_ms = earliest_ms
        self.filled_at = -1 if version else 0
        self.changed: deque[tuple[int, int]] = deque(maxlen=CHANGES_KEPT)
        self._recent: deque[AddressChange] = deque()
        self._recent_addresses = 0
        self._forgotten = version

    def record_change(
        self, version: int, earliest_ms: int, added: Sequence[Address], removed: Sequence[Address], *, most: int
    ) -> None:
        """Record the addresses that entered and left the set at `version`. The last of the earlier changes are
        retained, with at most `most` addresses in all."""
        self.version, self.earliest_ms = version, earliest_ms
        self.changed.append((version, earliest_ms))
        self.filled_at = self.filled_at or version
        self._recent.append(AddressChange(version, added, removed))
        self._recent_addresses += len(added) + len(removed)
        while self._recent_addresses > most:
            oldest = self._recent.popleft()
            self._recent_addresses -= len(oldest.added) + len(oldest.removed)
            self._forgotten = oldest.version

    def changes_after(self, version: int) -> list[AddressChange] | None:
        """The changes after a version, in order; None if one of them is no longer retained."""
        if version < self._forgotten:
            return None
        return [*takewhile(lambda change: change.version > version, reversed(self._recent))][::-1]
