"""A zones partition that can never be forwarded is reported once. A partition that only lags is not reported."""

from __future__ import annotations

import asyncio
import logging

import pytest

from commands.queries.status import LogLocation, StatusReporter
from deploy.cli.operations.status import summary
from drivers.forwarder import Forwarder
from drivers.stall_detector import CHECK_S, StallDetector
from eventstore.avro.codec import encode
from eventstore.log import FLEET_0
from eventstore.replica_limits import ReplicaLimits
from schemas.events import PRESENT, Envelope, Event, MembershipChanged, OutboxAcknowledged
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

LONG_S = 2 * (CHECK_S + ReplicaLimits().ends_s) + 1
"""Seconds for two passes of the detector and two updates of the partition ends, which a report needs."""


def forged(to_offset: int, number: int) -> MembershipChanged:
    """A forward of a node that is in no zone."""
    cause = Envelope("", f"zones/{number}", "forger", 0)
    return MembershipChanged(
        cause, number, 0, to_offset, 0, ["z1"], ["ghost"], [PRESENT], [1], ["u"], b"", b"", [], [], [], []
    )


def state(made: Plane, zone: str, event: Event) -> None:
    """Add a record to the log without any check."""
    partition = FLEET_0 if isinstance(event, MembershipChanged) else made.partition(zone)
    made.log.contents.add(partition, made.now_ms(), zone.encode(), encode(event))


async def started(made: Plane) -> StallDetector:
    replica = await made.add("r1")
    stall_detector = StallDetector(replica, now_ms=made.now_ms)
    made.spawn("r1", Forwarder(replica, made.ranks("r1"), now_ms=made.now_ms, rng=made.rng()).run())
    made.spawn("r1", stall_detector.run())
    return stall_detector


async def test_a_mark_ahead_of_its_partition_is_logged_once_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with plane() as made:
        stall_detector = await started(made)
        partition = made.partition("z1")
        state(made, "z1", forged(999, partition.number))
        await made.join("z1", "a")
        with caplog.at_level(logging.ERROR, logger="drivers.stall_detector"):
            await asyncio.sleep(5 * LONG_S)
        assert "a" not in made.fleet().members.rows
        assert list(stall_detector.reasons) == [partition]
        assert [(r.getMessage(), vars(r)["partition"], vars(r)["reason"]) for r in caplog.records] == [
            ("forwarding to fleet stopped", partition, stall_detector.reasons[partition])
        ]
        assert made.count(partition, OutboxAcknowledged) == 0, "the forwarder appended a record that the zone refuses"
        board = StatusReporter(
            made.replicas["r1"],
            location=LogLocation("embedded"),
            roles=["api"],
            addresses={},
            version="1",
            alive=lambda: [],
            stalled=lambda: stall_detector.reasons,
        )
        assert (f"not forwarded {partition}", stall_detector.reasons[partition]) in summary(board.status())
        assert "999" in stall_detector.reasons[partition]


async def test_a_mark_behind_the_pruned_outbox_is_reported() -> None:
    async with plane() as made:
        stall_detector = await started(made)
        partition = made.partition("z1")
        state(made, "z1", OutboxAcknowledged(made.command("z1"), 1))
        await asyncio.sleep(LONG_S)
        assert "confirmed 1 before" in stall_detector.reasons[partition]
        await made.join("z1", "a")
        await asyncio.sleep(LONG_S)
        assert "a" not in made.fleet().members.rows


async def test_the_report_ends_when_the_partition_has_grown_past_the_mark(caplog: pytest.LogCaptureFixture) -> None:
    async with plane() as made:
        stall_detector = await started(made)
        partition = made.partition("z1")
        state(made, "z1", forged(4, partition.number))
        await asyncio.sleep(LONG_S)
        assert stall_detector.reasons
        for i in range(6):
            await made.join("z1", f"n{i}")
        await asyncio.sleep(LONG_S)
        assert not stall_detector.reasons and "n5" in made.fleet().members.rows
        assert "forwarding to fleet resumed" in caplog.records[-1].getMessage()


async def test_nothing_is_reported_before_the_ends_are_updated() -> None:
    async with plane() as made:
        stall_detector = await started(made)
        await asyncio.sleep(CHECK_S - 0.5)
        state(made, "z1", forged(999, made.partition("z1").number))
        await asyncio.sleep(1.0)
        assert not stall_detector.reasons
