"""From the log to the devices and back, with the real folds: every DPU finally has the table of the log."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from ipaddress import IPv4Network, collapse_addresses, ip_network
from pathlib import Path
from typing import Any

from deploy.composition.topics import TOPICS
from deploy.process.local_registrar import LocalRegistrar
from drivers.forwarder import Forwarder
from drivers.relays.relay import Relay, RelaySettings
from drivers.relays.replica_rules import ReplicaRules
from drivers.simulators.simulator import Simulator
from drivers.stages import Stages
from drivers.wire.links import Link, LinkClosed, memory_link_pair
from eventstore.embedded.log import EmbeddedLog
from eventstore.folding.fold import Fold
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET, FLEET_0, INSTALLS, ZONES, Partition, partition_of
from eventstore.replicas.beacons import SingleReplica
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.fleet.fold import FleetFold, FleetFold2
from projections.fleet.staging.rows import StagedChange
from projections.fleet.tables.zone_table import table
from projections.installs.fold import InstallsFold
from projections.installs.rows import Level
from projections.installs.views import zone_progress
from projections.rules.device_table import DeviceTable
from projections.zones.fold import ZonesFold
from schemas.events import (
    Event,
    FoldVersionUpgraded,
    NodesJoined,
    NodesLeft,
    PolicySet,
    PolicyStaged,
    StagesRequested,
    WritesFrozen,
    WritesThawed,
    ZoneUpdated,
)
from tests.support.eventually import until

PARTITIONS = 3
ZONE_NAMES = ("east", "north", "west")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class CountingRules(ReplicaRules):
    """Rules that count the snapshots that are made."""

    snapshots = 0

    def snapshot(self, zone: str, stage: int = 0) -> Any:
        self.snapshots += 1
        return super().snapshot(zone, stage)


class TwoRelays:
    """Two relays, each with its own replica, and simulated zones that have the addresses of both."""

    def __init__(self, log: EmbeddedLog, tasks: asyncio.TaskGroup) -> None:
        self.rng = random.Random(11)
        self.running: list[asyncio.Task[None]] = []
        self._tasks = tasks
        self.down: set[str] = set()
        self.replicas = [self._replica(log, f"r{number}") for number in range(2)]
        self.rules: dict[str, CountingRules] = {}
        self.relays: dict[str, Relay] = {}
        self.addresses: dict[str, int] = {}

    def _replica(self, log: EmbeddedLog, name: str) -> Replica:
        folds: list[Fold[Any]] = [ZonesFold(), FleetFold(PARTITIONS), FleetFold2(PARTITIONS), InstallsFold()]
        replica = Replica(log, folds, store=DigestStore(), name=name, now_ms=now_ms, rng=self.rng)
        self.start(replica.run())
        return replica

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.running.append(self._tasks.create_task(work))

    async def open(self) -> None:
        for replica in self.replicas:
            await replica.ready()
            rules = self.rules[replica.name] = CountingRules(replica)
            settings = RelaySettings(heartbeat_s=0.5)
            relay = Relay(rules, name=replica.name, now_ms=now_ms, rng=self.rng, settings=settings)
            self.relays[replica.name] = relay
            self.start(relay.run())
        ranks = SingleReplica("r0")
        self.start(Forwarder(self.replicas[0], ranks, now_ms=now_ms, rng=self.rng).run())
        self.start(Stages(self.replicas[0], ranks, now_ms=now_ms, rng=self.rng).run())
        self.simulator = Simulator(
            LocalRegistrar(self.replicas[0], now_ms=now_ms, rng=self.rng, expected=ZONE_NAMES),
            sorted(self.relays),
            dial=self.dial,
            rng=self.rng,
            dpus_per_zone=20,
        )
        self.start(self.simulator.run())

    async def dial(self, address: str) -> Link:
        if address in self.down:
            raise LinkClosed("down")
        relays_end, devices_end = memory_link_pair(address, "simulator")
        self.start(self.relays[address].serve(relays_end))
        return devices_end

    def kill(self, name: str) -> None:
        self.down.add(name)
        for zone in list(self.relays[name].zones.values()):
            for session in list(zone.sessions):
                session.link.abort()

    async def do(self, topic: str, key: str, event: Event) -> None:
        partition = self.replicas[0].partition_for(topic, key)
        answer = await self.replicas[0].submit(partition, key.encode(), event, timeout_s=60)
        assert answer.outcome.code == "done", answer.outcome

    def by(self, subject: str) -> Any:
        return envelope(subject, "?test", uuid7(now_ms(), self.rng))

    async def join(self, zone: str, names: list[str], addresses: list[int], **labels: str) -> None:
        packed = b"".join(address.to_bytes(4, "big") for address in addresses)
        await self.do(ZONES, zone, NodesJoined(self.by(zone), zone, names, [], [], packed, b"", [labels], [0]))
        self.addresses.update(zip(names, addresses, strict=True))

    async def leave(self, zone: str, names: list[str]) -> None:
        await self.do(ZONES, zone, NodesLeft(self.by(zone), zone, names, [], [], False, b""))
        for name in names:
            del self.addresses[name]

    async def policy(self, name: str, action: str, sources: dict[str, str], zones: dict[str, str]) -> None:
        await self.do(FLEET, name, PolicySet(self.by(name), name, 50, action, "tcp", [22, 22], sources, zones))

    async def stage(self, name: str, sources: dict[str, str], stages: list[str], bake_ms: int = 0) -> None:
        event = PolicyStaged(self.by(name), name, False, 50, "drop", "tcp", [22, 22], sources, {}, stages, bake_ms, "0")
        await self.do(FLEET, name, event)

    async def request_stages(self, name: str, verb: str) -> None:
        await self.do(FLEET, name, StagesRequested(self.by(name), name, verb))

    @property
    def staged(self) -> StagedChange:
        """The last staged change."""
        found: StagedChange | None = self.replicas[0].state(FLEET_0).staged
        assert found is not None
        return found

    def with_rule(self, port: int) -> set[str]:
        """The DPUs whose devices have a rule about a port, as ZONE/NUMBER."""
        found = ((zone, number) for zone in ZONE_NAMES for number in range(20))
        return {f"{z}/{n}" for z, n in found if any(port in rule.ports for rule in self.device(z, n).rules)}

    def device(self, zone: str, number: int) -> DeviceTable:
        """The table that a device really has, read from the device."""
        return self.simulator.devices.tables[self.actual(zone, number)]

    def actual(self, zone: str, number: int) -> int:
        """The number of the table that a device really has."""
        return int(self.simulator.devices.records.actual[self._place(zone, number)])

    def set_actual(self, zone: str, number: int, table: int) -> None:
        """Have another program replace the rules of a device."""
        self.simulator.devices.records.actual[self._place(zone, number)] = table

    def _place(self, zone: str, number: int) -> int:
        return self.simulator.devices.zones[list(self.simulator.zones).index(zone)][number]

    def all_hold(self) -> bool:
        """Whether every device has the table of the log, and the relays report so."""
        fleet = self.replicas[0].state(FLEET_0)
        for zone in ZONE_NAMES:
            wanted = {stage: table(fleet, zone, stage) for stage in fleet.stages_of(zone)}
            names = self.simulator.zones[zone].dpus
            stages = [fleet.stage_of(zone, name) for name in names]
            for number, stage in enumerate(stages):
                device = self.device(zone, number)
                if (device.version, device.digest) != (wanted[stage].version, wanted[stage].digest):
                    return False
            held: dict[str, Any] = {}
            for relay in self.relays.values():
                held.update(relay.zone_devices(zone))
            if {name: has.digest for name, has in held.items()} != {
                name: wanted[stage].digest for name, stage in zip(names, stages, strict=True)
            }:
                return False
        return True

    def settled(self) -> bool:
        """Whether every device allows all joined nodes. A join reaches fleet after `join` returns, and until then
        `all_hold` is true for the former tables.
        """
        if not self.all_hold():
            return False
        expected = self.expected()
        return all(self.allowed(zone) == expected for zone in ZONE_NAMES)

    def allowed(self, zone: str) -> set[str]:
        """The prefixes of the default rule of a device."""
        rules = self.device(zone, 0).rules.items()
        prefixes = (prefix for rule, held in rules if not rule.ports for prefix in held)
        return {str(ip_network((prefix[:-1], prefix[-1]))) for prefix in prefixes}

    def expected(self) -> set[str]:
        return {str(network) for network in collapse_addresses(map(IPv4Network, self.addresses.values()))}


@asynccontextmanager
async def plane(path: Path) -> AsyncIterator[TwoRelays]:
    async with (
        EmbeddedLog.open(TOPICS, path, partition_count=PARTITIONS, now_ms=now_ms) as log,
        asyncio.TaskGroup() as tasks,
    ):
        made = TwoRelays(log, tasks)
        await made.open()
        try:
            yield made
        finally:
            for task in made.running:
                task.cancel()


async def test_every_device_has_the_table_of_the_log_through_joins_leaves_and_policies(tmp_path: Path) -> None:
    async with plane(tmp_path / "log") as made:
        for start in range(0, 600, 100):
            zone = ZONE_NAMES[start // 100 % 3]
            names = [f"n{number}" for number in range(start, start + 100)]
            await made.join(zone, names, [0x0A000000 + 3 * number for number in range(start, start + 100)])
        await until(made.settled)
        await made.join("east", ["gpu-1"], [0x0B000001], pool="gpu")
        await made.leave("north", ["n100", "n101"])
        await made.do(FLEET, "west", ZoneUpdated(made.by("west"), "west", True, {"tier": "edge"}, -1, -1))
        await made.policy("no-ssh", "drop", {"pool": "gpu"}, {"tier": "edge"})
        await until(lambda: len(made.device("west", 3).rules) == 2 and made.settled())
        assert len(made.device("east", 3).rules) == 1
        samples = [relay.latency[Level.APPLIED] for relay in made.relays.values()]
        assert sum(histogram.count for histogram in samples) >= 60


async def test_a_zone_moves_to_the_other_relay_without_snapshots_and_is_reported(tmp_path: Path) -> None:
    async with plane(tmp_path / "log") as made:
        await made.join("east", ["a", "b"], [0x0A000001, 0x0A000002])
        await until(made.settled)
        for victim in ("r0", "r1"):
            snapshots = sum(rules.snapshots for rules in made.rules.values())
            made.kill(victim)
            await made.join("west", [f"while-{victim}-is-down"], [0x0C000000 + 4 * len(made.addresses)])
            await until(made.settled)
            assert sum(rules.snapshots for rules in made.rules.values()) == snapshots
            made.down.clear()
        installs = Partition(INSTALLS, partition_of(b"east", PARTITIONS))

        def done() -> bool:
            progress = zone_progress(made.replicas[1].state(installs), "east", 1)
            newest = table(made.replicas[1].state(FLEET_0), "east").version
            last = progress.versions[0] if progress is not None else None
            return last is not None and (last.version, last.in_hardware) == (newest, 20)

        await until(done)


async def test_a_staged_change_goes_from_stage_to_stage_and_back(tmp_path: Path) -> None:
    async with plane(tmp_path / "log") as made:
        await made.join("east", [f"n{number}" for number in range(100)], [0x0B000000 + 3 * n for n in range(100)])
        await made.join("north", ["gpu-1"], [0x0A000009], pool="gpu")
        await until(made.settled)
        snapshots = sum(rules.snapshots for rules in made.rules.values())
        await made.do(FLEET, "fold", FoldVersionUpgraded(made.by("fold"), FleetFold2.version))
        await made.stage("no-ssh", {"pool": "gpu"}, ["1", "50%", "100%"])
        await until(lambda: made.staged.stage >= 1)
        await made.request_stages("no-ssh", "pause")
        await until(made.settled)
        stage = made.staged.stage
        assert len(made.with_rule(22)) == (1, 30, 60)[stage - 1]
        await made.join("west", ["gpu-2"], [0x0A000019], pool="gpu")
        await until(made.settled)
        assert len(made.with_rule(22)) == (1, 30, 60)[stage - 1], "a join goes into both lists of a zone"
        made.kill("r0")
        await until(made.settled)
        made.down.clear()
        await made.request_stages("no-ssh", "undo")
        await until(lambda: made.staged.result == "undone")
        await until(made.settled)
        assert not made.with_rule(22)
        await made.stage("no-ssh", {"pool": "gpu"}, ["1", "50%", "100%"])
        await until(lambda: made.staged.result == "complete")
        await until(made.settled)
        assert len(made.with_rule(22)) == 60
        assert sum(rules.snapshots for rules in made.rules.values()) == snapshots, "each step was a delta"


async def test_a_device_that_loses_its_rules_holds_a_staged_change(tmp_path: Path) -> None:
    async with plane(tmp_path / "log") as made:
        await made.join("east", ["a"], [0x0A000001])
        await made.join("north", ["gpu-1"], [0x0A000009], pool="gpu")
        await until(made.settled)
        before = made.actual("east", 0)
        await made.do(FLEET, "fold", FoldVersionUpgraded(made.by("fold"), FleetFold2.version))
        await made.stage("no-ssh", {"pool": "gpu"}, ["1", "100%"], bake_ms=600_000)
        await until(lambda: made.with_rule(22) == {"east/0"} and made.all_hold())
        made.set_actual("east", 0, before)
        await until(lambda: bool(made.staged.held))
        name = made.simulator.zones["east"].dpus[0]
        assert [*made.staged.failed] == [f"east/{name}"]
        assert "DRIFT: the device no longer has the rules of version" in made.staged.held
        assert made.staged.stage == 1
        await until(made.all_hold)
        assert made.with_rule(22) == {"east/0"}, "the relay restores what the device lost"


async def test_a_frozen_zone_keeps_its_tables_until_its_thaw(tmp_path: Path) -> None:
    async with plane(tmp_path / "log") as made:
        await made.join("east", ["a"], [0x0A000001])
        await until(made.settled)
        before = made.device("north", 0)
        await made.do(FLEET, "north", WritesFrozen(made.by("north"), "north"))
        await made.join("east", ["b"], [0x0A000009])
        await until(lambda: made.allowed("east") == made.expected())
        assert made.device("north", 0) == before
        await made.do(FLEET, "north", WritesThawed(made.by("north"), "north"))
        await until(made.settled)
