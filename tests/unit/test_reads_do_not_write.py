"""Views and `decide` do not change a state, over generated histories."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from pyroaring import BitMap

from eventstore.folding.fold import Decision, RecordMetadata
from projections.cliques import files
from projections.cliques import views as clique_views
from projections.cliques.fold import CliquesFold
from projections.cliques.state import CliquesState
from projections.fleet import views as fleet_views
from projections.fleet.fold import FleetFold, FleetState
from projections.fleet.membership import address_index, members
from projections.fleet.tables import zone_table as tables
from projections.fleet.withdrawals.budgets import BUDGET_KINDS
from projections.forwarding.fleet_to_zones import next_record
from projections.forwarding.zones_to_fleet import forward, is_forwarded
from projections.installs.fold import InstallsFold, InstallsState
from projections.installs.views import laggards, zone_progress
from projections.memo import Memo
from projections.views import dry_runs, explanations, nodes, staging, zones
from projections.zones.dpus import views as dpu_views
from projections.zones.fold import ZonesFold, ZonesState
from projections.zones.rows import Dpu
from schemas.events import Event, InstallsReported
from tests.support.fleet import holds
from tests.support.thresholds import with_threshold
from tests.unit.test_clique_machine import CliqueMachine
from tests.unit.test_fleet_machine import FleetMachine
from tests.unit.test_installs import PARTITION, REPORT
from tests.unit.test_lifecycle_machine import LifecycleMachine
from tests.unit.test_nodes_machine import NodesMachine


def contents_of(state: object) -> list[str]:
    """All values that are reachable from a state, except for the remembered results of pure functions."""
    return list(_walk("", state, ()))


def _walk(path: str, value: Any, above: tuple[int, ...]) -> Iterator[str]:
    match value:
        case Memo() | Callable() | type() | memoryview():
            return
        case None | bool() | int() | float() | str() | bytes():
            yield f"{path} = {value!r}"
        case np.ndarray() | array():
            yield f"{path} = {value.tobytes().hex()}"
        case BitMap():
            yield f"{path} = {list(value)}"
        case dict():
            yield f"{path}: {len(value)} keys"
            for key, item in value.items():
                yield from _walk(f"{path}[{_named(key)}]", item, above)
        case set() | frozenset():
            yield f"{path} = {sorted(map(_named, value))}"
        case _ if hasattr(value, "__iter__") and hasattr(value, "__len__") and not hasattr(value, "__dict__"):
            yield f"{path}: {len(value)} items"
            for number, item in enumerate(value):
                yield from _walk(f"{path}[{number}]", item, above)
        case _:
            assert id(value) not in above, f"{path} leads back to itself"
            for name in _attributes(value):
                yield from _walk(f"{path}.{name}", getattr(value, name), (*above, id(value)))


def _attributes(value: object) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}), *dict.fromkeys(slots)]


def _named(key: object) -> str:
    return repr(key) if type(key).__repr__ is not object.__repr__ else f"#{id(key)}"


EXAMPLES, STEPS = 8, 20
DPU = Dpu("z0", 0, "n1", "", "", "Ready", 0, 0, 0, 0)


def read_fleet(state: FleetState) -> None:
    zones_state, installs_state = ZonesState(), InstallsState()
    for zone in ("nowhere", *sorted(state.zones.rows)):
        now = tables.table(state, zone)
        tables.snapshot(state, zone)
        for since in range(max(now.version - 4, 0), now.version + 1):
            tables.delta(state, zone, since)
            tables.earliest_since(state, zone, since)
        list(zones.rules(now))
        zones.view(zone, zones_state, state)
        for stage in state.stages_of(zone):
            tables.snapshot(state, zone, stage)
            tables.delta(state, zone, max(now.version - 4, 0), stage)
        staging.stage_sentence(zone, "d", state)
        zones.frozen(zone, zones_state, state, installs_state, 1)
        state.is_frozen(zone)
    for name in [*state.members.rows]:
        member = state.members.rows[name]
        nodes.view(name, member, state)
        fleet_views.hold_state(state, name)
        about = explanations.ExplainQuery(name, None, 0, "d", msgspec.structs.replace(DPU, zone=member.zone), None, 1)
        explanations.explain(about, state, installs_state)
    state.members.get_many([*state.members.rows, "unknown"])
    state.conflicts()
    for number in range(len(state.plan.lists)):
        for kind in BUDGET_KINDS:
            state.budget_remaining(kind, number, 1_000_000)
    fleet_views.policies_by_key(state), holds(state), fleet_views.budgets(state), fleet_views.frozen(state)
    fleet_views.command_outcome(state, "a", 1)
    for partition in range(state.partition_count):
        next_record(state, partition, 0)


def read_zones(state: ZonesState) -> None:
    fleet, installs = FleetState(1), InstallsState()
    for mark in (0, state.forwarded, state.forwarded + 2):
        forward(state, 0, mark)
        is_forwarded(state, mark, 5)
    for zone in ("nowhere", *state.zones()):
        zones.view(zone, state, fleet)
        zones.installs(zone, state, fleet, installs, 1)
    for name, dpu in state.dpus.rows.items():
        dpu_views.view(name, dpu)
    list(dpu_views.named(state, is_wanted=lambda _: True, phase="", stuck=True))
    for name in [*state.nodes.rows, "unknown"]:
        nodes.find(name, [state.nodes.rows.get(name)], fleet)


def read_cliques(state: CliquesState) -> None:
    for summary in clique_views.summaries(state):
        clique_views.show(state, summary.domain, summary.clique)
        files.slot_addresses(state, summary.domain, summary.clique)
        clique_views.is_domain_ready(state, summary.domain, 1)


def read_installs(state: InstallsState) -> None:
    for zone in ("nowhere", *state.zones.rows):
        zone_progress(state, zone)
        laggards(state, zone)


def checked(fold: type[Any], read: Callable[[Any], None]) -> Callable[..., Decision]:
    """A `decide` of this fold that raises if the original or any view changes the state."""
    decide = fold.decide

    def decided(self: Any, state: Any, event: Event, at: RecordMetadata) -> Decision:
        before = contents_of(state)
        read(state)
        assert contents_of(state) == before, "a view changed the state"
        decision: Decision = decide(self, state, event, at)
        if isinstance(state, FleetState) and decision.change is not None:
            dry_runs.of_change(state, decision.change, at.offset + 1)
        assert contents_of(state) == before, "decide changed the state"
        return decision

    return decided


def reading(machine: type[RuleBasedStateMachine], fold: type[Any], read: Callable[[Any], None]) -> Any:
    """The test case of a machine whose fold has the checked `decide`."""
    base: Any = machine

    class Reading(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.reads = pytest.MonkeyPatch()
            self.reads.setattr(fold, "decide", checked(fold, read))
            super().__init__()

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.reads.undo()

    case: Any = Reading.TestCase
    case.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return case


TestFleet = reading(FleetMachine, FleetFold, read_fleet)
TestFleetOfColumns = reading(
    with_threshold(FleetMachine, 0, (members, "_BATCH_LOOKUP_MIN"), (address_index, "_SMALL_BATCH")),
    FleetFold,
    read_fleet,
)
TestNodes = reading(NodesMachine, ZonesFold, read_zones)
TestLifecycle = reading(LifecycleMachine, ZonesFold, read_zones)
TestCliques = reading(CliqueMachine, CliquesFold, read_cliques)


@given(st.lists(REPORT, max_size=12))
def test_reads_of_installs_do_not_write(reports: list[InstallsReported]) -> None:
    fold = InstallsFold()
    state, decide = fold.initial_state(PARTITION), checked(InstallsFold, read_installs)
    for offset, event in enumerate(reports):
        at = RecordMetadata(PARTITION, offset, event.envelope.issued_at_ms, event.envelope.issued_at_ms)
        decision = decide(fold, state, event, at)
        if decision.change is not None:
            fold.evolve(state, decision.change, at)


@pytest.mark.parametrize(
    "read", [lambda state: state.sets.sort(), lambda state: state.known.update(a=1)], ids=["order", "key"]
)
def test_a_read_that_writes_is_found(read: Callable[[Any], None]) -> None:
    class State:
        def __init__(self) -> None:
            self.sets = [2, 1]
            self.known: dict[str, int] = {}

    class Reader:
        def decide(self, state: State, event: Event, at: RecordMetadata) -> Decision:
            raise AssertionError("the view was not found")

    with pytest.raises(AssertionError, match="a view changed the state"):
        checked(Reader, read)(Reader(), State(), None, None)
