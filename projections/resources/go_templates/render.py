"""Rendering of templates: a bounded interpreter without side effects.

A key that the data lacks is a fault, as with Go's option missingkey=error, which DPF sets. Output, steps and values are
limited, so that a template can neither fill the memory nor run for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from projections.resources.go_templates.functions import FUNCTIONS, checked, cost
from projections.resources.go_templates.parser import parsed
from projections.resources.go_templates.syntax import (
    Action,
    Branch,
    Chain,
    Function,
    Jump,
    Literal,
    Node,
    Operand,
    Pipeline,
    TemplateFault,
    Text,
)
from projections.resources.go_templates.values import is_true, text_of

OUTPUT_MAX = 512 * 1024
"""Maximum number of characters of a rendered template."""
STEPS_MAX = 50_000
"""Maximum number of nodes and commands that one rendering executes. A result of a function counts by its size."""


class Fault(str):
    """Why a template was not rendered, in one sentence."""

    __slots__ = ()


def rendered(template: str, data: Mapping[str, Any]) -> str | Fault:
    """The text of a template with these values, or the fault why there is none."""
    try:
        nodes = _parsed(template)
        if isinstance(nodes, Fault):
            return nodes
        renderer = _Renderer(data)
        renderer.run(nodes, data)
    except TemplateFault as fault:
        return Fault(str(fault))
    except RecursionError:
        return Fault("is nested too deep")
    return "".join(renderer.output)


@lru_cache(maxsize=64)
def _parsed(template: str) -> tuple[Node, ...] | Fault:
    try:
        return parsed(template)
    except TemplateFault as fault:
        return Fault(str(fault))


class _Jumped(Exception):
    """A `break` or `continue`, which its range catches."""


class _Renderer:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self.output: list[str] = []
        self._size = 0
        self._steps = 0
        self._scopes: list[dict[str, Any]] = [{"$": data}]

    def run(self, nodes: Sequence[Node], dot: Any) -> None:
        for node in nodes:
            self._step()
            match node:
                case Text(text):
                    self._put(text)
                case Action(line, pipeline):
                    try:
                        value = self._evaluate(pipeline, dot)
                        if not pipeline.variables:
                            self._put(text_of(value))
                    except TemplateFault as fault:
                        raise _at(line, fault) from None
                case Jump(keyword):
                    raise _Jumped(keyword)
                case Branch():
                    self._branch(node, dot)

    def _branch(self, node: Branch, dot: Any) -> None:
        self._scopes.append({})
        try:
            try:
                value = self._evaluate(node.pipeline, dot, is_range=node.keyword == "range")
            except TemplateFault as fault:
                raise _at(node.line, fault) from None
            if node.keyword == "range":
                self._range(node, value, dot)
            elif is_true(value):
                self.run(node.body, value if node.keyword == "with" else dot)
            else:
                self.run(node.other, dot)
        finally:
            self._scopes.pop()

    def _range(self, node: Branch, value: Any, dot: Any) -> None:
        pairs = [*_pairs(value, node.line)]
        if not pairs:
            self.run(node.other, dot)
        for key, each in pairs:
            self._step()
            self._scopes.append({})
            try:
                if node.pipeline.variables:
                    values = (each,) if len(node.pipeline.variables) == 1 else (key, each)
                    for name, found in zip(node.pipeline.variables, values, strict=True):
                        self._set(name, found, declares=node.pipeline.is_declaration)
                self.run(node.body, each)
            except _Jumped as jumped:
                if str(jumped) == "break":
                    return
            finally:
                self._scopes.pop()

    def _evaluate(self, pipeline: Pipeline, dot: Any, *, is_range: bool = False) -> Any:
        value: Any = None
        for number, command in enumerate(pipeline.commands):
            self._step()
            value = self._command(command, dot, [value] if number else [])
        if not is_range:
            for name in pipeline.variables:
                self._set(name, value, declares=pipeline.is_declaration)
        return value

    def _command(self, command: tuple[Operand, ...], dot: Any, piped: list[Any]) -> Any:
        first, *rest = command
        if not isinstance(first, Function):
            if piped:
                raise TemplateFault("a value after | must be a function")
            return self._operand(first, dot)
        if first.name in ("and", "or"):
            return self._shortcut(first.name, rest, dot, piped)
        function = FUNCTIONS.get(first.name)
        if function is None:
            raise TemplateFault(f"function {first.name} is not supported")
        found = checked(first.name, function, [*(self._operand(each, dot) for each in rest), *piped])
        self._step(cost(found))
        return found

    def _shortcut(self, name: str, rest: Sequence[Operand], dot: Any, piped: list[Any]) -> Any:
        """`and` ends at its first false argument, `or` at its first true one."""
        value: Any = None
        for each in rest:
            value = self._operand(each, dot)
            if is_true(value) == (name == "or"):
                return value
        if piped:
            return piped[0]
        if not rest:
            raise TemplateFault(f"{name} needs an argument")
        return value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        match operand:
            case Literal(value):
                return value
            case Pipeline():
                return self._evaluate(operand, dot)
            case Function(name):
                return self._command((operand,), dot, []) if name not in ("and", "or") else None
            case Chain(base, fields):
                value = dot
                if isinstance(base, Pipeline):
                    value = self._evaluate(base, dot)
                elif base is not None:
                    value = self._variable(base)
                for field in fields:
                    value = _field(value, field)
                return value

    def _variable(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise TemplateFault(f"variable {name} is not declared")

    def _set(self, name: str, value: Any, *, declares: bool) -> None:
        if declares:
            self._scopes[-1][name] = value
            return
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return
        raise TemplateFault(f"variable {name} is not declared")

    def _put(self, text: str) -> None:
        self._size += len(text)
        if self._size > OUTPUT_MAX:
            raise TemplateFault(f"the result has more than the {OUTPUT_MAX} characters allowed")
        self.output.append(text)

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > STEPS_MAX:
            raise TemplateFault(f"takes more than the {STEPS_MAX} steps allowed")


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        raise TemplateFault(f".{name} is asked of a value without fields")
    if name not in value:
        raise TemplateFault(f".{name} has no value")
    return value[name]


def _pairs(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a range. A map is in the order of its keys, as in Go."""
    match value:
        case None:
            return
        case Mapping():
            yield from sorted(value.items())
        case bool() | str():
            raise TemplateFault(f"line {line}: range needs a list, an object or a number")
        case int():
            if value > STEPS_MAX:
                raise TemplateFault(f"line {line}: takes more than the {STEPS_MAX} steps allowed")
            yield from ((number, number) for number in range(value))
        case list() | tuple():
            yield from enumerate(value)
        case _:
            raise TemplateFault(f"line {line}: range needs a list, an object or a number")


def _at(line: int, fault: TemplateFault) -> TemplateFault:
    text = str(fault)
    return fault if text.startswith("line ") else TemplateFault(f"line {line}: {text}")
