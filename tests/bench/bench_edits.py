"""The time of one policy edit, on a fresh plane and on one with a long history: 100,000 edits, 50,000 zones.

The fleet fold runs alone, without a log. Measured are `decide`, `evolve` and the read of one zone's table, which
updates covers and history. The edits set one of eight policies, with sources that match no node, so each edit retires a
set. Former zones had one node each, which left. Current zones have one label each, of ten different ones, and no node;
their peer is a plane with ten such zones. A ratio of 1 means equal cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from projections.fleet.tables.zone_table import table
from tests.bench.figures import Figure, median_seconds
from tests.support.fleet import Fleet, Item

NODES = 2_000
ZONES = 20
EDITS = 100_000
ZONES_SEEN = 50_000
LABEL_SETS = 10
PER_RECORD = 500
AT_ONCE = 50
RUNS = 11


def figures() -> list[Figure]:
    numbers = count()
    fresh, labelled = _edit_ms(_fleet(), numbers), _edit_ms(_labelled(LABEL_SETS), numbers)
    edited, past = _fleet(), _fleet()
    for _ in range(EDITS):
        _edit(edited, next(numbers))
    _join_and_leave(past)
    return [
        Figure("one policy edit, fresh plane", fresh, "ms"),
        _figure(f"after {EDITS:,} edits", _edit_ms(edited, numbers), fresh, "fresh plane"),
        _figure(f"with {ZONES_SEEN:,} past zones", _edit_ms(past, numbers), fresh, "fresh plane"),
        _figure(f"with {ZONES_SEEN:,} zones", _edit_ms(_labelled(ZONES_SEEN), numbers), labelled, "ten zones"),
    ]


def _figure(what: str, found: float, peer: float, peer_name: str) -> Figure:
    return Figure(f"one policy edit, {what}", found, "ms", peer, peer_name, 2 * peer, "lower")


def _labelled(zones: int) -> Fleet:
    fleet = _fleet()
    for number in range(zones):
        fleet.describe(f"past{number}", {"tier": str(number % LABEL_SETS)})
    return fleet


def _fleet() -> Fleet:
    fleet = Fleet()
    for first in range(0, NODES, PER_RECORD):
        fleet.change(*(_node(number, f"z{number % ZONES}") for number in range(first, first + PER_RECORD)), partition=0)
    return fleet


def _node(number: int, zone: str) -> Item:
    return Item(f"n{number}", zone, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", labels={"app": "web"})


def _join_and_leave(fleet: Fleet) -> None:
    fleet.unlimited()
    for first in range(0, ZONES_SEEN, PER_RECORD):
        there = [_node(NODES + number, f"past{number}") for number in range(first, first + PER_RECORD)]
        fleet.change(*there, partition=0)
        fleet.change(*_left(there), partition=0)


def _left(items: Sequence[Item]) -> list[Item]:
    return [item._replace(state=1) for item in items]


def _edit(fleet: Fleet, number: int) -> None:
    outcome = fleet.policy(f"p{number % 8}", action="drop", sources={"app": f"none{number}"})
    assert outcome.code == "done"
    table(fleet.state, "z0")


def _edit_ms(fleet: Fleet, numbers: count[int]) -> float:
    def some() -> None:
        for _ in range(AT_ONCE):
            _edit(fleet, next(numbers))

    return median_seconds(some, runs=RUNS) / AT_ONCE * 1_000
