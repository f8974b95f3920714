"""A relay's handling of slow, silent and impersonating links, and the limits of what it remembers."""

from __future__ import annotations

import asyncio

import pytest

from drivers.relays import served_zone, sessions
from drivers.relays.served_zone import ServedZone
from drivers.wire.agent_messages import Ack, Heartbeat
from drivers.wire.links import LinkClosed, memory_link_pair
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import GoAway, Welcome
from eventstore.errors import AppendUnknown
from projections.rules.device_table import digest_of
from schemas.events import InstallsReported
from tests.support.relays import FIRST, SECOND, SETTINGS, THIRD, AgentPeer, RelayCluster, has, relay_cluster
from tests.support.rule_source import ALLOW, Tables
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock


def sent(made: RelayCluster) -> int:
    """The number of frames sent on the only link."""
    [session] = made.relay.zones["z"].sessions
    return session.sent


def status(tables: Tables, version: int, dpus: int = 1) -> TableStatus:
    return TableStatus(dpus, tables.epoch, version, version, version, tables.history[version].digest)


# -- unread frames


async def test_a_link_with_a_backlog_gets_no_frames_for_its_other_dpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "BACKLOG_BYTES", 0)
    tables = Tables(["a", "b", "c"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("a")
        assert isinstance(await peer.hear(), Welcome)
        await asyncio.sleep(5)
        assert sent(made) == 1
        peer.hello("b", "c")
        await asyncio.sleep(20)
        assert sent(made) == 1, "the link has not read its first frame yet"
        await peer.frame()
        assert (await peer.frame()).dpus == 0b110


async def test_an_unread_frame_is_not_sent_again() -> None:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d", held=status(tables, 5))
        await peer.hear()
        await asyncio.sleep(2)
        tables.put(6, {ALLOW: SECOND})
        for _ in range(6):
            await asyncio.sleep(10)
            peer.say(Heartbeat([status(tables, 5)]))
        await asyncio.sleep(1)
        assert sent(made) == 1
        assert (await peer.frame()).delta.to_version == 6
        assert await peer.is_quiet(1)
        peer.say(Heartbeat([status(tables, 5)]))
        assert ((await peer.frame()).delta.to_version, sent(made)) == (6, 2), (
            "the frame was read and not received, so it is sent again"
        )


async def test_no_snapshot_is_sent_while_a_delta_is_in_flight() -> None:
    """The snapshot would repeat the whole table for a DPU that is about to have most of it."""
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d", held=status(tables, 5))
        await peer.hear()
        tables.put(6, {ALLOW: SECOND})
        delta = await peer.frame()
        assert (delta.delta.from_version, delta.delta.to_version) == (5, 6)
        tables.put(7, {ALLOW: THIRD})
        del tables.history[6]
        assert await peer.is_quiet(5)
        peer.say(Ack([TableStatus(1, 1, 6, 6, 6, digest_of({ALLOW: SECOND}))], []))
        assert ((await peer.frame()).delta.from_version, sent(made)) == (0, 2)


# -- the messages of a link


async def test_a_steady_rate_of_messages_within_the_limit_is_not_flooding() -> None:
    tables = Tables(["d"])
    async with relay_cluster(tables, settings=SETTINGS._replace(messages_per_second=20)) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        for _ in range(200):
            peer.say(Heartbeat([]))
            await asyncio.sleep(0.1)
        assert made.relay.closed_for["flooding"] == 0
        for _ in range(50):
            peer.say(Heartbeat([]))
        await asyncio.sleep(1.1)
        assert made.relay.closed_for["flooding"] == 1


async def test_a_silent_link_gets_a_go_away_and_is_closed() -> None:
    tables = Tables(["d"])
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        assert isinstance(await peer.hear(), Welcome)
        await asyncio.sleep(3 * SETTINGS.heartbeat_s - 1)
        assert len(made.relay.zones["z"].sessions) == 1
        refused = await peer.hear()
        assert isinstance(refused, GoAway) and refused.reason.startswith("heartbeat: none received for 3")
        with pytest.raises(LinkClosed):
            await peer.hear()
        await asyncio.sleep(5)
        assert not made.relay.devices().get("z") and made.relay.closed_for["silent"] == 1


async def test_a_link_whose_certificate_names_a_dpu_may_name_no_other() -> None:
    tables = Tables(["d", "e"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        for named in (["e"], ["d", "e"]):
            relays_end, agents_end = memory_link_pair("r0", "agent")
            made.start(made.relay.serve(relays_end, "d"))
            peer = AgentPeer(agents_end)
            peer.hello(*named)
            refused = await peer.hear()
            assert isinstance(refused, GoAway)
            assert refused.reason == "hello.dpus: 'e' is not 'd', the DPU that the link's certificate names"
        relays_end, agents_end = memory_link_pair("r0", "agent")
        made.start(made.relay.serve(relays_end, "d"))
        peer = AgentPeer(agents_end)
        peer.hello("d")
        peer.say(has(await peer.frame()))
        peer.hello("e")
        while not isinstance(message := await peer.hear(), GoAway):
            """Skip the messages sent before the GoAway."""
        assert "'e' is not 'd'" in message.reason


# -- reports


class LosingTables(Tables):
    """Tables of a log whose first responses to reports are lost."""

    lost = 3

    async def report(self, event: InstallsReported) -> None:
        await super().report(event)
        if len(self.reports) <= self.lost:
            raise AppendUnknown("append to installs/0: the response was lost")


async def test_a_report_with_an_unknown_outcome_is_repeated() -> None:
    tables = LosingTables(["d"])
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        peer = AgentPeer(await made.dial("r0"))
        peer.hello("d")
        peer.say(has(await peer.frame()))
        await asyncio.sleep(30)
        assert [set(report.versions) for report in tables.reports] == [{5}] * (tables.lost + 1)


# -- versions of a zone


def test_a_served_zone_keeps_the_digests_of_the_newest_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_zone, "VERSIONS_MAX", 3)
    tables = run_virtual(_tables())
    zone: ServedZone[object] = ServedZone("z", tables, {})
    for version in range(1, 8):
        tables.put(version, {ALLOW: FIRST if version % 2 else SECOND})
        zone.refresh()
    known = [version for version in range(1, 8) if zone.digest(version) is not None]
    assert known == [5, 6, 7]


async def _tables() -> Tables:
    return Tables(["d"])
