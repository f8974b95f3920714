"""Export of a log for analysts: a row per event as Parquet against lines of JSON, and a row per node; same run.

Half of the nodes in the log joined one by one, half a thousand to a record.
"""

from __future__ import annotations

import asyncio
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER, LogSource, open_log_to_read
from deploy.operations.export.events import EventFilter, as_json, batches, lines
from deploy.operations.export.parquet import ParquetFile
from deploy.operations.export.rows import rows
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from tests.bench.figures import Figure
from tests.support.sample_log import ZONES_0, joined, write_sample_log

SINGLE = 60_000
BATCHES, PER_BATCH = 60, 1_000


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="dpuplane-bench-") as folder:
        data = Path(folder) / "plane"
        asyncio.run(_fill(data))
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        out = Path(folder) / "out"
        lines_rate, lines_bytes = _measured(lambda: asyncio.run(_lines(data, out)), out)
        table_rate, table_bytes = _measured(lambda: asyncio.run(_table(data, out, explode=False)), out)
        nodes_rate, _ = _measured(lambda: asyncio.run(_table(data, out, explode=True)), out)
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    return [
        Figure("export: rows per second to Parquet", table_rate, "rows/s", lines_rate, "lines of JSON"),
        Figure("export: rows per second to Parquet, a row per node", nodes_rate, "rows/s"),
        Figure("export: bytes per row in Parquet", table_bytes, "bytes", lines_bytes, "lines of JSON", better="lower"),
        Figure("export: memory while exporting", grown_mb, "MB", aim=512, better="lower"),
    ]


async def _fill(data: Path) -> None:
    clock = await write_sample_log(data, records=0)
    async with EmbeddedLog.open(TOPICS, data / LOG_FOLDER, now_ms=clock) as log:
        for start in range(0, SINGLE, 500):
            values = [encode(joined(number, clock.ms)) for number in range(start, start + 500)]
            await asyncio.gather(*(log.append(ZONES_0, b"zone-1", value) for value in values))
        for number in range(BATCHES):
            await log.append(ZONES_0, b"zone-1", encode(joined(number, clock.ms, nodes=PER_BATCH)))


def _measured(export: Callable[[], int], out: Path) -> tuple[float, float]:
    """Rows per second, and bytes per row, of an export that reports its number of rows."""
    start = time.perf_counter()
    count = export()
    return count / (time.perf_counter() - start), out.stat().st_size / count


async def _lines(data: Path, path: Path) -> int:
    count = 0
    async with open_log_to_read(LogSource(data), rng=random.Random(1)) as log:
        with path.open("w", encoding="utf-8") as file:
            async for line in lines(log, EventFilter(), follow=False):
                file.write(f"{as_json(line)}\n")
                count += 1
    return count


async def _table(data: Path, path: Path, *, explode: bool) -> int:
    async with open_log_to_read(LogSource(data), rng=random.Random(1)) as log:
        with ParquetFile(path, explode=explode) as table:
            async for partition, records in batches(log, EventFilter(), follow=False):
                table.add(rows(partition, records, EventFilter(), explode=explode))
    return table.rows
