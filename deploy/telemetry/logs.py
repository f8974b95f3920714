"""Logs on stderr, one line per state transition: key=value for people, or JSON for log shippers.

The subject of a line is in `extra` (partition, position, epoch, zone ...); payloads are never logged. Names and reasons
come from outside, so every value is quoted where needed: no value can add a field or a line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from deploy.telemetry.peer_log_sampler import PeerLogSampler

_PLAIN = (str, int, bool, type(None))
_QUIET = {"aiokafka": logging.CRITICAL, "aiohttp.access": logging.WARNING}
"""Minimum levels of noisy loggers of libraries."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Fields(logging.Formatter):
    """The fields of a line: time, level, logger, event, and the extra fields."""

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
    """The same fields as one JSON object: integers, booleans and null keep their type, all other values are text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        return json.dumps({key: value if type(value) in _PLAIN else str(value) for key, value in fields.items()})


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def is_ours(record: logging.LogRecord) -> bool:
    """A filter that admits every log record of the HTTP server, except those about invalid HTTP.

    The server responds with 400 to invalid HTTP. A traceback of 3 kB for each such request would let any peer fill the
    disk.
    """
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ != "aiohttp.http_exceptions"


def configure_logs(level: str = "INFO", form: str = "text") -> None:
    """Log to stderr from `level` upwards. The Kafka client and the HTTP server have higher levels: the Kafka client is
    noisy while brokers change."""
    logging.basicConfig(level=level, handlers=[_to_stderr(form)], force=True)
    _silence()


def configured() -> tuple[str, str]:
    """The level and form of `configure_logs`, for a child process."""
    root = logging.getLogger()
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    return logging.getLevelName(root.level), "json" if is_json else "text"


@contextmanager
def logging_here(level: str) -> Iterator[None]:
    """Configure logs while this context lasts, for a command that folds or reads the log itself."""
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
