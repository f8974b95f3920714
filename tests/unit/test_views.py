"""Views of queries: their fields match their messages, and views of several folds are consistent."""

from __future__ import annotations

from random import Random
from typing import Any, get_type_hints

import msgspec
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from commands.messages import to_message, to_policy
from eventstore.folding.fold import RecordMetadata
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition
from projections.cliques.views import CliqueView, MemberView, WaiterView
from projections.fleet import views as fleet_views
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import table
from projections.forwarding.zones_to_fleet import is_forwarded
from projections.installs.rows import InstallsState, VersionInstalls, ZoneInstalls, version_key
from projections.rules.policies import Policy
from projections.views import nodes as node_views
from projections.views import progress as progress_views
from projections.views import zones as zone_views
from projections.zones.dpus import views as dpu_views
from projections.zones.dpus.phases import DELETING
from projections.zones.fold import ZonesFold
from projections.zones.rows import Dpu, Node
from projections.zones.state import ZonesState
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms
from schemas.events import NodesJoined, WritesFrozen
from tests.support.fleet import Fleet, Item
from tests.support.zones import ZonesPartition

NOW_MS = 1_700_000_000_000
VIEWS: list[tuple[Any, type[Message]]] = [
    (node_views.NodeView, pb.Node),
    (zone_views.ZoneView, pb.Zone),
    (zone_views.InstallsView, pb.Zone),
    (zone_views.FrozenView, pb.Zone),
    (zone_views.InstallView, pb.Install),
    (zone_views.MilestoneView, pb.Milestone),
    (zone_views.ExceptionView, pb.DpuException),
    (dpu_views.DpuView, pb.Dpu),
    (fleet_views.HoldView, pb.Hold),
    (fleet_views.BudgetView, pb.Budget),
    (progress_views.ProgressView, pb.ZoneProgress),
    (progress_views.LatencyView, pb.Latency),
    (progress_views.ChangeView, pb.ChangeLatency),
    (progress_views.BucketView, pb.LatencyBucket),
    (CliqueView, pb.Clique),
    (MemberView, pb.CliqueMember),
    (WaiterView, pb.WaitingClaim),
]


@pytest.mark.parametrize(("view", "kind"), VIEWS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_field_of_a_view_is_a_field_of_its_message(view: Any, kind: type[Message]) -> None:
    names = view.__struct_fields__ if issubclass(view, msgspec.Struct) else view._fields
    fields = [name.removesuffix("_ms") for name in names]
    assert set(fields) <= set(kind.DESCRIPTOR.fields_by_name)
    plural = {name for name, hint in get_type_hints(view).items() if "tuple" in str(hint)}
    assert plural == {name for name in fields if kind.DESCRIPTOR.fields_by_name[name].is_repeated} - {
        "labels",
        "facts",
        "phases",
    }


def test_nested_views_become_nested_messages() -> None:
    member = MemberView(0, "n", "10.0.0.1", "u", create_time_ms=1_250, ready=True, session_alive=False)
    view = CliqueView(domain="d", clique="c", capacity=18, members=(member,), waiting=())
    found = to_message(pb.Clique, view, position="log:cliques/0=1")
    assert (found.members[0].node, found.members[0].ready, found.position) == ("n", True, "log:cliques/0=1")
    assert (found.members[0].create_time.seconds, found.members[0].create_time.nanos) == (1, 250_000_000)


def test_times_and_durations_are_converted_and_absent_ones_stay_unset() -> None:
    frozen = to_message(pb.Zone, zone_views.FrozenView(1_700_000_000_250, "ann", 3, 0, 1))
    assert (to_ms(frozen.freeze_time), frozen.HasField("waiting_start_time")) == (1_700_000_000_250, False)
    reached, unreached = zone_views.MilestoneView("applied", 500, 0), zone_views.MilestoneView("applied", 990, -1)
    install = to_message(pb.Install, zone_views.InstallView(1, 2, 3, 4, 5, 0, (reached, unreached)))
    assert [milestone.HasField("latency") for milestone in install.milestones] == [True, False]
    assert not install.HasField("append_time")


def test_a_policy_keeps_its_port_ranges() -> None:
    row = Policy("web", 5, "allow", "tcp", (443, 443, 8000, 8080), {"a": "b"}, {}, 7)
    assert [(ports.first, ports.last) for ports in to_policy(row).ports] == [(443, 443), (8000, 8080)]
    assert [*fleet_views.policies_by_key(FleetState(1)).values()][-1].name == "default"


def joined(state: ZonesState, offset: int, name: str, zone: str = "z") -> None:
    at = RecordMetadata(Partition(ZONES, 0), offset, NOW_MS + offset, NOW_MS + offset)
    said = envelope(zone, "?test", uuid7(NOW_MS + offset, Random(offset)))
    event = NodesJoined(said, zone, [name], [], [], b"", b"", [], [])
    ZonesFold().evolve(state, ZonesFold().decide(state, event, at).change, at)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 14), st.integers(0, 14))
def test_a_change_is_forwarded_if_fleet_has_all_changes_up_to_it(changes: list[int], mark: int, offset: int) -> None:
    """This includes changes overtaken by a later change of the same node. Records without a change of a node are never
    forwarded, and nothing waits for them.
    """
    state = ZonesFold().initial_state(Partition(ZONES, 0))
    for position, which in enumerate(changes, 1):
        if which:
            joined(state, position, f"n{which}")
    waiting = [position for position, which in enumerate(changes, 1) if which and position >= mark]
    if is_forwarded(state, mark, offset):
        assert not [position for position in waiting if position < offset]
    else:
        assert mark < offset and waiting


def test_a_node_in_two_zones_is_shown_in_that_of_its_newest_incarnation() -> None:
    states = [ZonesFold().initial_state(Partition(ZONES, number)) for number in range(2)]
    joined(states[0], 1, "n", "old")
    joined(states[1], 2, "n", "new")
    assert node_views.zone_of_node("n", states, FleetState(1)) == "new"
    assert node_views.zone_of_node("m", states, FleetState(1)) is None
    rows: list[Node | None] = [state.nodes.rows.get("n") for state in states]
    view = node_views.find("n", rows, FleetState(1))
    assert view is not None
    assert (view.zone, view.held, view.addresses) == ("new", False, ())


class Counted(dict[str, Dpu]):
    """Rows that count their reads."""

    reads = 0

    def __getitem__(self, name: str) -> Dpu:
        self.reads += 1
        return super().__getitem__(name)


def test_dpus_are_found_by_zone_and_phase_without_reading_other_zones() -> None:
    log = ZonesPartition()
    for zone in ("a", "b"):
        for number in range(50):
            log.register(f"{zone}{number}", zone=zone)
    log.request("b7", "delete", zone="b")
    log.request("b8", "pause", zone="b")
    rows = log.state.dpus.rows = Counted(log.state.dpus.rows)

    def found(zone: str = "", phase: str = "", *, stuck: bool = False) -> set[str]:
        return set(dpu_views.named(log.state, is_wanted=lambda name: zone in ("", name), phase=phase, stuck=stuck))

    assert found(phase=DELETING) == found("b", DELETING) == {"b7"} and rows.reads == 100
    assert found("a", DELETING) == found("c") == set() and rows.reads == 100
    assert found(stuck=True) == found("b", stuck=True) == {"b8"}
    assert found("a") == {f"a{number}" for number in range(50)}
    assert found() == set(rows)


def test_a_frozen_zone_shows_its_pending_changes() -> None:
    fleet = Fleet()
    fleet.change(Item("n", "z", "10.0.0.1"))
    before = table(fleet.state, "z").version
    state = ZonesState()
    for ordinal, step_state in enumerate(("idle", "open", "running")):
        dpu = Dpu("z", ordinal, "", "", "", "Ready", 1, 1, 1, 1, step_state=step_state)  # type: ignore[arg-type]
        state.dpus.put(f"d{ordinal}", dpu)
    state.rederive()
    reported = InstallsState()
    reported.zones.put("z", ZoneInstalls(1, 3, 5, ()))
    all_three = (((50, BitMap([0, 1, 2]).serialize()),), ((60, BitMap([0, 1, 2]).serialize()),), ())
    reported.versions.put(version_key("z", before), VersionInstalls(5, *all_three))
    reported.rederive()
    assert zone_views.frozen("z", state, fleet.state, reported, 1) is None
    fleet.apply(WritesFrozen(envelope("z", "operator/ann", uuid7(NOW_MS, Random(1))), "z"))
    froze_ms = fleet.now_ms
    assert zone_views.frozen("z", state, fleet.state, reported, 1) == (froze_ms, "operator/ann", 0, 0, 1)
    fleet.now_ms += 70
    fleet.change(Item("m", "z", "10.0.0.3"))
    table(fleet.state, "z")
    waits = zone_views.frozen("z", state, fleet.state, reported, 1)
    assert waits == (froze_ms, "operator/ann", 3, fleet.now_ms, 1)
    assert zone_views.frozen("z", state, fleet.state, reported, 2) == waits, "reports of another epoch do not count"
