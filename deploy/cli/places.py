"""Where the log is, for the commands that read it themselves: named by flags, or by the server that keeps it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from deploy.cli.failures import Refused, Unreachable
from deploy.cli.kafka_options import kafka_access_options, take_access
from deploy.cli.values import Folder, addresses_if_given
from deploy.logs import logging_here
from deploy.opening import LogPlace
from eventstore.errors import PermanentError, PlaneError

F = TypeVar("F", bound=Callable[..., Any])

_DATA = click.option(
    "--data",
    type=Folder(),
    help="Folder of an embedded log; read beside the process that owns it.",
)
_KAFKA = click.option(
    "--kafka",
    callback=addresses_if_given,
    metavar="HOST:PORT,...",
    default="",
    help="Kafka cluster that holds the log.",
)
_PREFIX = click.option("--topic-prefix", metavar="NAME", default="dpuplane", show_default=True, help="Of its topics.")


def reads_log(function: F) -> F:
    """Gives a command `place`: a LogPlace, or None if no flag names one, so that the server is to be asked."""

    @functools.wraps(function)
    def run(*, data: Path | None, kafka: str, topic_prefix: str, **given: Any) -> None:
        if data is not None and kafka:
            raise click.UsageError("give --data or --kafka, not both")
        access = take_access(given)
        click.get_current_context().obj = access
        named = data is not None or bool(kafka)
        with logging_here("WARNING"):
            function(place=LogPlace(data, kafka, topic_prefix, access) if named else None, **given)

    return _DATA(_KAFKA(kafka_access_options(_PREFIX(run))))  # type: ignore[return-value]


def place_of_status(status: Any, server: str) -> LogPlace:
    """Where a server says its log is (a Status message)."""
    location = status.log
    if location.engine == "kafka":
        access = click.get_current_context().obj
        return LogPlace(None, ",".join(location.bootstrap), location.topic_prefix, access)
    folder = Path(location.data)
    if not folder.is_dir():
        raise Unreachable(f"{server} keeps its log in {folder}, which is not on this machine: run this command there")
    return LogPlace(folder)


@contextmanager
def failing() -> Iterator[None]:
    """Ends the command with a sentence and the right exit status if the log, or an argument, cannot be used."""
    try:
        yield
    except PermanentError as error:
        raise Refused(str(error)) from error
    except PlaneError as error:
        raise Unreachable(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None
