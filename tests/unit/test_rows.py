"""Tables record their changed rows, for single changes and for changes in bulk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.state_table import StateTable

Step = tuple[str, int, int]

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "remove", "put_all", "add_all", "touch", "drain")),
        st.integers(0, 200),
        st.integers(1, 200),
    ),
    max_size=30,
)


@given(_STEPS)
def test_a_drain_returns_the_changes_since_the_last_one(steps: list[Step]) -> None:
    table: StateTable[int] = StateTable("numbers", int)
    rows: dict[str, int] = {}
    changed: set[str] = set()
    saved: set[str] = set()
    for turn, (step, first, count) in enumerate(steps):
        keys = [str(number) for number in range(first, first + count)]
        match step:
            case "put":
                table.put(keys[0], turn)
                rows[keys[0]] = turn
                changed.add(keys[0])
            case "remove":
                table.remove(keys[0])
                if rows.pop(keys[0], None) is not None:
                    changed.add(keys[0])
            case "put_all":
                table.put_all(dict.fromkeys(keys, turn))
                rows |= dict.fromkeys(keys, turn)
                changed.update(keys)
            case "add_all":
                added = {key: turn for key in keys if key not in rows}
                table.add_all(added)
                rows |= added
                changed.update(added)
            case "touch":
                table.touch(keys)
                changed.update(keys)
            case _:
                assert table.changes() >= len(changed)
                fresh, known = table.drain()
                assert sorted([*fresh, *known]) == sorted(changed)
                assert saved.isdisjoint(fresh)
                assert table.get_many(fresh) == [rows[key] for key in fresh]
                changed, saved = set(), set(rows)
        assert table.rows == rows
    assert table.changes() >= len(changed)
    assert {key for keys in table.drain() for key in keys} == changed
    assert table.changes() == 0


def test_a_row_that_changes_often_is_recorded_once() -> None:
    table: StateTable[int] = StateTable("numbers", int)
    rows = dict.fromkeys(map(str, range(1_000)), 0)
    for _ in range(100):
        table.put_all(rows)
        assert table.changes() <= 2 * len(rows)
    assert len(table.drain().changed) == len(rows)


def test_a_row_that_is_new_need_not_be_looked_up_unless_its_key_was_saved_before() -> None:
    table: StateTable[int] = StateTable("numbers", int)
    table.add_all({"a": 1, "b": 2})
    assert table.drain() == (["a", "b"], [])
    table.remove("a")
    table.add_all({"a": 3, "c": 4})
    table.put("c", 5)
    assert table.drain() == ([], ["a", "c"])
