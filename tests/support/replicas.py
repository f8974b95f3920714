"""Replicas of the toy fold over any log, started and stopped by the test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from eventstore.log import FLEET, ZONES, EventLog
from eventstore.replica_limits import ReplicaLimits
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore, StateStore
from tests.support.toy_fold import ToyFold
from tests.support.toy_records import T0


def toy_replica(
    log: EventLog,
    *,
    name: str = "replica-1",
    store: StateStore | None = None,
    now_ms: Callable[[], int] = lambda: T0,
    creates: bool = True,
    topics: Sequence[str] = (FLEET, ZONES),
    limits: ReplicaLimits | None = None,
) -> Replica:
    """A replica of these topics with the toy fold."""
    return Replica(
        log,
        [ToyFold(topic) for topic in topics],
        store=DigestStore() if store is None else store,
        name=name,
        now_ms=now_ms,
        rng=random.Random(name),
        creates=creates,
        limits=limits or ReplicaLimits(),
    )


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    """Run the replicas until the context exits; enter when they are ready. An early failure is raised here."""
    runs = [asyncio.ensure_future(replica.run()) for replica in replicas]
    try:
        await _until_ready(runs, replicas)
        yield
    finally:
        for run in runs:
            run.cancel()
        for run in runs:
            with suppress(asyncio.CancelledError):
                await run


async def _until_ready(runs: Sequence[asyncio.Future[None]], replicas: Sequence[Replica]) -> None:
    ready = asyncio.ensure_future(_all_ready(replicas))
    await asyncio.wait((ready, *runs), return_when=asyncio.FIRST_COMPLETED)
    for run in runs:
        if run.done():
            ready.cancel()
            await run
    await ready


async def _all_ready(replicas: Sequence[Replica]) -> None:
    for replica in replicas:
        await replica.ready()
