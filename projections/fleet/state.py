"""The state of the fleet fold: saved rows, and the state derived from them.

Saved: members, tombstones, the states retained by holds, policies, zones, holds, budgets and their windows, freezes,
marks, the outboxes to zones, the staged change, and per set the version of its last change. All else is derived and
rebuilt by `rederive`: the plan, label sets, the slot table, the number of addresses per combination of sets
(`addresses_by_sets`), covers and their history. A restart loses only the history: content, versions and digests stay
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from eventstore.folding.state_table import StateTable
from projections.fleet.membership.address_index import Address
from projections.fleet.membership.labels import LabelSets
from projections.fleet.membership.members import Members
from projections.fleet.membership.rows import Member, ReachableState, RetainedStates, held_items
from projections.fleet.membership.slot_table import SlotTable
from projections.fleet.membership.tombstones import Tombstones
from projections.fleet.policies.fleet_zones import (
    NO_LIST_CHANGE,
    UNKNOWN_ZONE,
    FleetZone,
    FleetZones,
    ListChange,
    PreviousList,
    PreviousLists,
    ZoneLimits,
    key_of_labels,
    without_row,
)
from projections.fleet.staging.rows import CURRENT, StagedChange, cohort_labels
from projections.fleet.tables.rulesets import RuleSet
from projections.fleet.withdrawals.budgets import (
    DEFAULT_BUDGETS,
    DENIAL_KINDS,
    EMPTY_WINDOW,
    Budget,
    BudgetKind,
    BudgetWindow,
    Hold,
)
from projections.fleet.withdrawals.command_outcomes import CommandOutcomes
from projections.fleet.withdrawals.settled_levels import (
    NO_LEVELS,
    STEP_MS,
    BudgetBase,
    LevelHistory,
    base_of,
    with_samples,
)
from projections.rules.lists import Plan, SetKey, text_of
from projections.rules.policies import BUILT_IN, Policy, Selector, selector
from projections.staging.course import StagedDpus
from projections.staging.plan import StagePlan


class SetRow(msgspec.Struct, frozen=True, array_like=True):
    """The version of the last change of a set, and the append time of the earliest change in the record of that
    version."""

    version: int
    earliest_ms: int


class Freeze(msgspec.Struct, frozen=True):
    """A freeze: the devices of the zone (all zones, if the key is empty) are not written."""

    since_ms: int
    actor: str


class OutboxEntry(msgspec.Struct, frozen=True):
    """An entry for one zones partition, added by the record of fleet at `offset`: superseded nodes, or the limits of a
    zone.

    The columns are those of NodesSuperseded. An entry with limits has `limits`, and `names` is empty. `mark` is the
    offset below which fleet had taken all changes of that partition when it added the entry.
    """

    partition: int
    offset: int
    time_ms: int
    zones: list[str]
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    mark: int = 0
    limits: ZoneLimits | None = None


ANY_ZONE = ""
"""Stands for every zone without a row in fleet: it has no labels, but may have devices."""

ALL_MEMBERS = ""
"""The key of the levels of the whole fleet: the addresses of all members."""

LAST_HOLD = "last hold"
"""The key of the number of the newest hold."""

SAMPLED = "sampled"
"""The key of the time up to which levels are sampled."""

MAX_OUTBOX_ENTRIES = 10_000
MAX_OUTBOX_NODES = 100_000
"""Maximum number of entries in the outbox of one partition, and of nodes in these entries. The nodes take 15 MB."""


class FleetState:
    """The members, policies, tables, budgets and holds of the fleet. Read it between awaits only."""

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.members = Members()
        self.retained: StateTable[RetainedStates] = StateTable("retained", RetainedStates)
        self.policies: StateTable[Policy] = StateTable("policies", Policy)
        self.zones = FleetZones()
        self.list_changes: StateTable[ListChange] = StateTable("list_changes", ListChange)
        self.holds: StateTable[Hold] = StateTable("holds", Hold)
        self.rejected: StateTable[Hold] = StateTable("rejected", Hold)
        self.budgets: StateTable[Budget] = StateTable("budgets", Budget)
        self.windows: StateTable[BudgetWindow] = StateTable("windows", BudgetWindow)
        self.levels: StateTable[LevelHistory] = StateTable("levels", LevelHistory)
        self.clocks: StateTable[int] = StateTable("clocks", int)
        self.set_rows: StateTable[SetRow] = StateTable("sets", SetRow)
        self.freezes: StateTable[Freeze] = StateTable("freezes", Freeze)
        self.mark_rows: StateTable[int] = StateTable("marks", int)
        self.outbox_entries: StateTable[OutboxEntry] = StateTable("outbox", OutboxEntry)
        self.staged_changes: StateTable[StagedChange] = StateTable("staged", StagedChange)
        self.staged_dpus: StateTable[StagedDpus] = StateTable("staged_dpus", StagedDpus)
        self.stage_plans: StateTable[StagePlan] = StateTable("stage_plans", StagePlan)
        """The stages of edits that wait for approval, by hold."""
        self.tombstones = Tombstones()
        self.command_outcomes = CommandOutcomes()
        self.policies.put(BUILT_IN.name, BUILT_IN)
        for kind, budget in DEFAULT_BUDGETS.items():
            self.budgets.put(kind, budget)
        self.rederive()

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        return (
            self.members,
            self.retained,
            self.policies,
            self.zones,
            self.list_changes,
            self.holds,
            self.rejected,
            self.budgets,
            self.windows,
            self.levels,
            self.clocks,
            self.set_rows,
            self.freezes,
            self.mark_rows,
            self.outbox_entries,
            self.staged_changes,
            self.staged_dpus,
            self.stage_plans,
            self.tombstones,
            self.command_outcomes,
        )

    def rederive(self) -> None:
        """Rebuild the derived state."""
        self.marks = {int(key): mark for key, mark in sorted(self.mark_rows.rows.items())}
        self.zones.regroup()
        self.recount_stages()
        self.plan = self.plan_for(self.policies.rows.values())
        self.sets = tuple(self.new_set(key, SetRow(0, 0)) for key in self.plan.keys)
        self.previous = PreviousLists()
        self.labels = LabelSets()
        self.slot_table = SlotTable(self.labels)
        self.held_names: dict[int, dict[str, bytes]] = {
            hold.id: {} for rows in (self.holds.rows, self.rejected.rows) for hold in rows.values()
        }
        self.outbox_queues: dict[int, list[OutboxEntry]] = {}
        self.outbox_nodes: Counter[int] = Counter()
        for _, entry in sorted(self.outbox_entries.rows.items()):
            self.outbox_queues.setdefault(entry.partition, []).append(entry)
            self.outbox_nodes[entry.partition] += len(entry.names)
        self.tombstones.rederive()
        self.command_outcomes.rederive()
        self._allocate_slots()
        self.recount()
        self.contested: dict[Address, set[str]] = {}
        for name, member in self.members.rows.single_rows().items():
            self.contest(name, None, member)
        delayed = (name for name, member in self.members.rows.single_rows().items() if member.delayed_by >= 0)
        for name in sorted({*self.retained.rows, *delayed}):
            for hold, item in held_items(name, self.members.rows.get(name), self.retained_states(name)).items():
                self.held_names[hold][name] = item

    def _allocate_slots(self) -> None:
        """Allocate the slot of every row."""
        members = self.members.rows.rows()
        with_slots = [(name, row) for name, row in members.items() if row.slot >= 0]
        names, rows = [name for name, _ in with_slots], [row for _, row in with_slots]
        labels = [self._number_of(row.labels) for row in rows]
        kept = [(name, part) for name, row in self.retained.rows.items() for part in row.states]
        names += (name for name, _ in kept)
        labels += (self._number_of(part.labels) for _, part in kept)
        self.slot_table.restore(names, [*rows, *(part for _, part in kept)], labels)
        self.members.restore(members, self.slot_table)

    def _number_of(self, labels: dict[str, str]) -> int:
        return self.labels.intern(labels, self.plan)

    def new_set(self, key: SetKey, otherwise: SetRow) -> RuleSet:
        """A set of the plan, with the version of its row if it has one."""
        text = text_of(key)
        row = self.set_rows.rows.get(text, otherwise)
        return RuleSet(key, text, row.version, row.earliest_ms)

    @property
    def staged(self) -> StagedChange | None:
        """The last staged change, which may have ended."""
        return self.staged_changes.rows.get(CURRENT)

    def recount_stages(self) -> None:
        """Count the named DPUs of each stage."""
        rows = self.staged_dpus.rows.values()
        self.named_dpus = Counter(stage for row in rows for stage in row.stages.values())

    def label_sets(self) -> list[Selector]:
        """The label sets of all zones, and those of their cohorts."""
        staged = self.staged
        found = [*self.zones.by_labels]
        if staged is not None:
            concerned = [labels for labels in found if staged.concerns(dict(labels))]
            found += (cohort_labels(labels, stage) for stage in staged.cohorts for labels in concerned)
        return found

    def plan_for(self, policies: Iterable[Policy], previous: Plan | None = None) -> Plan:
        """The plan of these policies for the present zones and cohorts."""
        staged = self.staged
        return Plan(policies, self.label_sets(), previous, staged.canary if staged is not None else None)

    def policy_for(self, name: str, stage: int = 0) -> Policy:
        """The policy of this name in the list of a stage, which has one."""
        canary = self.staged.canary if self.staged is not None and stage else None
        found = canary.policy if canary is not None and canary.name == name else self.policies.rows[name]
        assert found is not None, f"{name} is deleted in stage {stage}"
        return found

    def stage_of(self, zone: str, dpu: str) -> int:
        """The released stage that a DPU belongs to; 0 if it belongs to none, or to the last one."""
        row, staged = self.staged_dpus.rows.get(zone), self.staged
        stage = row.stages.get(dpu, 0) if row is not None else 0
        return stage if staged is not None and stage in staged.cohorts else 0

    def cohorts_of(self, zone: str) -> Mapping[str, int]:
        """The named DPUs of a zone with a released stage, each with its stage."""
        row, staged = self.staged_dpus.rows.get(zone), self.staged
        if row is None or staged is None or not staged.cohorts:
            return {}
        return {dpu: stage for dpu, stage in row.stages.items() if stage in staged.cohorts}

    def stages_of(self, zone: str) -> list[int]:
        """0, and the released stages with DPUs of the zone: each may have a list of its own."""
        return sorted({0, *self.cohorts_of(zone).values()})

    def labels_of(self, zone: str, stage: int = 0) -> Selector:
        """The label set that determines the list of a zone's DPUs of a stage."""
        labels = selector(self.zone(zone).labels)
        cohort = cohort_labels(labels, stage) if stage else labels
        return cohort if self.plan.has(cohort) else labels

    def zone(self, name: str) -> FleetZone:
        """The row of a zone, or the one that stands for every zone without a row."""
        return self.zones.rows.get(name) or UNKNOWN_ZONE

    def ensure_zones(self, zones: Iterable[str], version: int) -> None:
        """Add a row for each of these zones that has none. The caller must give each zone a node, labels or limits in
        the same record."""
        for name in without_row(zones, self.zones.rows):
            self.zones.put(name, replace(UNKNOWN_ZONE, since_version=version))

    def has_zone(self, zone: str) -> bool:
        """Whether a zone has a node, labels or limits, or is frozen by its name."""
        if zone and zone in self.freezes.rows:
            return True
        info = self.zones.rows.get(zone)
        return info is not None and (info.has_labels_or_limits() or self.members.rows.population(zone) > 0)

    def known_zones(self) -> Iterator[str]:
        """The zones for which `has_zone` holds, each once."""
        return filter(self.has_zone, dict.fromkeys(chain(self.zones.rows, self.freezes.rows)))

    def list_change(self, zone: str, stage: int = 0) -> ListChange:
        """When the DPUs of a zone, or those of a stage, got their present list."""
        info = self.zone(zone)
        change = self.list_changes.rows.get(key_of_labels(self.labels_of(zone, stage)), NO_LIST_CHANGE)
        return change if change.version > info.labels_version else ListChange(info.list_version, info.list_since_ms)

    def previous_lists(self, zone: str, stage: int = 0) -> tuple[PreviousList, ...]:
        """The previous lists of a zone or stage, oldest first, as far as they are retained."""
        return self.previous.of(zone, self.zone(zone), self.labels_of(zone, stage))

    def forget_zones(self, zones: Iterable[str]) -> None:
        """Drop the rows of those zones that have no node and no limits, and never had labels."""
        for name in set(zones):
            info = self.zones.rows.get(name)
            if info is not None and info.is_forgettable() and not self.members.rows.population(name):
                self.zones.remove(name)

    def zones_with(self, lists: Collection[int]) -> Iterator[str]:
        """The zones with DPUs that have one of these lists, by number; each zone once, in no particular order."""
        found = (labels for labels in self.label_sets() if self.plan.number_for(labels) in lists)
        yield from dict.fromkeys(zone for labels in found for zone in self.zones.with_labels(labels))

    def list_number(self, zone: str, stage: int = 0) -> int:
        """The number in the plan of the list of a zone, or of a stage."""
        return self.plan.number_for(self.labels_of(zone, stage))

    def retained_states(self, name: str) -> tuple[ReachableState, ...]:
        """The previous states of a node, as retained by holds."""
        kept = self.retained.rows.get(name)
        return kept.states if kept is not None else ()

    def contest(self, name: str, before: Member | None, after: Member | None) -> None:
        """Update the index of contested addresses for a changed row of a node."""
        for address in (before.contested4, before.contested6) if before is not None else ():
            if address:
                self.contested[address].discard(name)
                if not self.contested[address]:
                    del self.contested[address]
        for address in (after.contested4, after.contested6) if after is not None else ():
            if address:
                self.contested.setdefault(address, set()).add(name)

    def is_frozen(self, zone: str) -> bool:
        """Whether devices of a zone may not be written."""
        return ANY_ZONE in self.freezes.rows or zone in self.freezes.rows

    def conflicts(self) -> list[tuple[Address, tuple[str, ...]]]:
        """Each address that several nodes hold or wait for, with the names of these nodes. The addresses are sorted by
        these names."""
        found = []
        for address in self.slot_table.address_index.shared.keys() | self.contested.keys():
            slots = self.slot_table.address_index.slots_of(address)
            names = sorted({self.slot_table.names[slot] for slot in slots} | self.contested.get(address, set()))
            if len(names) > 1:
                found.append((tuple(names), address))
        return [(address, names) for names, address in sorted(found, key=repr)]

    def window(self, kind: BudgetKind, number: int) -> BudgetWindow:
        """The window of a budget: the recent verdict changes of one list, counted in addresses."""
        return self.windows.rows.get(window_key(kind, self.plan.ids[number]), EMPTY_WINDOW)

    def exceeds(self, kind: BudgetKind, number: int, count: int, now_ms: int) -> bool:
        """Whether a budget would be exceeded if `count` more addresses of a list changed their verdict."""
        budget_remaining = self.budget_remaining(kind, number, now_ms)
        return budget_remaining is not None and count > budget_remaining

    def budget_remaining(self, kind: BudgetKind, number: int, now_ms: int) -> int | None:
        """How many more addresses of a list may change their verdict; negative if the budget is overdrawn; None
        without a limit."""
        budget, spent = self.budgets.rows[kind], self.window(kind, number).spent(now_ms)
        limit = budget.limit(self.base(kind, number, now_ms))
        return None if limit is None else limit - spent

    def base(self, kind: BudgetKind, number: int, now_ms: int) -> BudgetBase:
        """The number of addresses that a budget's percentage is taken of: the settled level (settled_levels.py) of a
        list, or of all members."""
        key, level = ALL_MEMBERS, self.slot_table.addresses
        spent: Sequence[tuple[int, int]] = ()
        if kind in DENIAL_KINDS:
            key, level = self.plan.ids[number], self.allowed_by(number)
            spent = self.window(kind, number).counted(now_ms)
        rows, sampled_ms = self.levels.rows, self.clocks.rows.get(SAMPLED, 0)
        return base_of(rows.get(key, NO_LEVELS), sampled_ms=sampled_ms, level=level, now_ms=now_ms, spent=spent)

    def allowed_by(self, number: int) -> int:
        """The number of addresses for which a list allows at least some traffic."""
        return self._allowed[number]

    def sample(self, now_ms: int) -> None:
        """Sample the levels at the end of the last step, if a later step has begun. Called before a record changes
        them."""
        step_ms, sampled_ms = now_ms - now_ms % STEP_MS, self.clocks.rows.get(SAMPLED, 0)
        if step_ms <= sampled_ms:
            return
        now = {list_id: self.allowed_by(number) for number, list_id in enumerate(self.plan.ids)}
        self.levels.put_all(with_samples(self.levels.rows, {**now, ALL_MEMBERS: self.slot_table.addresses}, sampled_ms))
        self.clocks.put(SAMPLED, step_ms)

    def set_levels_back(self, time_ms: int) -> None:
        """Correct the levels for a clock that was fast and has been set back to `time_ms`: samples with a later time
        move to the minute of this time."""
        step_ms = time_ms - time_ms % STEP_MS
        for key, levels in sorted(self.levels.rows.items()):
            corrected = levels.rewind(step_ms)
            if corrected != levels:
                self.levels.put(key, corrected)
        if self.clocks.rows.get(SAMPLED, 0) > step_ms:
            self.clocks.put(SAMPLED, step_ms)

    def recount(self) -> None:
        """Recount after a change of the plan: the addresses per combination of sets, and the addresses for which each
        list allows at least some traffic."""
        self.addresses_by_sets: Counter[int] = Counter()
        self._allowed = [0] * len(self.plan.lists)
        for bits, count in self.slot_table.count_by_bits().items():
            self.count_addresses(bits, count)

    def count_addresses(self, bits: int, count: int) -> None:
        """Add `count` addresses (negative for fewer) to a combination of sets. The empty combination is not counted.

        The counts per list are the base of the budgets. A change updates them only for the combinations that addresses
        enter or leave, because a fleet may have a list and a combination per rack.
        """
        if not bits or not count:
            return
        self.addresses_by_sets[bits] += count
        if not self.addresses_by_sets[bits]:
            del self.addresses_by_sets[bits]
        for number in range(len(self._allowed)):
            if self.plan.allows(number, bits):
                self._allowed[number] += count


def window_key(kind: BudgetKind, list_id: str) -> str:
    """The key of a window's row."""
    return f"{kind}/{list_id}"
