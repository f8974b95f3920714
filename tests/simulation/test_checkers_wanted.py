"""The checkers of wanted DPUs find a DPU in two zones, a needless install, an early reboot, and what is left behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.handover import BMC_ADDRESS, ZONE_LABEL
from projections.resources.handover_needs import observed
from projections.resources.state import LOCAL
from projections.zones.dpus.phases import READY
from schemas import events as e
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.simulation.checkers import wanted_dpus
from tests.simulation.history import HostRebooted
from tests.simulation.resource_editor import dpu_key
from tests.support.written_run import ZONES_0, WrittenRun

RESOURCES_0 = Partition(RESOURCES, 0)
NAME = "h-d"
KEY = dpu_key(NAME)


class Fleet:
    """A log with one host, its DPU and a DPUSet, all handed over and reported."""

    def __init__(self) -> None:
        self.run = WrittenRun()
        self.run.write(ZONES_0, e.FoldVersionUpgraded(self.run.stated("fold"), 2))
        self.apply(kinds.DPU_NODE, "h", {}, labels={ZONE_LABEL: "z"})
        device = {"labels": {DPU_NODE_NAME: "h"}, "annotations": {BMC_ADDRESS: f"simulated:{NAME}"}}
        self.apply(kinds.DPU_DEVICE, "d", {}, **device)
        self.apply(kinds.BFB, "image", {"url": "http://images/1"})
        self.apply(kinds.DPU_FLAVOR, "flavor", {})
        template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor"}}
        self.apply(kinds.DPU_SET, "set", {"dpuTemplate": template})
        self.place("z")
        self.seen = len(self.run.records[RESOURCES_0])
        self.want()
        self.report()

    def apply(self, kind: str, name: str, spec: Mapping[str, Any], **columns: dict[str, str]) -> None:
        optional: dict[str, Any] = {column: [] for column in ("uids", "generations", "created_ms", "deleted_ms")}
        named: dict[str, Any] = {column: [columns.get(column, {})] for column in ("labels", "annotations")}
        event = e.ResourcesApplied(
            self.run.said(), LOCAL, [kind], ["dpf"], [name], specs=[json.dumps(spec)], expected_generations=[],
            **optional, **named,
        )  # fmt: skip
        self.run.write(RESOURCES_0, event)

    def delete(self, kind: str, name: str) -> None:
        self.run.write(RESOURCES_0, e.ResourcesDeleted(self.run.said(), LOCAL, [kind], ["dpf"], [name], []))

    def place(self, zone: str) -> None:
        self.run.write(RESOURCES_0, e.DpusPlaced(self.run.stated(), LOCAL, [kinds.DPU], ["dpf"], [NAME], [zone]))

    def wanted(self, zone: str = "z", image: str = "", **fields: Any) -> e.DpusWanted:
        mark = self.run.evidence().zone_states[0].wanted_before(0)
        given: dict[str, Any] = {"from_offset": mark, "to_offset": max(mark, self.seen)} | fields
        about = ([KEY], [NAME], [zone], ["h"], [""], [f"simulated:{NAME}"], [image])
        return e.DpusWanted(self.run.stated(), 0, given["from_offset"], given["to_offset"], *about)

    def want(self, zone: str = "z", image: str = "", **fields: Any) -> None:
        self.run.write(ZONES_0, self.wanted(zone, image, **fields))

    def report(self, text: str | None = None) -> None:
        """Report the DPU as it is, or this text."""
        evidence = self.run.evidence()
        zones = evidence.zone_states[0]
        found = observed(zones.dpus.rows[NAME]) if text is None else text
        mark = evidence.folded[RESOURCES_0].state.observed_before(0)
        end = len(self.run.records[ZONES_0])
        said, seen = self.run.stated(), zones.wanted_before(0)
        event = e.ResourcesObserved(said, LOCAL, [kinds.DPU], ["dpf"], [NAME], [], [found], 0, mark, end, seen)
        self.run.write(RESOURCES_0, event)

    def found(self, check: Any) -> list[str]:
        return [*check(self.run.evidence())]


def test_a_fleet_at_rest_has_no_fault() -> None:
    fleet = Fleet()
    for check in (
        wanted_dpus.check_owners,
        wanted_dpus.check_installs,
        wanted_dpus.check_ranges,
        wanted_dpus.check_reboots,
        wanted_dpus.check_handed_over,
    ):
        assert not fleet.found(check)


def test_a_dpu_without_a_zone_is_a_fault() -> None:
    fleet = Fleet()
    fleet.apply(kinds.DPU_DEVICE, "e", {}, labels={DPU_NODE_NAME: "h"}, annotations={BMC_ADDRESS: "simulated:e"})
    assert fleet.found(wanted_dpus.check_handed_over) == [f"{dpu_key('h-e')} is wanted in zone z, and has no zone"]


def test_a_dpu_that_no_object_wants_is_a_fault() -> None:
    fleet = Fleet()
    fleet.delete(kinds.DPU_SET, "set")
    assert fleet.found(wanted_dpus.check_handed_over) == [f"{KEY} is in zone z, and no object wants it"]


def test_another_state_than_reported_is_a_fault() -> None:
    fleet = Fleet()
    fleet.report('{"phase":"Ready"}')
    (fault,) = fleet.found(wanted_dpus.check_handed_over)
    assert "is shown as" in fault


def test_a_dpu_in_another_zone_is_a_fault() -> None:
    fleet = Fleet()
    fleet.apply(kinds.DPU_NODE, "h", {}, labels={ZONE_LABEL: "y"})
    assert fleet.found(wanted_dpus.check_handed_over) == [f"{KEY} is in zone z, and is wanted in y"]


def test_other_properties_in_the_zone_are_a_fault() -> None:
    fleet = Fleet()
    fleet.apply(kinds.DPU_DEVICE, "d", {"serialNumber": "s"}, labels={DPU_NODE_NAME: "h"}, annotations={BMC_ADDRESS: f"simulated:{NAME}"})  # fmt: skip  # noqa: E501
    (fault,) = fleet.found(wanted_dpus.check_handed_over)
    assert "is known in its zone as" in fault


def test_an_undrained_host_that_is_rebooted_is_a_fault() -> None:
    fleet = Fleet()
    fleet.run.history.add(HostRebooted(3.0, "h", was_drained=True))
    assert not fleet.found(wanted_dpus.check_reboots)
    fleet.run.history.add(HostRebooted(4.0, "h", was_drained=False))
    assert fleet.found(wanted_dpus.check_reboots) == ["host h was rebooted at 4.000 s, and had not been drained"]


@pytest.mark.parametrize(("first", "last", "is_fault"), [(0, 9, True), (None, None, False)])
def test_a_range_that_counts_must_follow_the_last_one(first: int | None, last: int | None, is_fault: bool) -> None:
    """The steps of the log say that a record counted, which began at 0 after the mark had moved."""
    fleet = Fleet()
    fields: dict[str, Any] = {} if first is None else {"from_offset": first, "to_offset": last}
    fleet.want(image="i", **fields)
    evidence = fleet.run.evidence()
    if is_fault:
        step = evidence.steps[ZONES_0][-1]
        evidence.steps[ZONES_0][-1] = step._replace(rows={"resources_marks": [("0", None)]})
    assert bool([*wanted_dpus.check_ranges(evidence)]) == is_fault


def test_the_installation_of_an_image_that_the_dpu_has_is_a_fault() -> None:
    fleet = Fleet()
    fleet.want(image="i")
    evidence = fleet.run.evidence()
    step = evidence.steps[ZONES_0][-1]
    (name, row) = step.rows["dpus"][0]
    ready = replace(row, phase=READY, installed="i", image="i")
    before = evidence.steps[ZONES_0][-2]
    evidence.steps[ZONES_0][-2] = before._replace(rows={"dpus": [(name, ready)]})
    assert [*wanted_dpus.check_installs(evidence)] == [
        f"zones/0@{step.record.offset} installs i on {NAME}, which has it"
    ]


def test_a_dpu_in_two_zones_at_once_is_a_fault() -> None:
    fleet = Fleet()
    assert not fleet.found(wanted_dpus.check_owners)
    evidence = fleet.run.evidence()
    other = Partition(ZONES_0.topic, 1)
    wanted = [step for step in evidence.steps[ZONES_0] if "wanted_dpus" in step.rows]
    evidence.steps[other] = [step._replace(partition=other) for step in wanted]
    evidence.appended_s = lambda partition, offset: float(offset + partition.number)  # type: ignore[method-assign]
    (fault,) = wanted_dpus.check_owners(evidence)
    assert fault.startswith(f"{NAME} was in zone z until inf s")
