"""The page's summary for an operator: live from all processes, for past moments from the log."""

from __future__ import annotations

from deploy.web.page.fleet import alerts, past_alerts
from schemas.api import dpuplane_pb2 as pb

HALTED = pb.HaltedPartition(replica="r1", partition="zones/3", reason="fold version 9 is not known")
STATUS = pb.Status(
    halted=[HALTED],
    stalled=[pb.StalledPartition(partition="zones/4", reason="no relay answers")],
    replicas=[
        pb.Replica(name="r1", dpus_ahead_of_log=12),
        pb.Replica(name="r2", sources=[pb.SourceStatus(source="east", ahead=3), pb.SourceStatus(source="west")]),
    ],
    frozen=["*", *(f"rack-{n}" for n in range(20))],
)


def test_each_alert_names_the_problem_its_place_and_the_reason() -> None:
    halted, stalled, newer, ahead, frozen = alerts(STATUS)
    assert halted == "zones/3 is halted on r1: fold version 9 is not known"
    assert stalled == "zones/4 is not forwarded: no relay answers"
    assert newer.startswith("12 DPUs of r1 hold newer tables than this restored log")
    assert ahead.startswith("3 objects of source east are ahead of this log")
    assert frozen.startswith("every zone, zone rack-0,") and "rack-9" not in frozen
    assert frozen.endswith(" and more: frozen; no rule is written to their devices")


def test_alerts_of_the_past_come_from_the_log_only() -> None:
    halted, frozen = past_alerts(STATUS)
    assert halted == "zones/3 is not folded up to that time: fold version 9 is not known"
    assert frozen.startswith("every zone")


def test_the_number_of_alerts_is_bounded() -> None:
    flood = pb.Status(
        halted=[HALTED] * 1_000, stalled=[pb.StalledPartition(partition="zones/4", reason="no relay")] * 1_000
    )
    assert len(alerts(flood)) == 20
    assert len(past_alerts(flood)) == 10


def test_a_healthy_plane_has_no_alerts() -> None:
    assert alerts(pb.Status(replicas=[pb.Replica(name="r1")])) == past_alerts(pb.Status()) == []
