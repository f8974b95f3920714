"""As-of queries: the time to the first answer, from the nearest state checkpoint and from the log's beginning.

The log is a fleet of nodes, then claims and releases of clique indices, spread over a month. A plane folds it once, and
archives states on the way. `python -m tests.bench.bench_past 10000000` sets the length of the log (takes some minutes).
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import uvloop
from rocksdict import AccessType

from commands.rpc.middleware import Call
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER, STATE_FOLDER
from deploy.operations.past.as_of_servers import AsOfServers
from deploy.settings.settings import load_settings
from eventstore.avro.codec import encode
from eventstore.embedded.rocks import LogRow, open_rocks
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, Partition
from eventstore.state_store.rocks_store import list_checkpoints
from schemas.api import dpuplane_pb2 as pb
from schemas.events import IndicesClaimed, IndicesReleased
from tests.bench.apart import apart, serving
from tests.bench.figures import Figure
from tests.bench.planes import fill
from tests.bench.workload import in_batches, now_ms

RECORDS = 1_000_000
NODES = 100_000
ZONES = 100
CLIQUES_MADE = 5_000
MEMBERS = 18
MONTH_MS = 30 * 24 * 3_600 * 1_000
LOOKS = 9
PATIENCE_S = 900.0
ROWS_AT_ONCE = 20_000


def figures(records: int = RECORDS) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, 0)
        began_ms = now_ms()
        apart(_churn, data, records, began_ms)
        with serving("--data", str(data)):
            states = len(list_checkpoints(data / STATE_FOLDER))
        print(f"{records:,} records, {states} state checkpoints", file=sys.stderr, flush=True)
        rng = random.Random(5)
        moments = [began_ms + round(MONTH_MS * rng.random()) for _ in range(LOOKS)]
        near = uvloop.run(_looks(data, [*moments, began_ms + MONTH_MS * 99 // 100]))
        (data / STATE_FOLDER / "checkpoints").rename(data / "unused")
        [far] = uvloop.run(_looks(data, [began_ms + MONTH_MS // 2]))
    name = f"look back into {records:,} records"
    return [
        Figure(f"{name}, anywhere", statistics.median(near[:-1]), "s", far, "no archive, middle", 5.0, "lower"),
        Figure(f"{name}, furthest from a state", max(near), "s", better="lower"),
        Figure(f"{name}, the last hundredth", near[-1], "s", better="lower"),
    ]


async def _looks(data: Path, moments: list[int]) -> list[float]:
    """The time to the first answer for each moment, in a process each."""
    settings = load_settings({"data": data, "name": "bench"}, None, {})
    taken = []
    for moment in moments:
        async with AsOfServers.open(settings, lambda: max(moments)) as as_of_servers:
            began = time.perf_counter()
            then = await as_of_servers.at(str(moment), timeout_s=PATIENCE_S)
            found = await then.list_cliques(pb.ListCliquesRequest(), Call("bench", PATIENCE_S))
            taken.append(time.perf_counter() - began)
            assert found.cliques
    return taken


def _churn(data: Path, records: int, began_ms: int) -> None:
    """Append so many claims and releases at the end, spread over the following month."""
    rocks = open_rocks(data / LOG_FOLDER, AccessType.read_write())
    try:
        header = rocks.header()
        assert header is not None
        partitions = TOPICS.partitions(CLIQUES, header.partition_count)
        ends = Counter({p: bounds.end for p, bounds in rocks.all_bounds(partitions).items()})
        events = _claims(records, began_ms)
        for batch in in_batches(events, ROWS_AT_ONCE):
            rows = []
            for at_ms, event in batch:
                partition: Partition = TOPICS.partition_for(CLIQUES, event.domain, header.partition_count)
                rows.append(LogRow(partition, ends[partition], at_ms, event.domain.encode(), encode(event)))
                ends[partition] += 1
            rocks.write(rows)
    finally:
        rocks.close()


def _claims(records: int, began_ms: int) -> Iterator[tuple[int, IndicesClaimed | IndicesReleased]]:
    """Every slot of every clique in turn: claimed, released, claimed by the next incarnation."""
    rng = random.Random(6)
    for number in range(records):
        at_ms = began_ms + number * MONTH_MS // records
        turn, slot = divmod(number, CLIQUES_MADE * MEMBERS)
        member, clique = divmod(slot, CLIQUES_MADE)
        domain, name = f"domain-{clique // 10:04}", str(clique % 10)
        said = envelope(f"clique/{domain}/{name}", "bench", uuid7(at_ms, rng))
        node, uid = f"node-{clique:05}-{member:02}", f"pod-{turn // 2}"
        if turn % 2:
            yield at_ms, IndicesReleased(said, domain, name, [node], [uid])
        else:
            yield at_ms, IndicesClaimed(said, domain, name, [node], ["10.0.0.1"], [turn], [uid], [])


if __name__ == "__main__":
    for figure in figures(int(sys.argv[1])):
        print(figure.as_json())
