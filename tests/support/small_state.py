"""A process whose files are limited to 3 MiB at first, to test saved state on a full disk.

Run as a child (`python -m tests.support.small_state DIRECTORY`), because the limit holds for the whole process. It
prints its results as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import SaveFailed
from tests.support.small_disk import LIMIT_BYTES, limit_files
from tests.support.toy_log import created, fact, records
from tests.unit.test_saver import empty


async def scenario(path: Path) -> dict[str, object]:
    limit_files(LIMIT_BYTES)
    store, partition = RocksStore(path), empty()
    for record in records([created(), *[fact(f"p{number}-" + "x" * 20_000) for number in range(300)]]):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            break
    saved, failed = partition.saved_position, 0
    for record in records([fact("more"), fact("and more")], start=partition.position):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            failed += 1
    limit_files(1 << 30)
    await save(partition, store)
    store.close()
    store = RocksStore(path)
    again = await load_partition(empty(), store)
    limit_files(LIMIT_BYTES)
    for record in records([fact("last"), *[fact("y" * 50_000) for _ in range(200)]], start=partition.position):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            break
    store.close()
    return {
        "saved": saved,
        "failed": failed,
        "restored": again is not None and again.state.policies.rows.keys() >= {"more", "and more"},
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scenario(Path(sys.argv[1])))))
