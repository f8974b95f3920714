"""A stepwise plane: a log, the folds, the statements of drivers, and a device per zone.

Time advances only with steps, nothing waits, and no part fails by itself. Commands come from the simulator's workload.
The seed also draws duplicates that land late, reports of outdated attempts, and restarts of the replica from saved
state. The plane folds about a thousand records a second, so it shows a bug of a fold or a frame in less time than a
simulated process needs to start.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode, encode
from eventstore.folding.fold import folds_by_version
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import internal_envelope, uuid7
from eventstore.log import CLIQUES, FLEET_0, ZONES, Partition, Record
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import SavedHead
from projections.fleet.tables import zone_table as tables
from projections.forwarding.fleet_to_zones import next_record
from projections.forwarding.zones_to_fleet import forward
from projections.rules import device_table
from projections.rules.device_table import EMPTY_TABLE, FrameRefused, pack
from projections.rules.rule import Delta
from projections.zones.dpus.lifecycle import wait_ms
from projections.zones.rows import Dpu
from schemas import events as e
from tests.simulation.checkers import Fault, judge_history
from tests.simulation.checkers.lifecycle import ACTIONS
from tests.simulation.history import (
    Answered,
    BmcCalled,
    FinalTable,
    FrameStarted,
    History,
    Invoked,
    ProcessUptime,
    QueryAnswered,
    StateSaved,
    TableInstalled,
)
from tests.simulation.workload import REQUEST_WEIGHTS, Request, Workload
from tests.support.delivered import ran
from tests.support.memory_disk import Disk, DiskStore

PARTITIONS = 2
ZONE_NAMES = ("zone-0", "zone-1", "zone-2")
START_MS = 1_700_000_000_000
STEP_S = 0.5
FORWARD_EVERY_S = 10.0
"""All partitions are forwarded at least this often. Otherwise actions that take long could delay a forward for half a
minute.
"""
PROCESS = "p0"
INSTANCE = f"{PROCESS}#1"
DPUS = 2


@dataclass
class Device:
    """A DPU with its table and its current boot."""

    zone: str
    name: str
    table: device_table.DeviceTable = EMPTY_TABLE
    boot: int = 0


class SteppedPlane(FoldedLog):
    """The stepwise plane."""

    def __init__(self, seed: int) -> None:
        super().__init__(PROCESS, TOPICS, PARTITIONS)
        self.rng = random.Random(f"{seed}/plane")
        self.history = History()
        self.now_s = 0.0
        self.records: dict[Partition, list[Record]] = {
            partition: [] for topic in TOPICS.folded for partition in TOPICS.partitions(topic, PARTITIONS)
        }
        self.disk = Disk()
        self._store = DiskStore(self.disk, self.rng, self._committed)
        self._appended_s: dict[tuple[Partition, int], float] = {}
        self._duplicates: list[tuple[Partition, e.Event]] = []
        self._clients = [Workload(f"client-{n}", ZONE_NAMES, lambda: self.now_ms) for n in range(3)]
        self._devices = [Device(zone, f"{zone}-dpu-{n:04d}") for zone in ZONE_NAMES for n in range(DPUS)]
        self._called: dict[str, int] = {}
        self._joined = 0
        self._forwarded_s = 0.0
        self._sent_snapshots: list[tuple[str, Delta]] = []
        self._ahead_ms = 0
        self._seed = seed
        self._begin()

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000) + self._ahead_ms

    def run(self, steps: int, *, agents: bool = False) -> list[Fault]:
        """Run `steps` random actions, with or without node agents, then come to rest; returns the faults."""
        actions: dict[Callable[[], None], int] = {
            self._send_random_request: 50,
            self._leave_earlier_incarnation: 4,
            self._join_many: 1,
            self._crowd_a_clique: 2,
            self._move_and_leave: 4,
            self._approve_own_hold: 2,
            self._provision_zone: 2,
            self._replace_dpu: 3,
            self._send_old_frame: 4,
            self._forward_all: 15,
            self._forward_one: 8,
            self._deliver_all: 8,
            self._prune_all: 3,
            self._work: 25,
            self._write_duplicate: 8,
            self._update_devices: 25,
            self._save: 3,
            self._restart: 2,
            self._reboot: 1,
            self._set_clock: self._seed % 2 * 2,
            self._write_as_agent: 100 * agents,
        }
        if agents:
            self._allow_agents()
        for _ in range(steps):
            self.now_s += STEP_S
            if self.now_s >= self._forwarded_s + FORWARD_EVERY_S:
                self._forward_all()
            self.rng.choices(list(actions), list(actions.values()))[0]()
        self._rest()
        return self.judged()

    def judged(self) -> list[Fault]:
        """The faults that the checkers find."""
        history = self.history.copy()
        history.add(ProcessUptime(PROCESS, ("api", "provisioner", "relay"), 0.0, self.now_s))
        for device in self._devices:
            rules = tuple((rule, *pack(prefixes)) for rule, prefixes in device.table.rules.items())
            history.add(FinalTable(device.zone, device.name, device.table.version, device.table.digest, rules))
        return judge_history(
            history,
            self.records,
            appended_s=lambda partition, offset: self._appended_s[partition, offset],
            saved={PROCESS: self._store},
            end_s=self.now_s,
        )

    # --- the clock

    def _set_clock(self) -> None:
        """Set the clock to the true time or ahead of it. Command ids, append times and deadlines follow the clock. Only
        odd seeds do so, because many bugs need a long time with one clock.
        """
        self._ahead_ms = self.rng.choice((0, 0, 0, 20 * 60_000, 60 * 60_000, 75 * 60_000))

    # --- the log

    def _begin(self) -> None:
        self.log_id, self.generation = uuid7(START_MS, self.rng), 1
        self._folded = {partition: self._empty(partition) for partition in self.records}
        created = e.LogCreated(internal_envelope("log", PROCESS, START_MS), self.log_id, 1, PARTITIONS, "")
        for partition in self.records:
            if partition.topic in TOPICS.deciding:
                self._write(partition, created)
        for device in self._devices:
            self._register(device)

    def _empty(self, partition: Partition) -> FoldedPartition:
        versions = folds_by_version(folds_of(PARTITIONS))[partition.topic]
        return FoldedPartition(partition, versions, self.log_id, is_deciding=partition.topic in TOPICS.deciding)

    def _write(self, partition: Partition, event: e.Event, *, may_duplicate: bool = True) -> Answer | None:
        """Append a record and fold it. Sometimes a duplicate of it lands later."""
        found = self.records[partition]
        offset = found[-1].offset + self.rng.choice((1, 1, 1, 2)) if found else 0
        record = Record(offset, self.now_ms, b"", encode(event))
        found.append(record)
        self._appended_s[partition, offset] = self.now_s
        entry = self._folded[partition].fold(record)
        if may_duplicate and self.rng.random() < 0.1 and not isinstance(event, e.LogCreated):
            self._duplicates.append((partition, event))
        return None if entry is None else Answer(entry.outcome, partition, entry.offset)

    def _write_duplicate(self) -> None:
        if self._duplicates:
            self._write(*self._duplicates.pop(self.rng.randrange(len(self._duplicates))), may_duplicate=False)

    def _user_envelope(self, subject: str) -> e.Envelope:
        return e.Envelope(uuid7(self.now_ms, self.rng), subject, "operator", self.now_ms)

    def _driver_envelope(self, subject: str, actor: str) -> e.Envelope:
        return internal_envelope(subject, f"{actor}/{PROCESS}", self.now_ms)

    # --- clients

    def _send_random_request(self) -> None:
        client = self.rng.choice(self._clients)
        kind = self.rng.choices(list(REQUEST_WEIGHTS), list(REQUEST_WEIGHTS.values()))[0]
        request = client.request(kind, self.rng, cast(Replica, self))
        if request is not None:
            self._send(request, client.name)

    def _send(self, request: Request, client: str) -> None:
        command_id, attempts = request.event.envelope.command_id, self.rng.choice((1, 1, 1, 2))
        for _ in range(attempts):
            self.history.add(Invoked(self.now_s, client, command_id, request.partition))
            answer = self._write(request.partition, request.event)
            self.now_s += STEP_S
            if answer is not None:
                self.history.add(Answered(self.now_s, client, PROCESS, command_id, answer))
                position = self.position(answer.partition)
                self.history.add(
                    QueryAnswered(
                        self.now_s, self.now_s, client, PROCESS, answer.partition, answer.offset + 1, position
                    )
                )

    def _leave_earlier_incarnation(self) -> None:
        """A leave of an earlier incarnation of a node, from a caller that does not know the current one."""
        joins = [
            event
            for partition, records in self.records.items()
            for record in records[-40:]
            if partition.topic == ZONES and isinstance(event := decode(record.value), e.NodesJoined) and event.uids
        ]
        if joins:
            join = self.rng.choice(joins)
            envelope = self._user_envelope(join.zone)
            left = e.NodesLeft(envelope, join.zone, join.names[:1], join.created_ms[:1], join.uids[:1], False, b"")
            self._send(Request(self.partition_for(ZONES, join.zone), join.zone.encode(), left), "operator")

    def _join_many(self) -> None:
        """Join many nodes by successive records, so that they are folded as a run."""
        zone = self.rng.choice(ZONE_NAMES)
        for _ in range(24):
            self._joined += 1
            four = (10 << 24 | 1 << 16 | self._joined).to_bytes(4, "big")
            event = e.NodesJoined(
                self._user_envelope(zone), zone, [f"many-{self._joined}"], [], [], four, b"", [{}], [0]
            )
            self._write(self.partition_for(ZONES, zone), event, may_duplicate=False)

    def _crowd_a_clique(self) -> None:
        """Claim indices for more nodes than a clique can hold, and release some. A later call may find a smaller
        clique.
        """
        domain, clique = "crowd", self.rng.choice(("a", "b"))
        about, partition = f"{domain}/{clique}", self.partition_for(CLIQUES, domain)
        nodes = [f"crowd-{n}" for n in self.rng.sample(range(6), 5)]

        def send(event: e.Event) -> None:
            self._send(Request(partition, domain.encode(), event), "operator")

        created_ms = self.now_ms
        send(e.CliqueCapacitySet(self._user_envelope(about), domain, clique, self.rng.choice((2, 3, 5))))
        for requested_index in (-1, 4):
            for claimers in (nodes[:3], nodes[3:4], nodes[4:]):
                uid = f"{created_ms}"
                send(
                    e.IndicesClaimed(
                        self._user_envelope(about), domain, clique, claimers, [], [created_ms], [uid], [requested_index]
                    )
                )
        for leaving in (nodes[:1], nodes[1:3]):
            send(e.IndicesReleased(self._user_envelope(about), domain, clique, leaving, []))

    def _move_and_leave(self) -> None:
        """A new node joins two zones and leaves the second one. A partition may be forwarded after each record."""
        self._joined += 1
        names, (one, other) = [f"mover-{self._joined}"], self.rng.sample(ZONE_NAMES, 2)
        created = self.rng.choice(([1_000, 2_000], [2_000, 2_000], [2_000, 1_000]))
        for zone, created_ms in zip((one, other), created, strict=True):
            joined = e.NodesJoined(self._user_envelope(zone), zone, names, [created_ms], ["u"], b"", b"", [], [])
            self._send(Request(self.partition_for(ZONES, zone), zone.encode(), joined), "operator")
            self._forward_one()
        left = e.NodesLeft(self._user_envelope(other), other, names, [], [], False, b"")
        self._send(Request(self.partition_for(ZONES, other), other.encode(), left), "operator")
        self._forward_one()

    def _approve_own_hold(self) -> None:
        """The author of a held change approves it."""
        for _, hold in sorted(self.state(FLEET_0).holds.rows.items()):
            envelope = replace(self._user_envelope("hold"), actor=hold.requested_by)
            self._write(FLEET_0, e.HoldApproved(envelope, hold.id, hold.hash))

    def _allow_agents(self) -> None:
        """Every zone but the last lets agents state addresses and a label."""
        for zone in ZONE_NAMES[:-1]:
            limits = e.ZoneUpdated(
                self._user_envelope(zone), zone, False, {}, -1, -1, True, ["10.0.0.0/27"], True, ["role"]
            )
            self._write(FLEET_0, limits, may_duplicate=False)
            self._deliver_all()

    def _write_as_agent(self) -> None:
        """The agent of a node, or an operator, states the node. Other nodes may have the same addresses."""
        rng, number = self.rng, self.rng.randrange(4)
        name, zone = f"own-{number}", ZONE_NAMES[number % 2]
        by_agent = rng.random() < 0.7
        envelope = replace(self._user_envelope(zone), actor=f"node-agent/{name}" if by_agent else "operator")
        four = (10 << 24 | 1 + rng.randrange(6)).to_bytes(4, "big") if rng.random() < 0.8 else b""
        labels = {key: rng.choice("ab") for key in ("role", "trust") if rng.random() < (0.3 if by_agent else 0.6)}
        partition = self.partition_for(ZONES, zone)
        if rng.random() < 0.1:
            self._write(partition, e.NodesLeft(envelope, zone, [name], [], [], False, b""))
            return
        kind = e.NodesJoined if rng.random() < 0.8 else e.NodesChanged
        self._write(partition, kind(envelope, zone, [name], [], [], four, b"", [labels], [0]))

    def _provision_zone(self) -> None:
        """Provision all DPUs of a zone, one at a time."""
        zone = self.rng.choice(ZONE_NAMES)
        self._write(FLEET_0, e.ZoneUpdated(self._user_envelope(zone), zone, False, {}, 1, 1))
        self._deliver_all()
        for device in self._devices:
            if device.zone == zone:
                self._request(device, "provision", "bf-3.0")

    def _replace_dpu(self) -> None:
        """Delete a DPU, or register it if it is deleted."""
        device = self.rng.choice(self._devices)
        if device.name in self.state(self.partition_for(ZONES, device.zone)).dpus.rows:
            self._request(device, "delete")
        else:
            self._register(device)

    def _request(self, device: Device, request: str, image: str = "") -> None:
        event = e.LifecycleRequested(self._user_envelope(device.name), device.zone, device.name, request, image)
        self._write(self.partition_for(ZONES, device.zone), event)

    def _register(self, device: Device) -> None:
        event = e.DpuRegistered(self._user_envelope(device.name), device.zone, device.name, device.name, "s", "b")
        self._write(self.partition_for(ZONES, device.zone), event)

    # --- records of drivers

    def _forward_all(self) -> None:
        self._forwarded_s = self.now_s
        for number in range(PARTITIONS):
            self._forward(number)

    def _forward_one(self) -> None:
        """Forward one partition, or none."""
        number = self.rng.randrange(PARTITIONS + 1)
        if number < PARTITIONS:
            self._forward(number)

    def _forward(self, number: int) -> None:
        zone, mark = self.state(Partition(ZONES, number)), self.state(FLEET_0).marks.get(number, 0)
        event = forward(zone, number, mark)
        for _ in range(self.rng.choice((1, 1, 2)) if event else 0):
            assert event is not None
            self._write(FLEET_0, replace(event, envelope=self._driver_envelope("fleet", "forwarder")))

    def _deliver_all(self) -> None:
        for number in range(PARTITIONS):
            partition = Partition(ZONES, number)
            event = next_record(self.state(FLEET_0), number, self.state(partition).fleet_mark)
            if event is not None:
                self._write(partition, replace(event, envelope=self._driver_envelope("zones", "forwarder")))

    def _prune_all(self) -> None:
        for number in range(PARTITIONS):
            partition, mark = Partition(ZONES, number), self.state(FLEET_0).marks.get(number, 0)
            if self.state(partition).has_forwarded_before(mark):
                self._write(partition, e.OutboxAcknowledged(self._driver_envelope("zones", "forwarder"), mark))

    # --- DPUs

    def _work(self) -> None:
        """Write the next record about each DPU with an open or running step: of the current attempt or of an outdated
        one.
        """
        for number in range(PARTITIONS):
            partition = Partition(ZONES, number)
            state = self.state(partition)
            for name in sorted({*state.dpu_index.open, *state.dpu_index.running}):
                self._work_on(partition, name, state.dpus.rows[name])

    def _work_on(self, partition: Partition, name: str, dpu: Dpu) -> None:
        about = (self._driver_envelope(name, "provisioner"), dpu.zone, name, dpu.phase)
        if dpu.step_state == "open":
            if not dpu.paused and not wait_ms(dpu, self.now_ms):
                self._write(partition, e.StepStarted(*about, dpu.attempt + 1, INSTANCE))
            return
        late = self.rng.random() < 0.2
        attempt = dpu.attempt - 1 if late else dpu.attempt
        if not late:
            self._call(name, dpu)
        if self.rng.random() < 0.2:
            kind = self.rng.choice(("transient", "device", "lost"))
            self._write(partition, e.StepFailed(*about, attempt, kind, "failed"))
        else:
            facts = {"serial": "s", "image": dpu.image}
            self._write(partition, e.StepSucceeded(*about, attempt, facts))

    def _call(self, name: str, dpu: Dpu) -> None:
        if self._called.get(name) != dpu.attempt:
            self._called[name] = dpu.attempt
            self.history.add(BmcCalled(name, dpu.attempt, ACTIONS[dpu.phase]))

    def _update_devices(self) -> None:
        for device in self._devices:
            if not self.state(FLEET_0).is_frozen(device.zone):
                self._update(device)

    def _update(self, device: Device) -> None:
        fleet, since = self.state(FLEET_0), device.table.version
        now = tables.table(fleet, device.zone)
        if now.version <= since and now.digest == device.table.digest:
            return
        delta = tables.delta(fleet, device.zone, since) or tables.snapshot(fleet, device.zone)
        after = device_table.apply(device.table, self.generation, delta, capacity=1_000_000)
        if isinstance(after, FrameRefused):
            delta = tables.snapshot(fleet, device.zone)
            after = device_table.apply(device.table, self.generation, delta, capacity=1_000_000)
        if isinstance(after, FrameRefused):
            return
        steps = delta.steps if delta.from_version else device_table.steps_between(device.table, after)
        before = tuple((rule, *pack(prefixes)) for rule, prefixes in device.table.rules.items())
        self.history.add(FrameStarted(self.now_s, device.zone, device.name, before, tuple(steps)))
        device.table = after
        self._sent_snapshots = [*self._sent_snapshots[-40:], (device.zone, tables.snapshot(fleet, device.zone))]
        self._record_table(device)

    def _send_old_frame(self) -> None:
        """A relay that lags sends an older version, which the device must refuse."""
        device = self.rng.choice(self._devices)
        for zone, delta in self.rng.sample(self._sent_snapshots, min(3, len(self._sent_snapshots))):
            if zone == device.zone:
                after = device_table.apply(device.table, self.generation, delta, capacity=1_000_000)
                if not isinstance(after, FrameRefused) and after is not device.table:
                    device.table = after
                    self._record_table(device)

    def _record_table(self, device: Device) -> None:
        table = device.table
        self.history.add(
            TableInstalled(self.now_s, device.zone, device.name, device.boot, table.epoch, table.version, table.digest)
        )

    def _reboot(self) -> None:
        device = self.rng.choice(self._devices)
        device.table, device.boot = EMPTY_TABLE, device.boot + 1
        self._record_table(device)

    # --- restarts

    def _save(self) -> None:
        for folded in self._folded.values():
            ran(save(folded, self._store))

    def _restart(self) -> None:
        """Drop all state, load the saved state, and fold the records after it."""
        for partition in self._folded:
            folded = ran(load_partition(self._empty(partition), self._store)) or self._empty(partition)
            for record in self.records[partition]:
                if record.offset >= folded.position:
                    folded.fold(record)
            self._folded[partition] = folded

    def _committed(self, partition: Partition, head: SavedHead) -> None:
        self.history.add(StateSaved(PROCESS, partition, head.position, head.digest, head.running))

    # --- rest

    def _rest(self) -> None:
        """Thaw all zones, and run only the drivers until nothing is left to do."""
        for zone in sorted(self.state(FLEET_0).freezes.rows):
            self._write(FLEET_0, e.WritesThawed(self._user_envelope("thaw"), zone))
        for _ in range(400):
            self.now_s += STEP_S
            before = sum(map(len, self.records.values()))
            self._forward_all()
            self._deliver_all()
            self._prune_all()
            self._work()
            self._update_devices()
            if self._duplicates:
                self._duplicates.clear()
            states = [self.state(Partition(ZONES, number)) for number in range(PARTITIONS)]
            waits = any(state.dpu_index.open or state.dpu_index.running for state in states)
            if sum(map(len, self.records.values())) == before:
                if not waits:
                    break
                self.now_s += 5 * STEP_S
        self._update_devices()
        self._save()
