"""A relay and simulated zones within one process, on a virtual clock: who gets what, when, and what the log is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pyroaring import BitMap

from drivers import protocol_down, protocol_up
from drivers.backends.simulated import NO_FAULTS, Faults
from drivers.links import Busy, Link, LinkClosed, pair
from drivers.protocol import Holding
from drivers.protocol_down import Frame, Heard, Refused, ToAgent, Welcome
from drivers.protocol_up import NO_DIGEST, Ack, FromAgent, Heartbeat, Hello, Refusal
from drivers.relay import Relay, RelaySettings
from drivers.reports import Level
from drivers.simulator import Simulator
from eventstore.errors import AppendUnknown
from projections.device_table import Code
from schemas.events import RulesInstalled
from tests.support.rule_source import ALLOW, Tables, packed
from tests.support.virtual_loop import run_virtual

SETTINGS = RelaySettings(handshakes_at_once=1_000)
FIRST, SECOND, THIRD = (packed("10.0.0.0/8"), packed("10.0.0.0/8", "11.0.0.0/8"), packed("11.0.0.0/8"))


class Zones:
    """A simulator's directory: these zones, whose DPUs are registered as the tables say."""

    def __init__(self, tables: Tables, *names: str) -> None:
        self._tables = tables
        self._names = names
        self._told = False

    async def zones(self) -> tuple[str, ...]:
        if self._told:
            await asyncio.Event().wait()
        self._told = True
        return self._names

    async def registered(self, zone: str) -> tuple[str, ...]:
        return ()

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        self._tables.ordinals[dpu] = int(dpu[-4:])


class House:
    """Some relays of one log, and what dials them."""

    def __init__(self, tables: Tables, relays: int = 1, settings: RelaySettings = SETTINGS) -> None:
        self.tables = tables
        self.tasks: set[asyncio.Task[None]] = set()
        self.relays = {f"r{i}": self._relay(f"r{i}", settings) for i in range(relays)}
        self.down: set[str] = set()

    def _relay(self, name: str, settings: RelaySettings) -> Relay:
        now = asyncio.get_running_loop().time
        rng = random.Random(name)
        relay = Relay(self.tables, name=name, now_ms=lambda: round(now() * 1000), rng=rng, settings=settings)
        self.start(relay.run())
        return relay

    @property
    def relay(self) -> Relay:
        return self.relays["r0"]

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    async def dial(self, address: str) -> Link:
        if address in self.down:
            raise LinkClosed("down")
        if wait_s := self.relays[address].admit():
            raise Busy("busy", wait_s)
        relays_end, agents_end = pair(address, "agent")
        self.start(self.relays[address].serve(relays_end))
        return agents_end

    def kill(self, address: str) -> None:
        self.down.add(address)
        for zone in list(self.relays[address].zones.values()):
            for session in list(zone.sessions):
                session.link.abort()

    def simulate(self, zones: list[str], count: int, faults: Faults = NO_FAULTS) -> Simulator:
        simulator = Simulator(
            Zones(self.tables, *zones),
            sorted(self.relays),
            dial=self.dial,
            rng=random.Random(5),
            dpus_per_zone=count,
            faults=faults,
        )
        self.start(simulator.run())
        return simulator

    def versions(self) -> list[int]:
        return [
            held.version
            for relay in self.relays.values()
            for zone in relay.devices().values()
            for held in zone.values()
        ]

    def equal_the_table(self, simulator: Simulator) -> bool:
        """Whether every device really has the table, looked at in the device."""
        tables = simulator.fleet.tables
        return all(tables[int(number)] == self.tables.table for number in simulator.fleet.records.actual)


@asynccontextmanager
async def house(tables: Tables, relays: int = 1, settings: RelaySettings = SETTINGS) -> AsyncIterator[House]:
    made = House(tables, relays, settings)
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        for result in await asyncio.gather(*made.tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result


class Peer:
    """An agent's end of a link, spoken by hand."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def say(self, message: FromAgent) -> None:
        self.link.send(protocol_up.encode(message))

    def hello(self, *dpus: str, held: Holding | None = None, zone: str = "z") -> None:
        self.say(Hello(zone, dpus, ["b"] * len(dpus), [held] if held else []))

    async def hear(self) -> ToAgent:
        async with asyncio.timeout(60):
            return protocol_down.decode(await self.link.receive())

    async def frame(self) -> Frame:
        while not isinstance(message := await self.hear(), Frame):
            assert isinstance(message, Welcome | Heard)
        return message

    async def is_quiet(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while isinstance(protocol_down.decode(await self.link.receive()), Welcome | Heard):
                    pass
        except TimeoutError:
            return True
        return False


def has(frame: Frame) -> Ack:
    """The answer of the only DPU of a link that has taken a frame."""
    version = frame.delta.to_version
    return Ack([Holding(1, frame.epoch, version, version, version, frame.delta.digest)], [])


def test_every_device_of_every_zone_has_each_version_and_each_frame_is_encoded_once() -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            simulator = made.simulate(["a", "b", "c"], 40)
            await asyncio.sleep(2)
            for version, rules in ((6, SECOND), (7, THIRD), (8, FIRST)):
                tables.put(version, {ALLOW: rules})
                await asyncio.sleep(0.5)
                assert made.versions() == [version] * 120
                assert made.equal_the_table(simulator)
            assert made.relay.frames.encoded == 4
            assert simulator.fleet.tables.applied == 4

    run_virtual(scenario())


def test_a_burst_is_merged_for_those_who_are_behind() -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            simulator = made.simulate(["a"], 50, Faults(latency_ms=400.0, slow_share=0.1, slow_factor=20.0))
            await asyncio.sleep(60)
            for version in range(6, 106):
                tables.put(version, {ALLOW: packed("10.0.0.0/8", f"11.{version}.0.0/16")})
                await asyncio.sleep(0.05)
            await asyncio.sleep(60)
            assert made.versions() == [105] * 50
            assert made.equal_the_table(simulator)
            slowest = simulator.fleet.records.factor > 1
            assert slowest.any()
            assert not slowest.all()

    run_virtual(scenario())


def test_a_zone_follows_to_the_other_relay_by_deltas() -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables, relays=2) as made:
            simulator = made.simulate(["a", "b"], 30)
            await asyncio.sleep(5)
            snapshots = tables.snapshots
            made.kill("r0")
            tables.put(6, {ALLOW: SECOND})
            await asyncio.sleep(30)
            made.down.clear()
            made.kill("r1")
            tables.put(7, {ALLOW: THIRD})
            await asyncio.sleep(30)
            assert made.versions() == [7] * 60
            assert made.equal_the_table(simulator)
            assert tables.snapshots == snapshots

    run_virtual(scenario())


@pytest.mark.parametrize(
    "faults",
    [
        Faults(lies=0.3),
        Faults(false_alarms=0.3),
        Faults(failures=0.3),
        Faults(frame_loss=0.3, answer_loss=0.3),
        Faults(reboots_per_hour=30.0),
        Faults(latency_ms=200.0, hardware_ms=300.0, slow_share=0.1),
        Faults(100.0, 1.0, 0.1, 10.0, 50.0, 0.1, 0.1, 0.1, 0.1, 0.1, 10.0),
    ],
    ids=["lies", "false alarms", "failures", "losses", "reboots", "slow", "everything"],
)
def test_whatever_devices_do_all_have_the_table_in_the_end(faults: Faults) -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            simulator = made.simulate(["a", "b"], 50, faults)
            await asyncio.sleep(30)
            for version in range(6, 26):
                tables.put(version, {ALLOW: packed("10.0.0.0/8", f"11.{version}.0.0/16")})
                await asyncio.sleep(2)
            assert not made.equal_the_table(simulator)
            simulator.fleet.faults = NO_FAULTS
            await asyncio.sleep(300)
            assert made.equal_the_table(simulator)
            assert made.versions() == [25] * 100

    run_virtual(scenario())


def test_small_devices_refuse_by_name_and_keep_what_they_had() -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            simulator = made.simulate(["a"], 100, Faults(small_share=0.2, small_capacity=3))
            await asyncio.sleep(10)
            tables.put(6, {ALLOW: FIRST | packed(*(f"11.{i}.0.0/17" for i in range(10)))})
            await asyncio.sleep(60)
            small = int((simulator.fleet.records.capacity == 3).sum())
            assert sorted(made.versions()) == [5] * small + [6] * (100 - small)
            refused = {name: why for report in tables.reports for name, why in report.refused.items()}
            assert len(refused) == small
            assert all(why.startswith("FULL: ") for why in refused.values())
            tables.put(7, {ALLOW: SECOND})
            await asyncio.sleep(120)
            assert made.equal_the_table(simulator)

    run_virtual(scenario())


def test_a_frozen_zone_gets_nothing_until_it_is_thawed() -> None:
    async def scenario() -> None:
        tables = Tables()
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            made.simulate(["a", "b"], 10)
            await asyncio.sleep(5)
            tables.frozen = {"a"}
            tables.put(6, {ALLOW: SECOND})
            await asyncio.sleep(60)
            held = made.relay.devices()
            assert {device.version for device in held["a"].values()} == {5}
            assert {device.version for device in held["b"].values()} == {6}
            tables.frozen = set()
            tables.wake()
            await asyncio.sleep(1)
            assert made.versions() == [6] * 20

    run_virtual(scenario())


def test_a_dpu_that_is_not_registered_is_told_so_and_served_once_it_is() -> None:
    async def scenario() -> None:
        tables = Tables(["known"])
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            peer = Peer(await made.dial("r0"))
            peer.hello("known", "unknown")
            welcome = await peer.hear()
            assert isinstance(welcome, Welcome)
            assert [part.dpus for part in welcome.unwelcome] == [0b10]
            assert "'unknown' is not registered in zone 'z'" in welcome.unwelcome[0].reason
            assert (await peer.frame()).dpus == 0b01
            tables.ordinals["unknown"] = 1
            peer.hello("unknown")
            assert (await peer.frame()).dpus == 0b10
            del tables.ordinals["known"]
            peer.say(Heartbeat([Holding(0b11, 1, 5, 5, 5, tables.table.digest)]))
            gone = await peer.hear()
            assert isinstance(gone, Welcome)
            assert gone.unwelcome[0].dpus == 0b01
            assert set(made.relay.devices()["z"]) == {"unknown"}

    run_virtual(scenario())


def test_the_newest_link_speaks_for_a_dpu_and_the_older_one_ends() -> None:
    async def scenario() -> None:
        tables = Tables(["d"])
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            older, newer = Peer(await made.dial("r0")), Peer(await made.dial("r0"))
            older.hello("d")
            await older.frame()
            newer.hello("d")
            await newer.frame()
            with pytest.raises(LinkClosed):
                await older.hear()
            assert len(made.relay.zones["z"].sessions) == 1

    run_virtual(scenario())


def test_who_holds_something_of_a_later_log_or_speaks_for_another_zone_is_turned_away() -> None:
    async def scenario() -> None:
        tables = Tables(["d"])
        tables.put(5, {ALLOW: FIRST})
        async with house(tables, settings=SETTINGS._replace(zones=frozenset({"z"}))) as made:
            later = Peer(await made.dial("r0"))
            later.hello("d", held=Holding(1, 2, 1, 1, 1, bytes(16)))
            welcome = await later.hear()
            assert isinstance(welcome, Welcome)
            assert "epoch: 2 is of a later log" in welcome.unwelcome[0].reason
            assert await later.is_quiet(5)
            elsewhere = Peer(await made.dial("r0"))
            elsewhere.hello("d", zone="other")
            refused = await elsewhere.hear()
            assert isinstance(refused, Refused)
            assert refused.reason == "hello.zone: 'other' is not served here, only z"
            later.hello("d", zone="y")
            assert isinstance(await later.hear(), Refused)

    run_virtual(scenario())


def test_links_of_unknown_zones_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with house(Tables()) as made:
            for number in range(20):
                peer = Peer(await made.dial("r0"))
                peer.hello("d", zone=f"zone-{number}")
                await peer.hear()
                peer.link.abort()
            await asyncio.sleep(0.1)
            assert made.relay.zones == {}

    run_virtual(scenario())


def test_a_dpu_that_flaps_gets_a_few_snapshots_and_then_one_a_minute() -> None:
    async def scenario() -> None:
        tables = Tables(["d"])
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            loop, snapshots = asyncio.get_running_loop(), list[float]()
            while loop.time() < 600:
                peer = Peer(await made.dial("r0"))
                peer.hello("d")
                if not await peer.is_quiet(3):
                    snapshots.append(loop.time())
                peer.link.abort()
                await asyncio.sleep(0.1)
            assert snapshots[2] < 10
            assert 10 <= len(snapshots) <= 13

    run_virtual(scenario())


def test_a_link_that_takes_nothing_gets_nothing_more_until_it_does() -> None:
    async def scenario() -> None:
        tables = Tables(["d"])
        tables.put(5, {ALLOW: packed(*(f"10.{i // 250}.{i % 250}.0/24" for i in range(60_000)))})
        async with house(tables) as made:
            peer = Peer(await made.dial("r0"))
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

    run_virtual(scenario())


def test_reports_say_who_reached_what_on_change_only_and_say_again_what_may_be_lost() -> None:
    class Unsure(Tables):
        unsure = True

        async def report(self, event: RulesInstalled) -> None:
            await super().report(event)
            if self.unsure:
                raise AppendUnknown("the broker did not answer")

    async def scenario() -> None:
        tables = Unsure()
        tables.put(5, {ALLOW: FIRST}, at_ms=0)
        async with house(tables) as made:
            made.simulate(["a"], 10)
            await asyncio.sleep(10)
            assert len(tables.reports) >= 5
            tables.unsure = False
            await asyncio.sleep(10)
            count = len(tables.reports)
            await asyncio.sleep(60)
            assert len(tables.reports) == count
            report = tables.reports[-1]
            assert (report.zone, report.epoch, report.dpu_count, report.relay) == ("a", 1, 10, "r0")
            assert [*zip(report.versions, report.levels, strict=True)] == [(5, 0), (5, 1), (5, 2)]
            assert [set(BitMap.deserialize(bitmap)) for bitmap in report.ordinals] == [set(range(10))] * 3

    run_virtual(scenario())


def test_reports_come_once_a_second_and_name_who_went_back() -> None:
    async def scenario() -> None:
        tables = Tables(["d", "e"])
        tables.put(5, {ALLOW: FIRST})
        tables.put(6, {ALLOW: SECOND})
        async with house(tables) as made:
            peer = Peer(await made.dial("r0"))
            newest = Holding(0b11, 1, 6, 6, 6, tables.table.digest)
            peer.say(Hello("z", ["d", "e"], ["b", "b"], [newest]))
            await asyncio.sleep(3)
            older = Holding(0b10, 1, 5, 5, 5, tables.history[5].digest)
            peer.say(Heartbeat([newest._replace(dpus=0b01), older]))
            frame = await peer.frame()
            assert (frame.dpus, frame.delta.from_version) == (0b10, 5)
            await asyncio.sleep(3)
            peer.link.abort()
            again = Peer(await made.dial("r0"))
            again.hello("d")
            await asyncio.sleep(6)
            named = [report.went_back for report in tables.reports if report.went_back]
            assert named == [{"e": 5}, {"d": 0}]

    run_virtual(scenario())


def test_latency_runs_from_the_change_to_the_answer_and_not_for_who_was_away() -> None:
    async def scenario() -> None:
        tables = Tables(["d", "e"])
        tables.put(5, {ALLOW: FIRST}, at_ms=0)
        async with house(tables) as made:
            now = asyncio.get_running_loop().time
            await asyncio.sleep(100)
            peer = Peer(await made.dial("r0"))
            peer.hello("d", "e")
            first = await peer.frame()
            peer.say(Ack([Holding(0b11, 1, 5, 5, 5, first.delta.digest)], []))
            await asyncio.sleep(1)
            assert made.relay.latency[Level.APPLIED].count == 0
            for version, rules in ((6, SECOND), (7, THIRD)):
                tables.put(version, {ALLOW: rules}, at_ms=round(now() * 1000))
                await asyncio.sleep(0.2)
            peer.say(Ack([Holding(0b11, 1, 7, 7, 5, tables.table.digest)], []))
            await asyncio.sleep(0.1)
            applied = made.relay.latency[Level.APPLIED]
            assert (applied.count, applied.max_ms) == (2, 400)
            assert made.relay.latency[Level.IN_HARDWARE].count == 0

    run_virtual(scenario())


def test_a_dpu_that_claims_what_there_is_not_hurts_only_itself() -> None:
    async def scenario() -> None:
        tables = Tables(["d", "e"])
        tables.put(5, {ALLOW: FIRST})
        async with house(tables) as made:
            liar, honest = Peer(await made.dial("r0")), Peer(await made.dial("r0"))
            liar.hello("d")
            honest.hello("e")
            await liar.frame()
            liar.say(Ack([Holding((1 << 500) - 1, 1, 1 << 60, 1 << 60, 1 << 60, NO_DIGEST)], []))
            liar.say(Ack([], [Refusal(Holding(1, 0, 0, 0, 0, NO_DIGEST), 77, Code.FULL, "no")]))
            assert (await honest.frame()).delta.to_version == 5
            await asyncio.sleep(3)
            assert all(version == 5 for report in tables.reports for version in report.versions)

    run_virtual(scenario())
