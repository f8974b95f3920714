"""The zones of wanted DPUs: a DPU is placed once, and moves only after its zone has reported it as gone."""

from __future__ import annotations

from msgspec.structs import replace

from eventstore.reasons import Reason
from projections.resources.state import ObjectId, Placement
from tests.support.resources import DPU, LOCAL, NAMESPACE, START_MS, DeliveredResources

PLACED = Placement("z1", 1, since_ms=START_MS + 1)
"""A placement by the first record of a log."""


def placement(log: DeliveredResources, name: str = "d") -> Placement | None:
    return log.state.placements.rows.get(ObjectId(LOCAL, DPU, NAMESPACE, name).key)


def gone(log: DeliveredResources, seen: int) -> str:
    """Zones partition 1 reports the DPU as gone, and that it knows this partition up to `seen`."""
    mark = log.state.observed_before(1)
    cause = {"cause_partition": 1, "from_offset": mark, "to_offset": mark + 1, "seen_offset": seen}
    return log.observe(DPU, "d", "", **cause).code


def test_the_first_proposal_wins() -> None:
    log = DeliveredResources()
    assert log.place("d", "e", zone="z1").code == "done"
    assert placement(log) == PLACED
    told = log.place("d", zone="z2")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_IN_OTHER_ZONE)
    assert log.place("d", "e", zone="z1").code == "unchanged"


def test_a_placement_ends_only_when_its_zone_knew_of_the_end() -> None:
    log = DeliveredResources()
    log.place("d", zone="z1")
    gone(log, seen=2)
    assert placement(log) is not None, "nobody wants it to end"
    log.place("d", zone="")
    ending = log.delivered.end - 1
    assert placement(log) == replace(PLACED, ending=ending)
    gone(log, seen=ending)
    assert placement(log) is not None, "the zone did not know of the end, so a record may still register the DPU"
    assert log.place("d", zone="z2").code == "refused"
    gone(log, seen=ending + 1)
    assert placement(log) is None
    assert log.place("d", zone="z2").code == "done"


def test_only_reports_of_zones_end_a_placement() -> None:
    log = DeliveredResources()
    log.place("d", zone="z1")
    log.place("d", zone="")
    log.observe(DPU, "d", "", seen_offset=99)
    assert placement(log) is not None
    mark = log.state.observed_before(1)
    log.observe(DPU, "d", '{"phase":"Deleting"}', cause_partition=1, from_offset=mark, to_offset=9, seen_offset=4)
    assert placement(log) is not None, "the DPU is still there"


def test_an_end_is_taken_back_for_the_same_zone() -> None:
    log = DeliveredResources()
    log.place("d", zone="z1")
    log.place("d", zone="")
    assert log.place("d", zone="z1").code == "done"
    assert placement(log) == PLACED
    gone(log, seen=99)
    assert placement(log) is not None


def test_no_zone_can_have_known_of_a_record_that_does_not_exist_yet() -> None:
    log = DeliveredResources()
    log.place("d", zone="z1")
    log.place("d", zone="")
    assert gone(log, seen=log.delivered.end + 1) == "refused"
    assert placement(log) is not None
    gone(log, seen=log.delivered.end)
    assert placement(log) is None
