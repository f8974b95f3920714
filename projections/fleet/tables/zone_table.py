"""The rule table of a zone, and the delta to it from any older version.

A table's version is the fleet position (next offset) of the record that last changed one of its sets, or its list of
sets. It only grows, 0 is the empty table before any change, and it means the same on every replica.

A delta adds first and removes last: it adds from the first rule in order of precedence to the last, and then removes
from the last to the first. At every step, the first rule that matches a source is therefore its first match in the old
table or its first match in the new one: traffic that both tables allow stays allowed, and traffic that both deny stays
denied. Proof: while prefixes are added, the table still has all old prefixes. So the first match is the old first
match, or an earlier rule that matches by a new prefix. The rules before that earlier rule have all their new prefixes
already, so that earlier rule is also the first match in the new table. While prefixes are removed, the same holds with
old and new exchanged.

While a change is staged, a zone has two live lists: the DPUs of each released stage have the list with the change. The
functions take the number of a stage, or 0 for all other DPUs. Before its release, a stage has the history of the zone.

A delta moves prefixes only within their rule, so a zone that gets another list keeps the sets that both lists share.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.fleet.membership.address_index import Address
from projections.fleet.state import FleetState
from projections.fleet.tables.covers import MIN_HISTORY_BYTES, NO_CHANGE, PrefixChange, SetCover, covers_of, netted
from projections.rules.digests import to_bytes
from projections.rules.rule import Delta, Rule, SetStep, precedence, size

__all__ = [
    "Delta",
    "Rule",
    "RuleTable",
    "SetStep",
    "TableSet",
    "delta",
    "earliest_since",
    "held_since",
    "snapshot",
    "table",
]


class TableSet(NamedTuple):
    """One set of a table: the policies that produce it, its rule, and its prefixes (packed by `prefixes.content()`)."""

    policy: str
    rule: Rule
    prefixes: SetCover


class RuleTable(NamedTuple):
    """A zone's present table. Zones with equal keys have the same table, versions and deltas."""

    version: int
    digest: bytes
    key: object
    earliest_ms: int
    sets: tuple[TableSet, ...]


def table(state: FleetState, zone: str, stage: int = 0) -> RuleTable:
    """The present table of a zone's DPUs of a stage, with all recorded changes applied."""
    change, sets = state.list_change(zone, stage), _sets(state, zone, stage)
    changes = [(change.version, change.time_ms), *((found.version, found.earliest_ms) for found in sets)]
    version = max(version for version, _ in changes)
    earliest_ms = min(earliest for changed, earliest in changes if changed == version)
    digest = to_bytes(sum(found.digest for found in sets))
    previous = tuple(
        (previous.since, previous.until, previous.list_id) for previous in state.previous_lists(zone, stage)
    )
    key = (state.plan.ids[state.list_number(zone, stage)], change.version, previous)
    names = state.plan.names_for(state.labels_of(zone, stage))
    named = tuple(TableSet(name, found.rule, found) for name, found in zip(names, sets, strict=True))
    return RuleTable(version, digest, key, earliest_ms, named)


def earliest_since(state: FleetState, zone: str, since: int, stage: int = 0) -> int:
    """Append time of the earliest change in a zone's table after version `since`: a reader that skips versions measures
    its delay from this time. If `since` is 0, the result is the append time of the last change."""
    now, latest = table(state, zone, stage), state.list_change(zone, stage)
    if not since:
        return now.earliest_ms
    changes = [found.prefixes.earliest_since(since) for found in now.sets]
    change = latest.time_ms if latest.version > since else None
    return min((earliest for earliest in (change, *changes) if earliest is not None), default=now.earliest_ms)


def held_since(state: FleetState, zone: str, found: SetCover, address: Address, stage: int = 0) -> tuple[int, int]:
    """The version at which a zone's table got an address through the set `found`, and the append time of that change. A
    value is 0 if history does not reach back to it.

    If the set had the address before it joined the zone's list, the result is the version at which it joined the list.
    """
    version, time_ms = found.held_since(address)
    came, is_known = _came(state, zone, found, stage)
    if version > came:
        return version, time_ms
    if not is_known or not (version or found.history_start <= came):
        return 0, 0
    change = state.list_change(zone, stage)
    return came, change.time_ms if came == change.version else 0


def _came(state: FleetState, zone: str, found: SetCover, stage: int) -> tuple[int, bool]:
    """The version at which a set joined a zone's list, and whether that version is known. If it is no longer known, the
    first value is the earliest known version with the set in the list."""
    came = state.list_change(zone, stage).version
    for previous in reversed(state.previous_lists(zone, stage)):
        if not any(covers_of(state).of(state, had) is found for had in previous.sets):
            return came, True
        came = previous.since
    return came, False


def snapshot(state: FleetState, zone: str, stage: int = 0) -> Delta:
    """The whole table, as adds."""
    now = table(state, zone, stage)
    steps = (SetStep(found.rule, *found.prefixes.content()) for found in now.sets)
    return Delta(0, now.version, now.digest, tuple(step for step in steps if step.add4 or step.add6))


def delta(state: FleetState, zone: str, since: int, stage: int = 0) -> Delta | None:
    """The change from version `since`; None if history does not reach back to it, or a snapshot is smaller."""
    now = table(state, zone, stage)
    had = _sets_at(state, zone, since, stage)
    if not 0 < since <= now.version or had is None:
        return None
    old, new = {found.rule: found for found in had}, {found.rule: found.prefixes for found in now.sets}
    changes: dict[Rule, PrefixChange] = {}
    for rule in {**new, **old}:
        change = _change(old.get(rule), new.get(rule), since)
        if change is None:
            return None
        changes[rule] = change
    found = Delta(since, now.version, now.digest, _ordered(changes))
    whole = sum(found.prefixes.bytes() for found in now.sets)
    return found if size(found) <= max(whole, MIN_HISTORY_BYTES) else None


def _sets(state: FleetState, zone: str, stage: int) -> tuple[SetCover, ...]:
    """The sets of a zone's list, in order of precedence, with all recorded changes applied."""
    covers = covers_of(state)
    return tuple(covers.at(state, bit) for bit in state.plan.set_bits(state.list_number(zone, stage)))


def _sets_at(state: FleetState, zone: str, version: int, stage: int) -> tuple[SetCover, ...] | None:
    """The sets of a zone's list at a version; None if history does not reach back to it."""
    if version >= state.list_change(zone, stage).version:
        return _sets(state, zone, stage)
    lists = state.previous_lists(zone, stage)
    previous = next((found for found in lists if found.since <= version < found.until), None)
    if previous is None:
        return None
    covers = [covers_of(state).of(state, found) for found in previous.sets]
    retained = tuple(cover for cover in covers if cover is not None)
    return retained if len(retained) == len(covers) else None


def _change(old: SetCover | None, new: SetCover | None, since: int) -> PrefixChange | None:
    """The change of one rule's prefixes; None if history does not reach back to its former set."""
    if new is not None and (old is None or old is new):
        return new.content() if old is None else new.since(since)
    gone = old.content_at(since) if old is not None else NO_CHANGE
    if gone is None:
        return None
    removed = PrefixChange(b"", b"", gone.add4, gone.add6)
    return removed if new is None else netted((removed, new.content()))


def _ordered(changes: dict[Rule, PrefixChange]) -> tuple[SetStep, ...]:
    """Adds from the first rule to the last, then removes from the last to the first."""
    rules = sorted(changes, key=precedence)
    adds = (SetStep(rule, changes[rule].add4, changes[rule].add6, b"", b"") for rule in rules)
    removes = (SetStep(rule, b"", b"", changes[rule].remove4, changes[rule].remove6) for rule in reversed(rules))
    return tuple(step for step in (*adds, *removes) if any(step[1:]))
