"""Deletion of zones: it is refused while a zone has a node or DPU, and the next node or DPU undoes it."""

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
    assert not log.state.zone_rows.rows, "a row without limits is deleted"
    assert log.delete_zone("e").code == "unchanged"
    assert log.leave("n", zone="e").code == "refused", "a deleted zone is unknown"
    log.join("n", zone="e")
    assert known(log) and log.delete_zone("e").code == "refused"


def test_a_zone_with_a_dpu_is_not_deleted_and_its_ordinals_are_not_reused() -> None:
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


def test_the_snapshots_of_a_deleted_zone_are_deleted() -> None:
    log = ZonesPartition()
    for zone in ("e", "e2"):
        log.join(f"s/{zone}", zone=zone)
        log.complete(b"list", source="s", zone=zone)
        log.leave(f"s/{zone}", zone=zone)
    assert log.delete_zone("e").code == "done"
    assert [*log.state.snapshots.rows] == ["e2/s"]


def test_limits_of_a_deleted_zone_stay_until_fleet_resets_them() -> None:
    """Fleet hands down limits in its own order, so limits set before a deletion may arrive after it."""
    log = ZonesPartition()
    log.limit(2, 3, zone="e")
    assert known(log), "limits create a zone before its first node"
    assert log.delete_zone("e").code == "done"
    assert not known(log)
    assert log.state.zone_rows.rows["e"] == Zone(2, 3, deleted=True)
    log.limit(0, 0, zone="e")
    assert not log.state.zone_rows.rows
    log.limit(0, 0, zone="never")
    assert not log.state.zone_rows.rows, "default limits create no zone"
    log.limit(2, 3, zone="e")
    assert known(log), "new limits create the zone again"


def test_fleet_has_no_zone_without_labels_limits_and_members() -> None:
    fleet = Fleet()
    fleet.unlimited()
    fleet.describe("z1", {"tier": "1"})
    assert fleet.state.has_zone("z1")
    fleet.describe("z1", {})
    assert not fleet.state.has_zone("z1") and not fleet.state.has_zone("nowhere")
    fleet.change(Item("n", "z1", "10.0.0.1"))
    assert fleet.state.has_zone("z1")
