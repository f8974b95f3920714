"""Verdicts of a rule table for packets, by definition: the first matching rule decides, otherwise the packet is denied.

This checks every step of a frame. Tables here are no larger than those of a simulated device, so every address whose
verdict may change is tested with every class of traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from projections.rules.device_table import WIDTH4, unpack
from projections.rules.rule import Rule, SetStep, precedence
from tests.simulation.checkers.traffic import Class, classes_of, fits

Table = Mapping[Rule, frozenset[bytes]]
Point = tuple[int, int]
"""An address: its family (width of a packed prefix) and number."""


def unsafe(before: Table, steps: Sequence[SetStep]) -> str:
    """Why it is unsafe to apply these steps to this table; empty if it is safe."""
    states = list(_states(before, steps))
    if len(states) <= 2:
        return ""
    points = _points(prefix for table in states for prefixes in table.values() for prefix in prefixes)
    traffic = classes_of({rule for table in states for rule in table})
    old, new = _verdicts(states[0], points, traffic), _verdicts(states[-1], points, traffic)
    for number, table in enumerate(states[1:-1], 1):
        for key, verdict in _verdicts(table, points, traffic).items():
            if verdict not in (old[key], new[key]):
                where = f"after {number} of {len(states) - 1} changes"
                return f"{where} source {key[0]} gets the verdict {verdict} for {key[1]}"
    return ""


def _states(before: Table, steps: Sequence[SetStep]) -> Iterable[Table]:
    """The table before, and after each half of each step: a device adds, then removes."""
    table = dict(before)
    yield dict(table)
    for rule, add4, add6, remove4, remove6 in steps:
        for added, removed in ((unpack(add4, add6), frozenset()), (frozenset(), unpack(remove4, remove6))):
            if added or removed:
                table[rule] = (table.get(rule, frozenset()) | added) - removed
                yield dict(table)


def _span(prefix: bytes) -> tuple[int, int, int]:
    width, bits = len(prefix), (len(prefix) - 1) * 8
    first = int.from_bytes(prefix[:-1], "big")
    return width, first, first + (1 << bits - prefix[-1])


def _points(prefixes: Iterable[bytes]) -> list[Point]:
    """One address of every range within which no prefix begins or ends."""
    found = {(WIDTH4, 0)}
    for prefix in prefixes:
        width, first, end = _span(prefix)
        found |= {(width, first), (width, end)}
    return sorted(found)


def _verdicts(table: Table, points: Sequence[Point], traffic: Sequence[Class]) -> dict[tuple[Point, Class], str]:
    ordered = [(rule, [_span(prefix) for prefix in table[rule]]) for rule in sorted(table, key=precedence)]
    found: dict[tuple[Point, Class], str] = {}
    by_rules: dict[tuple[Rule, ...], list[str]] = {}
    for point in points:
        width, address = point
        matching = tuple(r for r, spans in ordered if any(w == width and a <= address < b for w, a, b in spans))
        if (actions := by_rules.get(matching)) is None:
            first = [next((rule.action for rule in matching if fits(rule, *kind)), "deny") for kind in traffic]
            actions = by_rules[matching] = first
        found |= {(point, kind): action for kind, action in zip(traffic, actions, strict=True)}
    return found
