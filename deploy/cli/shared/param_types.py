"""Types and callbacks of parameters: numbers, ids, times, addresses. A bad value is a usage error."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deploy.settings.addresses import parse_addresses
from eventstore.as_of import parse_as_of, parse_duration, parse_time
from eventstore.errors import PermanentError
from eventstore.ids import issued_at_ms
from eventstore.position import check_token
from projections.field_checks import check_clique, quoted
from projections.label_selectors import parse_selector


class BoundedInteger(click.ParamType[int]):
    """An integer that fits its protobuf field. The plane checks the range that is allowed."""

    name = "integer"

    def __init__(self, bits: int) -> None:
        self._most = (1 << (bits - 1)) - 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{quoted(str(value))} must be a whole number", param, ctx)
        if not -self._most <= number <= self._most:
            self.fail(f"{number} must be from {-self._most} to {self._most}", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """A number in a range, but not `nan`: click's comparisons accept `nan`, and a wait of nan seconds never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not a number", param, ctx)
        return number


class Folder(click.Path):
    """A folder, which may be absent. An empty value is refused: it comes from an unset variable of a script, and would
    mean the working folder."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


INT32, INT64 = BoundedInteger(32), BoundedInteger(64)


class Seconds(FiniteRange):
    """A duration in seconds within a range, given as a number of seconds or with units, as 90s or 5m."""

    name = "duration"

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        self._range = f"{least:g} to {most:g} seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = _seconds(value)
        if seconds is None:
            self.fail(f"{quoted(str(value))} must be a number of seconds, or a duration such as 90s or 5m", param, ctx)
        assert self.min is not None and self.max is not None, "a duration has both bounds"
        if not self.min <= seconds <= self.max:  # `nan` is in no range
            self.fail(f"{quoted(str(value))} must be from {self._range}", param, ctx)
        return seconds


def _seconds(value: Any) -> float | None:
    duration_ms = parse_duration(value) if isinstance(value, str) else None
    if duration_ms is not None:
        return duration_ms / 1_000
    try:
        return float(value)
    except ValueError:
        return None


class Time(click.ParamType[int]):
    """A time, converted to milliseconds since the epoch. Accepts milliseconds since the epoch, ISO 8601 (UTC without an
    offset), or a duration before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        time_ms = _time_before(str(value))
        if time_ms is None:
            time_ms = parse_time(str(value))
        if time_ms is None:
            self.fail(f"{quoted(str(value))} must be {_TIME_FORMS}", param, ctx)
        return time_ms


_TIME_FORMS = "a time in ISO 8601, milliseconds since the epoch, or a duration before now such as 10m"


def _time_before(duration: str) -> int | None:
    """The present time minus a duration; None if the text is no duration. The client computes the time once, because a
    server would compute another time for each page of a list."""
    duration_ms = parse_duration(duration)
    return None if duration_ms is None else max(0, time.time_ns() // 1_000_000 - duration_ms)


def as_of(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | int | None:
    """Callback of an option for a point of the past: a token unchanged, a time in milliseconds, None if not given."""
    if given is None:
        return None
    time_ms = _time_before(given)
    if time_ms is not None:
        return time_ms
    try:
        return parse_as_of(given)
    except PermanentError as error:
        if ":" in given and "=" in given:  # a position
            raise click.BadParameter(str(error).removeprefix("as_of: ").removeprefix("position: ")) from error
        raise click.BadParameter(f"{quoted(given)} must be the position of a response, {_TIME_FORMS}") from error


def as_of_text(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Like `as_of`, but returns text for the server. A duration before now is converted to a time. Empty if not
    given."""
    if not not_empty(context, parameter, given):
        return given
    return str(as_of(context, parameter, given))


def position(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for the token of a response; empty if not given."""
    if not_empty(context, parameter, given):
        try:
            check_token(given)
        except PermanentError as error:
            raise click.BadParameter(str(error).removeprefix("position: ")) from error
    return given


def label_selector(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for a label selector; empty if not given."""
    if not_empty(context, parameter, given):
        try:
            parse_selector("", given)
        except PermanentError as error:
            raise click.BadParameter(str(error).removeprefix(": ")) from error
    return given


def not_empty(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option that may be absent but not empty: an empty value usually comes from an unset variable of a
    script."""
    if not given and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        raise click.BadParameter("must not be empty; omit the option instead")
    return given


def principal(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for a principal in the log; empty if not given."""
    if not_empty(context, parameter, given) and (fault := check_clique("as", given)):
        raise click.BadParameter(fault.removeprefix("as: "))
    return given


def addresses(_context: click.Context, _parameter: click.Parameter, given: str) -> list[str]:
    """Callback of an option HOST:PORT,... that must not be empty."""
    try:
        return [str(address) for address in parse_addresses(given)]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def addresses_if_given(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Like `addresses`, for an option that may be absent; the addresses as one text."""
    return ",".join(addresses(context, parameter, given)) if given else ""


def command_id(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for a command id; empty if not given."""
    if not_empty(context, parameter, given):
        try:
            issued_at_ms(given)
        except PermanentError as error:
            raise click.BadParameter(str(error)) from error
    return given


def joined(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> str | None:
    """Callback of a repeatable option: its values as one comma-separated text. None if the option is not given, so that
    the environment variable applies."""
    return ",".join(given) if given else None
