"""Logs on stderr, a line per state transition: key=value, readable as they are, or JSON for whatever ships them.

What a line is about goes into `extra` (partition, position, epoch, zone ...); payloads never do. Whatever a value
holds, it stays one field of one line: names and reasons come from outside.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from deploy.peer_log_sampler import PeerLogSampler

_PLAIN = (str, int, bool, type(None))
_QUIET = {"aiokafka": logging.CRITICAL, "aiohttp.access": logging.WARNING}
"""Libraries that say more than they know."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Fields(logging.Formatter):
    """What a line says: when, how bad, by whom, what happened, about what."""

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        found.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return found


class KeyValueFormatter(_Fields):
    """`time=... level=info logger=eventstore.replicas.replica event="caught up" partition=zones/3 ...`"""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


class JsonFormatter(_Fields):
    """The same as one JSON object: numbers stay numbers, all else is text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        return json.dumps({key: value if type(value) in _PLAIN else str(value) for key, value in fields.items()})


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def is_ours(record: logging.LogRecord) -> bool:
    """Whether an error of the HTTP server is not merely that a stranger does not speak HTTP.

    They are told so with 400. A traceback of 3 kB for each such request would let anybody fill the disk.
    """
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ != "aiohttp.http_exceptions"


def configure_logs(level: str = "INFO", form: str = "text") -> None:
    """Send everything from `level` on to stderr, but silence the Kafka client: it is noisy while brokers change."""
    logging.basicConfig(level=level, handlers=[_to_stderr(form)], force=True)
    _silence()


@contextmanager
def logging_here(level: str) -> Iterator[None]:
    """The same for as long as this context lasts, for a command that folds or reads the log by itself."""
    root, handler = logging.getLogger(), _to_stderr("text")
    before = root.level, root.handlers[:]
    loud = {name: logging.getLogger(name).level for name in _QUIET}
    root.setLevel(level)
    root.handlers[:] = [handler]
    _silence()
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        for name, was in loud.items():
            logging.getLogger(name).setLevel(was)


def _to_stderr(form: str) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else KeyValueFormatter())
    handler.addFilter(PeerLogSampler())
    return handler


def _silence() -> None:
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)
    logging.getLogger("aiohttp.server").addFilter(is_ours)
