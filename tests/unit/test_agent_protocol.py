"""The agent link's messages: encoded ones decode to themselves, and all others are refused with one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.wire import agent_messages, protocol, relay_messages
from drivers.wire.agent_messages import Ack, FromAgent, Heartbeat, Hello, NetworkAck, NetworkRefusal, Refusal
from drivers.wire.protocol import MAX_LINK_DPUS, MAX_PARTS, NetworkStatus, ProtocolError, TableStatus
from drivers.wire.relay_messages import Frame, GoAway, HeartbeatReply, Network, Unserved, Welcome
from projections.field_checks import is_printable
from projections.rules.device_table import RefusalCode
from projections.rules.rule import Delta, Rule, SetStep
from schemas.api import agent_pb2 as pb

VERSIONS = st.integers(0, protocol.MAX_VERSION)
MASKS = st.integers(1, (1 << 200) - 1)
DIGESTS = st.binary(min_size=16, max_size=16)
NAMES = st.from_regex(r"[a-z0-9]{1,12}(-[0-9]{1,4})?", fullmatch=True)
TEXTS = st.text(st.characters(categories=("L", "N", "P")), max_size=100)


@st.composite
def statuses(draw: st.DrawFn) -> TableStatus:
    in_hardware, applied, received = sorted(draw(st.tuples(VERSIONS, VERSIONS, VERSIONS)))
    return TableStatus(draw(MASKS), draw(VERSIONS), received, applied, in_hardware, draw(DIGESTS))


@st.composite
def network_statuses(draw: st.DrawFn) -> NetworkStatus:
    applied, received = sorted(draw(st.tuples(VERSIONS, VERSIONS)))
    unresolved = draw(st.lists(NAMES, max_size=4).map(tuple))
    return NetworkStatus(draw(MASKS), draw(VERSIONS), received, applied, draw(DIGESTS), unresolved)


NETWORK_REFUSALS = st.builds(NetworkRefusal, network_statuses(), VERSIONS, st.sampled_from(RefusalCode), TEXTS)
REFUSALS = st.builds(Refusal, statuses(), VERSIONS, st.sampled_from(RefusalCode), TEXTS)
HELLOS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=20, unique_by=lambda pair: pair[0]).flatmap(
    lambda pairs: st.builds(
        Hello,
        NAMES,
        st.just([name for name, _ in pairs]),
        st.just([boot for _, boot in pairs]),
        st.lists(statuses(), max_size=4),
        st.booleans(),
        st.lists(network_statuses(), max_size=4),
    )
)
FROM_AGENTS: st.SearchStrategy[FromAgent] = st.one_of(
    HELLOS,
    st.builds(Ack, st.lists(statuses(), max_size=4), st.lists(REFUSALS, max_size=4)),
    st.builds(Heartbeat, st.lists(statuses(), max_size=4), st.lists(network_statuses(), max_size=4)),
    st.builds(NetworkAck, st.lists(network_statuses(), max_size=4), st.lists(NETWORK_REFUSALS, max_size=4)),
)
RULES = st.builds(
    Rule,
    st.integers(-(1 << 40), 1 << 40),
    st.sampled_from(("allow", "drop")),
    st.sampled_from(relay_messages.PROTOCOLS[1:]),
    st.lists(st.integers(0, 65_535), max_size=4).map(tuple),
)
STEPS = st.builds(SetStep, RULES, st.binary(), st.binary(), st.binary(), st.binary())
DELTAS = st.builds(
    lambda first, more, digest, steps: Delta(first, first + more, digest, tuple(steps)),
    st.integers(0, 1 << 62),
    st.integers(1, 1 << 62),
    DIGESTS,
    st.lists(STEPS, max_size=5),
)


@given(FROM_AGENTS)
def test_every_message_of_an_agent_decodes_to_itself(message: FromAgent) -> None:
    assert agent_messages.decode(agent_messages.encode(message)) == message


@given(VERSIONS, DELTAS, MASKS)
def test_a_frame_is_encoded_once_and_the_group_is_appended(epoch: int, delta: Delta, group: int) -> None:
    data = relay_messages.encode_frame(epoch, delta)
    assert relay_messages.decode(data) == Frame(0, epoch, delta)
    assert relay_messages.decode(data + relay_messages.encode_group(group)) == Frame(group, epoch, delta)


@given(VERSIONS, VERSIONS, DIGESTS, st.binary(max_size=99), MASKS)
def test_a_network_document_is_encoded_once_and_the_group_is_appended(
    epoch: int, version: int, digest: bytes, document: bytes, group: int
) -> None:
    data = relay_messages.encode_network(epoch, version, digest, document)
    assert relay_messages.decode(data) == Network(0, epoch, version, digest, document)
    whole = data + relay_messages.encode_group(group)
    assert relay_messages.decode(whole) == Network(group, epoch, version, digest, document)


@pytest.mark.parametrize(
    "message",
    [
        Welcome(3, 17, True, 10_000, [Unserved(5, "dpu: 'd' is not registered", 1_500)]),
        HeartbeatReply(3, 17, False),
        GoAway("zone 'z' is not served here", 2_000),
    ],
)
def test_every_message_of_a_relay_decodes_to_itself(message: Welcome | HeartbeatReply | GoAway) -> None:
    assert relay_messages.decode(relay_messages.encode(message)) == message


@given(st.binary(max_size=300))
def test_random_bytes_are_decoded_or_refused_by_both_ends(data: bytes) -> None:
    for decode in (agent_messages.decode, relay_messages.decode):
        try:
            decode(data)
        except ProtocolError as error:
            assert is_printable(str(error))


@given(FROM_AGENTS, DELTAS, st.data())
def test_damaged_messages_are_decoded_or_refused(message: FromAgent, delta: Delta, data: st.DataObject) -> None:
    for written, decode in (
        (agent_messages.encode(message), agent_messages.decode),
        (relay_messages.encode_frame(1, delta), relay_messages.decode),
    ):
        spoilt = bytearray(written)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(spoilt) - 1))
            spoilt[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
            if not spoilt:
                break
        try:
            decode(bytes(spoilt))
        except ProtocolError as error:
            assert "\n" not in str(error)


STATUS = TableStatus(1, 1, 5, 5, 5, bytes(16))


def hello(**fields: Any) -> bytes:
    values: dict[str, Any] = {"protocol": 1, "zone": "z", "dpus": ["d"], "boot_ids": ["b"], **fields}
    return pb.FromAgent(hello=pb.Hello(**values)).SerializeToString()


def network(**fields: Any) -> bytes:
    values: dict[str, Any] = {"dpus": b"\x01", "digest": bytes(16), **fields}
    return pb.FromAgent(network_ack=pb.NetworkAck(statuses=[pb.NetworkStatus(**values)])).SerializeToString()


def held(**fields: Any) -> bytes:
    values: dict[str, Any] = {"dpus": b"\x01", "digest": bytes(16), **fields}
    return pb.FromAgent(heartbeat=pb.Heartbeat(statuses=[pb.TableStatus(**values)])).SerializeToString()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "message: must be a hello"),
        (bytes(protocol.MAX_UP_BYTES + 1), "more than the 2097152 allowed"),
        (hello(protocol=2), "hello.protocol: 2 must be 1"),
        (hello(zone="no/zone"), "hello.zone: 'no/zone'"),
        (hello(dpus=[], boot_ids=[]), "hello.dpus: 0 DPUs must be 1 to"),
        (hello(dpus=["d", "d"], boot_ids=["a", "b"]), "names must be unique"),
        (hello(boot_ids=[]), "hello.boot_ids: 0 entries must be one per DPU"),
        (hello(dpus=["../etc"]), "hello.dpus: '../etc'"),
        (hello(boot_ids=["x\n"]), "hello.boot_ids"),
        (hello(dpus=[f"d{i}" for i in range(MAX_LINK_DPUS + 1)], boot_ids=[]), "hello.dpus: 10001 DPUs"),
        (network(dpus=b""), "must name at least one DPU"),
        (network(digest=b"short"), "digest: 5 bytes must be 16"),
        (network(received=1, applied=2), "version 2 is applied and must be received"),
        (network(epoch=1 << 63), "is more than the 9223372036854775807 allowed"),
        (network(unresolved=["a"] * 51), "unresolved: 51 are more than the 50 allowed"),
        (network(unresolved=["a,b"]), "a name must have no comma"),
        (network(unresolved=["a\n"]), "unresolved"),
        (held(dpus=b""), "must name at least one DPU"),
        (held(dpus=bytes(MAX_LINK_DPUS // 8 + 1)), "more than the 1250 allowed"),
        (held(digest=b"short"), "digest: 5 bytes must be 16"),
        (held(received=1, applied=2), "must not rise"),
        (held(received=1 << 63), "9223372036854775808 is more than the 9223372036854775807 allowed"),
        (agent_messages.encode(Heartbeat([STATUS] * (MAX_PARTS + 1))), "257 are more than the 256 allowed"),
        (
            agent_messages.encode(Ack([], [Refusal(STATUS, 1, RefusalCode.FULL, "")] * (MAX_PARTS + 1))),
            "ack.refusals: 257",
        ),
    ],
)
def test_an_invalid_message_of_an_agent_is_refused_with_a_reason(data: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence.replace("(", r"\(")):
        agent_messages.decode(data)


def frame(**fields: Any) -> bytes:
    values: dict[str, Any] = {"to_version": 1, "digest": bytes(16), **fields}
    return pb.ToAgent(frame=pb.Frame(**values)).SerializeToString()


def step(**fields: Any) -> pb.Step:
    return pb.Step(**fields)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "a frame, a network or a heartbeat_reply"),
        (pb.ToAgent(network=pb.Network()).SerializeToString(), "network.digest: 0 bytes must be 16"),
        (relay_messages.encode_network(1, 1, bytes(16), bytes((1 << 20) + 1)), "network.document: 1048577 bytes"),
        (frame(digest=b""), "frame.digest: 0 bytes must be 16"),
        (frame(from_version=1), "must be above from_version"),
        (frame(steps=[step(action=0)]), "frame.steps.action: 0"),
        (frame(steps=[step(action=9)]), "frame.steps.action: 9"),
        (frame(steps=[step(action=1)]), "frame.steps.protocol: 0"),
        (frame(steps=[step(action=1, protocol=5)]), "frame.steps.protocol: 5"),
        (frame() + pb.ToAgent(group=bytes(1251)).SerializeToString(), "group: 1251 bytes"),
        (pb.ToAgent(welcome=pb.Welcome()).SerializeToString(), "heartbeat_ms: 0"),
    ],
)
def test_an_invalid_message_of_a_relay_is_refused_with_a_reason(data: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        relay_messages.decode(data)


def test_an_unknown_refusal_code_is_unspecified_and_a_long_reason_is_cut() -> None:
    unknown: Any = 99
    ugly = "\x1b[31m\n" + "x" * 999
    refusal = pb.Refusal(status=pb.TableStatus(dpus=b"\x01", digest=bytes(16)), code=unknown, reason=ugly)
    message = agent_messages.decode(pb.FromAgent(ack=pb.Ack(refusals=[refusal])).SerializeToString())
    assert isinstance(message, Ack)
    assert message.refusals[0].code is RefusalCode.UNSPECIFIED
    assert message.refusals[0].reason.isprintable()
    assert len(message.refusals[0].reason) < 400


@given(st.sets(st.integers(0, 300)))
def test_sets_of_dpus_convert_to_bitmaps_and_back(numbers: set[int]) -> None:
    mask = protocol.union(1 << number for number in numbers)
    assert protocol.mask_of(protocol.bitmap_of(mask)) == mask
    assert protocol.numbers_of(mask) == sorted(numbers)
