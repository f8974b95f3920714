"""A relay on a virtual clock, with links that the test drives: served and rejected DPUs, and reports to the log."""

from __future__ import annotations

import asyncio

import pytest
from pyroaring import BitMap

from drivers.relays.relay import PIECE_BYTES, TURN_PIECES
from drivers.relays.rule_source import CurrentTable
from drivers.wire import agent_messages
from drivers.wire.agent_messages import NO_DIGEST, Ack, Heartbeat, Hello, Refusal
from drivers.wire.links import LinkClosed
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import GoAway, Welcome
from eventstore.errors import AppendRefused
from projections.installs.rows import Level
from projections.rules.device_table import DeviceTable, RefusalCode, digest_of
from schemas.events import InstallsReported
from tests.support.relays import FIRST, SECOND, SETTINGS, THIRD, AgentPeer, has, relay_cluster
from tests.support.rule_source import ALLOW, Tables, packed
from tests.support.virtual_loop import VirtualLoop, run_virtual

pytestmark = pytest.mark.virtual_clock


async def test_an_unregistered_dpu_gets_the_reason_and_is_served_once_registered() -> None:
    tables = Tables(["known"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("known", "unknown")
        welcome = await peer.hear()
        assert isinstance(welcome, Welcome)
        assert [part.dpus for part in welcome.unserved] == [0b10]
        assert "'unknown' is not registered in zone 'z'" in welcome.unserved[0].reason
        assert (await peer.frame()).dpus == 0b01
        tables.ordinals["unknown"] = 1
        peer.hello("unknown")
        assert (await peer.frame()).dpus == 0b10
        del tables.ordinals["known"]
        peer.say(Heartbeat([TableStatus(0b11, 1, 5, 5, 5, tables.table.digest)]))
        gone = await peer.hear()
        assert isinstance(gone, Welcome)
        assert gone.unserved[0].dpus == 0b01
        assert set(made.relay.devices()["z"]) == {"unknown"}


async def test_a_new_link_of_a_dpu_ends_its_older_link() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        older, newer = AgentPeer(await made.dial("r0")), AgentPeer(await made.dial("r0"))
        older.hello("d")
        await older.frame()
        newer.hello("d")
        await newer.frame()
        with pytest.raises(LinkClosed):
            await older.hear()
        assert len(made.relay.zones["z"].sessions) == 1


async def test_a_dpu_of_a_later_epoch_or_another_zone_is_rejected() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables, settings=SETTINGS._replace(zones=frozenset({"z"}))) as made:
        later = AgentPeer(await made.dial("r0"))
        later.hello("d", held=TableStatus(1, 2, 1, 1, 1, bytes(16)))
        welcome = await later.hear()
        assert isinstance(welcome, Welcome)
        assert "epoch: 2 is later than epoch 1" in welcome.unserved[0].reason
        assert await later.is_quiet(5)
        elsewhere = AgentPeer(await made.dial("r0"))
        elsewhere.hello("d", zone="other")
        refused = await elsewhere.hear()
        assert isinstance(refused, GoAway)
        assert refused.reason == "hello.zone: 'other' is not served by this relay, which serves z"
        later.hello("d", zone="y")
        assert isinstance(await later.hear(), GoAway)


@pytest.mark.parametrize("dpus", [1, 2_000])
async def test_a_link_with_endless_messages_does_not_block_the_loop(dpus: int) -> None:
    names = [f"d{number}" for number in range(dpus)]
    async with relay_cluster(Tables(names)) as made:
        loud = AgentPeer(await made.dial("r0"))
        loud.hello(*names)
        await loud.hear()
        (session,) = made.relay.zones["z"].sessions
        for _ in range(100):
            loud.hello(*names)
        size = 1 + len(agent_messages.encode(Hello("z", names, ["b"] * dpus, []))) // PIECE_BYTES
        handled = []
        while session.messages < 100 * size:
            before = session.messages
            await asyncio.sleep(0)
            handled.append(session.messages - before)
        assert max(handled) < TURN_PIECES + size


async def test_closed_links_of_unknown_zones_leave_no_state() -> None:
    async with relay_cluster(Tables()) as made:
        for number in range(20):
            peer = AgentPeer(await made.dial("r0"))
            peer.hello("d", zone=f"zone-{number}")
            await peer.hear()
            peer.link.abort()
        await asyncio.sleep(0.1)
        assert made.relay.zones == {}


async def test_a_dpu_without_lag_gets_a_snapshot_of_each_version_if_that_is_smaller() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        for version in range(6, 20):
            frame = await peer.frame()
            assert frame.delta.from_version == 0
            tables.history.clear()
            tables.put(version, {ALLOW: SECOND if version % 2 else THIRD})
            peer.say(has(frame))
        assert asyncio.get_running_loop().time() < 1


async def test_a_dpu_that_reconnects_often_gets_one_snapshot_per_minute() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        loop, snapshots = asyncio.get_running_loop(), list[float]()
        while loop.time() < 600:
            peer = AgentPeer(await made.dial("r0"))
            peer.hello("d")
            if not await peer.is_quiet(3):
                snapshots.append(loop.time())
            peer.link.abort()
            await asyncio.sleep(0.1)
        assert snapshots[2] < 10
        assert 10 <= len(snapshots) <= 13


async def test_a_link_that_does_not_read_gets_no_more_frames_until_it_reads() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: packed(*(f"10.{i // 250}.{i % 250}.0/24" for i in range(60_000)))})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        for version in range(6, 60):
            tables.put(version, {ALLOW: FIRST if version % 2 else SECOND})
            await asyncio.sleep(0.1)
        session = next(iter(made.relay.zones["z"].sessions))
        assert session.sent <= 2
        first = await peer.frame()
        peer.say(has(first))
        merged = await peer.frame()
        if merged.delta.to_version != 59:
            peer.say(has(merged))
            merged = await peer.frame()
        assert merged.delta.to_version == 59


async def test_a_version_folded_between_two_passes_of_the_relay_is_reported() -> None:
    """The replica folds between two passes of the relay, and a frame contains all that is folded when it is encoded."""
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        await asyncio.sleep(1)
        AgentPeer(await made.dial("r0")).hello("unknown")
        await asyncio.sleep(1)
        tables.history[6] = DeviceTable(1, 6, digest_of({ALLOW: SECOND}), {ALLOW: SECOND})
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        frame = await peer.frame()
        assert frame.delta.to_version == 6
        peer.say(has(frame))
        await asyncio.sleep(0.1)
        tables.wake()
        await asyncio.sleep(5)
        assert [(report.versions, report.levels) for report in tables.reports] == [([6, 6, 6], [0, 1, 2])]
        assert made.relay.zones["z"].current.version == 6


async def test_reports_name_dpus_that_returned_to_an_older_version() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST})
    tables.put(6, {ALLOW: SECOND})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        newest = TableStatus(0b11, 1, 6, 6, 6, tables.table.digest)
        peer.say(Hello("z", ["d", "e"], ["b", "b"], [newest]))
        await asyncio.sleep(3)
        older = TableStatus(0b10, 1, 5, 5, 5, tables.history[5].digest)
        peer.say(Heartbeat([newest._replace(dpus=0b01), older]))
        frame = await peer.frame()
        assert (frame.dpus, frame.delta.from_version) == (0b10, 5)
        await asyncio.sleep(3)
        peer.link.abort()
        again = AgentPeer(await made.dial("r0"))
        again.hello("d")
        await asyncio.sleep(6)
        named = [report.regressed for report in tables.reports if report.regressed]
        assert named == [{"e": 5}, {"d": 0}]


async def test_reports_name_dpus_whose_devices_lost_rules() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST})
    tables.put(6, {ALLOW: SECOND})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        good = TableStatus(0b11, 1, 6, 6, 6, tables.table.digest)
        bad = TableStatus(0b10, 1, 6, 6, 0, bytes(16))
        peer.say(Hello("z", ["d", "e"], ["b", "b"], [good]))
        for status in (bad, bad, good._replace(dpus=0b10)):  # what is wrong twice is told once
            peer.say(Heartbeat([good._replace(dpus=0b01), status]))
            await asyncio.sleep(6)
        assert (await peer.frame()).dpus == 0b10
        named = [report.refused for report in tables.reports if report.refused]
        assert named == [{"e": "DRIFT: the device no longer has the rules of version 6"}]


async def test_a_dpu_that_returns_with_wrong_rules_gets_its_table_and_has_not_drifted() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.say(Hello("z", ["d"], ["b"], [TableStatus(1, 1, 5, 5, 0, bytes(16))]))
        assert (await peer.frame()).delta.from_version == 0
        peer.say(Ack([TableStatus(1, 1, 5, 5, 5, tables.table.digest)], []))
        await asyncio.sleep(6)
        assert not [report.refused for report in tables.reports if report.refused]


class RefusingTables(Tables):
    """Tables of a log that refuses the first report."""

    async def report(self, event: InstallsReported) -> None:
        await super().report(event)
        if len(self.reports) == 1:
            raise AppendRefused("record: larger than the log allows")


async def test_a_report_that_the_log_refuses_is_dropped_and_later_ones_are_sent() -> None:
    tables = RefusingTables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        peer.say(has(await peer.frame()))
        await asyncio.sleep(10)
        assert [set(report.versions) for report in tables.reports] == [{5}]
        tables.put(6, {ALLOW: SECOND})
        peer.say(has(await peer.frame()))
        await asyncio.sleep(3)
        assert [set(report.versions) for report in tables.reports] == [{5}, {6}]


async def test_a_dpu_that_is_registered_again_is_reported_by_its_new_ordinal() -> None:
    tables = Tables(["a", "b"])
    tables.put(4, {ALLOW: FIRST})
    tables.put(5, {ALLOW: SECOND})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        newest = TableStatus(0b11, 1, 5, 5, 5, tables.table.digest)
        peer.say(Hello("z", ["a", "b"], ["b", "b"], [newest]))
        await asyncio.sleep(3)
        assert _reported(tables) == {(5, level): BitMap([0, 1]) for level in Level}
        tables.reports.clear()
        tables.ordinals["a"] = 7
        peer.say(Heartbeat([newest]))
        await asyncio.sleep(3)
        assert _reported(tables) == {(5, level): BitMap([7]) for level in Level}
        tables.reports.clear()
        peer.say(Heartbeat([newest]))
        await asyncio.sleep(3)
        assert not tables.reports


async def test_a_heartbeat_is_reported_under_the_present_ordinal_of_its_dpu() -> None:
    tables = Tables(["a", "b"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("a", "b")
        await peer.frame()
        tables.ordinals |= {"a": 7, "b": 0}
        peer.say(Heartbeat([TableStatus(0b01, 1, 5, 5, 5, tables.table.digest)]))
        await asyncio.sleep(3)
        assert _reported(tables) == {(5, level): BitMap([7]) for level in Level}


def _reported(tables: Tables) -> dict[tuple[int, int], BitMap]:
    """The ordinals in all reports, by version and level."""
    found: dict[tuple[int, int], BitMap] = {}
    for report in tables.reports:
        for version, level, packed_ordinals in zip(report.versions, report.levels, report.ordinals, strict=True):
            found[version, level] = found.get((version, level), BitMap()) | BitMap.deserialize(packed_ordinals)
    return found


async def test_a_freeze_takes_effect_as_soon_as_it_is_folded() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        first, second = AgentPeer(await made.dial("r0")), AgentPeer(await made.dial("r0"))
        first.hello("d")
        await first.frame()
        tables.frozen = {"z"}  # without `wake`, as if the relay were still busy with other zones
        second.hello("e")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await second.frame()
        tables.frozen.clear()
        tables.wake()
        assert (await second.frame()).delta.to_version == 5


def test_a_freeze_of_all_zones_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tables = Tables(["d"])
        async with relay_cluster(tables) as made:
            for zone in ("z2", "z1", "z3"):
                AgentPeer(await made.dial("r0")).hello("d", zone=zone)
            await asyncio.sleep(1)
            for frozen in ({"z1", "z2", "z3"}, {"z3"}, set[str]()):
                tables.frozen = frozen
                tables.wake()
                await asyncio.sleep(1)

    with caplog.at_level("INFO", logger="drivers.relays.served_zone"):
        run_virtual(scenario())
    logged = [(record.getMessage(), vars(record)["zones"], vars(record)["first"]) for record in caplog.records]
    assert logged == [("zones frozen", 3, "z1"), ("zones thawed", 2, "z1"), ("zones thawed", 1, "z3")]


async def test_a_dpu_ahead_of_a_restored_log_is_counted_and_named_when_it_gets_the_older_table() -> None:
    tables = Tables(["d", "e"], epoch=2)
    tables.put(5, {ALLOW: FIRST})
    tables.unknown = {(1, 9)}
    tables.frozen = {"z"}
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        newer, known = TableStatus(0b01, 1, 9, 9, 9, bytes(16)), TableStatus(0b10, 1, 4, 4, 4, bytes(16))
        peer.say(Hello("z", ["d", "e"], ["b", "b"], [newer, known]))
        await asyncio.sleep(3)
        assert (made.relay.dpus_ahead_of_log(), made.relay.zones["z"].ahead_of_log) == (1, {"d": (1, 9)})
        tables.frozen.clear()
        tables.wake()
        frame = await peer.frame()
        peer.say(Ack([TableStatus(0b11, 2, 5, 5, 5, frame.delta.digest)], []))
        await asyncio.sleep(6)
        assert made.relay.dpus_ahead_of_log() == 0
        assert [report.regressed for report in tables.reports if report.regressed] == [{"d": 5}]


async def test_a_dpu_ahead_of_the_log_is_not_counted_once_it_is_deleted_or_disconnected() -> None:
    tables = Tables(["d", "e", "f"], epoch=2)
    tables.put(5, {ALLOW: FIRST})
    tables.unknown = {(1, 9), (3, 9)}
    async with relay_cluster(tables) as made:
        tables.frozen = {"z"}
        peer, other = AgentPeer(await made.dial("r0")), AgentPeer(await made.dial("r0"))
        newer = TableStatus(0b011, 1, 9, 9, 9, bytes(16))
        peer.say(Hello("z", ["d", "e"], ["b", "b"], [newer]))
        other.hello("f", held=TableStatus(1, 3, 9, 9, 9, bytes(16)))
        await asyncio.sleep(1)
        zone = made.relay.zones["z"]
        assert set(zone.ahead_of_log) == set(zone.links) == {"d", "e", "f"}
        del tables.ordinals["e"]
        peer.say(Heartbeat([newer]))
        await asyncio.sleep(1)
        assert set(zone.ahead_of_log) == set(zone.links) == {"d", "f"}
        other.link.abort()
        await asyncio.sleep(1)
        assert set(zone.ahead_of_log) == set(zone.links) == {"d"}
        peer.link.abort()
        await asyncio.sleep(1)
        assert (zone.ahead_of_log, zone.links, zone.last_reported) == ({}, {}, {"d": (1, 9)})


async def test_the_end_of_an_older_link_does_not_affect_the_newer_link_of_its_dpu() -> None:
    tables = Tables(["d"], epoch=2)
    tables.put(5, {ALLOW: FIRST})
    tables.unknown = {(3, 9)}
    async with relay_cluster(tables) as made:
        older, newer = AgentPeer(await made.dial("r0")), AgentPeer(await made.dial("r0"))
        for peer in (older, newer):
            peer.hello("d", held=TableStatus(1, 3, 9, 9, 9, bytes(16)))
            await asyncio.sleep(1)
        older.link.abort()
        await asyncio.sleep(1)
        zone = made.relay.zones["z"]
        assert zone.ahead_of_log.keys() == zone.links.keys() == {"d"}


async def test_latency_is_measured_from_the_change_and_only_for_connected_dpus() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST}, at_ms=0)
    async with relay_cluster(tables) as made:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(100)
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d", "e")
        first = await peer.frame()
        peer.say(Ack([TableStatus(0b11, 1, 5, 5, 5, first.delta.digest)], []))
        await asyncio.sleep(1)
        assert made.relay.latency[Level.APPLIED].count == 0
        for version, rules in ((6, SECOND), (7, THIRD)):
            tables.put(version, {ALLOW: rules}, at_ms=round(now() * 1000))
            await asyncio.sleep(0.2)
        peer.say(Ack([TableStatus(0b11, 1, 7, 7, 5, tables.table.digest)], []))
        await asyncio.sleep(0.1)
        applied = made.relay.latency[Level.APPLIED]
        assert (applied.count, applied.max_ms) == (2, 400)
        assert made.relay.latency[Level.IN_HARDWARE].count == 0


class SlowTables(Tables):
    """Tables of which each version takes 0.1 s to read for the first time."""

    read = 0

    def current(self, zone: str, since: int, stage: int = 0) -> CurrentTable:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        now = super().current(zone, since, stage)
        loop.take(0.0 if now.version == self.read else 0.1)
        self.read = now.version
        return now


@pytest.mark.parametrize(("late_ms", "rest_s"), [(0, 0.0), (50, 0.05), (5_000, 0.2)])
async def test_a_relay_rests_after_a_pass_over_late_changes_for_at_most_their_lateness(
    late_ms: int, rest_s: float
) -> None:
    tables = SlowTables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        now = asyncio.get_running_loop().time
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        first = await peer.frame()
        await asyncio.sleep(1)
        peer.say(Ack([TableStatus(0b1, 1, 5, 5, 5, first.delta.digest)], []))
        tables.put(6, {ALLOW: SECOND}, at_ms=round(now() * 1000) - late_ms)
        assert (await peer.frame()).delta.to_version == 6
        passed_s = now()
        tables.put(7, {ALLOW: THIRD}, at_ms=round(now() * 1000))
        assert (await peer.frame()).delta.to_version == 7
        assert now() - passed_s == pytest.approx(rest_s + 0.1)


async def test_a_dpu_with_false_claims_affects_only_itself() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        liar, honest = AgentPeer(await made.dial("r0")), AgentPeer(await made.dial("r0"))
        liar.hello("d")
        honest.hello("e")
        await liar.frame()
        liar.say(Ack([TableStatus((1 << 500) - 1, 1, 1 << 60, 1 << 60, 1 << 60, NO_DIGEST)], []))
        liar.say(Ack([], [Refusal(TableStatus(1, 0, 0, 0, 0, NO_DIGEST), 77, RefusalCode.FULL, "no")]))
        assert (await honest.frame()).delta.to_version == 5
        await asyncio.sleep(3)
        assert all(version == 5 for report in tables.reports for version in report.versions)
