"""Responses of the Queries service in a short form for the page: a row is a list, not an object.

With 200 zones and ten refreshes per second, field names would be most of the traffic, and times as text would be much
of it. Times and durations are therefore numbers of milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import Message

from commands.queries.service import QueriesService
from commands.rpc.middleware import Call
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms

ZONE_COLUMNS = (
    "zone",
    "nodes",
    "dpus",
    "version",
    "pending_start_time_ms",
    "reported",
    "received",
    "applied",
    "in_hardware",
    "frozen",
    "exceptions",
    "stuck",
    "unreported_start_time_ms",
)
CHANGE_COLUMNS = ("version", "append_time_ms", "dpus", "p50_latency_ms", "p99_latency_ms", "max_latency_ms")
BUCKET_COLUMNS = ("min_latency_ms", "max_latency_ms", "dpus")

_OF_A_KIND = 10
"""Maximum sentences or zones of one kind of alert: more of them would fill the page."""


def rows(zones: Iterable[pb.ZoneProgress]) -> list[list[Any]]:
    """A row per zone, in the order of ZONE_COLUMNS."""
    return [_row(zone, ZONE_COLUMNS) for zone in zones]


def totals(zones: Sequence[pb.ZoneProgress]) -> dict[str, Any]:
    """Sums over all zones."""
    phases: Counter[str] = Counter()
    for zone in zones:
        phases.update(zone.phases)
    return {
        "nodes": sum(zone.nodes for zone in zones),
        "dpus": sum(zone.dpus for zone in zones),
        "stuck": sum(zone.stuck for zone in zones),
        "phases": dict(sorted(phases.items())),
    }


def latency(found: pb.Latency) -> dict[str, Any]:
    return {
        "changes": [_row(change, CHANGE_COLUMNS) for change in found.changes],
        "buckets": [_row(bucket, BUCKET_COLUMNS) for bucket in found.buckets],
    }


def _row(found: Message, columns: Sequence[str]) -> list[Any]:
    """The fields of a message; a time or a duration as milliseconds, 0 if it is absent."""
    return [
        to_ms(getattr(found, column.removesuffix("_ms"))) if column.endswith("_ms") else getattr(found, column)
        for column in columns
    ]


def holds(found: Iterable[pb.Hold]) -> list[list[Any]]:
    """A row per hold, with only the fields that change. The page queries the whole holds when it shows them."""
    return [[hold.hold, hold.hash, len(hold.approved_by)] for hold in found]


async def every_hold(queries: QueriesService, as_of: str, call: Call) -> list[pb.Hold]:
    """All open holds: every page of ListHolds."""
    found: list[pb.Hold] = []
    request = pb.ListHoldsRequest(as_of=as_of)
    while True:
        answer = await queries.list_holds(request, call)
        found += answer.holds
        if not answer.next_page_token:
            return found
        request.page_token = answer.next_page_token


def alerts(status: pb.Status) -> list[str]:
    """Alerts for the operator on every view, one sentence each."""
    halted = [f"{found.partition} is halted on {found.replica}: {found.reason}" for found in status.halted]
    stalled = [f"{found.partition} is not forwarded: {found.reason}" for found in status.stalled]
    newer = [
        f"{found.dpus_ahead_of_log} DPUs of {found.name} hold newer tables than this restored log: see "
        "`dpuplane verify`"
        for found in status.replicas
        if found.dpus_ahead_of_log
    ]
    ahead = [
        f"{source.ahead} objects of source {source.source} are ahead of this log: see ObjectsAheadOfLog in the runbook"
        for found in status.replicas
        for source in found.sources
        if source.ahead
    ]
    kinds = (halted, stalled, newer, ahead)
    return [*(sentence for kind in kinds for sentence in kind[:_OF_A_KIND]), *_frozen(status)]


def past_alerts(status: pb.Status) -> list[str]:
    """Alerts as of a point of the past, from the log. Facts that exist only in processes, such as stalled forwards, are
    in no record.
    """
    halted = [f"{found.partition} is not folded up to that time: {found.reason}" for found in status.halted]
    return [*halted[:_OF_A_KIND], *_frozen(status)]


def _frozen(status: pb.Status) -> list[str]:
    zones = ["every zone" if zone == "*" else f"zone {zone}" for zone in status.frozen]
    more = " and more" * (len(zones) > _OF_A_KIND)
    return [f"{', '.join(zones[:_OF_A_KIND])}{more}: frozen; no rule is written to their devices"] if zones else []
