"""Nodes, statuses and cliques of a source cluster: which differences from the folds, and which leaves and writes, are
faults.
"""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.log import CLIQUES, FLEET_0, Partition
from schemas import events as e
from schemas.resources.compute_domain import CLIQUE_LABEL, DOMAIN_LABEL
from tests.simulation.checkers import clique_objects, source_nodes, specs, statuses
from tests.simulation.history import (
    CliqueCommitted,
    CliqueModeSet,
    FaultInjected,
    FinalObject,
    NodeCommitted,
    NodesHidden,
    ServerRestored,
    SpecCommitted,
    StatusCommitted,
)
from tests.support.written_run import ZONES_0, WrittenRun

NODE, HASH = "east/n", b"hash"


class ClusterRun(WrittenRun):
    """One Node of a source cluster, and the records of its edge."""

    def committed(self, state: Any, uid: str = "u", zone: str = "z", version: int = 10, *, created_ms: int = 5) -> None:
        self.history.add(NodeCommitted(self.now_s, "east", "n", uid, created_ms, zone, state, version))

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
    assert run.present_faults() == [f"Node east/n is deleted since {run.now_s:.1f} s, and the folds have u in z"]
    run.listed(9, restored=True)
    assert not run.present_faults()


@pytest.mark.parametrize("end", ["lost", "deleted"])
def test_a_newer_incarnation_may_stay_only_if_it_ended_before_a_restore(end: str) -> None:
    """Its deletion may have been seen by nobody."""
    run = ClusterRun()
    run.committed("present", uid="older", created_ms=4)
    run.committed("present")
    run.joined()
    run.committed(end)
    run.committed("restored", uid="older", created_ms=4)
    assert not run.present_faults()
    run = ClusterRun()
    run.committed("restored", uid="older", created_ms=4)
    run.committed("present")
    run.joined()
    run.committed("deleted")
    run.committed("present", uid="older", created_ms=4)
    assert len(run.present_faults()) == 1


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


def test_repeats_while_an_api_server_is_slow_do_not_count() -> None:
    run = ClusterRun()
    run.history.add(FaultInjected("slow API server", "", run.now_s - 10.0, run.now_s, is_outside=True))
    run.wrote({"nodes": 2}, {"nodes": 2}, count=10)
    assert not list(statuses.check_amplification(run.evidence()))
    run.now_s += 10.0
    run.wrote({"nodes": 2}, {"nodes": 2}, count=10)
    assert len(list(statuses.check_amplification(run.evidence()))) == 1


def test_after_an_absence_of_an_hour_each_object_may_be_written_once() -> None:
    run = ClusterRun()
    run.wrote({"nodes": 1}, {"nodes": 2}, count=3)
    run.now_s = 4_000.0
    run.history.add(FaultInjected("API server away", "", 100.0, 4_000.0, is_outside=True))
    run.wrote({"nodes": 2}, {"nodes": 3})
    assert not list(statuses.check_return(run.evidence()))
    run.wrote({"nodes": 3}, {"nodes": 4})
    assert list(statuses.check_return(run.evidence())) == [
        "after an absence, 2 statuses of 1 objects were written",
    ]


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


@pytest.mark.parametrize(("version", "faults"), [(8, 0), (9, 1)])
def test_a_policy_may_lack_its_status_only_if_no_watch_could_show_it(version: int, faults: int) -> None:
    run = ClusterRun()
    run.history.add(ServerRestored(0.0, "east", from_version=8, to_version=5))
    body = {"metadata": {"generation": 1, "resourceVersion": str(version)}}
    run.history.add(FinalObject("east", "rulepolicies", "web", body))
    assert len(list(statuses.check_shown(run.evidence()))) == faults


class CliqueRun(WrittenRun):
    """One clique of the domain d, with the object of its rows."""

    def claimed(self, *nodes: str) -> None:
        addresses = [f"10.0.0.{number + 1}" for number in range(len(nodes))]
        uids, made = [f"pod-{node}" for node in nodes], [1] * len(nodes)
        event = e.IndicesClaimed(self.said("d/c"), "d", "c", list(nodes), addresses, made, uids, [])
        self.end = self.write(Partition(CLIQUES, 0), event) + 1

    def wrote(self, before: dict[str, Any], after: dict[str, Any], *, mode: str = "assign", **live: str) -> None:
        had, has = ({"rows": rows, "labels": {}, "owners": []} for rows in (before, after))
        entry = CliqueCommitted(self.now_s, "east", "d.c", "u", "p0#1", mode, had, has, f"1/{self.end}", live)
        self.history.add(entry)

    def final(self, rows: dict[str, Any], *nodes: str, mode: str = "assign") -> None:
        """The final objects: the clique with these rows, the domain, and a pod of each node."""
        labels = {DOMAIN_LABEL: "d", CLIQUE_LABEL: "c"}
        self.history.add(CliqueModeSet(self.now_s, "east", mode))
        status = {"status": "NotReady", "nodes": [{"name": name, **found} for name, found in rows.items()]}
        domain = {"metadata": {"name": "cd", "uid": "d"}, "spec": {"numNodes": 0}, "status": status}
        clique = {"metadata": {"name": "d.c", "labels": labels}, "daemons": [*rows.values()]}
        pods = [
            {
                "metadata": {"name": node, "uid": f"pod-{node}", "labels": labels},
                "spec": {"nodeName": node},
                "status": {"podIP": f"10.0.0.{number + 1}", "conditions": []},
            }
            for number, node in enumerate(nodes)
        ]
        found: list[tuple[str, dict[str, Any]]] = [
            ("computedomains", domain),
            ("computedomaincliques", clique),
            *(("pods", pod) for pod in pods),
        ]
        for kind, body in found:
            self.history.add(FinalObject("east", kind, body["metadata"]["name"], body))

    def row_faults(self) -> list[str]:
        return list(clique_objects.check_rows(self.evidence()))

    def final_faults(self) -> list[str]:
        run = self.evidence()
        return [*clique_objects.check_claims(run), *clique_objects.check_shown(run)]


def row(node: str, index: int, address: str) -> dict[str, Any]:
    return {"nodeName": node, "ipAddress": address, "cliqueID": "c", "index": index, "status": "NotReady"}


A, B = row("a", 0, "10.0.0.1"), row("b", 1, "10.0.0.2")


def test_a_write_has_the_rows_of_the_log_at_its_position() -> None:
    run = CliqueRun()
    run.claimed("a")
    run.wrote({}, {"a": A})
    run.claimed("a", "b")
    run.wrote({"a": A}, {"a": A, "b": B})
    assert not run.row_faults()
    run.wrote({}, {"a": {**A, "index": 1}, "b": B})
    assert [text.partition(": ")[2] for text in run.row_faults()] == [
        "the indices ['1', '1'] are not unique",
        f"node a has (1, '10.0.0.1') in its row, and (0, '10.0.0.1') in the log at 1/{run.end}",
    ]


def test_the_plane_neither_makes_nor_changes_a_row_without_a_claim() -> None:
    run = CliqueRun()
    run.claimed("a")
    run.wrote({"b": B}, {"a": A, "b": B}, mode="beside")
    assert not run.row_faults()
    run.wrote({"b": B}, {"a": A, "b": {**B, "index": 2}}, mode="beside")
    run.wrote({}, {"a": A, "b": B})
    assert len(run.row_faults()) == 2


@pytest.mark.parametrize(("address", "index", "is_fault"), [("10.0.0.2", 1, True), ("10.0.0.9", 1, False)])
def test_the_row_of_a_daemon_is_not_removed_while_its_pod_lives(address: str, index: int, is_fault: bool) -> None:
    run = CliqueRun()
    run.claimed("a")
    run.wrote({"b": B}, {"a": A}, mode="beside", b=address)
    assert bool(run.row_faults()) == is_fault


def test_an_older_claim_may_take_the_index_from_the_row_of_a_daemon() -> None:
    run = CliqueRun()
    run.claimed("a")
    run.wrote({"b": {**B, "index": 0}}, {"a": A}, mode="beside", b="10.0.0.2")
    assert not run.row_faults()


def test_a_tenth_of_the_writes_may_leave_a_clique_as_it_is() -> None:
    run = CliqueRun()
    run.claimed("a")
    for _ in range(4):
        run.wrote({"a": A}, {"a": A})
    assert not list(clique_objects.check_amplification(run.evidence()))
    run.wrote({"a": A}, {"a": A})
    assert len(list(clique_objects.check_amplification(run.evidence()))) == 1


def test_at_rest_the_object_and_the_status_have_the_rows_of_the_folds() -> None:
    run = CliqueRun()
    run.claimed("a", "b")
    run.final({"a": A, "b": B}, "a", "b")
    assert not run.final_faults()
    wrong = CliqueRun()
    wrong.claimed("a", "b")
    wrong.final({"a": A, "b": {**B, "index": 0}}, "a", "b")
    texts = wrong.final_faults()
    assert [text.split()[0] for text in texts] == ["clique", "clique", "domain"]
    assert "shows an index twice" in texts[1]


def test_each_pod_needs_a_claim_and_each_claim_a_pod() -> None:
    run = CliqueRun()
    run.claimed("a")
    run.final({"a": A}, "b")
    assert [text.split()[0] for text in run.final_faults()] == ["pod", "claim"]
    run.history.add(ServerRestored(run.now_s, "east", 9, 5))
    assert [text.split()[0] for text in run.final_faults()] == ["pod"]


def test_beside_daemons_a_row_without_a_claim_may_stay_while_its_node_has_a_pod() -> None:
    run = CliqueRun()
    run.claimed("a")
    run.final({"a": A, "b": B}, "a", mode="beside")
    assert [text.split()[0] for text in run.final_faults()] == ["clique"]
    run.history.add(
        FinalObject(
            "east",
            "pods",
            "b",
            {
                "metadata": {"name": "b", "uid": "pod-b", "labels": {DOMAIN_LABEL: "other", CLIQUE_LABEL: "c"}},
                "spec": {"nodeName": "b"},
            },
        )
    )
    assert not run.final_faults()


SPEC = {"state": "Present", "priority": 3, "action": "drop", "protocol": "any"}


class SpecRun(WrittenRun):
    """The RulePolicy web and its specs."""

    def committed(self, author: str = "ann@example.org", **changed: Any) -> None:
        self.history.add(SpecCommitted(self.now_s, "east", "web", "u", {**SPEC, **changed}, author))

    def appended(self, actor: str = "operator/ann", priority: int = 3) -> None:
        self.write(FLEET_0, e.PolicySet(self.said("web", actor), "web", priority, "drop", "any", [], {}, {}))

    def at_rest(self) -> list[str]:
        self.history.add(FinalObject("east", "rulepolicies", "web", {"spec": SPEC}))
        return list(specs.check_last(self.evidence()))


def test_a_spec_is_appended_as_its_author_wrote_it() -> None:
    run = SpecRun()
    run.committed()
    run.appended()
    assert not list(specs.check_authors(run.evidence()))
    run.appended("operator/ben")
    run.appended(priority=4)
    assert [text.partition(": ")[2] for text in specs.check_authors(run.evidence())] == [
        "operator/ben did not write (3, 'drop', 'any') as web",
        "operator/ann did not write (4, 'drop', 'any') as web",
    ]


def test_the_last_spec_of_an_object_must_be_in_the_log_unless_nobody_is_its_author() -> None:
    run = SpecRun()
    run.committed(priority=2)
    run.appended(priority=2)
    assert not run.at_rest()
    run.now_s += 1.0
    run.committed("nobody")
    assert not run.at_rest()
    run.committed()
    assert run.at_rest()[0].startswith("policy web has the spec (3, 'drop', 'any') since")
    run.appended()
    assert not run.at_rest()
