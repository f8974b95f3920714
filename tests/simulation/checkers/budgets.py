"""Withdrawn addresses per time window, counted from rows alone, by the verdict that each source address gets.

The plane keeps one window for all zones with the same rule list, and expires its entries late, so its window counts at
least as many withdrawals as this checker counts for a zone. A larger count only makes the plane hold more changes, so
every excess found here is real. The base of a budget is bounded from above: by the zone with most addresses, at its
lowest minute of the last hour, plus the addresses withdrawn since.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from eventstore.folding.fold import fold_time
from eventstore.log import FLEET_0
from projections.fleet.withdrawals.budgets import (
    BUDGET_WINDOW_MS,
    DEFAULT_BUDGETS,
    DENIED_BY_CHANGE,
    DENIED_BY_LEAVE,
    Budget,
    BudgetKind,
)
from projections.fleet.withdrawals.settled_levels import SETTLED_MS, STEP_MS, BudgetBase
from projections.rules.policies import BUILT_IN, Policy
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.checkers.traffic import Class, classes_of, fits
from tests.simulation.fresh import Step

Found = Iterator[str]
Address = bytes
Labels = Mapping[str, str]
Traffic = frozenset[Class]

Holders = dict[tuple[Address, str], list[Labels]]

LabelSets = frozenset[frozenset[tuple[str, str]]]
"""The label sets of the nodes that have an address. The traffic admitted from the address depends only on them."""

LEFT = 1
"""The state of an item of a MembershipChanged for a stated leave."""

Counting = dict[str, tuple[bool, bool]]
"""Per node, whether its newest state counts, and whether a retained former state counts."""

_HELD_EVENTS = (e.PolicySet, e.PolicyDeleted, e.PolicyStaged, e.ZoneUpdated, e.BudgetSet)
"""Events whose actor is the author of the held change."""

_REACHABILITY_TABLES = frozenset({"members", "retained", "policies", "zones"})


class Reachability:
    """The traffic admitted to each address, from the current rows of fleet."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {BUILT_IN.name: BUILT_IN}
        self.zones: dict[str, Labels] = {"": {}}
        self._parts: dict[tuple[str, str], list[tuple[frozenset[Address], Labels]]] = {}
        self._holders: dict[Address, dict[tuple[str, str], list[Labels]]] = {}

    def affected(self, step: Step) -> set[Address]:
        """The addresses whose verdicts a record may change."""
        found = self.addresses if {"policies", "zones"} & step.rows.keys() else set()
        for table in ("members", "retained"):
            for name, row in step.rows.get(table, ()):
                for addresses, _ in (*self._parts.get((table, name), ()), *_parts(table, row)):
                    found |= addresses
        return found

    def holders(self, step: Step) -> Holders:
        """The parts of the nodes named by a record, by address and node."""
        found: Holders = {}
        for name in sorted({name for table in ("members", "retained") for name, _ in step.rows.get(table, ())}):
            for table in ("members", "retained"):
                for addresses, labels in self._parts.get((table, name), ()):
                    for address in addresses:
                        found.setdefault((address, name), []).append(labels)
        return found

    def apply(self, step: Step) -> None:
        """Apply the rows that a record changed."""
        for table in ("members", "retained"):
            for name, row in step.rows.get(table, ()):
                self._put((table, name), _parts(table, row))
        for name, policy in step.rows.get("policies", ()):
            self.policies.pop(name, None) if policy is None else self.policies.update({name: policy})
        self.zones |= {name: {} if zone is None else zone.labels for name, zone in step.rows.get("zones", ())}

    @property
    def addresses(self) -> set[Address]:
        """All addresses that a node has or once had."""
        return set(self._holders)

    def allowed(self) -> dict[str, int]:
        """Per zone, the number of addresses with any admitted traffic."""
        found = self.verdicts(self.addresses, classes_of([*self.policies.values()]))
        return {zone: sum(map(bool, of.values())) for zone, of in found.items()}

    def verdicts(self, addresses: set[Address], classes: list[Class]) -> dict[str, dict[Address, Traffic]]:
        """Per zone, the traffic admitted from each of these addresses."""
        held = {address: self._label_sets(address) for address in addresses}
        found: dict[str, dict[Address, Traffic]] = {}
        alike: dict[frozenset[tuple[str, str]], dict[Address, Traffic]] = {}
        for zone, labels in self.zones.items():
            if (same := alike.get(frozenset(labels.items()))) is None:
                fitting = [policy for policy in self.policies.values() if policy.zones.items() <= labels.items()]
                fitting.sort(key=lambda policy: (-policy.priority, policy.action != "drop"))
                traffic = {of: _admitted(of, fitting, classes) for of in set(held.values())}
                same = alike[frozenset(labels.items())] = {address: traffic[of] for address, of in held.items()}
            found[zone] = same
        return found

    def _label_sets(self, address: Address) -> LabelSets:
        parts = self._holders.get(address, {}).values()
        return frozenset(frozenset(of.items()) for labels in parts for of in labels)

    def _put(self, key: tuple[str, str], parts: list[tuple[frozenset[Address], Labels]]) -> None:
        for addresses, _ in self._parts.pop(key, ()):
            for address in addresses:
                self._holders[address].pop(key, None)
        self._parts[key] = parts
        for addresses, labels in parts:
            for address in addresses:
                self._holders.setdefault(address, {}).setdefault(key, []).append(labels)


def _admitted(held: LabelSets, fitting: list[Policy], classes: list[Class]) -> Traffic:
    matching = [policy for policy in fitting if any(policy.sources.items() <= of for of in held)]
    first = ((kind, next((policy.action for policy in matching if fits(policy, *kind)), "drop")) for kind in classes)
    return frozenset(kind for kind, action in first if action == "allow")


def _parts(table: str, row: Any) -> list[tuple[frozenset[Address], Labels]]:
    """The addresses that a row makes reachable, with its labels."""
    if row is None or (table == "members" and row.slot < 0):
        return []
    found = []
    for part in [row] if table == "members" else row.states:
        four = part.address4.to_bytes(4, "big") if part.address4 else b""
        found.append((frozenset(filter(None, (four, part.address6))), part.labels))
    return found


class Levels:
    """The number of admitted addresses of each zone, over time."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._zones: dict[str, _ZoneLevels] = defaultdict(_ZoneLevels)

    def note(self, now_ms: int, allowed: Mapping[str, int]) -> None:
        for zone, count in allowed.items():
            self._zones[zone].note(now_ms, count)

    def move_to(self, now_ms: int) -> None:
        """Advance time, or set it back after a fast clock was corrected."""
        if now_ms < self._now_ms:
            for zone in self._zones.values():
                zone.rewind(self._now_ms, now_ms)
        self._now_ms = now_ms

    def base(self, now_ms: int, spent: Sequence[tuple[int, int]]) -> BudgetBase:
        """The largest possible base of a budget, with these withdrawals in its window as (time, count)."""
        bases = [zone.base(now_ms, spent) for zone in self._zones.values()] or [BudgetBase(0, 0)]
        return BudgetBase(max(base.settled for base in bases), max(base.least for base in bases))


class _ZoneLevels:
    """The number of admitted addresses of one zone as (start, count), and the end of the minute in which its first
    address was admitted, if that is older than the stored levels.
    """

    def __init__(self) -> None:
        self._noted: list[tuple[int, int]] = []
        self._began_ms: int | None = None

    def note(self, now_ms: int, count: int) -> None:
        if not self._noted or self._noted[-1][1] != count:
            self._noted.append((now_ms, count))

    def rewind(self, was_ms: int, now_ms: int) -> None:
        """Move entries that a fast clock dated ahead to the time of its correction. Levels that were dropped as older
        than an hour stay dropped.
        """
        ends = [at_ms for at_ms, _ in self._noted[1:]] + [was_ms]
        lasting = self._lasting(was_ms)
        if lasting:
            self._began_ms = min(self._began_ms or lasting[0][0], _minute_end(now_ms))
        known = [noted for noted, end_ms in zip(self._noted, ends, strict=True) if end_ms > was_ms - SETTLED_MS]
        self._noted = [(min(at_ms, now_ms), count) for at_ms, count in known]

    def base(self, now_ms: int, spent: Sequence[tuple[int, int]]) -> BudgetBase:
        """The smallest level of the last hour, plus the addresses withdrawn before it. It counts only once addresses
        have been admitted for an hour.
        """
        lasting, horizon_ms = self._lasting(now_ms), now_ms - SETTLED_MS
        levels = [
            count + sum(gone for gone_ms, gone in spent if gone_ms < since_ms)
            for since_ms, count, end_ms in lasting
            if end_ms > horizon_ms
        ]
        levels.append(self._noted[-1][1] + sum(gone for _, gone in spent))
        began_ms = self._began_ms or (lasting[0][0] if lasting else now_ms)
        return BudgetBase(min(levels) if began_ms <= horizon_ms else 0, min(filter(None, levels), default=0))

    def _lasting(self, now_ms: int) -> list[tuple[int, int, int]]:
        """The levels that lasted past the end of a minute, from the first one above 0, as (first such end, level, end
        of the level). A zone that has admitted no address has none to withdraw.
        """
        ends = [at_ms for at_ms, _ in self._noted[1:]] + [now_ms]
        lasting = [
            (_minute_end(at_ms), count, end_ms)
            for (at_ms, count), end_ms in zip(self._noted, ends, strict=True)
            if _minute_end(at_ms) <= end_ms
        ]
        return lasting if self._began_ms else [*dropwhile(lambda level: level[1] == 0, lasting)]


def _minute_end(time_ms: int) -> int:
    return time_ms - time_ms % STEP_MS + STEP_MS


def check_budgets(run: Evidence) -> Found:
    """I13: no zone loses more addresses in ten minutes than its budgets allow, unless the change was approved."""
    reachability, budgets, now_ms = Reachability(), dict(DEFAULT_BUDGETS.items()), 0
    spent: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    counting, levels = Counting(), Levels()
    for step in run.steps[FLEET_0]:
        now_ms = fold_time(now_ms, step.record.timestamp_ms)
        for (
            withdrawals
        ) in spent.values():  # withdrawals that a fast clock dated ahead count from the correction of the clock
            withdrawals[:] = [
                (min(at_ms, now_ms), count) for at_ms, count in withdrawals if at_ms > now_ms - BUDGET_WINDOW_MS
            ]
        levels.move_to(now_ms)
        yield from _both_count(counting, step)
        yield from _loosened(run, step, budgets)
        if _REACHABILITY_TABLES & step.rows.keys():
            lost = _lost(reachability, step)
            if isinstance(step.event, e.HoldApproved):
                yield from _unapproved(run, step, step.event.hold) if lost else ()
                lost = {}
            elif isinstance(step.event, e.StagesRequested):
                lost = {}  # an undo returns to verdicts from before the change
            elif (hold := _approved_stages(step)) is not None:
                yield from _unapproved(run, step, hold) if lost else ()
                lost = {}
            for (zone, kind), count in lost.items():
                before = sum(gone for _, gone in spent[zone, kind])
                most = budgets[kind].limit(levels.base(now_ms, spent[zone, kind]))
                spent[zone, kind].append((now_ms, count))
                if most is not None and before + count > most:
                    where = f"{FLEET_0}@{step.record.offset}: {zone or 'any zone'}"
                    yield f"{where} loses {count} addresses ({kind}) after {before}, of {most} at most"
            levels.note(now_ms, reachability.allowed())
        budgets |= {kind: row for kind, row in step.rows.get("budgets", ()) if row is not None}


def _loosened(run: Evidence, step: Step, budgets: Mapping[str, Budget]) -> Found:
    """A budget becomes looser only after the approval of two persons other than its author."""
    rows = [(kind, row) for kind, row in step.rows.get("budgets", ()) if row is not None]
    if not any(kind in budgets and row.is_looser(budgets[kind]) for kind, row in rows):
        return
    if isinstance(step.event, e.HoldApproved):
        yield from _unapproved(run, step, step.event.hold)
    elif isinstance(step.event, e.BudgetSet):
        yield f"{FLEET_0}@{step.record.offset}: {step.event.envelope.actor} alone loosens {step.event.kind}"


def _both_count(counting: Counting, step: Step) -> Found:
    """Apply a record. A held change is held as a whole: while a former state is retained, no newer state counts."""
    named = [(name, table, row) for table in ("members", "retained") for name, row in step.rows.get(table, ())]
    for name, table, row in named:
        effective, kept = counting.get(name, (False, False))
        if table == "members":
            effective = row is not None and row.slot >= 0
        else:
            kept = row is not None
        counting[name] = effective, kept
    for name in sorted({name for name, _, _ in named}):
        if counting[name] == (True, True):
            yield f"{FLEET_0}@{step.record.offset}: the old and the new state of {name!r} both count"


def _approved_stages(step: Step) -> int | None:
    """The hold of the staged change of which a record releases a stage; None if it was within the budgets."""
    rows = step.rows.get("staged", ()) if isinstance(step.event, e.StageObserved) else ()
    return next((row.approved.id for _, row in rows if row is not None and row.approved is not None), None)


def _unapproved(run: Evidence, approved: Step, hold: int) -> Found:
    """A held change is released only after the approval of two persons other than its author."""
    author, persons = "", set[str]()
    for step in run.steps[FLEET_0]:
        event = step.event
        if isinstance(event, e.HoldApproved) and event.hold == hold and step.rows:
            persons.add(event.envelope.actor)
        elif any(key == str(hold) for key, _ in step.rows.get("holds", ())) and isinstance(event, _HELD_EVENTS):
            author = event.envelope.actor
        if step is approved:
            break
    persons.discard(author)
    if len(persons) < 2:
        yield f"{FLEET_0}@{approved.record.offset}: hold {hold} is released by {sorted(persons)} alone"


def _lost(reachability: Reachability, step: Step) -> dict[tuple[str, BudgetKind], int]:
    """Apply a record; returns the number of addresses that lose admitted traffic, by zone and kind."""
    affected, zones = reachability.affected(step), list(reachability.zones)
    changed = [policy for _, policy in step.rows.get("policies", ()) if policy is not None]
    classes = classes_of([*reachability.policies.values(), *changed])
    before = reachability.verdicts(affected, classes)
    held_before = reachability.holders(step)
    reachability.apply(step)
    after = reachability.verdicts(affected, classes)
    kinds = _kinds(step, held_before, reachability.holders(step))
    losing = {
        zone: Counter(kinds.get(a, DENIED_BY_CHANGE) for a in affected if before[zone][a] - after[zone][a])
        for zone in zones
    }
    return {(zone, kind): count for zone in zones for kind, count in losing[zone].items()}


def _kinds(step: Step, before: Holders, after: Holders) -> dict[Address, BudgetKind]:
    """The kind of each address's loss: by a change, or only by stated leaves."""
    if not isinstance(step.event, e.MembershipChanged):
        return {}
    states = dict(zip(step.event.names, _spread(step.event.states, len(step.event.names)), strict=True))
    kinds: dict[Address, BudgetKind] = {}
    for address, name in sorted({*before, *after}):
        had, has = before.get((address, name), []), after.get((address, name), [])
        is_new = any(labels not in had for labels in has)
        if is_new or (len(has) < len(had) and states.get(name) != LEFT):
            kinds[address] = DENIED_BY_CHANGE
        elif len(has) < len(had):
            kinds.setdefault(address, DENIED_BY_LEAVE)
    return kinds


def _spread(column: Sequence[int], count: int) -> Sequence[int]:
    return [column[0]] * count if len(column) == 1 else column
