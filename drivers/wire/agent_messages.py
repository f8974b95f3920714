"""The messages of agents to relays: Hello, Ack, Heartbeat and NetworkAck. Agents encode them; relays decode and
validate them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from drivers.wire import protocol
from drivers.wire.protocol import DIGEST_BYTES, MAX_LINK_DPUS, MAX_PARTS, NetworkStatus, ProtocolError, TableStatus
from projections.field_checks import check_name, check_text, check_zone
from projections.rules.device_table import RefusalCode
from schemas.api import agent_pb2 as pb

NO_DIGEST = bytes(DIGEST_BYTES)
"""The digest of an empty table."""

KNOWN_CODES = frozenset(map(int, RefusalCode))


class Hello(NamedTuple):
    """The DPUs of a link, and the status of their tables and network documents. A DPU without a status has none."""

    zone: str
    dpus: Sequence[str]
    boot_ids: Sequence[str]
    statuses: Sequence[TableStatus]
    takes_networks: bool = False
    networks: Sequence[NetworkStatus] = ()


class Refusal(NamedTuple):
    """The DPUs of `status` refused the frame that would bring them to `version`. They keep the table in `status`."""

    status: TableStatus
    version: int
    code: RefusalCode
    reason: str


class Ack(NamedTuple):
    """The result of a frame."""

    statuses: Sequence[TableStatus]
    refusals: Sequence[Refusal]


class Heartbeat(NamedTuple):
    """The status of all DPUs of a link that are up, read back from their devices."""

    statuses: Sequence[TableStatus]
    networks: Sequence[NetworkStatus] = ()


class NetworkRefusal(NamedTuple):
    """The DPUs of `status` refused this version of their network document. They keep the one in `status`."""

    status: NetworkStatus
    version: int
    code: RefusalCode
    reason: str


class NetworkAck(NamedTuple):
    """The result of a network document."""

    statuses: Sequence[NetworkStatus]
    refusals: Sequence[NetworkRefusal]


FromAgent: TypeAlias = Hello | Ack | Heartbeat | NetworkAck


def encode(message: FromAgent) -> bytes:
    """Encode a message. Its parts are set in place: protobuf would copy assigned messages."""
    said = pb.FromAgent()
    match message:
        case Hello():
            said.hello.protocol, said.hello.zone = protocol.VERSION, message.zone
            said.hello.dpus.extend(message.dpus)
            said.hello.boot_ids.extend(message.boot_ids)
            said.hello.takes_networks = message.takes_networks
            _write_statuses(said.hello, message.statuses)
            _write_networks(said.hello.networks, message.networks)
        case Ack():
            said.ack.SetInParent()
            _write_statuses(said.ack, message.statuses)
            for refusal in message.refusals:
                code = pb.Refusal.Code.Name(int(refusal.code))
                added = said.ack.refusals.add(version=refusal.version, code=code, reason=refusal.reason)
                _write_status(added.status, refusal.status)
        case Heartbeat():
            said.heartbeat.SetInParent()
            _write_statuses(said.heartbeat, message.statuses)
            _write_networks(said.heartbeat.networks, message.networks)
        case NetworkAck():
            said.network_ack.SetInParent()
            _write_networks(said.network_ack.statuses, message.statuses)
            for refused in message.refusals:
                code = pb.Refusal.Code.Name(int(refused.code))
                entry = said.network_ack.refusals.add(version=refused.version, code=code, reason=refused.reason)
                _write_network(entry.status, refused.status)
    return said.SerializeToString()


def decode(data: bytes) -> FromAgent:
    """Decode a message. Raises ProtocolError."""
    if len(data) > protocol.MAX_UP_BYTES:
        raise ProtocolError(f"message: {len(data)} bytes are more than the {protocol.MAX_UP_BYTES} allowed")
    try:
        message = pb.FromAgent.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"message: {len(data)} bytes are not a valid FromAgent message") from error
    match message.WhichOneof("kind"):
        case "hello":
            return _read_hello(message.hello)
        case "ack":
            refusals = message.ack.refusals
            _check_count("ack.refusals", len(refusals))
            statuses = _read_statuses("ack.statuses", message.ack.statuses)
            return Ack(statuses, [_read_refusal(refusal) for refusal in refusals])
        case "heartbeat":
            beat = message.heartbeat
            networks = _read_networks("heartbeat.networks", beat.networks)
            return Heartbeat(_read_statuses("heartbeat.statuses", beat.statuses), networks)
        case "network_ack":
            ack = message.network_ack
            _check_count("network_ack.refusals", len(ack.refusals))
            refused = [_read_network_refusal(each) for each in ack.refusals]
            return NetworkAck(_read_networks("network_ack.statuses", ack.statuses), refused)
        case _:
            raise ProtocolError("message: must be a hello, an ack, a heartbeat or a network_ack")


def _read_hello(hello: pb.Hello) -> Hello:
    if hello.protocol != protocol.VERSION:
        raise ProtocolError(f"hello.protocol: {hello.protocol} must be {protocol.VERSION}")
    if not 0 < len(hello.dpus) <= MAX_LINK_DPUS:
        raise ProtocolError(f"hello.dpus: {len(hello.dpus)} DPUs must be 1 to {MAX_LINK_DPUS}")
    if len(hello.boot_ids) != len(hello.dpus):
        raise ProtocolError(f"hello.boot_ids: {len(hello.boot_ids)} entries must be one per DPU, {len(hello.dpus)}")
    if len(set(hello.dpus)) != len(hello.dpus):
        raise ProtocolError(f"hello.dpus: {len(hello.dpus)} names must be unique, and only {len(set(hello.dpus))} are")
    fault = check_zone("hello.zone", hello.zone)
    for dpu in hello.dpus:
        fault = fault or check_name("hello.dpus", dpu)
    for boot_id in hello.boot_ids:
        fault = fault or check_text("hello.boot_ids", boot_id, 64)
    if fault:
        raise ProtocolError(fault)
    return Hello(
        hello.zone,
        list(hello.dpus),
        list(hello.boot_ids),
        _read_statuses("hello.statuses", hello.statuses),
        hello.takes_networks,
        _read_networks("hello.networks", hello.networks),
    )


def _read_statuses(field: str, statuses: Sequence[pb.TableStatus]) -> list[TableStatus]:
    _check_count(field, len(statuses))
    return [_read_status(field, status) for status in statuses]


def _read_status(field: str, status: pb.TableStatus) -> TableStatus:
    dpus, epoch, digest = _read_mask(field, status.dpus), status.epoch, status.digest
    received, applied, in_hardware = status.received, status.applied, status.in_hardware
    if len(digest) != DIGEST_BYTES:
        raise ProtocolError(f"{field}.digest: {len(digest)} bytes must be {DIGEST_BYTES}")
    if (highest := max(epoch, received)) > protocol.MAX_VERSION:
        raise ProtocolError(f"{field}: epoch or version {highest} is more than the {protocol.MAX_VERSION} allowed")
    if not received >= applied >= in_hardware:
        levels = f"{received}, {applied}, {in_hardware}"
        raise ProtocolError(f"{field}: versions {levels} must not rise from received to applied to in hardware")
    return TableStatus(dpus, epoch, received, applied, in_hardware, digest)


def _read_refusal(refusal: pb.Refusal) -> Refusal:
    status = _read_status("ack.refusals.status", refusal.status)
    code = RefusalCode(refusal.code) if refusal.code in KNOWN_CODES else RefusalCode.UNSPECIFIED
    return Refusal(status, refusal.version, code, protocol.printable_line(refusal.reason))


def _read_networks(field: str, statuses: Sequence[pb.NetworkStatus]) -> list[NetworkStatus]:
    _check_count(field, len(statuses))
    return [_read_network(field, status) for status in statuses]


def _read_network(field: str, status: pb.NetworkStatus) -> NetworkStatus:
    dpus, epoch, received, applied = _read_mask(field, status.dpus), status.epoch, status.received, status.applied
    if len(status.digest) != DIGEST_BYTES:
        raise ProtocolError(f"{field}.digest: {len(status.digest)} bytes must be {DIGEST_BYTES}")
    if (highest := max(epoch, received)) > protocol.MAX_VERSION:
        raise ProtocolError(f"{field}: epoch or version {highest} is more than the {protocol.MAX_VERSION} allowed")
    if received < applied:
        raise ProtocolError(f"{field}: version {applied} is applied and must be received, which {received} is")
    if len(status.unresolved) > protocol.MAX_UNRESOLVED:
        most = protocol.MAX_UNRESOLVED
        raise ProtocolError(f"{field}.unresolved: {len(status.unresolved)} are more than the {most} allowed")
    for name in status.unresolved:
        if "," in name or (fault := check_text(f"{field}.unresolved", name, protocol.MAX_INTERFACE)):
            raise ProtocolError(fault if "," not in name else f"{field}.unresolved: a name must have no comma")
    return NetworkStatus(dpus, epoch, received, applied, status.digest, tuple(status.unresolved))


def _read_network_refusal(refusal: pb.NetworkRefusal) -> NetworkRefusal:
    status = _read_network("network_ack.refusals.status", refusal.status)
    code = RefusalCode(refusal.code) if refusal.code in KNOWN_CODES else RefusalCode.UNSPECIFIED
    return NetworkRefusal(status, refusal.version, code, protocol.printable_line(refusal.reason))


def _read_mask(field: str, bitmap: bytes) -> int:
    if len(bitmap) > MAX_LINK_DPUS // 8:
        raise ProtocolError(f"{field}.dpus: {len(bitmap)} bytes are more than the {MAX_LINK_DPUS // 8} allowed")
    mask = protocol.mask_of(bitmap)
    if not mask:
        raise ProtocolError(f"{field}.dpus: must name at least one DPU")
    return mask


def _check_count(field: str, count: int) -> None:
    if count > MAX_PARTS:
        raise ProtocolError(f"{field}: {count} are more than the {MAX_PARTS} allowed")


def _write_statuses(into: pb.Hello | pb.Ack | pb.Heartbeat, statuses: Sequence[TableStatus]) -> None:
    for status in statuses:
        _write_status(into.statuses.add(), status)


def _write_status(into: pb.TableStatus, status: TableStatus) -> None:
    dpus, into.epoch, into.received, into.applied, into.in_hardware, into.digest = status
    into.dpus = protocol.bitmap_of(dpus)


def _write_networks(into: Any, statuses: Sequence[NetworkStatus]) -> None:
    for status in statuses:
        _write_network(into.add(), status)


def _write_network(into: pb.NetworkStatus, status: NetworkStatus) -> None:
    dpus, into.epoch, into.received, into.applied, into.digest, unresolved = status
    into.dpus = protocol.bitmap_of(dpus)
    into.unresolved.extend(unresolved[: protocol.MAX_UNRESOLVED])
