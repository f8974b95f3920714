"""The messages of agents to relays: Hello, Ack and Heartbeat, written by agents and read (and distrusted) by relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from drivers.wire import protocol
from drivers.wire.protocol import DIGEST_BYTES, MAX_LINK_DPUS, MAX_PARTS, Holding, ProtocolError
from projections.names import check_name, check_text, check_zone
from projections.rules.device_table import Code
from schemas.api import agent_pb2 as pb

NO_DIGEST = bytes(DIGEST_BYTES)
"""The digest of an empty table."""

KNOWN_CODES = frozenset(map(int, Code))


class Hello(NamedTuple):
    """The DPUs that a link speaks for, and what they have. DPUs that no holding names have nothing."""

    zone: str
    dpus: Sequence[str]
    boot_ids: Sequence[str]
    holdings: Sequence[Holding]


class Refusal(NamedTuple):
    """The DPUs of `holding` refused the frame to `version`, and keep what the holding says."""

    holding: Holding
    version: int
    code: Code
    reason: str


class Ack(NamedTuple):
    """What a frame came to."""

    holdings: Sequence[Holding]
    refusals: Sequence[Refusal]


class Heartbeat(NamedTuple):
    """What the living DPUs of a link have, read back from them."""

    holdings: Sequence[Holding]


FromAgent: TypeAlias = Hello | Ack | Heartbeat


def encode(message: FromAgent) -> bytes:
    """A message as it goes over the link. Its parts are made in their place: protobuf would copy them there."""
    said = pb.FromAgent()
    match message:
        case Hello():
            said.hello.protocol, said.hello.zone = protocol.VERSION, message.zone
            said.hello.dpus.extend(message.dpus)
            said.hello.boot_ids.extend(message.boot_ids)
            _write_holdings(said.hello, message.holdings)
        case Ack():
            said.ack.SetInParent()
            _write_holdings(said.ack, message.holdings)
            for refusal in message.refusals:
                code = pb.Refusal.Code.Name(int(refusal.code))
                added = said.ack.refusals.add(version=refusal.version, code=code, reason=refusal.reason)
                _write_holding(added.holding, refusal.holding)
        case Heartbeat():
            said.heartbeat.SetInParent()
            _write_holdings(said.heartbeat, message.holdings)
    return said.SerializeToString()


def decode(data: bytes) -> FromAgent:
    """A message that came over the link. Raises ProtocolError."""
    if len(data) > protocol.MAX_UP_BYTES:
        raise ProtocolError(f"message: {len(data)} bytes are more than the {protocol.MAX_UP_BYTES} allowed")
    try:
        message = pb.FromAgent.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"message: {len(data)} bytes are no FromAgent message") from error
    match message.WhichOneof("kind"):
        case "hello":
            return _read_hello(message.hello)
        case "ack":
            refusals = message.ack.refusals
            _check_count("ack.refusals", len(refusals))
            holdings = _read_holdings("ack.holdings", message.ack.holdings)
            return Ack(holdings, [_read_refusal(refusal) for refusal in refusals])
        case "heartbeat":
            return Heartbeat(_read_holdings("heartbeat.holdings", message.heartbeat.holdings))
        case _:
            raise ProtocolError("message: must be a hello, an ack or a heartbeat, and is none of them")


def _read_hello(hello: pb.Hello) -> Hello:
    if hello.protocol != protocol.VERSION:
        raise ProtocolError(f"hello.protocol: {hello.protocol} must be {protocol.VERSION}")
    if not 0 < len(hello.dpus) <= MAX_LINK_DPUS:
        raise ProtocolError(f"hello.dpus: {len(hello.dpus)} DPUs must be 1 to {MAX_LINK_DPUS}")
    if len(hello.boot_ids) != len(hello.dpus):
        raise ProtocolError(f"hello.boot_ids: {len(hello.boot_ids)} must be one per DPU, so {len(hello.dpus)}")
    if len(set(hello.dpus)) != len(hello.dpus):
        raise ProtocolError(f"hello.dpus: {len(hello.dpus)} names must differ, and only {len(set(hello.dpus))} do")
    fault = check_zone("hello.zone", hello.zone)
    for dpu in hello.dpus:
        fault = fault or check_name("hello.dpus", dpu)
    for boot_id in hello.boot_ids:
        fault = fault or check_text("hello.boot_ids", boot_id, 64)
    if fault:
        raise ProtocolError(fault)
    return Hello(hello.zone, list(hello.dpus), list(hello.boot_ids), _read_holdings("hello.holdings", hello.holdings))


def _read_holdings(field: str, holdings: Sequence[pb.Holding]) -> list[Holding]:
    _check_count(field, len(holdings))
    return [_read_holding(field, holding) for holding in holdings]


def _read_holding(field: str, holding: pb.Holding) -> Holding:
    dpus, epoch, digest = _read_mask(field, holding.dpus), holding.epoch, holding.digest
    received, applied, in_hardware = holding.received, holding.applied, holding.in_hardware
    if len(digest) != DIGEST_BYTES:
        raise ProtocolError(f"{field}.digest: {len(digest)} bytes must be {DIGEST_BYTES}")
    if (highest := max(epoch, received)) > protocol.MAX_VERSION:
        raise ProtocolError(f"{field}: epoch or version {highest} is more than the {protocol.MAX_VERSION} allowed")
    if not received >= applied >= in_hardware:
        levels = f"{received}, {applied}, {in_hardware}"
        raise ProtocolError(f"{field}: versions {levels} must not rise from received to applied to in hardware")
    return Holding(dpus, epoch, received, applied, in_hardware, digest)


def _read_refusal(refusal: pb.Refusal) -> Refusal:
    holding = _read_holding("ack.refusals.holding", refusal.holding)
    code = Code(refusal.code) if refusal.code in KNOWN_CODES else Code.UNSPECIFIED
    return Refusal(holding, refusal.version, code, protocol.sentence(refusal.reason))


def _read_mask(field: str, bitmap: bytes) -> int:
    if len(bitmap) > MAX_LINK_DPUS // 8:
        raise ProtocolError(f"{field}.dpus: {len(bitmap)} bytes are more than the {MAX_LINK_DPUS // 8} allowed")
    mask = protocol.mask_of(bitmap)
    if not mask:
        raise ProtocolError(f"{field}.dpus: must name a DPU, and names none")
    return mask


def _check_count(field: str, count: int) -> None:
    if count > MAX_PARTS:
        raise ProtocolError(f"{field}: {count} are more than the {MAX_PARTS} allowed")


def _write_holdings(into: pb.Hello | pb.Ack | pb.Heartbeat, holdings: Sequence[Holding]) -> None:
    for holding in holdings:
        _write_holding(into.holdings.add(), holding)


def _write_holding(into: pb.Holding, holding: Holding) -> None:
    dpus, into.epoch, into.received, into.applied, into.in_hardware, into.digest = holding
    into.dpus = protocol.bitmap_of(dpus)
