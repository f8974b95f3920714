"""The verdict at the start of `dpuplane status`."""

from __future__ import annotations

import pytest

from deploy.cli.operations.status import row_of, summary, verdict
from schemas.api import dpuplane_pb2 as pb

PARTS = [
    pb.PartitionStatus(partition="zones/0", lag_records=2, quarantined=1),
    pb.PartitionStatus(partition="zones/1", lag_records=3, halted="no rule"),
]
EAST = pb.SourceStatus(source="east", watched=True, nodes=100, refused=2, retained=3)
WEST = pb.SourceStatus(source="west", nodes=7, fault="no connection to west:6443: Connection refused")
AHEAD = pb.SourceStatus(source="east", watched=True, nodes=1, ahead=3)
WATCHED_WEST = pb.SourceStatus(source="west", nodes=7, watched=True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pb.Status(), "ok: nothing is halted, held or frozen"),
        (pb.Status(holds=2), "look: 2 held; nothing is broken"),
        (pb.Status(frozen=["a", "b"]), "look: 2 frozen; nothing is broken"),
        (pb.Status(frozen=["*", "b"]), "look: every zone frozen; nothing is broken"),
        (
            pb.Status(replicas=[pb.Replica(partitions=PARTS[:1]), pb.Replica(partitions=PARTS[:1])]),
            "look: 1 records quarantined; nothing is broken",
        ),
        (pb.Status(halted=[pb.HaltedPartition(partition="zones/0")] * 2, holds=1), "wrong: 2 halted, 1 held"),
        (pb.Status(stalled=[pb.StalledPartition(partition="zones/0")]), "wrong: 1 not forwarded"),
        (
            pb.Status(replicas=[pb.Replica(dpus_ahead_of_log=1), pb.Replica(dpus_ahead_of_log=9)]),
            "wrong: DPUs hold newer tables than this log",
        ),
        (
            pb.Status(replicas=[pb.Replica(revocations_fault="gone"), pb.Replica(revocations_fault="bad")]),
            "wrong: revoked certificates not read",
        ),
        (
            pb.Status(replicas=[pb.Replica(sources=[EAST]), pb.Replica(sources=[WEST])]),
            "wrong: source west not watched",
        ),
        (
            pb.Status(replicas=[pb.Replica(sources=[AHEAD]), pb.Replica(sources=[AHEAD])]),
            "wrong: objects of source east ahead of this log",
        ),
        (
            pb.Status(replicas=[pb.Replica(sources=[WEST]), pb.Replica(sources=[WATCHED_WEST])]),
            "ok: nothing is halted, held or frozen",
        ),
    ],
)
def test_a_verdict_lists_all_problems(found: pb.Status, said: str) -> None:
    assert verdict(found) == said


def test_a_replica_is_one_row_with_sums_over_its_partitions() -> None:
    replica = pb.Replica(name="r", roles=["api", "relay"], version="1", partitions=PARTS, addresses={"api": "h:1"})
    assert row_of(replica) == ("r", "api,relay", "1", 2, 5, 1, 1, "api=h:1")


def test_many_frozen_zones_are_counted() -> None:
    found = dict(summary(pb.Status(frozen=[f"z{number}" for number in range(8)])))
    assert found["frozen"] == "z0, z1, z2, z3, z4 and 3 more"


def test_an_unloaded_list_of_revoked_certificates_is_one_line_per_replica() -> None:
    replicas = [pb.Replica(name="r1", revocations_fault="tls_revoked f: line 3: no"), pb.Replica(name="r2")]
    said = [line for line in summary(pb.Status(replicas=replicas)) if line[0].startswith("revoked")]
    assert said == [("revoked on r1", "the last good list of certificates is in use: tls_revoked f: line 3: no")]


def test_each_source_cluster_is_one_line_per_edge() -> None:
    replicas = [pb.Replica(name="r1", sources=[EAST, WEST]), pb.Replica(name="r2", sources=[WATCHED_WEST])]
    assert [line for line in summary(pb.Status(replicas=replicas)) if line[0].startswith("source")] == [
        ("source east", "watched by r1; 100 Nodes, 2 refused, 3 stay that it lists no more"),
        ("source west", "not watched by r1; no connection to west:6443: Connection refused; 7 Nodes"),
        ("source west", "watched by r2; 7 Nodes"),
    ]


def test_objects_of_another_log_are_counted_with_what_to_do() -> None:
    (said,) = [
        line for line in summary(pb.Status(replicas=[pb.Replica(name="r1", sources=[AHEAD])])) if "east" in line[0]
    ]
    assert said[1].startswith("watched by r1; 1 Nodes; 3 objects are ahead of this log: delete them if no other plane")
