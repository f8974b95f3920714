"""An embedded log with a plane's records, written without a plane: for programs that read logs from outside."""

from __future__ import annotations

import random
from pathlib import Path

from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.folding.origin import ensure_origin
from eventstore.ids import internal_envelope, uuid7
from eventstore.log import FLEET_0, INSTALLS, ZONES, EventLog, Partition
from schemas.events import Envelope, InstallsReported, NodesJoined, WritesFrozen
from tests.support.embedded import Clock

PARTITIONS = 2
ZONES_0, ZONES_1 = Partition(ZONES, 0), Partition(ZONES, 1)


def joined(number: int, now_ms: int, *, nodes: int = 1) -> NodesJoined:
    """One batch of nodes, joined by an operator at this time."""
    rng = random.Random(number)
    said = Envelope(uuid7(now_ms, rng), "zone-1", "?ops", now_ms)
    names = [f"node-{number}-{place}" for place in range(nodes)]
    packed = b"".join(bytes((10, place >> 8 & 255, place & 255, number & 255)) for place in range(nodes))
    return NodesJoined(said, "zone-1", names, [], [], packed, b"", [{"gpu": "h100"}], [0])


def installed(now_ms: int) -> InstallsReported:
    said = internal_envelope("zone-1", "relay-1", now_ms)
    return InstallsReported(said, "zone-1", "relay-1", 1, 1, [], [], [], [], [], {}, {})


async def fill(log: EventLog, clock: Clock, *, records: int = 40, seed: int = 7) -> None:
    """Append so many joins to both zones partitions, some statements to fleet, and reports to installs."""
    await ensure_origin(log, "test", clock.ms, random.Random(seed))
    for number in range(records):
        clock.ms += 1_000
        await log.append(ZONES_0, b"zone-1", encode(joined(number, clock.ms)))
        if number % 4 == 0:
            await log.append(ZONES_1, b"zone-2", encode(joined(number, clock.ms)))
            await log.append(
                FLEET_0, b"", encode(WritesFrozen(internal_envelope("zone-9", "?ops", clock.ms), "zone-9"))
            )
            await log.append(Partition(INSTALLS, 0), b"zone-1", encode(installed(clock.ms)))


async def write_sample_log(data: Path, *, records: int = 40, seed: int = 7) -> Clock:
    """A plane's data folder with such a log, closed; its clock at that time."""
    clock = Clock()
    async with EmbeddedLog.open(TOPICS, data / LOG_FOLDER, partition_count=PARTITIONS, now_ms=clock) as log:
        await fill(log, clock, records=records, seed=seed)
    return clock
