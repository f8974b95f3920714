"""A zones partition that a test folds record by record, with checks of the rows of its DPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from typing import Any

import msgspec

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.log import ZONES, Partition
from projections.zones.dpus.phases import ERROR, INITIALIZING, INSTALLING, PENDING, READY
from projections.zones.dpus.rollout import limits_of
from projections.zones.fold import ZonesFold, ZonesFold2
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas.events import (
    DeadlinePassed,
    DpuRegistered,
    DpusWanted,
    Envelope,
    Event,
    LifecycleRequested,
    NetworksReported,
    NetworksWanted,
    NodesChanged,
    NodesJoined,
    NodesLeft,
    OutboxAcknowledged,
    SnapshotCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
    StepSucceeded,
    ZoneDeleted,
    ZoneLimitsSet,
)
from tests.support.delivered import Delivered

PARTITION = Partition(ZONES, 0)
START_MS = 1_700_000_000_000
ZONE = "z1"


class ZonesPartition:
    """A zones fold, its state and its records. Each command gets a new id.

    `events` holds the records so far. `now_ms` advances by 1 ms per record. `actor` is the actor of later commands.
    """

    def __init__(self) -> None:
        self.fold: ZonesFold = ZonesFold2()
        self.state = self.fold.initial_state(PARTITION)
        self.events: list[tuple[Event, RecordMetadata]] = []
        self.now_ms = START_MS
        self.actor = "?test"

    @property
    def end(self) -> int:
        return len(self.events)

    def append(self, event: Event) -> Outcome:
        self.now_ms += 1
        at = RecordMetadata(PARTITION, self.end, self.now_ms, self.now_ms)
        self.events.append((event, at))
        decision = self.fold.decide(self.state, event, at)
        if decision.change is not None:
            self.fold.evolve(self.state, decision.change, at)
        return decision.outcome

    # -- nodes

    def join(
        self,
        *names: str,
        zone: str = ZONE,
        address: int = 0,
        created_ms: int = 0,
        uid: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Join nodes, with addresses from `address` on if it is given."""
        event = nodes_joined(
            self.envelope(), names, zone=zone, address=address, created_ms=created_ms, uid=uid, labels=labels
        )
        return self.append(event)

    def change(self, name: str, *, zone: str = ZONE, address: int = 0, created_ms: int = 0, uid: str = "") -> Outcome:
        joined = nodes_joined(self.envelope(), [name], zone=zone, address=address, created_ms=created_ms, uid=uid)
        return self.append(NodesChanged(**msgspec.structs.asdict(joined)))

    def leave(
        self, *names: str, zone: str = ZONE, created_ms: int = 0, uid: str = "", list_hash: bytes = b""
    ) -> Outcome:
        """Remove nodes; with a hash, the leave is inferred."""
        incarnation = ([created_ms], [uid]) if created_ms else ([], [])
        return self.append(NodesLeft(self.envelope(), zone, list(names), *incarnation, bool(list_hash), list_hash))

    def complete(
        self,
        list_hash: bytes,
        *,
        source: str = "",
        zone: str = ZONE,
        count: int = 1,
        version: int = 0,
        total: int = 10,
        restored: bool = False,
    ) -> Outcome:
        event = SnapshotCompleted(self.envelope(), zone, source, count, list_hash, version, total, restored)
        return self.append(event)

    def delete_zone(self, zone: str) -> Outcome:
        return self.append(ZoneDeleted(self.envelope(), zone))

    def forwarded(self, to_offset: int) -> Outcome:
        return self.append(OutboxAcknowledged(internal_envelope("zones/0", self.now_ms), to_offset))

    # -- DPUs

    def register(self, dpu: str, *, zone: str = ZONE, node: str = "", serial: str = "", bmc: str = "sim:x") -> Outcome:
        return self.append(DpuRegistered(self.envelope(), zone, dpu, node, serial, bmc))

    def request(self, dpu: str, request: str, image: str = "", *, zone: str = ZONE) -> Outcome:
        return self.append(LifecycleRequested(self.envelope(), zone, dpu, request, image))

    def want(self, *dpus: str, image: str = "i1", zone: str = ZONE, object_: str = "", **fields: Any) -> Outcome:
        """Say that the objects of these names want DPUs of the same names. `fields` are other fields of the record."""
        return self.append(self.wanted(*dpus, image=image, zone=zone, object_=object_, **fields))

    def wanted(self, *dpus: str, image: str = "i1", zone: str = ZONE, object_: str = "", **fields: Any) -> DpusWanted:
        mark = self.state.wanted_before(fields.get("cause_partition", 0))
        given: dict[str, Any] = {
            "cause_partition": 0,
            "from_offset": mark,
            "to_offset": mark + 1,
            "objects": [object_ or f"local/DPU.p/dpf/{dpu}" for dpu in dpus],
            "zones": [zone],
            "nodes": [f"n-{dpu}" for dpu in dpus],
            "serials": [""],
            "bmc_addresses": [f"simulated:{dpu}" for dpu in dpus],
            "images": [image],
        }
        return DpusWanted(internal_envelope(zone, self.now_ms), dpus=[*dpus], **(given | fields))

    def want_networks(self, networks: Mapping[str, str], **fields: Any) -> Outcome:
        """Say that the objects of `want` want these documents on their DPUs."""
        return self.append(self.wanted_networks(networks, **fields))

    def wanted_networks(self, networks: Mapping[str, str], **fields: Any) -> NetworksWanted:
        mark = self.state.networks_before(fields.get("cause_partition", 0))
        documents = sorted({*networks.values()})
        given: dict[str, Any] = {
            "cause_partition": 0,
            "from_offset": mark,
            "to_offset": mark + 1,
            "objects": [f"local/DPU.p/dpf/{dpu}" for dpu in networks],
            "dpus": [*networks],
            "indexes": [documents.index(text) for text in networks.values()],
            "documents": documents,
        }
        return NetworksWanted(internal_envelope(ZONE, self.now_ms), **(given | fields))

    def report_network(self, *dpus: str, zone: str = ZONE, **fields: Any) -> Outcome:
        """Report that the first of these DPUs has the document that is wanted on it, and the others, too."""
        version = self.state.networks.rows[dpus[0]].version if dpus[0] in self.state.networks.rows else 1
        ordinals = sum(1 << self.row(dpu).ordinal for dpu in dpus)
        packed = ordinals.to_bytes((ordinals.bit_length() + 7) // 8, "little")
        given: dict[str, Any] = {"versions": [version], "applied": [version], "ordinals": [packed]}
        given |= {"unresolved": [""], "refusals": [""]}
        said = internal_envelope(zone, self.now_ms)
        return self.append(NetworksReported(said, zone, "relay", **(given | fields)))

    def limit(
        self,
        installs: int,
        nodes: int,
        *,
        zone: str = ZONE,
        networks: Sequence[str] = (),
        keys: Sequence[str] = (),
        attempt_limits: Sequence[int] = (),
    ) -> Outcome:
        mark, said = self.state.fleet_mark, internal_envelope(zone, self.now_ms)
        return self.append(
            ZoneLimitsSet(said, mark, mark + 1, zone, installs, nodes, [*networks], [*keys], [*attempt_limits])
        )

    def start(self, dpu: str, actor: str = "p1", *, attempt: int = 0) -> Outcome:
        row = self.row(dpu)
        number = attempt or row.attempt + 1
        return self.append(StepStarted(internal_envelope(dpu, self.now_ms), row.zone, dpu, row.phase, number, actor))

    def progress(self, dpu: str, task: str, percent: int = 0) -> Outcome:
        row = self.row(dpu)
        about = (internal_envelope(dpu, self.now_ms), row.zone, dpu, row.phase, row.attempt)
        return self.append(StepProgressed(*about, task, percent))

    def succeed(self, dpu: str, facts: Mapping[str, str] | None = None, *, attempt: int = -1) -> Outcome:
        row = self.row(dpu)
        number = row.attempt if attempt < 0 else attempt
        about = (internal_envelope(dpu, self.now_ms), row.zone, dpu, row.phase, number)
        return self.append(StepSucceeded(*about, dict(facts or {})))

    def fail(self, dpu: str, kind: str = "transient", *, attempt: int = -1, message: str = "no") -> Outcome:
        row = self.row(dpu)
        number = row.attempt if attempt < 0 else attempt
        about = (internal_envelope(dpu, self.now_ms), row.zone, dpu, row.phase, number)
        return self.append(StepFailed(*about, kind, message))

    def expire(self, dpu: str, deadline_ms: int) -> Outcome:
        return self.append(DeadlinePassed(internal_envelope(dpu, self.now_ms), "step", deadline_ms))

    def row(self, dpu: str) -> Dpu:
        return self.state.dpus.rows[dpu]

    def do_step(self, dpu: str, facts: Mapping[str, str] | None = None) -> None:
        """Begin and finish one step of a DPU."""
        assert self.start(dpu).code == "done"
        assert self.succeed(dpu, facts).code == "done"

    def do_until(self, dpu: str, phase: str) -> None:
        """Run steps until the DPU is in this phase."""
        while self.row(dpu).phase != phase:
            self.do_step(dpu)

    def wait_for_backoff(self, dpu: str) -> None:
        self.now_ms = max(self.now_ms, self.row(dpu).not_before_ms)

    def envelope(self) -> Envelope:
        return Envelope(f"id-{self.end:06d}", ZONE, self.actor, self.now_ms)


class DeliveredZones(ZonesPartition):
    """A zones partition over `Delivered`, which can repeat commands and crash the replica that folds it."""

    def __init__(self, *, is_latest: bool = False) -> None:
        """With `is_latest` the partition has the latest version of the fold."""
        super().__init__()
        before, self.fold = ((ZonesFold(),), ZonesFold2()) if is_latest else ((), ZonesFold())
        self.delivered = Delivered(PARTITION, self.fold, START_MS, before)
        self.state = self.delivered.folded.state

    @property
    def end(self) -> int:
        return self.delivered.end

    def append(self, event: Event) -> Outcome:
        self.now_ms += 1
        event, at, outcome = self.delivered.issue(event, self.now_ms)
        self.events.append((event, at))
        self.state = self.delivered.folded.state
        return outcome


def internal_envelope(subject: str, now_ms: int) -> Envelope:
    return Envelope("", subject, "test", now_ms)


def nodes_joined(
    envelope: Envelope,
    names: Sequence[str],
    *,
    zone: str = ZONE,
    address: int = 0,
    created_ms: int = 0,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
) -> NodesJoined:
    addresses = b"".join((address + i).to_bytes(4, "big") for i in range(len(names))) if address else b""
    incarnation = ([created_ms], [uid]) if created_ms else ([], [])
    label_columns = ([dict(labels)], [0]) if labels else ([], [])
    return NodesJoined(envelope, zone, list(names), *incarnation, addresses, b"", *label_columns)


def rows_of(state: ZonesState) -> bytes:
    """All saved rows, in one canonical encoding."""
    return msgspec.msgpack.encode([sorted(table.rows.items()) for table in state.tables])


def derived_of(state: ZonesState) -> object:
    """The derived indexes that decisions use and no table contains, in a comparable form."""
    index = state.dpu_index
    zones = {
        name: (
            sorted(zone.names.items()),
            zone.used,
            zone.installing,
            sorted(zone.unavailable.items()),
            list(zone.retry_queue),
            list(zone.queue),
        )
        for name, zone in index.zones.items()
    }
    actors = [state.join_actor_of(offset) for offset in state.outbox_offsets]
    visits = sorted(index.visits.all()), sorted(index.certificate_ends.items())
    steps = sorted(index.open), sorted(index.running)
    return dict(state.node_counts), state.outbox_offsets, actors, *steps, *visits, zones


def reloaded(state: ZonesState) -> ZonesState:
    """The state after a restart: rows encoded and decoded, derived indexes rebuilt."""
    copy = ZonesState()
    for table, source in zip(copy.tables, state.tables, strict=True):
        for key, row in sorted(source.rows.items()):
            table.load([(key, msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=table.row_type))])
    copy.rederive()
    return copy


def replayed(log: ZonesPartition) -> ZonesState:
    """The state of a new fold of the same records."""
    fold = log.fold
    state = fold.initial_state(PARTITION)
    for event, at in log.events:
        decision = fold.decide(state, event, at)
        if decision.change is not None:
            fold.evolve(state, decision.change, at)
    return state


def check_dpus(state: ZonesState) -> None:
    """Check the rows: ordinals are unique, limits hold, step states fit phases."""
    ordinals: set[tuple[str, int]] = set()
    for name, dpu in state.dpus.rows.items():
        assert (dpu.zone, dpu.ordinal) not in ordinals
        ordinals.add((dpu.zone, dpu.ordinal))
        is_idle = dpu.phase in (INITIALIZING, PENDING, READY, ERROR)
        assert (dpu.step_state == "idle") == is_idle or (dpu.phase, dpu.step_state) == (READY, "running"), name
        assert (dpu.step_state == "running") == (dpu.deadline_ms > 0) == (dpu.provisioner != ""), name
        assert dpu.phase not in (INITIALIZING, READY) or not dpu.effect, name
        assert (dpu.resume != "") == (dpu.phase in (PENDING, ERROR)), name
        assert dpu.phase != READY or dpu.installed == dpu.image != "", name
    assert state.wanted.rows.keys() <= state.dpus.rows.keys(), "every wanted DPU exists"


def installing(state: ZonesState, zone: str = ZONE) -> list[str]:
    return sorted(n for n, dpu in state.dpus.rows.items() if dpu.zone == zone and dpu.phase in INSTALLING)


def unavailable(state: ZonesState, zone: str = ZONE) -> set[str]:
    return {dpu.node or f"/{n}" for n, dpu in state.dpus.rows.items() if dpu.zone == zone and dpu.effect}


def limits(state: ZonesState, zone: str = ZONE) -> tuple[int, int]:
    return limits_of(state.zone_rows.rows.get(zone))


def packed6(text: str) -> bytes:
    return IPv6Address(text).packed
