"""Budgets: the number of verdicts that may change in 10 minutes without the approval of two people.

A budget counts effects. An address counts once in a list when its verdict there changes, on any class of traffic,
whatever the cause: its node joined, vanished, left or changed, another node with the address joined, or a policy or the
labels of a zone changed. Each budget's name says which changes it counts:

- `denied-by-leave`: addresses that are denied because a command removed their nodes;
- `denied-by-change`: addresses that are denied for any other reason;
- `allowed-by-change`: addresses that become allowed because a known node, a policy or a zone's labels changed;
- `allowed-by-join`: addresses that new nodes bring.

Counts are per list (zones with equal lists see the same verdicts), over the last 10 minutes of fold time. When zones
move to another list, that list takes over the larger count, so a move does not refill a budget.

A change over a budget is held whole: the previous state stays, and the new state waits. (Applying a part of it would be
an arbitrary choice of nodes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec

from projections.field_checks import quoted
from projections.fleet.withdrawals.settled_levels import BudgetBase
from projections.rules.policies import Policy
from schemas.events import BudgetSet

BudgetKind: TypeAlias = Literal["denied-by-leave", "denied-by-change", "allowed-by-change", "allowed-by-join"]

DENIED_BY_LEAVE: Final = "denied-by-leave"
DENIED_BY_CHANGE: Final = "denied-by-change"
ALLOWED_BY_CHANGE: Final = "allowed-by-change"
ALLOWED_BY_JOIN: Final = "allowed-by-join"

DENIAL_KINDS: tuple[BudgetKind, ...] = (DENIED_BY_LEAVE, DENIED_BY_CHANGE)
BUDGET_KINDS: tuple[BudgetKind, ...] = (*DENIAL_KINDS, ALLOWED_BY_CHANGE, ALLOWED_BY_JOIN)
"""All budgets. A hold that exceeds several budgets is named after the first of denied-by-change, denied-by-leave,
allowed-by-change and allowed-by-join."""

BUDGET_WINDOW_MS = 600_000
BUCKET_MS = 10_000
"""Length of a bucket of a window. A change therefore leaves the window 0 to 10 s late, never early."""

APPROVALS = 2
"""Number of principals who must approve a hold."""


UNLIMITED_PERMILLE = 1_000
"""A share of 100 %, which means no limit."""


NODE_ADDRESSES = 2
"""Maximum number of addresses of a node."""


class Budget(msgspec.Struct, frozen=True):
    """How many addresses of a list may change their verdict per window: a share of the list, and at least a count."""

    kind: str
    permille: int
    min_addresses: int

    @property
    def is_unlimited(self) -> bool:
        return self.permille >= UNLIMITED_PERMILLE

    def limit(self, base: BudgetBase) -> int | None:
        """The maximum number of addresses of a list with this base that may change their verdict; None if there is no
        limit.

        It is the larger of two numbers: the share of the settled level, and `min_addresses`. The second is capped at
        half of `base.least`: a minimum of 1,000 must not allow the loss of all nodes of a plane of 900. The cap is at
        least 2, the addresses of one node. `allowed-by-join` has no cap, because a fleet begins with joins.
        """
        if self.is_unlimited:
            return None
        most = self.min_addresses if self.kind == ALLOWED_BY_JOIN else max(NODE_ADDRESSES, base.least // 2)
        return max(base.settled * self.permille // 1000, min(self.min_addresses, most))

    def is_looser(self, than: Budget) -> bool:
        """Whether this budget could pass a change that the other one holds."""
        if than.is_unlimited:
            return False
        return self.permille > than.permille or self.min_addresses > than.min_addresses


def fault_of_budget(event: BudgetSet) -> str | None:
    """Why a budget is invalid, in one sentence; None if it is valid."""
    if event.kind not in DEFAULT_BUDGETS:
        return f"kind: {quoted(event.kind)} must be one of {', '.join(BUDGET_KINDS)}"
    if not 0 <= event.permille <= UNLIMITED_PERMILLE:
        return f"permille: {event.permille} must be from 0 to {UNLIMITED_PERMILLE}"
    if event.min_addresses < 0:
        return f"min_addresses: {event.min_addresses} must be 0 or more"
    return None


DEFAULT_BUDGETS = {
    budget.kind: budget
    for budget in (
        Budget(DENIED_BY_LEAVE, 100, 1_000),
        Budget(DENIED_BY_CHANGE, 10, 100),
        Budget(ALLOWED_BY_CHANGE, 250, 1_000),
        Budget(ALLOWED_BY_JOIN, UNLIMITED_PERMILLE, 0),
    )
}


class BudgetWindow(msgspec.Struct, frozen=True, array_like=True):
    """Recent verdict changes of the addresses of one list, as (start of the bucket, count), oldest first."""

    buckets: tuple[tuple[int, int], ...]

    def spent(self, now_ms: int) -> int:
        return sum(count for _, count in self.counted(now_ms))

    def counted(self, now_ms: int) -> Sequence[tuple[int, int]]:
        """The buckets that have not expired."""
        return [(start, count) for start, count in self.buckets if _counts(start, now_ms)]

    def charged(self, now_ms: int, count: int) -> BudgetWindow:
        """This window with `count` more changes, and without expired buckets."""
        bucket = now_ms - now_ms % BUCKET_MS
        return merged_windows([BudgetWindow(((bucket, count + dict(self.buckets).get(bucket, 0)),)), self], now_ms)

    def rewind(self, now_ms: int) -> BudgetWindow:
        """This window, corrected for a fold time that goes back to `now_ms`. Changes at later times count as changes of
        now, so they expire one window from now, however far the clock was ahead."""
        ahead = sum(count for start, count in self.buckets if start > now_ms)
        if not ahead:
            return self
        return BudgetWindow(tuple(bucket for bucket in self.buckets if bucket[0] <= now_ms)).charged(now_ms, ahead)


EMPTY_WINDOW = BudgetWindow(())


def _counts(start_ms: int, now_ms: int) -> bool:
    return start_ms + BUCKET_MS + BUDGET_WINDOW_MS > now_ms


def merged_windows(windows: Iterable[BudgetWindow], now_ms: int) -> BudgetWindow:
    """Several windows as one window, with the largest count of each bucket."""
    largest: dict[int, int] = {}
    for window in windows:
        for start, count in window.buckets:
            if _counts(start, now_ms):
                largest[start] = max(count, largest.get(start, 0))
    return BudgetWindow(tuple(sorted(largest.items())))


SUBJECT_MEMBERS: Final = "members"
SUBJECT_POLICY: Final = "policy"
SUBJECT_ZONE: Final = "zone"
SUBJECT_BUDGET: Final = "budget"


class Hold(msgspec.Struct, frozen=True):
    """A change that waits for the approval of two principals."""

    id: int
    """Holds are numbered from 1 on."""
    kind: str
    """The budget that the change exceeds, or would loosen."""
    subject: str
    """The subject of the change: `members`, `policy`, `zone` or `budget`."""
    reason: str
    """Why the change waits. For `members` it has no count of addresses: `reason_of` adds the present count."""
    addresses: int
    """For `members`, the present number of addresses that the hold retains or withholds. Otherwise the highest number
    of verdict changes in one list at the time of the request."""
    nodes: int
    """The present number of nodes in the hold."""
    zones: tuple[str, ...]
    hash: bytes
    """Identifies the effect of an approval. It changes when nodes come back. Earlier approvals stay valid in this case,
    because they were for a larger change."""
    requested_by: str
    since_ms: int
    approvals: tuple[str, ...] = ()
    rejected_by: str = ""
    """The principal that rejected the hold. A rejected hold of members is in a table of its own while it contains a
    node."""
    policy: str = ""
    policy_after: Policy | None = None
    zone: str = ""
    labels_after: dict[str, str] | None = None
    asked_offset: int = 0
    """The offset at which approvals of an edit were last asked for: when it was requested, or when new approvals became
    necessary because its effect had grown."""
    shown_counts: dict[str, int] = {}
    """For an edit, the counts that the approvers see. A count is the number of addresses whose verdict would change;
    its key has the budget, and the zones of the change (`key_of`). Each count exceeded its budget at `asked_offset`."""
    budget_after: Budget | None = None
    command_id: str = ""
    """The id of the command that requested the change."""


def reason_of(hold: Hold) -> str:
    """Why a change waits, in one sentence. A hold of members grows and shrinks, so the sentence states its present
    count."""
    if hold.subject != SUBJECT_MEMBERS:
        return hold.reason
    return f"nodes: {hold.addresses} address{'' if hold.addresses == 1 else 'es'} {hold.reason}"


MAX_SHOWN_ZONES = 100
"""Maximum number of zones that a hold names; the hold may concern more zones."""


def hash_of(*parts: object) -> bytes:
    """A 16-byte hash of these values."""
    return blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def key_of(zones: Iterable[str]) -> str:
    """A short key of these zones, in any order."""
    return hash_of(*sorted(zones)).hex()


def add_hashes(total: bytes, *, added: bytes | None = None, removed: bytes | None = None) -> bytes:
    """The hash of a set after an element was added or removed. The hash of a set is the sum of its elements' hashes."""
    value = int.from_bytes(total, "big")
    value += int.from_bytes(added or b"", "big") - int.from_bytes(removed or b"", "big")
    return (value % (1 << 128)).to_bytes(16, "big")
