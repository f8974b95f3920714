"""The syntax of templates: the nodes of a parsed template, and why one cannot be parsed or rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


class TemplateFault(ValueError):
    """Why a template cannot be parsed or rendered, in one sentence. It never leaves this package."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number, boolean or nil."""

    value: object


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of a value, such as `.port.mtu`, `$each.name` or `(index .ports 0).mtu`. Without a base, of the dot."""

    base: str | Pipeline | None
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function, which begins a command."""

    name: str


Operand: TypeAlias = "Literal | Chain | Function | Pipeline"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each of which gets the result of the one before it as last argument; and variables for the result."""

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...] = ()
    is_declaration: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is copied."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """An action whose result is inserted, unless it sets variables."""

    line: int
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`, with its `else`."""

    line: int
    keyword: str
    pipeline: Pipeline
    body: Sequence[Node]
    other: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    keyword: str


Node: TypeAlias = Text | Action | Branch | Jump
