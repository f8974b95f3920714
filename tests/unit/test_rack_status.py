"""The status of a DPURack: what it says of a zone, and that it fits 2 kB and its schema at any scale."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from eventstore.folding.fold import RecordMetadata
from eventstore.log import ZONES, Partition
from projections.fleet.state import FleetState, Freeze
from projections.installs.rows import (
    DpuException,
    InstallsState,
    VersionInstalls,
    ZoneInstalls,
    merged_times,
    version_key,
)
from projections.kubernetes.rack_status import INSTALL_GRACE_MS, RackStates, names_by_zone, rack_status
from projections.kubernetes.status_body import Position, StatusBody, size_of, stamped
from projections.name_ranges import fold_names
from projections.views.progress import ProgressViews
from projections.zones.dpus.phases import ERROR, INITIALIZING, OS_INSTALLING, PHASES, READY
from projections.zones.fold import ZonesFold
from projections.zones.rows import Dpu, Node, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.resources.crds import structural_schema
from schemas.resources.dpu_rack import DPU_RACK, MAX_STATUS_BYTES, DPURackStatus
from tests.support.fleet import Fleet, Item
from tests.support.kubernetes.simulated import structure

APPENDED = 1_700_000_000_000
HERE = Partition(ZONES, 0)
AT = RecordMetadata(HERE, 1, APPENDED, APPENDED)
POSITION = Position(1, 20, 30, 40)


def dpu(ordinal: int, phase: str = READY, **more: object) -> Dpu:
    return Dpu("z", ordinal, "", "", "", phase, 1, 1, 1, 1, **more)  # type: ignore[arg-type]


def zone_of(dpus: Mapping[str, Dpu], nodes: Sequence[str] = ()) -> ZonesState:
    state = ZonesFold().initial_state(HERE)
    rows = {name: Node("z", 1, "u", 0, b"", {}, 1, 1) for name in nodes}
    state.apply(ZonesChange(zones={"z": Zone()}, dpus=dpus, nodes=rows), AT)
    return state


def reported(version: int, in_hardware: Sequence[int], *exceptions: DpuException, epoch: int = 1) -> InstallsState:
    state = InstallsState()
    state.zones.put("z", ZoneInstalls(epoch, APPENDED, 10, exceptions))
    times = merged_times((), {APPENDED + 5: BitMap(in_hardware)})
    state.versions.put(version_key("z", version), VersionInstalls(APPENDED, times, times, times))
    state.rederive()
    return state


def body(
    zone: ZonesState,
    fleet: FleetState | None = None,
    installs: InstallsState | None = None,
    *,
    after_ms: int = INSTALL_GRACE_MS,
) -> StatusBody:
    states = RackStates(
        zones=zone,
        fleet=fleet or FleetState(1),
        installs=installs or InstallsState(),
        epoch=1,
        ranges=fold_names(names_by_zone(zone, ["z"]).get("z", ())),
    )
    return rack_status(
        "z",
        states,
        POSITION,
        ProgressViews(),
        observed_generation=7,
        now_ms=APPENDED + after_ms,
        time_ms=APPENDED,
    )


def conditions(found: StatusBody) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found.content["conditions"]}


@cache
def schema() -> dict[str, Any]:
    """The structural schema of the status."""
    found: dict[str, Any] = structural_schema(DPU_RACK)["properties"]["status"]
    return found


def check(found: StatusBody) -> None:
    """Check the written form: its size, and that the API server stores it as it is."""
    written = stamped(found, {})
    text = json.dumps(written, separators=(",", ":"), ensure_ascii=False)
    assert len(text.encode()) <= size_of(found.content) <= MAX_STATUS_BYTES
    structure.check(schema(), written, None, "DPURack", "z")
    assert structure.settled(schema(), written) == written, "the API server would drop a field, or fill one in"
    filled = DPURackStatus.model_validate(written).model_dump(by_alias=True, exclude_none=True)
    filled["logPosition"].pop("cliques")
    assert filled == written, "the API server would fill in a default, and the next comparison would find a difference"


def test_a_zone_whose_dpus_serve_is_ready_and_lists_its_members() -> None:
    zone = zone_of({"d0": dpu(0), "d1": dpu(1)}, ["n-01", "n-02", "n-03", "other"])
    found = body(zone, installs=reported(5, [0, 1]))
    check(found)
    assert conditions(found) == {"Ready": ("True", "Ready"), "RulesInstalled": ("True", "Installed")}
    content = found.content
    assert (content["nodes"], content["dpus"], content["readyDpus"], content["phases"]) == (4, 2, 2, {})
    assert content["members"] == ["n-[01-03]", "other"]
    assert (content["rules"]["applied"], content["rules"]["inHardware"]) == (2, 2)
    assert (content["observedGeneration"], content["offenders"], content["frozen"]) == (7, [], False)


def test_a_zone_without_dpus_is_ready() -> None:
    assert conditions(body(zone_of({}, ["n1"])))["Ready"] == ("True", "NoDPUs")


def test_rules_of_the_present_version_count_and_their_digest_is_shown() -> None:
    fleet = Fleet()
    fleet.change(Item("n1", "z", "10.0.0.1"))
    found = body(zone_of({"d0": dpu(0)}), fleet.state, reported(11, [0]))
    check(found)
    rules = found.content["rules"]
    assert (rules["version"], rules["rules"], rules["inHardware"], len(rules["digest"])) == (11, 1, 1, 32)
    older = body(zone_of({"d0": dpu(0)}), fleet.state, reported(9, [0])).content["rules"]
    assert (older["applied"], older["inHardware"]) == (0, 0), "these have an older version"


def test_a_recent_change_does_not_flip_the_condition_and_an_old_one_does() -> None:
    zone, installs = zone_of({"d0": dpu(0), "d1": dpu(1)}), reported(5, [0])
    assert conditions(body(zone, installs=installs, after_ms=INSTALL_GRACE_MS - 1))["RulesInstalled"][0] == "True"
    late = body(zone, installs=installs)
    assert conditions(late) == {"Ready": ("False", "Installing"), "RulesInstalled": ("False", "Installing")}
    assert late.content["offenders"] == [{"dpu": "d1", "reason": "version 5 not in hardware"}]
    never = body(zone, after_ms=0)
    assert conditions(never)["RulesInstalled"] == ("False", "Installing"), "no DPU ever had rules"


def test_reports_of_another_generation_of_the_log_do_not_count() -> None:
    found = body(zone_of({"d0": dpu(0)}), installs=reported(5, [0], epoch=2))
    assert conditions(found)["RulesInstalled"] == ("False", "Installing")


def test_a_freeze_is_the_reason_if_changes_wait_for_its_end() -> None:
    fleet = FleetState(1)
    fleet.freezes.put("z", Freeze(APPENDED, "ann"))
    zone = zone_of({"d0": dpu(0), "d1": dpu(1)})
    found = body(zone, fleet, reported(5, [0]))
    assert found.content["frozen"] and conditions(found)["Ready"] == ("False", "Frozen")
    assert conditions(body(zone, fleet, reported(5, [0, 1])))["Ready"] == ("True", "Ready")


@pytest.mark.parametrize(
    ("row", "reason", "shown"),
    [
        (dpu(0, ERROR, message="no answer"), "DPUsNeedOperator", ["Error: no answer"]),
        (dpu(0, READY, paused=True), "DPUsNeedOperator", ["paused in Ready"]),
        (dpu(0, READY, swapped=True), "DPUsNeedOperator", ["swapped for another card"]),
        (dpu(0, OS_INSTALLING), "Provisioning", []),
        (dpu(0, INITIALIZING), "Ready", []),
    ],
)
def test_the_reason_names_what_keeps_a_zone_from_serving(row: Dpu, reason: str, shown: list[str]) -> None:
    found = body(zone_of({"d0": row}), installs=reported(5, [0]))
    assert conditions(found)["Ready"][1] == reason
    assert [each["reason"] for each in found.content["offenders"]] == shown


def test_exceptions_are_shown_while_the_dpu_lags() -> None:
    zone = zone_of({"d0": dpu(0), "d1": dpu(1), "d2": dpu(2)})
    told = (DpuException(3, "d0", -1, "table full"), DpuException(2, "d1", 4, ""), DpuException(1, "d2", -1, "old"))
    found = body(zone, installs=reported(5, [2], *told), after_ms=0)
    assert found.content["offenders"] == [
        {"dpu": "d0", "reason": "table full"},
        {"dpu": "d1", "reason": "rolled back to 4"},
    ]


def test_a_zone_with_more_nodes_than_are_folded_lists_none() -> None:
    names = [f"n{i}" for i in range(2_049)]
    assert body(zone_of({}, names[:-1])).content["members"] == ["n[0-2047]"]
    large = body(zone_of({}, names))
    assert (large.content["nodes"], large.content["members"]) == (2_049, [])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", fullmatch=True)
rows = st.builds(
    lambda phase, message, paused, swapped, failures: (phase, message, paused, swapped, failures),
    st.sampled_from(PHASES),
    texts,
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names, rows, max_size=30), st.sets(names, max_size=40), texts, st.data())
def test_a_status_is_valid_at_most_2_kb_and_a_function_of_the_states(
    stated: dict[str, tuple[Any, ...]], nodes: set[str], reason: str, data: st.DataObject
) -> None:
    dpus = {
        name: dpu(place, row[0], message=row[1], paused=row[2], swapped=row[3], failures=row[4])
        for place, (name, row) in enumerate(stated.items())
    }
    in_hardware = data.draw(st.sets(st.sampled_from(range(len(dpus) or 1))))
    exceptions = [DpuException(1, name, place - 3, reason) for place, name in enumerate(dpus)]
    installs = reported(5, sorted(in_hardware), *exceptions)
    found = body(zone_of(dpus, sorted(nodes)), installs=installs)
    check(found)
    again = body(zone_of(dict(reversed(dpus.items())), sorted(nodes, reverse=True)), installs=installs)
    assert again == found, "the order in which rows came must not matter"


def test_the_largest_zone_keeps_its_counts_and_drops_members_before_offenders() -> None:
    dpus = {
        f"{'d' * 240}{place}": dpu(place, PHASES[place % len(PHASES)], message="<&>" * 200, failures=1)
        for place in range(3_000)
    }
    fitting = body(zone_of({}, [f"n{'x' * 100}-{place}" for place in range(3)]))
    assert fitting.content["members"]
    found = body(zone_of(dpus, [f"n{'x' * 200}-{place}" for place in range(3)]), installs=reported(10**15, [1]))
    check(found)
    assert not found.content["members"] and found.content["offenders"]
    assert sum(found.content["phases"].values()) + found.content["readyDpus"] == 3_000
