"""Requests: raw bytes end in a refusal or in a record, which its fold then decides without raising.

The first byte of an input selects the command. A record fits the size limit and decodes to the same event.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

from commands.requests import cliques, dpus, fleet, nodes
from commands.requests.validation import EnvelopeFactory, NewEvent
from commands.rpc.middleware import principal_of
from eventstore.avro.codec import decode, encode
from eventstore.errors import PermanentError
from eventstore.ids import envelope, issued_at_ms, uuid7
from eventstore.log import MAX_RECORD_BYTES, Record
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from tests.fuzz.log_targets import partition
from tests.fuzz.messages import message_mutated
from tests.fuzz.mutators import Bytes
from tests.fuzz.target import Target, check_refusal
from tests.support.toy_records import T0, created

ORIGIN = Record(0, T0, b"", encode(created()))


SHAPES: dict[type[Message], Callable[[Any, EnvelopeFactory], NewEvent]] = {
    pb.JoinNodesRequest: nodes.join,
    pb.ChangeNodesRequest: nodes.change,
    pb.LeaveNodesRequest: nodes.leave,
    pb.UpdateZoneRequest: fleet.update_zone,
    pb.DeleteZoneRequest: nodes.delete_zone,
    pb.RegisterDpuRequest: dpus.register,
    pb.RequestLifecycleRequest: dpus.request_lifecycle,
    pb.ClaimIndicesRequest: cliques.claim_indices,
    pb.ReleaseIndicesRequest: cliques.release_indices,
    pb.SetCliqueCapacityRequest: cliques.set_clique_capacity,
    pb.ReportDaemonReadinessRequest: cliques.report_daemon_readiness,
    pb.OpenSessionRequest: partial(cliques.open_session, edge="edge-1"),
    pb.SetPolicyRequest: fleet.set_policy,
    pb.DeletePolicyRequest: fleet.delete_policy,
    pb.ApproveHoldRequest: fleet.approve_hold,
    pb.RejectHoldRequest: fleet.reject_hold,
    pb.SetBudgetRequest: fleet.set_budget,
    pb.FreezeWritesRequest: fleet.freeze_writes,
    pb.ThawWritesRequest: fleet.thaw_writes,
}
KINDS = list(SHAPES)


def command(data: bytes) -> bool:
    """One command. Accepted if it becomes a record."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        request: Any = kind.FromString(data[1:])
    except DecodeError:
        return False
    try:
        principal = principal_of([(PRINCIPAL_KEY, "ann")], lambda: "ipv4:127.0.0.1:1")
        command_id = request.command_id or uuid7(T0, Random(0))
        issued_at_ms(command_id)
        statement = SHAPES[kind](request, lambda subject: envelope(subject, principal, command_id))
    except PermanentError as error:
        check_refusal(error)
        return False
    value = encode(statement.event)
    assert decode(value) == statement.event
    assert len(value) + len(statement.key.encode()) <= MAX_RECORD_BYTES
    folded = partition(statement.topic)
    folded.fold(ORIGIN)
    entry = folded.fold(Record(1, T0, statement.key.encode(), value))
    assert not folded.halted, folded.halted
    assert not folded.quarantined, folded.quarantine
    assert entry is not None
    if entry.outcome.reason:
        check_refusal(entry.outcome.reason)
    return True


def _mutated(data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    if not data or rng.random() < 0.05:
        return bytes((rng.randrange(len(KINDS)),)) + data[1:]
    return data[:1] + message_mutated(KINDS[data[0] % len(KINDS)], data[1:], rng, some_bytes)


TARGETS = (Target("command", command, _mutated),)
