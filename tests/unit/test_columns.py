"""A malformed record of nodes is refused as a whole, in one sentence. Bulk checks agree with single ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from projections import field_checks
from projections.columns import _check_label_set, expand, fault_of_label_numbers, fault_of_nodes
from projections.field_checks import MAX_AHEAD_MS
from schemas.events import MAX_ITEMS, NodesJoined, NodesLeft
from tests.support.zones import START_MS, ZonesPartition, internal_envelope, nodes_joined, packed6

SOUND = nodes_joined(internal_envelope("z1", START_MS), ["a", "b"], address=0x0A000001, created_ms=5, uid="u")


def four(*addresses: str) -> bytes:
    return b"".join(bytes(map(int, address.split("."))) for address in addresses)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"zone": ""}, "zone: ''"),
    ({"names": []}, "names: 0 items must be from 1 to 1000"),
    ({"names": [f"n{i}" for i in range(MAX_ITEMS + 1)]}, "names: 1001 items"),
    ({"names": ["a", "b\nc"]}, "names: 'b\\nc' must be"),
    ({"names": ["a", ""]}, "names: '' must be"),
    ({"names": ["a", "/b"]}, "names: '/b' must be"),
    ({"names": ["a", "s/t/b"]}, "names: 's/t/b' must be"),
    ({"names": ["a", "a"]}, "names: 'a' is given twice"),
    ({"created_ms": []}, "uids: 1 entries must go with as many entries of created_ms"),
    ({"created_ms": [1, 2, 3]}, "created_ms: 3 entries for 2 names"),
    ({"uids": ["u", "v", "w"]}, "uids: 3 entries for 2 names"),
    ({"created_ms": [-1]}, "created_ms: -1 must be from 0"),
    ({"created_ms": [5, START_MS + 2 * MAX_AHEAD_MS]}, f"created_ms: {START_MS + 2 * MAX_AHEAD_MS} must be from 0"),
    (
        {"created_ms": [], "uids": [], "envelope": internal_envelope("z1", 2 * START_MS)},
        f"created_ms: {2 * START_MS} must be",
    ),
    ({"uids": ["u", "ü"]}, "uids: 'ü' must be at most 128"),
    ({"uids": ["u", "\ud800"]}, "uids: '\\ud800' must be at most 128"),
    ({"uids": ["u" * 129]}, "(129 characters) must be at most 128"),
    ({"addresses4": bytes(7)}, "addresses4: 7 bytes for 2 names"),
    ({"addresses4": four("10.0.0.1", "127.0.0.1")}, "addresses4: '127.0.0.1' must be a host address"),
    ({"addresses4": four("10.0.0.1", "239.0.0.1")}, "addresses4: '239.0.0.1' must be a host address"),
    ({"addresses4": four("255.255.255.255", "10.0.0.1")}, "addresses4: '255.255.255.255' must be a host address"),
    ({"addresses4": four("10.0.0.1", "10.0.0.1")}, "addresses4: '10.0.0.1' is given twice"),
    ({"addresses6": bytes(31)}, "addresses6: 31 bytes for 2 names"),
    ({"addresses6": packed6("::1") + packed6("fd00::1")}, "addresses6: '::1' must be a host address"),
    ({"addresses6": packed6("fd00::1") + packed6("ff02::1")}, "addresses6: 'ff02::1' must be a host address"),
    ({"addresses6": packed6("::ffff:10.0.0.1") + bytes(16)}, "is an IPv4 address in IPv6 form"),
    ({"addresses6": packed6("fd00::1") * 2}, "addresses6: 'fd00::1' is given twice"),
    ({"label_sets": [{"a": "b"}]}, "label_index: 0 entries for 1 label sets"),
    ({"label_sets": [{"a": "b"}], "label_index": [0, 1]}, "label_index: 1 must be the index of one of the 1"),
    ({"label_sets": [{"a": "b"}], "label_index": [-1, 0]}, "label_index: -1 must be the index"),
    ({"label_sets": [{"a": "b"}], "label_index": [0, 0, 0]}, "label_index: 3 entries for 2 names"),
    ({"label_sets": [{"a b": "c"}], "label_index": [0]}, "labels key: 'a b' must be"),
    ({"label_sets": [{"a": "c\n"}], "label_index": [0]}, "labels[a]: 'c\\n' must be"),
]


def test_a_valid_record_has_no_fault() -> None:
    assert fault_of_nodes(SOUND, START_MS) is None


@pytest.mark.parametrize(("columns", "sentence"), FAULTS, ids=[sentence for _, sentence in FAULTS])
def test_a_fault_is_named_and_nothing_is_applied(columns: dict[str, Any], sentence: str) -> None:
    event = replace(SOUND, **columns)
    fault = fault_of_nodes(event, START_MS)
    assert fault is not None and sentence in fault and "\n" not in fault
    log = ZonesPartition()
    assert log.append(event).reason.startswith(fault[:20])
    assert not log.state.nodes.rows and not log.state.outbox_offsets and not log.state.zones()


def test_the_changes_of_one_record_are_bounded() -> None:
    long = [f"{i:04d}" + "x" * 249 for i in range(MAX_ITEMS)]
    assert fault_of_nodes(replace(SOUND, names=long[:900], addresses4=b""), START_MS) is None
    labels = [{f"k{i}": "v" * 253} for i in range(200)]
    event = replace(
        SOUND, names=long[:900], addresses4=b"", label_sets=labels, label_index=[i % 200 for i in range(900)]
    )
    assert "262144" in (fault_of_nodes(event, START_MS) or "")
    left = NodesLeft(SOUND.envelope, "z1", [f"source{'s' * 50}/{name}" for name in long], [], [], False, b"")
    assert "262144" in (fault_of_nodes(left, START_MS) or "")


NAMES = st.text(st.sampled_from("aB9._-/ \n\u00e9"), max_size=6) | st.from_regex(r"\A[a-z]{1,3}(/[a-z]{1,3})?\Z")


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_the_bulk_check_of_names_agrees_with_the_single_one(given_names: list[str]) -> None:
    event = NodesJoined(SOUND.envelope, "z1", given_names, [], [], b"", b"", [], [])
    faults = [fault for name in given_names if (fault := field_checks.check_name("names", name))]
    repeated = len(set(given_names)) < len(given_names)
    fault = fault_of_nodes(event, START_MS)
    assert (fault is None) == (not faults and not repeated)
    assert not faults or fault == faults[0]


INTERESTING4 = st.sampled_from([0, 1, 0x7EFFFFFF, 0x7F000000, 0x80000000, 0xDFFFFFFF, 0xE0000000, 0xEFFFFFFF])
ADDRESSES4 = st.integers(0, 0xFFFFFFFF) | INTERESTING4 | st.sampled_from([0xF0000000, 0xFFFFFFFE, 0xFFFFFFFF])
INTERESTING6 = st.sampled_from([0, 1, 2, 0xFFFF << 32, 0xFFFF0A000001, 0xFF << 120, 0xFE << 120, 1 << 120])


@given(st.lists(ADDRESSES4, min_size=1, max_size=4), st.lists(st.integers(0, (1 << 128) - 1) | INTERESTING6))
def test_the_bulk_check_of_addresses_agrees_with_the_single_one(fours: list[int], sixes: list[int]) -> None:
    count = len(fours)
    sixes = (sixes + [0] * count)[:count]
    event = NodesJoined(
        SOUND.envelope,
        "z1",
        [f"n{i}" for i in range(count)],
        [],
        [],
        b"".join(value.to_bytes(4, "big") for value in fours),
        b"".join(value.to_bytes(16, "big") for value in sixes),
        [],
        [],
    )
    bad = any(value and field_checks.check_address4("a", value) for value in fours)
    bad |= any(value and field_checks.check_address6("a", value) for value in sixes)
    for values in (fours, sixes):
        there = [value for value in values if value]
        bad |= len(set(there)) < len(there)
    assert (fault_of_nodes(event, START_MS) is not None) == bad
    if not bad:
        columns = expand(event)
        assert list(columns.addresses4) == fours
        assert [int.from_bytes(value, "big") for value in columns.addresses6] == sixes


def test_a_column_of_one_entry_applies_to_all_nodes() -> None:
    log = ZonesPartition()
    event = replace(SOUND, label_sets=[{"a": "b"}], label_index=[0], addresses6=packed6("fd00::1") + bytes(16))
    assert log.append(event).code == "done"
    a, b = log.state.nodes.rows["a"], log.state.nodes.rows["b"]
    assert (a.created_ms, a.uid, a.labels) == (b.created_ms, b.uid, b.labels) == (5, "u", {"a": "b"})
    assert (a.address4, b.address4) == (0x0A000001, 0x0A000002)
    assert (a.address6, b.address6) == (packed6("fd00::1"), b"")


def test_without_incarnations_the_command_is_the_incarnation_of_all() -> None:
    log = ZonesPartition()
    log.join("a", "b")
    envelope = log.events[0][0].envelope
    assert {(n.created_ms, n.uid) for n in log.state.nodes.rows.values()} == {
        (envelope.issued_at_ms, envelope.command_id)
    }


def test_refused_labels_are_not_cached() -> None:
    """Refused labels may have a megabyte each, and the cache once held a thousand of them."""
    before = _check_label_set.cache_info().currsize
    for number in range(10):
        fault = fault_of_nodes(replace(SOUND, label_sets=[{"k": f"{number}" * 254}], label_index=[0]), 2 * START_MS)
        assert fault is not None and fault.startswith("labels[k]: ")
    assert _check_label_set.cache_info().currsize == before


@given(st.lists(st.integers(-2, 300) | st.sampled_from([1 << 70, -(1 << 70)]), min_size=1), st.integers(1, 400))
def test_label_set_numbers_are_checked_for_any_size_of_the_column(index: list[int], sets: int) -> None:
    wrong = min(index) if min(index) < 0 else max(index)
    fault = fault_of_label_numbers(index, sets)
    assert (fault is None) == (0 <= wrong < sets)
    assert fault is None or fault.startswith(f"label_index: {wrong} must be")


@pytest.mark.parametrize("names", [["b", "a", "b"], ["a", "b", "b"], ["aa", "b", "b"], ["s/b", "s/a", "s/b"]])
def test_a_repeated_name_is_found_in_any_order(names: list[str]) -> None:
    fault = fault_of_nodes(replace(SOUND, names=names, addresses4=b""), START_MS)
    assert fault is not None and "is given twice" in fault
