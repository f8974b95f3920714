"""Opens the storage of a process: the log in its settings, and the store of its saved folds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from commands.queries.status import LogLocation
from deploy.composition.roles import creates_log, roles_named
from deploy.composition.topics import TOPICS
from deploy.kafka.security import KafkaSecurity
from deploy.settings.settings import Settings
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import FatalError, LogMissing, PermanentError
from eventstore.kafka.log import KafkaLog
from eventstore.log import EventLog
from eventstore.recovery.backup import MANIFEST
from eventstore.replicas.role_names import DECISION_WRITER
from eventstore.state_store.checkpoints import CheckpointRetention
from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.store import DigestStore, StateStore
from projections.field_checks import PATH_QUOTED, quoted

LOG_FOLDER = "log"
STATE_FOLDER = "state"
DECISIONS_FOLDER = "decisions"
MISSING_CHECK_S = 1.0
"""Interval of checks for a log that does not exist yet."""

logger = logging.getLogger(__name__)


class LogSource(NamedTuple):
    """The location of a log: a folder, or a Kafka cluster and the prefix of its topics."""

    data: Path | None
    kafka: str = ""
    topic_prefix: str = ""
    security: KafkaSecurity = KafkaSecurity()

    def __str__(self) -> str:
        return str(self.data) if self.data is not None else f"{self.topic_prefix}.* on {self.kafka}"


def location_of(settings: Settings) -> LogLocation:
    """The location as a server reports it to its clients."""
    if settings.data is not None:
        return LogLocation("embedded", data=str(settings.data.resolve()))
    bootstrap = tuple(settings.kafka.split(","))
    return LogLocation("kafka", bootstrap=bootstrap, topic_prefix=settings.topic_prefix)


def state_folder(settings: Settings) -> Path | None:
    """The folder of saved folds: `state`, or a folder inside `data`; None if the settings have neither.

    The role `decisions` has a folder of its own inside it. It must not start from the state of another role, which may
    be ahead of the written decisions.
    """
    folder = settings.state or (settings.data / STATE_FOLDER if settings.data else None)
    return folder / DECISIONS_FOLDER if folder is not None and settings.role == DECISION_WRITER else folder


def log_source_of(settings: Settings) -> LogSource:
    """The location of the log in the settings."""
    return LogSource(settings.data, settings.kafka, settings.topic_prefix, settings.kafka_security)


@asynccontextmanager
async def open_log(settings: Settings, *, now_ms: Callable[[], int], rng: random.Random) -> AsyncIterator[EventLog]:
    """Open the log for appends. It is created if it is missing and this process may create it. Raises FatalError."""
    if settings.data is not None:
        folder = settings.data / LOG_FOLDER
        _make(settings.data, "data")
        if _is_backup(settings.data):
            raise FatalError(f"data: {settings.data} is a backup; create a plane from it with `dpuplane restore`")
        async with EmbeddedLog.open(TOPICS, folder, partition_count=settings.partitions, now_ms=now_ms) as embedded:
            yield embedded
        return
    async with AsyncExitStack() as stack:
        yield await _open_kafka(settings, stack, rng)


async def _open_kafka(settings: Settings, stack: AsyncExitStack, rng: random.Random) -> EventLog:
    """Open a log on Kafka. A role that may not create the log waits for a process that may: processes start in any
    order.
    """
    while True:
        opening = KafkaLog.open(
            TOPICS,
            settings.kafka,
            topic_prefix=settings.topic_prefix,
            partition_count=settings.partitions,
            rng=rng,
            create=creates_log(roles_named(settings.role)),
            access=settings.kafka_security.options,
        )
        try:
            return await stack.enter_async_context(opening)
        except LogMissing as error:
            logger.warning("log not opened, retrying: %s", error)
        await asyncio.sleep(MISSING_CHECK_S * rng.uniform(0.5, 1.5))


@asynccontextmanager
async def open_log_to_read(log_source: LogSource, *, rng: random.Random) -> AsyncIterator[EventLog]:
    """Open the log for reading, while another process may own it. Raises a PlaneError with a reason if there is
    no log.
    """
    if log_source.data is not None:
        async with EmbeddedLog.secondary(TOPICS, _log_folder(log_source.data)) as secondary:
            yield secondary
        return
    opening = KafkaLog.open(
        TOPICS,
        log_source.kafka,
        topic_prefix=log_source.topic_prefix,
        rng=rng,
        create=False,
        access=log_source.security.options,
    )
    async with opening as kafka:
        yield kafka


def _is_backup(data: Path) -> bool:
    try:
        return (data / MANIFEST).exists()
    except OSError as error:
        raise FatalError(f"data: {quoted(str(data), PATH_QUOTED)} cannot be read: {error.strerror}") from error


def _log_folder(data: Path) -> Path:
    folder = data / LOG_FOLDER
    if _is_backup(data):
        raise PermanentError(f"data: {data} is a backup, not a log; create a log from it with `dpuplane restore`")
    if not folder.is_dir():
        raise PermanentError(f"data: {data} holds no log; give the folder of `dpuplane serve --data`")
    return folder


@contextmanager
def open_store(settings: Settings) -> Iterator[StateStore]:
    """The store of saved folds: in the folder of the settings, or in memory if the settings name no folder."""
    folder = state_folder(settings)
    store: StateStore = DigestStore() if folder is None else _rocks(folder, settings)
    try:
        yield store
    finally:
        store.close()


def _rocks(folder: Path, settings: Settings) -> StateStore:
    _make(folder, "state")
    return RocksStore(
        folder, settings.name, CheckpointRetention(settings.state_checkpoints, settings.state_checkpoints_mb << 20)
    )


def _make(folder: Path, setting: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FatalError(
            f"{setting}: {quoted(str(folder), PATH_QUOTED)} cannot be created: {error.strerror}"
        ) from error
