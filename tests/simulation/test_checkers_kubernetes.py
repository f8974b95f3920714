"""Nodes and statuses of a source cluster: which differences from the folds, and which leaves and writes, are faults."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import events as e
from tests.simulation.checkers import source_nodes, statuses
from tests.simulation.history import FinalObject, NodeCommitted, NodesHidden, StatusCommitted
from tests.support.written_run import ZONES_0, WrittenRun

NODE, HASH = "east/n", b"hash"


class ClusterRun(WrittenRun):
    """One Node of a source cluster, and the records of its edge."""

    def committed(self, state: Any, uid: str = "u", zone: str = "z", version: int = 10) -> None:
        self.history.add(NodeCommitted(self.now_s, "east", "n", uid, 5, zone, state, version))

    def joined(self, uid: str = "u") -> None:
        self.write(ZONES_0, e.NodesJoined(self.said(), "z", [NODE], [5], [uid], b"", b"", [], []))

    def left(self, *, inferred: bool = False) -> None:
        self.write(ZONES_0, e.NodesLeft(self.said(), "z", [NODE], [5], ["u"], inferred, HASH if inferred else b""))

    def listed(self, version: int, *, restored: bool = False) -> None:
        self.write(ZONES_0, e.SnapshotCompleted(self.said(), "z", "east", 1, HASH, version, 1, restored))

    def wrote(self, before: dict[str, Any], status: dict[str, Any], count: int = 1) -> None:
        for _ in range(count):
            self.history.add(StatusCommitted(self.now_s, "east", "dpuracks", "z", "u", before, status))

    def present_faults(self) -> list[str]:
        return list(source_nodes.check_present(self.evidence()))

    def leave_faults(self) -> list[str]:
        return list(source_nodes.check_leaves(self.evidence()))


def test_a_node_of_the_cluster_must_be_in_the_folds_in_its_zone_and_incarnation() -> None:
    run = ClusterRun()
    run.committed("present")
    assert run.present_faults() == ["Node east/n is u of 5 in z, and the folds have None"]
    run.joined()
    assert not run.present_faults()
    run.committed("present", zone="y")
    assert run.present_faults() == ["Node east/n is u of 5 in y, and the folds have ('z', 5, 'u')"]
    run.committed("present", uid="v")
    assert run.present_faults() == ["Node east/n is v of 5 in z, and the folds have ('z', 5, 'u')"]


def test_a_node_that_never_was_must_not_be_in_the_folds() -> None:
    run = ClusterRun()
    run.history.add(NodeCommitted(0.0, "east", "other", "u", 5, "z", "deleted", 1))
    run.joined()
    assert run.present_faults() == ["the folds have east/n, and there was no such Node"]


def test_a_deleted_node_may_stay_only_while_the_last_list_is_no_evidence() -> None:
    run = ClusterRun()
    run.committed("present")
    run.joined()
    run.committed("deleted")
    assert run.present_faults() == ["Node east/n is deleted since 4.0 s, and the folds have u in z"]
    run.listed(9, restored=True)
    assert not run.present_faults()


def test_a_leave_needs_a_deletion() -> None:
    run = ClusterRun()
    run.committed("present")
    run.joined()
    run.left()
    assert len(run.leave_faults()) == 1
    run.history.add(NodeCommitted(0.0, "east", "n", "u", 5, "z", "deleted", 11))
    assert not run.leave_faults()


@pytest.mark.parametrize(("list_version", "is_fault"), [(9, True), (10, False)])
def test_a_list_after_a_restore_is_evidence_only_if_the_restore_could_not_be_noticed(
    list_version: int, is_fault: bool
) -> None:
    """The server must have passed the version of the Node again."""
    run = ClusterRun()
    run.committed("present", version=10)
    run.joined()
    run.committed("lost", version=8)
    run.listed(list_version)
    run.left(inferred=True)
    assert bool(run.leave_faults()) == is_fault


def test_a_list_that_lacked_an_existing_node_is_evidence() -> None:
    run = ClusterRun()
    run.committed("present")
    run.joined()
    run.listed(12)
    run.left(inferred=True)
    assert len(run.leave_faults()) == 1
    run.history.add(NodesHidden(0.0, 1.0, "east", frozenset({"n"})))
    assert not run.leave_faults()


def test_a_position_that_goes_back_and_a_status_over_2_kb_are_faults() -> None:
    run = ClusterRun()
    before, after = ({"logPosition": {"generation": 1, "fleet": fleet}} for fleet in (5, 4))
    run.wrote(before, after)
    run.wrote({}, {"members": ["n" * 3_000]})
    found = list(statuses.check_forward(run.evidence()))
    assert [text.split()[2] for text in found] == ["went", "has"]


def test_a_tenth_of_the_writes_may_repeat_a_status() -> None:
    run = ClusterRun()
    run.wrote({"nodes": 1}, {"nodes": 2}, count=100)
    run.wrote({"nodes": 2}, {"nodes": 2, "logPosition": {"generation": 1, "fleet": 9}}, count=10)
    assert not list(statuses.check_amplification(run.evidence()))
    run.wrote({"nodes": 2}, {"nodes": 2})
    assert len(list(statuses.check_amplification(run.evidence()))) == 1


def test_a_zone_needs_an_object_with_the_counts_of_the_folds() -> None:
    run = ClusterRun()
    run.joined()
    run.history.add(FinalObject("east", "dpuracks", "other", {"metadata": {"generation": 1}}))
    assert list(statuses.check_shown(run.evidence())) == ["zone z has no object"]
    body = {"metadata": {"generation": 1}, "status": {"nodes": 2, "observedGeneration": 1}}
    run.history.add(FinalObject("east", "dpuracks", "z", body))
    found = list(statuses.check_shown(run.evidence()))
    assert found[0] == (
        "zone z shows {'nodes': 2, 'observedGeneration': 1}, and the folds have {'nodes': 1, 'observedGeneration': 1}"
    )
    assert any("shows rules" in text for text in found) and any("shows no members" in text for text in found)
