"""Options that name the log, for commands that read it directly. Without them, `events` and `history` read it through
the API, and the server tells the other commands where its log is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from deploy.cli.shared.errors import Refused, Unreachable
from deploy.cli.shared.param_types import Folder, addresses_if_given
from deploy.cli.shared.setting_options import kafka_access_options, log_setting_option, take_access
from deploy.host.storage import LogSource
from deploy.settings.settings import BadSettings, log_settings
from deploy.telemetry.logs import logging_here
from eventstore.errors import PermanentError, PlaneError

F = TypeVar("F", bound=Callable[..., Any])

_DATA = log_setting_option("data", type=Folder(), help="Folder of an embedded log; it may be in use by its process.")
_KAFKA = log_setting_option("kafka", callback=addresses_if_given, default="", help="Kafka cluster that holds the log.")
_PREFIX = log_setting_option("topic_prefix", default="dpuplane")
_CONFIG = click.option(
    "--config",
    metavar="FILE",
    envvar="DPUPLANE_CONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file of settings with the log, as for `dpuplane serve`.",
)


def log_options(function: F) -> F:
    """Pass `log_source` to a command: the named log, or None. With None, the command asks the server for its log."""

    @functools.wraps(function)
    def run(*, config: Path | None, **given: Any) -> None:
        context = click.get_current_context()
        if config is not None:
            given |= _from_file(context, config, given)
        data, kafka = _one_engine(context, given.pop("data"), given.pop("kafka"))
        topic_prefix = given.pop("topic_prefix")
        context.obj = access = take_access(given)
        named = data is not None or bool(kafka)
        with logging_here("WARNING"):
            function(log_source=LogSource(data, kafka, topic_prefix, access) if named else None, **given)

    return _DATA(_KAFKA(kafka_access_options(_PREFIX(_CONFIG(run)))))  # type: ignore[return-value]


def _one_engine(context: click.Context, data: Path | None, kafka: str) -> tuple[Path | None, str]:
    """The folder or the brokers of the log. Both are empty if a flag names a server and no flag names the log.

    Flags override environment and file, so --data overrides DPUPLANE_KAFKA and --kafka overrides DPUPLANE_DATA. Raises
    UsageError if a folder and brokers are both given by flags, or both by environment and file.
    """
    by_flag = {name for name in ("data", "kafka", "servers") if _is_flag(context, name)}
    if by_flag == {"servers"}:
        return None, ""
    if data is not None and kafka:
        if len(by_flag & {"data", "kafka"}) != 1:
            raise click.UsageError("give --data or --kafka, not both")
        return (data, "") if "data" in by_flag else (None, kafka)
    return data, kafka


def _from_file(context: click.Context, config: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The location of the log in the settings file, unless a flag or variable gives it. Raises UsageError."""
    try:
        found = log_settings(config)
    except BadSettings as error:
        raise click.UsageError(str(error)) from error
    return {name: value for name, value in found.items() if name in given and _is_default(context, name)}


def _is_flag(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _is_default(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) in (ParameterSource.DEFAULT, None)


def log_source_of_status(status: Any, server: str) -> LogSource:
    """The location of the log in a Status message."""
    location = status.log
    if location.engine == "kafka":
        access = click.get_current_context().obj
        return LogSource(None, ",".join(location.bootstrap), location.topic_prefix, access)
    folder = Path(location.data)
    if not folder.is_dir():
        raise Unreachable(
            f"{server} keeps its log in {folder}, which is not on this machine: run this command on its machine"
        )
    return LogSource(folder)


@contextmanager
def log_errors() -> Iterator[None]:
    """Turns errors of the log and of arguments into a sentence and an exit status."""
    try:
        yield
    except PermanentError as error:
        raise Refused(str(error)) from error
    except PlaneError as error:
        raise Unreachable(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None
