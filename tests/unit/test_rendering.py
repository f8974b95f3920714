"""Events as printed by `events export`: addresses are text, and hashes are hexadecimal."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from deploy.operations.export.events import as_json, as_line
from deploy.operations.export.rendering import rendered
from eventstore.avro.codec import encode
from eventstore.log import ZONES, Partition, Record
from schemas.events import Envelope, HoldApproved, NodesJoined

ENVELOPE = Envelope("", "z", "?", 0)
NONE4, NONE6 = IPv4Address(0), IPv6Address(0)


def joined(four: bytes, six: bytes) -> NodesJoined:
    return NodesJoined(
        envelope=ENVELOPE,
        zone="z",
        names=["n1", "n2"],
        created_ms=[],
        uids=[],
        addresses4=four,
        addresses6=six,
        label_sets=[],
        label_index=[],
    )


def test_addresses_are_text_per_node_and_hashes_are_hex() -> None:
    event = joined(IPv4Address("10.0.0.1").packed + bytes(4), IPv6Address("2001:db8::1").packed * 2)
    record = Record(7, 1, b"z", encode(event), ())
    line = json.loads(as_json(as_line(Partition(ZONES, 0), record)))
    assert (line["addresses4"], line["addresses6"]) == (["10.0.0.1", None], ["2001:db8::1"] * 2)
    approved = rendered(HoldApproved(ENVELOPE, 3, bytes([0xAB, 0xCD])))
    assert approved["hold_hash"] == "abcd"


def test_a_malformed_column_is_hex() -> None:
    assert rendered(joined(b"\x01\x02\x03", b""))["addresses4"] == "010203"


@given(st.lists(st.ip_addresses(v=4), max_size=9), st.lists(st.ip_addresses(v=6), max_size=9))
def test_every_address_survives_a_round_trip(four: list[IPv4Address], six: list[IPv6Address]) -> None:
    found = rendered(joined(b"".join(a.packed for a in four), b"".join(a.packed for a in six)))
    assert [IPv4Address(text) if text else NONE4 for text in found["addresses4"]] == four
    assert [IPv6Address(text) if text else NONE6 for text in found["addresses6"]] == six
