"""The messages of relays to agents: Welcome, GoAway, HeartbeatReply, Frame and Network. Relays encode them; agents
decode and validate them.

A frame is encoded once per rule list and base version. The addressed DPUs of a link are appended to the frame as
separate bytes (protobuf merges fields that follow), so that all links share the same frame bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from drivers.wire import protocol
from drivers.wire.protocol import DIGEST_BYTES, MAX_LINK_DPUS, MAX_PARTS, ProtocolError
from projections.rules.rule import Delta, Rule, SetStep
from schemas.api import agent_pb2 as pb

ACTIONS = ("", "allow", "drop")
PROTOCOLS = ("", "any", "tcp", "udp", "icmp")
_ACTION_NUMBERS = {name: number for number, name in enumerate(ACTIONS)}
_PROTOCOL_NUMBERS = {name: number for number, name in enumerate(PROTOCOLS)}


class Unserved(NamedTuple):
    """These DPUs are not served now; the agent names them again in a Hello after `retry_after_ms`."""

    dpus: int
    reason: str
    retry_after_ms: int


class Welcome(NamedTuple):
    """The response to a Hello: the target of the zone, and the interval of heartbeats."""

    epoch: int
    version: int
    frozen: bool
    heartbeat_ms: int
    unserved: Sequence[Unserved]


class HeartbeatReply(NamedTuple):
    """The response to a Heartbeat."""

    epoch: int
    version: int
    frozen: bool


class GoAway(NamedTuple):
    """The relay closes the link; the agent returns after `retry_after_ms`."""

    reason: str
    retry_after_ms: int


class Frame(NamedTuple):
    """The change from one table to the next, for the DPUs in `dpus` (0: all of the link)."""

    dpus: int
    epoch: int
    delta: Delta


class Network(NamedTuple):
    """A network document for the DPUs in `dpus` (0: all of the link)."""

    dpus: int
    epoch: int
    version: int
    digest: bytes
    document: bytes


ToAgent: TypeAlias = Welcome | GoAway | HeartbeatReply | Frame | Network


def encode(message: Welcome | GoAway | HeartbeatReply) -> bytes:
    """Encode a message."""
    match message:
        case Welcome():
            welcome = pb.Welcome(
                epoch=message.epoch, version=message.version, frozen=message.frozen, heartbeat_ms=message.heartbeat_ms
            )
            welcome.unserved.extend(_unserved(part) for part in message.unserved)
            return pb.ToAgent(welcome=welcome).SerializeToString()
        case GoAway(reason, retry_after_ms):
            return pb.ToAgent(go_away=pb.GoAway(reason=reason, retry_after_ms=retry_after_ms)).SerializeToString()
        case HeartbeatReply(epoch, version, frozen):
            return pb.ToAgent(
                heartbeat_reply=pb.HeartbeatReply(epoch=epoch, version=version, frozen=frozen)
            ).SerializeToString()


def encode_frame(epoch: int, delta: Delta) -> bytes:
    """Encode a frame for all DPUs of any link."""
    frame = pb.Frame(epoch=epoch, from_version=delta.from_version, to_version=delta.to_version, digest=delta.digest)
    frame.steps.extend(_step(step) for step in delta.steps)
    return pb.ToAgent(frame=frame).SerializeToString()


def encode_network(epoch: int, version: int, digest: bytes, document: bytes) -> bytes:
    """Encode a network document for all DPUs of any link."""
    network = pb.Network(epoch=epoch, version=version, digest=digest, document=document)
    return pb.ToAgent(network=network).SerializeToString()


def encode_group(mask: int) -> bytes:
    """The bytes that address a frame to some DPUs of a link, to append to the frame."""
    return pb.ToAgent(group=protocol.bitmap_of(mask)).SerializeToString()


def decode(data: bytes) -> ToAgent:
    """Decode a message. Raises ProtocolError."""
    if len(data) > protocol.MAX_DOWN_BYTES:
        raise ProtocolError(f"message: {len(data)} bytes are more than the {protocol.MAX_DOWN_BYTES} allowed")
    try:
        message = pb.ToAgent.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"message: {len(data)} bytes are not a valid ToAgent message") from error
    match message.WhichOneof("kind"):
        case "frame":
            return _read_frame(message.frame, message.group)
        case "heartbeat_reply":
            return HeartbeatReply(
                message.heartbeat_reply.epoch, message.heartbeat_reply.version, message.heartbeat_reply.frozen
            )
        case "welcome":
            return _read_welcome(message.welcome)
        case "network":
            return _read_network(message.network, message.group)
        case "go_away":
            return GoAway(protocol.printable_line(message.go_away.reason), message.go_away.retry_after_ms)
        case _:
            raise ProtocolError("message: must be a welcome, a go_away, a frame, a network or a heartbeat_reply")


def _check_group(group: bytes) -> None:
    if len(group) > MAX_LINK_DPUS // 8:
        raise ProtocolError(f"group: {len(group)} bytes are more than the {MAX_LINK_DPUS // 8} allowed")


def _read_network(network: pb.Network, group: bytes) -> Network:
    _check_group(group)
    if len(network.digest) != DIGEST_BYTES:
        raise ProtocolError(f"network.digest: {len(network.digest)} bytes must be {DIGEST_BYTES}")
    if len(network.document) > protocol.MAX_NETWORK_BYTES:
        most = protocol.MAX_NETWORK_BYTES
        raise ProtocolError(f"network.document: {len(network.document)} bytes are more than the {most} allowed")
    return Network(protocol.mask_of(group), network.epoch, network.version, network.digest, network.document)


def _read_frame(frame: pb.Frame, group: bytes) -> Frame:
    _check_group(group)
    if len(frame.digest) != DIGEST_BYTES:
        raise ProtocolError(f"frame.digest: {len(frame.digest)} bytes must be {DIGEST_BYTES}")
    if not frame.from_version < frame.to_version:
        raise ProtocolError(f"frame.to_version: {frame.to_version} must be above from_version {frame.from_version}")
    steps = tuple(_read_step(step) for step in frame.steps)
    delta = Delta(frame.from_version, frame.to_version, frame.digest, steps)
    return Frame(protocol.mask_of(group), frame.epoch, delta)


def _read_step(step: pb.Step) -> SetStep:
    if not 0 < step.action < len(ACTIONS):
        raise ProtocolError(f"frame.steps.action: {step.action} must be 1 (allow) or 2 (drop)")
    if not 0 < step.protocol < len(PROTOCOLS):
        raise ProtocolError(f"frame.steps.protocol: {step.protocol} must be 1 to {len(PROTOCOLS) - 1}")
    rule = Rule(step.priority, ACTIONS[step.action], PROTOCOLS[step.protocol], tuple(step.ports))
    return SetStep(rule, step.add4, step.add6, step.remove4, step.remove6)


def _read_welcome(welcome: pb.Welcome) -> Welcome:
    if len(welcome.unserved) > MAX_PARTS:
        raise ProtocolError(f"welcome.unserved: {len(welcome.unserved)} are more than the {MAX_PARTS} allowed")
    if not 0 < welcome.heartbeat_ms <= 3_600_000:
        raise ProtocolError(f"welcome.heartbeat_ms: {welcome.heartbeat_ms} must be 1 to 3600000")
    unserved = [
        Unserved(protocol.mask_of(part.dpus), protocol.printable_line(part.reason), part.retry_after_ms)
        for part in welcome.unserved
    ]
    return Welcome(welcome.epoch, welcome.version, welcome.frozen, welcome.heartbeat_ms, unserved)


def _unserved(part: Unserved) -> pb.Unserved:
    return pb.Unserved(dpus=protocol.bitmap_of(part.dpus), reason=part.reason, retry_after_ms=part.retry_after_ms)


def _step(step: SetStep) -> pb.Step:
    rule = step.rule
    return pb.Step(
        priority=rule.priority,
        action=pb.Step.Action.Name(_ACTION_NUMBERS[rule.action]),
        protocol=pb.Step.Protocol.Name(_PROTOCOL_NUMBERS[rule.protocol]),
        ports=rule.ports,
        add4=step.add4,
        add6=step.add6,
        remove4=step.remove4,
        remove6=step.remove6,
    )
