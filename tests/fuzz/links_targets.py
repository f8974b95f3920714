"""Messages between agents and relays, as each end reads those of the other, and a device that receives frames.

After any frames in any order, a device's table has never gone back to an older (epoch, version), fits its capacity, and
has the digest that it reports.
"""

from __future__ import annotations

from random import Random
from typing import Any

from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Hello
from drivers.wire.protocol import MAX_PARTS, ProtocolError, numbers_of
from drivers.wire.relay_messages import Frame, Network
from projections.rules import device_table
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, FrameRefused, digest_of, steps_between
from projections.rules.rule import Delta
from schemas.api import agent_pb2 as pb
from tests.fuzz.framing import Part, joined, split
from tests.fuzz.messages import message_mutated
from tests.fuzz.mutators import Bytes
from tests.fuzz.target import Target, check_refusal

CAPACITY = 64


def from_agent(data: bytes) -> bool:
    """A message from an agent to its relay."""
    try:
        message = agent_messages.decode(data)
    except ProtocolError as error:
        check_refusal(error)
        return False
    assert agent_messages.decode(agent_messages.encode(message)) == message
    assert len(message.statuses) <= MAX_PARTS
    for status in message.statuses:
        assert status.dpus and numbers_of(status.dpus)[-1] < 8 * len(data)
    if isinstance(message, Hello):
        assert len(message.dpus) == len(message.boot_ids) == len({*message.dpus}) > 0
    return True


def from_relay(data: bytes) -> bool:
    """Messages from a relay to an agent, one after the other. Accepted if the device applied a frame."""
    table = EMPTY_TABLE
    for part in split(data):
        try:
            message = relay_messages.decode(part.content)
        except ProtocolError as error:
            check_refusal(error)
            continue
        if isinstance(message, Frame):
            encoded = relay_messages.encode_frame(message.epoch, message.delta)
            assert relay_messages.decode(encoded) == message._replace(dpus=0)
            table = _applied(table, message)
        elif isinstance(message, Network):
            encoded = relay_messages.encode_network(message.epoch, message.version, message.digest, message.document)
            assert relay_messages.decode(encoded) == message._replace(dpus=0)
        else:
            assert relay_messages.decode(relay_messages.encode(message)) == message
    return table is not EMPTY_TABLE


def _applied(table: DeviceTable, frame: Frame) -> DeviceTable:
    after = device_table.apply(table, frame.epoch, frame.delta, capacity=CAPACITY)
    if isinstance(after, FrameRefused):
        check_refusal(after.reason)
        return table
    assert (after.epoch, after.version) >= (table.epoch, table.version)
    assert after.size <= CAPACITY
    assert after.digest == digest_of(after.rules)
    if (after.epoch, after.version) > (table.epoch, table.version):
        delta = Delta(table.version, after.version, after.digest, steps_between(table, after))
        if table.version:  # a delta of version 0 is a snapshot
            stepped = device_table.apply(table._replace(epoch=after.epoch), after.epoch, delta, capacity=2 * CAPACITY)
            assert isinstance(stepped, FrameRefused) or stepped.rules == after.rules
    return after


def _agent_mutated(data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    return message_mutated(pb.FromAgent, data, rng, some_bytes)


def _relay_mutated(data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    parts = split(data)
    at = rng.randrange(len(parts) + 1)
    if at == len(parts):
        parts.append(rng.choice(parts) if parts else Part(0, b""))
    elif rng.random() < 0.15:
        del parts[at]
    else:
        content = message_mutated(pb.ToAgent, parts[at].content, rng, some_bytes)
        parts[at] = Part(0, _with_right_digest(content, parts[:at]) if rng.random() < 0.6 else content)
    return joined(parts)


def _with_right_digest(content: bytes, before: list[Part]) -> bytes:
    """The frame with the digest that the device will compute. Otherwise no frame would be accepted."""
    try:
        message = pb.ToAgent.FromString(content)
        frame: Any = relay_messages.decode(content)
    except Exception:  # bytes that are not a frame stay unchanged
        return content
    if not isinstance(frame, Frame):
        return content
    table = EMPTY_TABLE
    for part in before:
        try:
            earlier = relay_messages.decode(part.content)
        except ProtocolError:
            continue
        if isinstance(earlier, Frame):
            after = device_table.apply(table, earlier.epoch, earlier.delta, capacity=CAPACITY)
            table = table if isinstance(after, FrameRefused) else after
    refused = device_table.apply(table, frame.epoch, frame.delta, capacity=CAPACITY)
    if isinstance(refused, FrameRefused) and refused.reason.startswith("digest: "):
        message.frame.digest = bytes.fromhex(refused.reason.split()[1])
    return message.SerializeToString()


TARGETS = (
    Target("agent-messages", from_agent, _agent_mutated),
    Target("relay-messages", from_relay, _relay_mutated, 8_192),
)
