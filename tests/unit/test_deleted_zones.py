"""Zones that are deleted: refused while they have a node or DPU, and known again from their next one on."""

from __future__ import annotations

from projections.fleet.state import FleetState
from projections.views.zones import is_known
from projections.zones.dpus.phases import DELETING
from projections.zones.rows import Zone
from tests.support.fleet import Fleet, Item
from tests.support.zones import ZonesPartition

FLEET = FleetState(1)


def known(log: ZonesPartition, zone: str = "e") -> bool:
    return is_known(zone, log.state, FLEET)


def test_a_zone_is_deleted_when_it_has_no_node_and_no_dpu() -> None:
    log = ZonesPartition()
    log.join("n", "m", zone="e")
    assert log.delete_zone("e").reason == "zone: 'e' has 2 nodes and 0 DPUs and must have none"
    log.leave("n", "m", zone="e")
    assert known(log) and log.state.zones() == ["e"]
    assert log.delete_zone("e").code == "done"
    assert not known(log) and log.state.zones() == []
    assert not log.state.zone_rows.rows, "it says nothing that must stay"
    assert log.delete_zone("e").code == "unchanged"
    assert log.leave("n", zone="e").code == "refused", "as of any zone that is not known"
    log.join("n", zone="e")
    assert known(log) and log.delete_zone("e").code == "refused"


def test_a_zone_with_a_dpu_is_not_deleted_and_its_ordinals_are_not_used_again() -> None:
    log = ZonesPartition()
    log.register("d", zone="e")
    assert log.delete_zone("e").reason == "zone: 'e' has 0 nodes and 1 DPUs and must have none"
    assert log.request("d", "delete", zone="e").code == "done"
    while "d" in log.state.dpus.rows:
        assert log.row("d").phase == DELETING
        log.start("d")
        log.succeed("d")
    assert log.delete_zone("e").code == "done"
    assert not known(log)
    log.register("d2", zone="e")
    assert known(log) and log.row("d2").ordinal == 1


def test_the_complete_lists_of_a_deleted_zone_go_with_it() -> None:
    log = ZonesPartition()
    for zone in ("e", "e2"):
        log.join(f"s/{zone}", zone=zone)
        log.complete(b"list", source="s", zone=zone)
        log.leave(f"s/{zone}", zone=zone)
    assert log.delete_zone("e").code == "done"
    assert [*log.state.snapshots.rows] == ["e2/s"]


def test_limits_of_a_deleted_zone_stay_until_fleet_takes_them_away() -> None:
    """Fleet hands down limits in its own order: those of before a deletion may come after it."""
    log = ZonesPartition()
    log.limit(2, 3, zone="e")
    assert known(log), "an operator made it before its first node"
    assert log.delete_zone("e").code == "done"
    assert not known(log)
    assert log.state.zone_rows.rows["e"] == Zone(2, 3, deleted=True)
    log.limit(0, 0, zone="e")
    assert not log.state.zone_rows.rows
    log.limit(0, 0, zone="never")
    assert not log.state.zone_rows.rows, "no limits make no zone"
    log.limit(2, 3, zone="e")
    assert known(log), "limits that are stated anew do"


def test_fleet_lists_no_zone_of_which_nothing_is_stated_any_more() -> None:
    fleet = Fleet()
    fleet.unlimited()
    fleet.describe("z1", {"tier": "1"})
    assert fleet.state.has_zone("z1")
    fleet.describe("z1", {})
    assert not fleet.state.has_zone("z1") and not fleet.state.has_zone("nowhere")
    fleet.change(Item("n", "z1", "10.0.0.1"))
    assert fleet.state.has_zone("z1")
