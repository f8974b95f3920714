"""The codec: events survive a round trip, equal events are equal bytes, old versions are upcast, bad bytes refused."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.avro.codec import Codec, accepted_headers, decode, encode
from eventstore.avro.released import released
from eventstore.errors import Undecodable
from schemas.events import Envelope, Event, PolicySet, StepSucceeded
from schemas.upcasts import OldVersion
from tests.support.avro import unreadable
from tests.support.samples import ENVELOPE, EVENT_TYPES, sample

HEADERS = {schema.name: b"\0" + schema.id.to_bytes(4, "big") for schema in released()}
names = st.sampled_from(sorted(EVENT_TYPES))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
longs = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_survives_a_round_trip(name: str) -> None:
    value = encode(sample(name))
    assert value.startswith(HEADERS[name])
    assert decode(value) == sample(name)


@given(name=texts, number=longs, ports=st.lists(longs, max_size=5), labels=st.dictionaries(texts, texts, max_size=4))
def test_any_content_survives_a_round_trip(name: str, number: int, ports: list[int], labels: dict[str, str]) -> None:
    event = PolicySet(Envelope("", name, name, number), name, number, "allow", name, ports, labels, {})
    assert decode(encode(event)) == event


@given(st.permutations(["a", "b", "c", "d"]))
def test_equal_events_are_equal_bytes(keys: list[str]) -> None:
    def event(order: list[str]) -> StepSucceeded:
        return StepSucceeded(ENVELOPE, "zone", "dpu", "phase", 1, {key: key * 2 for key in order})

    assert encode(event(keys)) == encode(event(sorted(keys)))


# -- bad bytes


def refusal(value: bytes) -> str:
    with pytest.raises(Undecodable) as caught:
        decode(value)
    return str(caught.value)


def test_foreign_formats_are_refused_by_name() -> None:
    assert "0 bytes" in refusal(b"")
    assert "0x00" in refusal(b'{"json": 1}')
    assert "4 bytes" in refusal(b"\0\0\0\0")
    assert "99999" in refusal(b"\0" + (99_999).to_bytes(4, "big") + b"body")


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_body_that_is_too_short_or_too_long_is_refused(name: str) -> None:
    value = encode(sample(name))
    for length in range(len(value)):
        refusal(value[:length])
    assert "1 bytes follow" in refusal(value + b"\0")


@given(name=names, body=st.binary(max_size=200))
@example("NodesJoined", b"\x01")
@example("PolicySet", b"\xff" * 12)
def test_any_bytes_end_in_an_event_or_in_undecodable(name: str, body: bytes) -> None:
    try:
        event = decode(HEADERS[name] + body)
    except Undecodable:
        return
    assert decode(encode(event)) == event


@given(name=names, seed=st.integers(0, 1 << 32), flips=st.integers(1, 4))
def test_flipped_bits_end_in_an_event_or_in_undecodable(name: str, seed: int, flips: int) -> None:
    rng = random.Random(seed)
    value = bytearray(encode(sample(name)))
    for _ in range(flips):
        value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
    try:
        decode(bytes(value))
    except Undecodable:
        return


@pytest.mark.parametrize("name", ["NodesJoined", "InstallsReported", "StepSucceeded"])
def test_a_false_length_allocates_no_memory(name: str) -> None:
    huge = [b"\xfe\xff\xff\xff\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x40", b"\xff" * 9 + b"\x01"]
    value = encode(sample(name))
    for at in range(5, len(value)):
        for claim in huge:
            tracemalloc.start()
            try:
                decode(value[:at] + claim + value[at + 1 :])
            except Undecodable:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert peak < 1_000_000


# -- versions


class Parcel(Event, frozen=True):
    """Test-only: the newest of three versions."""

    schema_id = 901
    street: str
    house: int
    labels: dict[str, str] = {}  # noqa: RUF012


def parcel(fields: list[dict[str, Any]]) -> dict[str, Any]:
    envelope = released([Parcel], [])[0].document["fields"][0]
    return {"type": "record", "name": "Parcel", "namespace": "dpuplane", "fields": [envelope, *fields]}


ONE = parcel([{"name": "address", "type": "string"}])
TWO = parcel([{"name": "street", "type": "string"}, {"name": "house", "type": "long", "default": 0}])
THREE = released([Parcel], [])[0].document


def split_address(fields: dict[str, Any]) -> dict[str, Any]:
    street, _, house = fields["address"].rpartition(" ")
    return {"envelope": fields["envelope"], "street": street, "house": int(house)}


OLD = (
    OldVersion(1, 900, ONE, split_address),
    OldVersion(2, 905, TWO, lambda fields: {**fields, "labels": {}}),
)


class Letter(Event, frozen=True):
    """The first version of Parcel, used to write old records."""

    schema_id = 900
    address: str


def test_an_event_type_is_declared_by_its_struct_alone() -> None:
    schema = released([Parcel], OLD)[1]
    assert (schema.label, schema.id) == ("Parcel.v3", 901)
    assert schema.document["fields"][1:] == [
        {"name": "street", "type": "string"},
        {"name": "house", "type": "long"},
        {"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}},
    ]
    codec = Codec([Parcel])
    event = Parcel(ENVELOPE, "Main Street", 7, {"fragile": "yes"})
    assert codec.decode(codec.encode(event)) == event


def test_old_versions_are_read_as_the_newest() -> None:
    old = Codec([Letter]).encode(Letter(ENVELOPE, "Main Street 7"))
    codec = Codec([Parcel], OLD)
    assert codec.decode(old) == Parcel(ENVELOPE, "Main Street", 7, {})
    newest = Parcel(ENVELOPE, "Main Street", 7, {"fragile": "yes"})
    assert codec.encode(newest)[1:5] == (901).to_bytes(4, "big")
    assert codec.decode(codec.encode(newest)) == newest


def test_a_record_whose_upcast_fails_is_undecodable() -> None:
    old = Codec([Letter]).encode(Letter(ENVELOPE, "no number"))
    with pytest.raises(Undecodable, match="Parcel"):
        Codec([Parcel], OLD).decode(old)


def test_a_fold_version_fixes_the_schema_ids_that_it_accepts() -> None:
    codec = Codec([Parcel], OLD)
    ids = [
        {int.from_bytes(header[1:], "big") for header in codec.accepted_headers([name])}
        for name in ("Parcel", "Parcel.v2")
    ]
    assert ids == [{900}, {900, 905}]
    with pytest.raises(KeyError):
        codec.accepted_headers(["Parcel.v4"])
    assert accepted_headers(["NodesJoined"]) == {HEADERS["NodesJoined"]}


def test_the_compatibility_check_distinguishes_good_and_bad_changes() -> None:
    assert unreadable(TWO, THREE) == ""
    labels = {name: value for name, value in THREE["fields"][3].items() if name != "default"}
    without_default = parcel([*TWO["fields"][1:], labels])
    assert "labels" in unreadable(TWO, without_default)
    retyped = parcel([{"name": "street", "type": "long"}, TWO["fields"][2]])
    assert unreadable(TWO, retyped)
