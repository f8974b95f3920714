"""The table of nodes against a dict of rows, whichever of them are columns; and what columns of nodes say of each."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventstore.ids import internal_envelope
from projections import name_index
from projections.zones import node_rows
from projections.zones.joined import Joined
from projections.zones.node_rows import NodeRows
from projections.zones.rows import Node
from schemas.events import NodesJoined
from tests.support.sometimes import Sometimes, sized
from tests.support.thresholds import with_threshold

FEW = 3
NUMBERS = 60
"""Names that may have joined before all are numbered anew."""
NAMES = [f"n{number}" for number in range(120)]
SOMETIMES = Sometimes("columns were taken apart", "all were numbered anew", "some are columns and some are rows")


def column(draw: st.DrawFn, values: st.SearchStrategy[object], count: int) -> list[object]:
    size = draw(st.sampled_from([1, count]))
    return draw(st.lists(values, min_size=size, max_size=size))


@st.composite
def joined(draw: st.DrawFn, names: list[str]) -> Joined:
    """Nodes of these names, some columns with one value for all, some with one each, some with none."""
    count = len(names)
    created_ms, uids = draw(st.sampled_from([True, False])), st.sampled_from(["u", "v", ""])
    event = NodesJoined(
        internal_envelope("z", "t", 7),
        "z",
        names,
        column(draw, st.integers(0, 9), count) if created_ms else [],  # type: ignore[arg-type]
        column(draw, uids, count) if created_ms else [],  # type: ignore[arg-type]
        draw(st.sampled_from([b"", bytes(range(4 * count % 200)).ljust(4 * count, b"\1")])),
        draw(st.sampled_from([b"", bytes(16) + b"\2" * 16 * (count - 1)])),
        label_sets := draw(st.sampled_from([[], [{"a": "b"}], [{"a": "b"}, {"c": "d", "e": "f"}]])),
        column(draw, st.integers(0, len(label_sets) - 1), count) if label_sets else [],  # type: ignore[arg-type]
    )
    zones = column(draw, st.sampled_from(["y", "z"]), count)
    return Joined(event, zones, column(draw, st.integers(0, 99), count), column(draw, st.integers(0, 99), count))  # type: ignore[arg-type]


@given(st.data())
def test_a_node_is_the_same_whichever_way_it_is_read(data: st.DataObject) -> None:
    names = [f"n{number}" for number in range(data.draw(st.integers(2, 40)))]
    columns = data.draw(joined(names))
    nodes = [*columns.nodes()]
    assert nodes == [columns.node(place) for place in range(len(names))]
    places = data.draw(st.lists(st.integers(0, len(names) - 1)))
    assert [*columns.get_many(places)] == [nodes[place] for place in places]
    start = data.draw(st.integers(0, len(names) - 1))
    stop = data.draw(st.integers(start + 1, len(names)))
    part = columns.between(start, stop)
    assert (part.event.names, [*part.nodes()]) == (names[start:stop], nodes[start:stop])


class NodeRowsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rows = NodeRows(NUMBERS)
        self.model: dict[str, Node] = {}
        self.joined = 0
        self.order: list[str] = []

    @rule(data=st.data())
    def join_together(self, data: st.DataObject) -> None:
        free = [name for name in NAMES if name not in self.model]
        if len(free) < 2:
            return
        names = data.draw(st.permutations(free[: data.draw(st.integers(2, 30))]))
        columns = data.draw(joined(names))
        if self.joined + len(names) > NUMBERS:
            SOMETIMES.saw("all were numbered anew")
            self.joined = 0
        self.joined += len(names) if len(names) > FEW else 0
        self.rows.add_joined(columns)
        self.model |= zip(names, columns.nodes(), strict=True)
        self.order = [*self.order[-20:], *names]

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=40, unique=True), data=st.data())
    def change(self, names: list[str], data: st.DataObject) -> None:
        rows = {name: Node("z", place, "u", 0, b"", {}, place, 0) for place, name in enumerate(names)}
        before = self.columns()
        if len(rows) == 1:
            for name, row in rows.items():
                self.rows[name] = row
        else:
            self.rows.update(rows)
        self.model |= rows
        if self.columns() < before:
            SOMETIMES.saw("columns were taken apart")

    @rule(first=st.integers(0, len(NAMES)), count=st.integers(0, len(NAMES)))
    def discard(self, first: int, count: int) -> None:
        names, before = NAMES[first : first + count], self.columns()
        self.rows.discard(names)
        self.model = {name: row for name, row in self.model.items() if name not in names}
        if self.columns() < before:
            SOMETIMES.saw("columns were taken apart")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        assert self.rows.pop(name) == self.model.pop(name)
        with pytest.raises(KeyError):
            del self.rows[name]
        with pytest.raises(KeyError):
            self.rows[name]

    @rule(names=st.lists(st.sampled_from([*NAMES, "x", "n1\0"]), max_size=60))
    def look(self, names: list[str]) -> None:
        assert self.rows.get_many(names) == [self.model.get(name) for name in names]
        assert self.rows.has_any(names) == any(name in self.model for name in names)
        for name in names[:5]:
            assert (self.rows.get(name), name in self.rows) == (self.model.get(name), name in self.model)

    @invariant()
    def it_is_what_the_model_is(self) -> None:
        assert len(self.rows) == len(self.model)
        assert sorted(self.rows) == sorted(self.model)
        assert dict(self.rows.items()) == self.model
        assert self.rows.get_many(sorted(self.model)) == [self.model[name] for name in sorted(self.model)]
        assert self.rows.get_many(self.order) == [self.model.get(name) for name in self.order]
        assert self.rows.get_many(self.order[5:]) == [self.model.get(name) for name in self.order[5:]]
        for zone in ("y", "z", "w"):
            assert sorted(self.rows.in_zone(zone)) == sorted(n for n, row in self.model.items() if row.zone == zone)
        if 0 < self.columns() < len(self.model):
            SOMETIMES.saw("some are columns and some are rows")

    def columns(self) -> int:
        """How many sets of columns there are."""
        return len(self.rows._joined)


TestNodeRowsMachine = sized(
    with_threshold(NodeRowsMachine, FEW, (node_rows, "_FEW"), (name_index, "_FEW")), 60, 30, SOMETIMES
)


def test_the_last_few_of_many_that_joined_together_do_not_keep_the_columns_of_all() -> None:
    rows = NodeRows()
    names = [f"node-{number:04}" for number in range(1_000)]
    event = NodesJoined(internal_envelope("z", "t", 7), "z", names, [], [], b"", b"", [], [])
    rows.add_joined(Joined(event, ["z"], [5], [6]))
    rows.discard(names[:750])
    assert len(rows._joined) == 1
    rows.discard(names[750:751])
    assert (rows._joined, len(rows)) == ([], 249)
    assert rows["node-0999"] == Node("z", 7, "", 0, b"", {}, 5, 6)
    assert msgspec.structs.astuple(rows["node-0751"]) == ("z", 7, "", 0, b"", {}, 5, 6, 0)
