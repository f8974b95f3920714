"""Beacons on a virtual clock: live replicas, their ranks, and the detection of different logs or states."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from commands.queries.status import LogLocation, StatusReporter
from eventstore.errors import AppendUnknown
from eventstore.log import FLEET_0, REPLICAS, Partition
from eventstore.replicas.beacons import EVERY_S, FRESH_S, Beacon, Beacons, SingleReplica
from eventstore.replicas.clock_skew import LOG, ClockSkew
from eventstore.replicas.status import SourceStatus
from tests.support.memory_log import Contents, MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import T0, Issuer

pytestmark = pytest.mark.virtual_clock

TOPIC = Partition(REPLICAS, 0)


class ReplicasWithBeacons:
    """Replicas over one log, each with its own connection and beacons."""

    def __init__(self) -> None:
        self.contents = Contents(4)
        self.loop = asyncio.get_running_loop()
        self.sending: dict[str, asyncio.Future[None]] = {}
        self.logs: dict[str, MemoryLog] = {}

    def now_ms(self) -> int:
        return T0 + int(self.loop.time() * 1_000)

    @asynccontextmanager
    async def joined(
        self,
        name: str,
        roles: Sequence[str] = ("api",),
        clocks: ClockSkew | None = None,
        fault: str = "",
        sources: Sequence[SourceStatus] = (),
    ) -> AsyncIterator[Beacons]:
        log = self.logs[name] = MemoryLog(self.contents, self.now_ms)
        replica = toy_replica(log, name=name, now_ms=self.now_ms)
        async with running(replica):
            addresses = {"api": f"{name}:7080"}
            rng = random.Random(name)
            beacons = Beacons(
                log,
                replica,
                roles=roles,
                addresses=addresses,
                version="1",
                rng=rng,
                revocations_fault=lambda: fault,
                sources=lambda: sources,
                clocks=clocks,
            )
            run = self.sending[name] = asyncio.ensure_future(beacons.run())
            yield beacons
            run.cancel()


async def test_a_beacon_has_roles_addresses_and_partitions() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other", ["relay"]) as other:
        await asyncio.sleep(3)
        assert one.alive() == other.alive()
        assert [(beacon.replica, beacon.roles) for beacon in one.alive()] == [
            ("one", ["api"]),
            ("other", ["relay"]),
        ]
        beacon = one.alive()[1]
        assert beacon.addresses == {"api": "other:7080"}
        assert beacon.supports == {"fleet": [1], "zones": [1]}
        assert {status.partition for status in beacon.partitions} >= {FLEET_0}


async def test_a_beacon_reports_a_rejected_list_of_revoked_certificates() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other", fault="tls_revoked f: gone"):
        await asyncio.sleep(3)
        board = StatusReporter(
            toy_replica(plane.logs["one"], name="one", now_ms=plane.now_ms),
            location=LogLocation("embedded"),
            roles=["api"],
            addresses={},
            version="1",
            alive=one.alive,
            stalled=dict,
            revocations_fault=lambda: "tls_revoked g: gone",
        )
        found = {replica.name: replica.revocations_fault for replica in board.status().replicas}
        assert found == {"one": "tls_revoked g: gone", "other": "tls_revoked f: gone"}


async def test_a_beacon_has_the_edges_of_its_replica() -> None:
    plane = ReplicasWithBeacons()
    east, west = SourceStatus("east", True, 100, 2, 3), SourceStatus("west", False, 7, 0, 0, "away", 5)
    async with plane.joined("one", sources=[east]) as one, plane.joined("other", sources=[west]):
        await asyncio.sleep(3)
        assert {beacon.replica: beacon.sources for beacon in one.alive()} == {"one": [east], "other": [west]}
        board = StatusReporter(
            toy_replica(plane.logs["one"], name="one", now_ms=plane.now_ms),
            location=LogLocation("embedded"),
            roles=["kubernetes"],
            addresses={},
            version="1",
            alive=one.alive,
            stalled=dict,
            sources=lambda: [east],
        )
        sources = [each for replica in board.status().replicas for each in replica.sources]
        assert [
            (each.source, each.watched, each.nodes, each.refused, each.retained, each.fault, each.ahead)
            for each in sources
        ] == [east, west]


async def test_clock_offsets_to_the_log_and_to_other_replicas_are_measured() -> None:
    plane = ReplicasWithBeacons()
    right, fast = ClockSkew(plane.now_ms, lambda: 0), ClockSkew(lambda: plane.now_ms() + 3_600_000, lambda: 0)
    async with plane.joined("one", clocks=right), plane.joined("other", clocks=fast), plane.joined("silent"):
        await asyncio.sleep(3)
        assert {name: round(ms, -2) for name, ms in right.offsets_ms().items()} == {LOG: 0, "other": -3_600_000}
        assert {name: round(ms, -2) for name, ms in fast.offsets_ms().items()} == {
            LOG: 3_600_000,
            "one": 3_600_000,
        }


async def test_a_replica_whose_partition_list_exceeds_a_record_still_sends_beacons() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other") as other:
        other._replica.folded(FLEET_0).halted = "x" * (1 << 20)
        await asyncio.sleep(20)
        assert not plane.sending["other"].done()
        assert one.is_alive("other")


async def test_a_replica_without_a_beacon_is_gone_after_two_seconds() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other"):
        await asyncio.sleep(5)
        plane.sending["other"].cancel()
        await asyncio.sleep(FRESH_S - EVERY_S - 0.01)
        assert one.is_alive("other")
        await asyncio.sleep(EVERY_S + 0.02)
        assert not one.is_alive("other")
        assert [beacon.replica for beacon in one.alive()] == ["one"]
        assert one.is_alive("one")


async def test_a_replica_that_just_started_or_reads_nothing_declares_no_other_gone() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        await asyncio.sleep(1)
        assert one.is_alive("was here before us"), "the replica has read beacons for one second only"
        await asyncio.sleep(2)
        assert not one.is_alive("was here before us")

        plane.logs["one"].failures.append_error = AppendUnknown("no answer")
        await asyncio.sleep(3)
        assert one.is_alive("anybody"), "the replica does not read its own beacons"
        plane.logs["one"].failures.append_error = None
        await asyncio.sleep(1)
        assert one.is_alive("anybody")
        await asyncio.sleep(2)
        assert not one.is_alive("anybody")


async def test_the_replicas_of_a_role_have_distinct_ranks_that_spread() -> None:
    plane = ReplicasWithBeacons()
    async with (
        plane.joined("a") as a,
        plane.joined("b") as b,
        plane.joined("c", ["api", "relay"]) as c,
        plane.joined("d", ["relay"]),
    ):
        await asyncio.sleep(3)
        subjects = [f"zone-{i}" for i in range(300)]
        firsts = {"a": 0, "b": 0, "c": 0}
        for subject in subjects:
            ranks = {name: them.rank(subject, "api") for name, them in (("a", a), ("b", b), ("c", c))}
            assert sorted(ranks.values()) == [0, 1, 2]
            firsts[min(ranks, key=lambda name: ranks[name])] += 1
        assert min(firsts.values()) > 60
        before = {subject: a.rank(subject, "api") for subject in subjects}
        plane.sending["b"].cancel()
        await asyncio.sleep(3)
        assert all(a.rank(subject, "api") <= before[subject] for subject in subjects)
        assert {a.rank(subject, "api") for subject in subjects} == {0, 1}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"not json",
        b"{}",
        b'{"replica": 7}',
        b"\xff\xfe",
        b'{"replica": "\xff"}',
        pytest.param(b'{"beside": ' + b"[" * 100_000, id="nested"),
    ],
)
async def test_a_record_that_is_not_a_beacon_is_skipped(value: bytes) -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        await asyncio.sleep(1)
        await plane.logs["one"].append(TOPIC, b"", value)
        await asyncio.sleep(2)
        assert [beacon.replica for beacon in one.alive()] == ["one"]


async def test_a_beacon_read_late_does_not_make_its_replica_live() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        await asyncio.sleep(3)
        stale = Beacon(replica="gone", roles=["api"], addresses={}, version="1", supports={})
        plane.contents.add(TOPIC, plane.now_ms() - 5_000, b"", msgspec.json.encode(stale))
        plane.contents.add(TOPIC, plane.now_ms(), b"", msgspec.json.encode(one.alive()[0]))
        await asyncio.sleep(0.1)
        assert not one.is_alive("gone")


async def test_names_of_gone_replicas_are_forgotten() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        for number in range(20):
            async with plane.joined(f"pod-{number}"):
                await asyncio.sleep(FRESH_S + 1)
        assert len(one.alive()) <= 2
        assert len(one._heard) <= 3


async def test_beacons_are_read_again_after_an_outage_longer_than_their_retention() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other"):
        await asyncio.sleep(3)
        end = plane.contents.end(TOPIC)
        plane.contents.records[TOPIC].clear()
        plane.contents.begins[TOPIC] = end + 100
        plane.contents.tell()
        await asyncio.sleep(3)
        assert [beacon.replica for beacon in one.alive()] == ["one", "other"]
        assert not plane.sending["one"].done()


@pytest.mark.parametrize("field", ["running", "digest", "marks"])
async def test_replicas_detect_that_they_diverge(field: str) -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        await one._replica.submit(FLEET_0, b"", Issuer().set("a", now_ms=plane.now_ms()), timeout_s=5)
        await asyncio.sleep(3)
        assert one.divergences == 0
        ours = one.alive()[0]
        other = {"marks": ((0, "ff" * 16),)} if field == "marks" else {field: "ff" * 16}
        partitions = [s._replace(**other) if s.partition == FLEET_0 else s for s in ours.partitions]
        theirs = msgspec.structs.replace(ours, replica="other", partitions=partitions)
        await plane.logs["one"].append(TOPIC, b"", msgspec.json.encode(theirs))
        await asyncio.sleep(0.1)
        assert one.divergences == 1


async def test_a_digest_is_compared_at_its_own_saved_position() -> None:
    """The digest of a replica that has saved further says nothing about the rows that this replica has saved."""
    plane, issue = ReplicasWithBeacons(), Issuer()
    async with plane.joined("one") as one:
        await one._replica.submit(FLEET_0, b"", issue.set("a", now_ms=plane.now_ms()), timeout_s=5)
        await asyncio.sleep(3)
        ours = one.alive()[0]
        await one._replica.submit(FLEET_0, b"", issue.set("b", now_ms=plane.now_ms()), timeout_s=5)
        mine = one._replica.folded(FLEET_0)
        assert mine.saved_position < mine.position
        saved = next(status for status in one._replica.partitions_status() if status.partition == FLEET_0)
        further = saved._replace(saved_position=mine.position, digest="ff" * 16)
        theirs = msgspec.structs.replace(ours, replica="other", partitions=[further])
        await plane.logs["one"].append(TOPIC, b"", msgspec.json.encode(theirs))
        await asyncio.sleep(0.1)
        assert mine.saved_position < mine.position, "this replica saved meanwhile, so the test is void"
        assert "other" in [beacon.replica for beacon in one.alive()]
        assert one.divergences == 0


async def test_the_status_of_a_partition_not_folded_here_is_skipped() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one:
        await asyncio.sleep(3)
        ours = one.alive()[0]
        strange = [status._replace(partition=Partition("zones", 999)) for status in ours.partitions]
        theirs = msgspec.structs.replace(ours, replica="other", partitions=strange)
        await plane.logs["one"].append(TOPIC, b"", msgspec.json.encode(theirs))
        await asyncio.sleep(0.1)
        assert "other" in [beacon.replica for beacon in one.alive()]
        assert one.divergences == 0


async def test_two_replicas_under_load_report_no_divergence() -> None:
    plane = ReplicasWithBeacons()
    async with plane.joined("one") as one, plane.joined("other") as other:
        issue = Issuer()
        for i in range(3_000):
            await one._replica.append_event(FLEET_0, b"", issue.set(f"p{i % 9}", now_ms=plane.now_ms()), timeout_s=5)
            await asyncio.sleep(0.01)
        assert (one.divergences, other.divergences) == (0, 0)


def test_a_plane_of_one_process_always_has_rank_0() -> None:
    solo = SingleReplica("me")
    assert solo.rank("zone-1", "api") == 0
    assert (solo.is_alive("me"), solo.is_alive("me before the restart")) == (True, False)
