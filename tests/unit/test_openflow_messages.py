"""OpenFlow messages: what is written is read again, and what a switch offers and refuses."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.openflow import messages as of
from drivers.openflow.messages import Flow

flows = st.builds(
    Flow,
    st.integers(0, 253),
    st.integers(0, 65_535),
    st.integers(0, (1 << 64) - 1),
    st.binary(max_size=60),
    st.sampled_from((b"", of.goto_table(3), of.apply_actions(of.output(of.NORMAL)), of.apply_actions(bytes(16) * 3))),
    st.tuples(st.sampled_from((0, 3)), st.sampled_from((0, 65_535))),
)


def stats(flow: Flow) -> bytes:
    """A flow as a switch reports it, section 7.3.5.2."""
    rest = of.match(flow.match) + flow.instructions
    head = struct.pack(
        "!HBxIIHHHHH2xQQQ", 48 + len(rest), flow.table, 1, 2, flow.priority, *flow.timeouts, 0, 0, flow.cookie, 5, 6
    )
    return head + rest


@given(st.lists(flows, max_size=5), st.booleans())
def test_the_flows_of_a_reply_are_read(reported: list[Flow], more: bool) -> None:
    body = struct.pack("!HH4x", 1, more) + b"".join(map(stats, reported))
    assert list(of.flows(body)) == reported and of.has_more(body) == more


@given(flows)
def test_a_change_of_a_flow_has_its_layout(flow: Flow) -> None:
    for command, mask, instructions in ((of.ADD, 0, flow.instructions), (of.DELETE_STRICT, (1 << 64) - 2, b"")):
        data = of.flow_mod(7, command, flow)
        version, kind, length, xid = of.HEADER.unpack_from(data)
        assert (version, kind, length, xid) == (5, 14, len(data), 7) and not len(data) % 8
        assert struct.unpack_from("!QQBB", data, 8) == (flow.cookie, mask, flow.table, command)
        size = int.from_bytes(data[50:52], "big")
        assert data[52 : 48 + size] == flow.match and data[48 + size + -size % 8 :] == instructions


def test_updates_of_a_monitor_name_the_flows_that_others_changed() -> None:
    """Section 7.3.5.11: changes by the session itself, and pauses, name none."""
    changed = [
        struct.pack("!HHBBHHH4xQ", 32, kind, 20 + kind, 0, 0, 0, 4 + kind, 7 + kind) + of.match(b"")
        for kind in (1, 2, 3)
    ]
    others = [struct.pack("!HHI", 8, kind, 9) for kind in (4, 5, 6)]
    body = struct.pack("!HH4x", 16, 0) + b"".join(each for pair in zip(changed, others, strict=True) for each in pair)
    assert list(of.updates(body)) == [(21, 5, 8), (22, 6, 9), (23, 7, 10)]
    assert list(of.updates(struct.pack("!HH4x", 1, 0) + stats(Flow(20, 5, 1, b"", b"")))) == []


@pytest.mark.parametrize("size", [0, 7, 100])
def test_an_entry_of_an_impossible_size_is_an_error(size: int) -> None:
    entry = struct.pack("!HHBBHHH4xQ", size, 1, 20, 0, 0, 0, 5, 7) + of.match(b"")
    with pytest.raises(of.MessageInvalid, match=f"an entry of {size} bytes where 32 are left"):
        list(of.updates(struct.pack("!HH4x", 16, 0) + entry))
    reported = struct.pack("!H", size) + stats(Flow(20, 5, 1, b"", b""))[2:]
    with pytest.raises(of.MessageInvalid, match=f"an entry of {size} bytes where 56 are left"):
        list(of.flows(struct.pack("!HH4x", 1, 0) + reported[:56]))


def test_a_switch_offers_a_version_in_its_bitmap_or_by_its_header() -> None:
    assert of.is_offered(of.hello(1)[8:], 1)
    assert not of.is_offered(b"\x00\x01\x00\x08" + (1 << 1).to_bytes(4, "big"), 6)
    assert of.is_offered(b"", 5) and not of.is_offered(b"", 4)


def test_an_error_is_a_sentence() -> None:
    assert str(of.error(struct.pack("!HH", 5, 6))) == "the switch refused with the error flow mod failed, code 6"
    assert str(of.error(struct.pack("!HH", 5, 1))) == "the table of the switch is full (flow_limit of the bridge)"
    assert str(of.error(struct.pack("!HH", 99, 1))) == "the switch refused with the error of type 99, code 1"
