"""Types and callbacks of parameters: numbers, ids, times, addresses. A bad value is a usage error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deploy.addresses import parse_addresses
from eventstore.as_of import parse_as_of, parse_time
from eventstore.errors import PermanentError
from eventstore.ids import issued_at_ms
from eventstore.position import check_token
from projections.field_checks import check_clique, quoted


class BoundedInteger(click.ParamType[int]):
    """An integer that fits its protobuf field. The plane checks the range that is allowed."""

    name = "integer"

    def __init__(self, bits: int) -> None:
        self._most = (1 << (bits - 1)) - 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{quoted(str(value))} is not a whole number", param, ctx)
        if not -self._most <= number <= self._most:
            self.fail(f"{number} must be from {-self._most} to {self._most}", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """A number in a range, and never `nan`, which no comparison rejects: a wait of nan seconds would never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not a number", param, ctx)
        return number


class Folder(click.Path):
    """A folder, which need not be there. Never empty, as the path of nothing is the working folder: an unset variable
    of a script would go unseen."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


INT32, INT64 = BoundedInteger(32), BoundedInteger(64)


class Time(click.ParamType[int]):
    """A time in milliseconds since the epoch, given so or in ISO 8601; UTC, if that names no zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        time_ms = parse_time(str(value))
        if time_ms is None:
            self.fail(f"{quoted(str(value))} must be a time in ISO 8601, or milliseconds since the epoch", param, ctx)
        return time_ms


def as_of(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | int | None:
    """Callback of an option for a moment of the past: a token as it is, a time in milliseconds, None if not given."""
    if given is None:
        return None
    try:
        return parse_as_of(given)
    except PermanentError as error:
        raise click.BadParameter(str(error).removeprefix("as_of: ").removeprefix("position: ")) from error


def as_of_text(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """The same as it was given; empty if it was not."""
    if not_empty(context, parameter, given):
        as_of(context, parameter, given)
    return given


def position(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for the token of an answer; empty if it is not given."""
    if not_empty(context, parameter, given):
        try:
            check_token(given)
        except PermanentError as error:
            raise click.BadParameter(str(error).removeprefix("position: ")) from error
    return given


def not_empty(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option that may be left out, but not be empty: an unset variable of a script would go unseen."""
    if not given and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        raise click.BadParameter("must not be empty; leave the option out instead")
    return given


def principal(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for a name in the log; empty if it is not given."""
    if not_empty(context, parameter, given) and (fault := check_clique("as", given)):
        raise click.BadParameter(fault.removeprefix("as: "))
    return given


def addresses(_context: click.Context, _parameter: click.Parameter, given: str) -> list[str]:
    """Callback of an option HOST:PORT,... that is never empty."""
    try:
        return [str(address) for address in parse_addresses(given)]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def addresses_if_given(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """As `addresses`, for an option that may be left out; the addresses as one text."""
    return ",".join(addresses(context, parameter, given)) if given else ""


def command_id(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of an option for the id of a command; empty if it is not given."""
    if not_empty(context, parameter, given):
        try:
            issued_at_ms(given)
        except PermanentError as error:
            raise click.BadParameter(str(error)) from error
    return given
