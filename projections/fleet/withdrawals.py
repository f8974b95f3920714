"""Withdrawal budgets: how much may turn from allow to deny before somebody has to say that it is meant.

What counts is the effect. An address of a list whose verdict turns from allow to deny, on any class of traffic, counts
one in that list, whether its node vanished, left, was relabelled, was joined by another that a drop policy matches, or
a policy or a zone's labels changed. Leaves that somebody stated have a budget of their own, `stated`; everything else
shares `inferred`. Counts are per list (zones with equal lists see the same withdrawals), over the last 10 minutes of
fold time; when zones move to another list, that list takes over the larger count, so moving does not refill a budget.

The limit is a share of what the list allowed before those withdrawals, and at least a count. A record over it is held
as a whole: nothing that it would take away of that kind goes, while the rest of it takes effect. (Letting a part
through would withdraw an arbitrary choice of nodes.)
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from projections.names import shown
from projections.rules.policies import Policy
from schemas.events import BudgetSet

Kind: TypeAlias = Literal["inferred", "stated"]
KINDS: tuple[Kind, ...] = ("inferred", "stated")

WINDOW_MS = 600_000
BUCKET_MS = 10_000
"""A window counts in steps of this, so it forgets a withdrawal 0 to 10 s late, never early."""

APPROVALS = 2
"""Principals who must approve a hold."""


class Budget(msgspec.Struct, frozen=True):
    """How much of a list may be withdrawn per window: a share, and at least a count."""

    kind: str
    permille: int
    at_least: int

    def limit(self, base: int) -> int:
        return max(self.at_least, base * self.permille // 1000)


def fault_of_budget(event: BudgetSet) -> str | None:
    """What is wrong with a budget, in one sentence."""
    if event.kind not in DEFAULTS:
        return f"kind: {shown(event.kind)} must be inferred or stated"
    if not 0 <= event.permille <= 1_000:
        return f"permille: {event.permille} must be from 0 to 1000"
    if event.at_least < 0:
        return f"at_least: {event.at_least} must be 0 or more"
    return None


DEFAULTS = {"inferred": Budget("inferred", 10, 100), "stated": Budget("stated", 100, 1_000)}


class Window(msgspec.Struct, frozen=True, array_like=True):
    """What was withdrawn from one list of late, as (start of the bucket, count), oldest first."""

    buckets: tuple[tuple[int, int], ...]

    def spent(self, now_ms: int) -> int:
        return sum(count for start, count in self.buckets if _counts(start, now_ms))

    def charged(self, now_ms: int, count: int) -> Window:
        """This window with `count` more, and without what it need not remember."""
        bucket = now_ms - now_ms % BUCKET_MS
        return merged([Window(((bucket, count + dict(self.buckets).get(bucket, 0)),)), self], now_ms)


EMPTY = Window(())


def _counts(start_ms: int, now_ms: int) -> bool:
    return start_ms + BUCKET_MS + WINDOW_MS > now_ms


def merged(windows: Iterable[Window], now_ms: int) -> Window:
    """The larger count of each bucket."""
    largest: dict[int, int] = {}
    for window in windows:
        for start, count in window.buckets:
            if _counts(start, now_ms):
                largest[start] = max(count, largest.get(start, 0))
    return Window(tuple(sorted(largest.items())))


class Hold(msgspec.Struct, frozen=True):
    """A withdrawal that waits for two principals. Its id is the fleet offset of the record that asked for it.

    `subject` is `members`, `policy` or `zone`. `addresses` is how many would have lost something then, in the list that
    would have lost most; `nodes` how many nodes it keeps now. `hash` is of what would happen if it were approved: it
    changes when nodes come back, and approvals given before stay, since they were for more. A hold of members that is
    rejected stays, with `rejected_by`, because what it keeps must be kept by something. `seen` of an edit is what was
    over its budget when it was `asked` for, at that offset: addresses, by `key_of` the zones that would lose them
    together.
    """

    id: int
    kind: str
    subject: str
    reason: str
    addresses: int
    nodes: int
    zones: tuple[str, ...]
    hash: bytes
    requested_by: str
    since_ms: int
    approvals: tuple[str, ...] = ()
    rejected_by: str = ""
    policy: str = ""
    policy_after: Policy | None = None
    zone: str = ""
    labels_after: dict[str, str] | None = None
    asked: int = 0
    seen: dict[str, int] = {}


MAX_SHOWN_ZONES = 100
"""Zones that a hold names; it may concern more."""


def hash_of(*parts: object) -> bytes:
    """16 bytes that stand for these values."""
    return blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def key_of(zones: Iterable[str]) -> str:
    """Exactly these zones, whatever their order, as a short key."""
    return hash_of(*sorted(zones)).hex()


def add_hashes(total: bytes, *, added: bytes | None = None, removed: bytes | None = None) -> bytes:
    """The hash of a set after an element's hash joined or left: their sum."""
    value = int.from_bytes(total, "big")
    value += int.from_bytes(added or b"", "big") - int.from_bytes(removed or b"", "big")
    return (value % (1 << 128)).to_bytes(16, "big")
