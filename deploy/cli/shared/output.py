"""Output to stdout: one value or a list, as a table, names, JSON or YAML."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from deploy.serialization import JsonObject, message_to_dict, yaml_text
from eventstore.as_of import format_time
from schemas.api.times import to_ms

FORMATS = ("table", "wide", "name", "json", "yaml")
"""Formats of the list and show commands, as in kubectl. `name` prints names in the form that other commands accept."""

_GOOD = ("ready", "done", "ok", "applied", "in hardware")
_LOOK = ("waiting", "held", "frozen", "paused", "draining", "look")
_BAD = ("refused", "unknown", "failed", "wrong", "halted")
_COLORS = dict.fromkeys(_GOOD, "green") | dict.fromkeys(_LOOK, "yellow") | dict.fromkeys(_BAD, "red")
"""Colors of states. They only repeat the meaning of the word."""


class Column(NamedTuple):
    """A column of a table; a wide one is printed with `-o wide` only."""

    head: str
    cell: Callable[[Any], object]
    wide: bool = False


class Table(NamedTuple):
    """How one kind of item is listed: its name, and its columns."""

    name: Callable[[Any], object]
    columns: Sequence[Column]


class Output(NamedTuple):
    """Prints what a list or show command has found, in the format of `--output`."""

    format: str
    headers: bool = True

    def print_list(self, found: Message | JsonObject, items: Iterable[Any], table: Table) -> None:
        """Print a list. JSON and YAML have the whole value `found`; the other formats have one line per item."""
        if self.format == "name":
            for item in items:
                click.echo(table.name(item))
        elif self._is_text:
            columns = [column for column in table.columns if not column.wide or self.format == "wide"]
            rows = ([column.cell(item) for column in columns] for item in items)
            print_table([column.head for column in columns], rows, headers=self.headers)
        else:
            print_value(_as_dict(found), self.format)

    def print_one(self, found: Message | JsonObject, name: object, print_text: Callable[[], None]) -> None:
        """Print one value. JSON and YAML have the whole value `found`; the format `name` has its name. For the other
        formats, `print_text` is called."""
        if self.format == "name":
            click.echo(name)
        elif self._is_text:
            print_text()
        else:
            print_value(_as_dict(found), self.format)

    @property
    def _is_text(self) -> bool:
        return self.format in ("table", "wide")


def _as_dict(found: Message | JsonObject) -> JsonObject:
    return message_to_dict(found) if isinstance(found, Message) else found


def print_value(value: JsonObject, output: str) -> None:
    """Print the value of a command as JSON or YAML."""
    if output == "yaml":
        click.echo(yaml_text(value), nl=False)
    else:
        click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, headers: bool = True) -> None:
    """Print rows under column heads, aligned; the last column is not padded."""
    text = [[str(cell) for cell in row] for row in rows]
    first = heads if headers else [""] * len(heads)
    widths = [max(map(len, column)) for column in zip(first, *text, strict=True)]
    if headers:
        line = "  ".join(head.upper().ljust(width) for head, width in zip(heads, widths, strict=True))
        click.echo(heading(line.rstrip()))
    for row in text:
        padded = zip(row, widths, strict=True)
        line = "  ".join(colored(cell) + " " * (width - len(cell)) for cell, width in padded)
        click.echo(line.rstrip())


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one value, one field per line."""
    labels_text = [(name, str(value)) for name, value in fields]
    width = max(len(name) for name, _ in labels_text)
    for name, value in labels_text:
        click.echo(f"{heading(name)}{' ' * (width - len(name))}  {colored(value)}".rstrip())


def wants_color(stream: Any) -> bool:
    """Whether the stream is a terminal with colors (TERM is not `dumb`), without NO_COLOR (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colored(text: str, *, err: bool = False) -> str:
    """Color the state with which a text begins; unchanged where no color is wanted."""
    state = text.partition(":")[0].partition(",")[0].partition(" (")[0]
    color = _COLORS.get(state.lower())
    if color is None or not wants_color(sys.stderr if err else sys.stdout):
        return text
    return click.style(state, fg=color) + text[len(state) :]


def heading(text: str) -> str:
    return click.style(text, bold=True) if wants_color(sys.stdout) else text


def check_stdout_reader(wait_s: float = 0.0) -> None:
    """Raise BrokenPipeError if the reader of stdout has closed it, or closes it within `wait_s`. A command that prints
    only changes would otherwise outlive `| head` until the next change."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    if poller.poll(wait_s * 1_000):
        raise BrokenPipeError


def time_text(time: Timestamp) -> str:
    """A time as readable text; empty if the time is absent."""
    time_ms = to_ms(time)
    return format_time(time_ms) if time_ms else ""


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as one line of text."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
