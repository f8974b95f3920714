"""Seeds of the log: an event of each type, and short histories of each topic, built as in the tests of the folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
from pyroaring import BitMap

from eventstore.avro.codec import encode
from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.ids import internal_envelope, uuid7
from eventstore.log import CLIQUES, FLEET, FLEET_0, INSTALLS, ZONES, Partition
from projections.zones.dpus.phases import READY
from schemas.events import Envelope, Event, InstallsReported, WritesFrozen, WritesThawed
from tests.fuzz.framing import Part, joined
from tests.support.cliques import CliquesPartition
from tests.support.fleet import Fleet, Item
from tests.support.samples import EVENT_TYPES, sample
from tests.support.toy_records import T0
from tests.support.zones import ZONE, ZonesPartition

EventsWithMetadata = Sequence[tuple[Event, RecordMetadata]]


def history(events: EventsWithMetadata) -> bytes:
    """A partition of these events, with command ids and times as in real commands."""
    rng, parts, before_ms = Random(1), [], events[0][1].time_ms
    start_ms = before_ms
    for event, at in events:
        now_ms = T0 + at.time_ms - start_ms
        about = event.envelope
        own_id = uuid7(now_ms, rng) if about.command_id else ""
        envelope = msgspec.structs.replace(about, command_id=own_id, issued_at_ms=now_ms)
        value = encode(msgspec.structs.replace(event, envelope=envelope))
        parts.append(Part(min((at.time_ms - before_ms) // 100, 32_767), value))
        before_ms = at.time_ms
    return joined(parts)


def _samples() -> Iterable[bytes]:
    return [encode(sample(name)) for name in sorted(EVENT_TYPES)]


def _zones() -> Iterable[bytes]:
    nodes, many = ZonesPartition(), ZonesPartition()
    nodes.join("n1", "n2", address=10 << 24 | 1, labels={"app": "web"})
    nodes.join("src/n3", created_ms=T0, uid="u1")
    nodes.change("n1", address=10 << 24 | 9)
    nodes.complete(b"list", source="src")
    nodes.leave("src/n3", list_hash=b"list")
    nodes.leave("n2")
    nodes.forwarded(2)
    for number in range(20):
        many.join(f"node-{number}", zone=ZONE if number % 9 else "z2", address=(10 << 24) + number + 1)
    return [history(nodes.events), history(many.events), lifecycle()]


def lifecycle() -> bytes:
    """The history of two DPUs, with installs, a failure and a retry."""
    dpus = ZonesPartition()
    dpus.register("d1", node="n1", serial="s1")
    dpus.register("d2")
    dpus.limit(5, 5)
    for name in ("d1", "d2"):
        dpus.request(name, "provision", "bf-bundle-2.10")
    dpus.do_until("d1", READY)
    dpus.request("d1", "pause")
    dpus.request("d1", "resume")
    dpus.start("d2")
    dpus.progress("d2", "task-1", 50)
    dpus.fail("d2", "device")
    dpus.request("d2", "retry")
    dpus.request("d1", "provision", "bf-bundle-2.11")
    dpus.request("d1", "abort")
    dpus.request("d1", "delete")
    return history(dpus.events)


def _cliques() -> Iterable[bytes]:
    log = CliquesPartition()
    log.resize(2)
    for number in range(3):
        log.claim(f"n{number}", f"u{number}", address=f"10.0.0.{number + 1}")
    log.ready("n0", uid="u0")
    log.open_session("n0", "session-1")
    log.expire_session("n0", "session-1")
    log.release("n1", "u1")
    log.claim("n0", "u9", created_ms=T0 + 5_000, requested_index=1)
    log.resize(4)
    log.claim("n4", "u4", clique="c2", internal=True)
    yield history(log.events)


class _Recorded(Fleet):
    """A fleet whose events are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Event, RecordMetadata]] = []

    def apply(self, event: Event) -> Outcome:
        named = msgspec.structs.replace(event.envelope, command_id="id")
        self.events.append((msgspec.structs.replace(event, envelope=named), RecordMetadata(FLEET_0, 0, 0, self.now_ms)))
        return super().apply(event)


def _fleet() -> Iterable[bytes]:
    fleet = _Recorded()
    fleet.budget("denied-by-change", 0, 1)
    fleet.describe("z0", {"t": "1"})
    fleet.limit("z0", 2, 3)
    for number in range(4):
        fleet.change(Item(f"n{number}", "z0", f"10.0.0.{number + 1}", f"2001:db8::{number + 1}", {"app": "web"}))
    fleet.policy("web", priority=5, protocol="tcp", ports=(443, 443), sources={"app": "web"}, zones={"t": "1"})
    fleet.policy("no", action="drop", sources={"app": "web"})
    fleet.change(Item("n1", "z2", "10.0.0.9", created_ms=5, uid="v"))
    fleet.leave("n0", "n2", state=2)
    hold = min(fleet.state.holds.rows, default="0")
    fleet.approve(int(hold), "bob")
    fleet.approve(int(hold), "cid")
    fleet.apply(WritesFrozen(Envelope("", "z0", "ann", 0), "z0"))
    fleet.delete_policy("no", "bob")
    fleet.apply(WritesThawed(Envelope("", "z0", "ann", 0), "z0"))
    fleet.reject(int(hold))
    yield b""
    yield history(fleet.events)


def _installs() -> Iterable[bytes]:
    def report(relay: str, versions: Sequence[int], ordinals: Sequence[int]) -> InstallsReported:
        count = len(versions)
        about = (internal_envelope("rack-1", f"relay/{relay}", T0), "rack-1", relay, 1, 10)
        bitmaps = [bytes(BitMap(ordinals).serialize())] * count
        times = ([T0] * count, [T0 + 50] * count)
        return InstallsReported(*about, list(versions), [0] * count, bitmaps, *times, {"d7": 3}, {"d8": "full"})

    events = [report("r1", [5, 6], range(6)), report("r2", [6], range(5, 10)), report("r1", [7], [])]
    yield history(
        [(event, RecordMetadata(Partition(INSTALLS, 0), 0, 0, T0 + 1_000 * at)) for at, event in enumerate(events)]
    )


MAKERS: dict[str, Callable[[], Iterable[bytes]]] = {
    "codec": _samples,
    f"fold-{ZONES}": _zones,
    f"fold-{CLIQUES}": _cliques,
    f"fold-{FLEET}": _fleet,
    f"fold-{INSTALLS}": _installs,
}
