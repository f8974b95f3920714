"""Command ids: RFC 9562 version 7, ordered by time; every other text is refused."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.id_columns import are_issued_at
from eventstore.ids import (
    InvalidCommandId,
    envelope,
    internal_envelope,
    is_part_of,
    issued_at_ms,
    part_id,
    uuid7,
)

times = st.integers(0, (1 << 48) - 1)


@given(now_ms=times, seed=st.integers())
def test_an_id_is_a_uuid7_of_its_time(now_ms: int, seed: int) -> None:
    text = uuid7(now_ms, random.Random(seed))
    parsed = uuid.UUID(text)
    assert (str(parsed), parsed.version, parsed.variant) == (text, 7, uuid.RFC_4122)
    assert issued_at_ms(text) == now_ms


@given(one=times, other=times)
def test_ids_are_ordered_by_time(one: int, other: int) -> None:
    rng = random.Random(1)
    if one != other:
        assert (uuid7(one, rng) < uuid7(other, rng)) == (one < other)


def test_ids_of_one_moment_differ_and_depend_on_the_generator_only() -> None:
    rng = random.Random(5)
    made = [uuid7(1_700_000_000_000, rng) for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert uuid7(1_700_000_000_000, random.Random(5)) == made[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node-1",
        "018BCFE5-6800-7D8E-91B7-584A2265B1F5",
        "018bcfe568007d8e91b7584a2265b1f5",
        "{018bcfe5-6800-7d8e-91b7-584a2265b1f5}",
        "018bcfe5-6800-4d8e-91b7-584a2265b1f5",
        "018bcfe5-6800-7d8e-c1b7-584a2265b1f5",
        "018bcfe5-6800-7d8e-91b7-584a2265b1f5\n",
        "٠18bcfe5-6800-7d8e-91b7-584a2265b1f5",
    ],
)
def test_other_texts_are_refused_as_command_ids(text: str) -> None:
    with pytest.raises(InvalidCommandId, match="UUIDv7"):
        issued_at_ms(text)


def test_a_command_has_the_time_of_its_id_and_an_internal_event_has_no_id() -> None:
    command_id = uuid7(1_700_000_000_123, random.Random(1))
    assert envelope("node-1", "?me", command_id).issued_at_ms == 1_700_000_000_123
    said = internal_envelope("zone-1", "relay/r1", 1_700_000_000_456)
    assert (said.command_id, said.issued_at_ms) == ("", 1_700_000_000_456)


def test_parts_of_a_command_are_recognized_by_its_id() -> None:
    rng = random.Random(1)
    whole, other = uuid7(1_700_000_000_123, rng), uuid7(1_700_000_000_123, rng)
    parts = [part_id(whole, number) for number in (1, 2, 4_096, (1 << 24) - 1)]
    assert len({*parts, whole}) == 5
    assert parts[0] == part_id(whole, 1), "a repeat has the same ids"
    assert {issued_at_ms(part) for part in parts} == {1_700_000_000_123}
    assert all(is_part_of(part, whole) for part in (whole, *parts))
    assert not any(is_part_of(part, other) for part in (whole, *parts, "", part_id(parts[0], 1)))
    neighbour = whole[:-1] + ("0" if whole[-1] != "0" else "1")
    assert not is_part_of(neighbour, whole), "consecutive ids are not parts of each other"


@given(st.lists(st.tuples(times, times), min_size=1, max_size=5), st.data())
def test_the_bulk_check_of_ids_agrees_with_the_single_one(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    ids = [uuid7(now_ms, random.Random(seed)) for now_ms, seed in pairs]
    issued_ms = [now_ms for now_ms, _ in pairs]
    assert are_issued_at(ids, issued_ms)
    at = data.draw(st.integers(0, len(ids) - 1))
    place = data.draw(st.integers(0, 35))
    ids[at] = (
        ids[at][:place]
        + data.draw(st.sampled_from(["0", "7", "9", "f", "F", "-", "\u0660", "", "00"]))
        + ids[at][place + 1 :]
    )
    try:
        same = issued_at_ms(ids[at]) == issued_ms[at]
    except InvalidCommandId:
        same = False
    assert are_issued_at(ids, issued_ms) == same
