"""Abuse of the API: requests that are too large, too deep, too many, unauthorized, or repeated.

The cases are those of an attacker with a certificate. Each is refused by name, appends nothing, and leaves the server
unchanged for other callers.
"""

from __future__ import annotations

import asyncio
import gzip
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from commands.rpc.authorization import METHODS
from commands.rpc.limits import DEFAULTS, Limits
from eventstore.log import partition_of
from schemas.api import dpuplane_pb2 as pb
from tests.support.guarded import Caller, Guarded, guarded

Code = grpc.StatusCode
MIB = 1024 * 1024


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as found:
        yield found


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def raw(caller: Caller, method: str, **options: Any) -> Any:
    """A method that sends raw bytes."""
    return caller.channel.unary_unary(f"/dpuplane.v1.{method}", **options)


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(levels: int) -> bytes:
    """Deeply nested groups in an unknown field, which parsers descend into."""
    return varint(100 << 3 | 3) * levels + varint(100 << 3 | 4) * levels


def resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def still_serves(plane: Guarded) -> None:
    await plane.caller("viewer/vic").queries.ListZones(pb.ListZonesRequest(), timeout=60)


# --- S6: size, depth, count, and malformed messages ----------------------------------------------------------------

JUNK: dict[str, tuple[bytes, grpc.StatusCode]] = {
    "a byte over the size": (field(100, bytes(DEFAULTS.message_bytes_max - 4)), Code.RESOURCE_EXHAUSTED),
    "ten thousand levels": (nested(10_000), Code.INVALID_ARGUMENT),
    "a truncated field": (field(1, b"abc")[:-1], Code.INVALID_ARGUMENT),
    "a name that is no UTF-8": (field(2, b"\xff\xfe"), Code.INVALID_ARGUMENT),
    "random bytes": (bytes(range(256)) * 16, Code.INVALID_ARGUMENT),
    "half a million empty nodes": (field(3, b"") * 500_000, Code.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("case", JUNK)
async def test_malformed_messages_are_refused_at_little_cost(plane: Guarded, case: str) -> None:
    content, code = JUNK[case]
    attacker = plane.caller("operator/eve")
    stated = await plane.plane.stated()
    await refused(raw(attacker, "Commands/JoinNodes")(b"\xff", timeout=60))
    before = resident_kib()
    assert (await refused(raw(attacker, "Commands/JoinNodes")(content, timeout=60)))[0] == code
    assert resident_kib() - before < 64 * 1024
    assert await plane.plane.stated() == stated
    await still_serves(plane)


async def test_unknown_fields_up_to_the_size_change_nothing(plane: Guarded) -> None:
    request = pb.FreezeWritesRequest(zone="z1").SerializeToString() + field(100, bytes(MIB // 2))
    answer = pb.CommandResult.FromString(
        await raw(plane.caller("operator/ann"), "Commands/FreezeWrites")(request, timeout=60)
    )
    assert answer.outcome == pb.OUTCOME_DONE


@pytest.mark.parametrize("bytes_over", [0, 64 * 1024])
async def test_metadata_is_limited(plane: Guarded, bytes_over: int) -> None:
    caller = plane.caller("viewer/vic")
    size = DEFAULTS.metadata_bytes_max + bytes_over
    code, _ = await refused(caller.queries.ListZones(pb.ListZonesRequest(), metadata=[("x-much", "a" * size)]))
    assert code in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE, Code.INTERNAL)
    await still_serves(plane)


LONG = "z" * 1_000_000

LONG_NAMES: dict[str, tuple[str, Any, grpc.StatusCode]] = {
    "a zone shown": ("GetZone", pb.GetZoneRequest(zone=LONG), Code.NOT_FOUND),
    "the nodes of a zone": ("ListNodes", pb.ListNodesRequest(zone=LONG), Code.NOT_FOUND),
    "the DPUs of a zone": ("ListDpus", pb.ListDpusRequest(zone=LONG), Code.NOT_FOUND),
    "a clique": ("GetClique", pb.GetCliqueRequest(domain=LONG, clique="c"), Code.NOT_FOUND),
    "the cliques of a domain": ("ListCliques", pb.ListCliquesRequest(domain=LONG), Code.NOT_FOUND),
    "a leave": ("LeaveNodes", pb.LeaveNodesRequest(zone=LONG, names=["n1"]), Code.INVALID_ARGUMENT),
    "a leave to try": (
        "LeaveNodes",
        pb.LeaveNodesRequest(zone=LONG, names=["n1"], dry_run=True),
        Code.INVALID_ARGUMENT,
    ),
}


@pytest.mark.parametrize("case", LONG_NAMES)
async def test_an_oversized_principal_is_neither_hashed_nor_remembered(plane: Guarded, case: str) -> None:
    method, request, code = LONG_NAMES[case]
    caller = plane.caller("operator/eve")
    by_key, by_bytes = plane.plane.replica._partition_for.cache_info, partition_of.cache_info
    before = by_key(), by_bytes()
    asked = getattr(caller.calls if method == "LeaveNodes" else caller.queries, method)(request)
    found, details = await refused(asked)
    assert (found, "(1000000 characters)" in details) == (code, True)
    assert (by_key(), by_bytes()) == before


# --- S7: compression ------------------------------------------------------------------------------------------------


async def test_a_compressed_message_is_not_decompressed(plane: Guarded) -> None:
    bomb = field(100, bytes(256 * MIB))
    assert len(gzip.compress(bomb[:MIB])) < MIB // 100
    caller = plane.caller("operator/eve")
    before = resident_kib()
    call = raw(caller, "Commands/FreezeWrites")
    code, details = await refused(call(bomb, compression=grpc.Compression.Gzip, timeout=60))
    assert (code, "ompress" in details) == (Code.UNIMPLEMENTED, True)
    assert resident_kib() - before < 300 * 1024, "memory beyond that of the client that compresses the message"
    await still_serves(plane)


# --- S8: too many calls -----------------------------------------------------------------------------------------------


async def test_one_principal_over_its_rate_takes_nothing_from_others(tmp_path: Path) -> None:
    limits = Limits(rate_per_s=0.001, burst=5)
    async with guarded(tmp_path, limits=limits) as plane:
        loud, others = plane.caller("viewer/loud"), plane.caller("viewer/quiet")
        codes = []
        for _ in range(20):
            try:
                await loud.queries.ListZones(pb.ListZonesRequest())
                codes.append(Code.OK)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())
        assert codes == [Code.OK] * 5 + [Code.RESOURCE_EXHAUSTED] * 15
        again = plane.caller("viewer/loud")  # another connection, another certificate, the same principal
        assert (await refused(again.queries.ListZones(pb.ListZonesRequest())))[0] == Code.RESOURCE_EXHAUSTED
        await others.queries.ListZones(pb.ListZonesRequest())


async def test_denied_calls_count_towards_the_rate(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=Limits(rate_per_s=0.001, burst=3)) as plane:
        caller = plane.caller("viewer/eve")
        codes = [
            (await refused(caller.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True))))[0] for _ in range(6)
        ]
        assert codes == [Code.PERMISSION_DENIED] * 3 + [Code.RESOURCE_EXHAUSTED] * 3


async def test_unauthenticated_and_idle_connections_do_not_delay_others(plane: Guarded) -> None:
    """Covers idle connections, incomplete handshakes, and calls that are cancelled as soon as they begin."""
    host, port = plane.plane.address.split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
    for _, writer in idle[:100]:
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32))
    attacker = plane.caller("viewer/eve")
    for _ in range(300):
        attacker.queries.ListNodes(pb.ListNodesRequest()).cancel()
    for _ in range(20):
        await still_serves(plane)
    for _, writer in idle:
        writer.transport.abort()


# --- S2: objects of others ------------------------------------------------------------------------------------------


async def test_a_denial_does_not_show_whether_an_object_exists(plane: Guarded) -> None:
    operator, agent = plane.caller("operator/ann"), plane.caller("node-agent/mine")
    there = await operator.calls.JoinNodes(pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="there")]))
    said = {}
    for name in ("there", "absent"):
        said[name] = await refused(agent.queries.GetNode(pb.GetNodeRequest(name=name, min_position=there.position)))
    assert said["there"] == (said["absent"][0], said["absent"][1].replace("absent", "there"))
    for command_id in (there.command_id, plane.plane.command_id()):
        code, _ = await refused(agent.queries.GetCommand(pb.GetCommandRequest(command_id=command_id)))
        assert code == Code.PERMISSION_DENIED


# --- S12: replayed commands ------------------------------------------------------------------------------------------


async def test_a_captured_command_has_no_effect_for_another_principal_or_body(plane: Guarded) -> None:
    ann, eve = plane.caller("operator/ann"), plane.caller("operator/eve")
    captured = pb.JoinNodesRequest(
        command_id=plane.plane.command_id(), zone="z1", nodes=[pb.NodeSpec(name="n1", addresses=["10.0.0.1"])]
    )
    first = await ann.calls.JoinNodes(captured)
    await ann.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n1"]))
    replayed = await eve.calls.JoinNodes(captured)
    assert replayed.outcome == pb.OUTCOME_REFUSED
    altered = pb.JoinNodesRequest.FromString(captured.SerializeToString())
    altered.nodes[0].addresses[0] = "10.0.0.2"
    assert (await ann.calls.JoinNodes(altered)).outcome == pb.OUTCOME_REFUSED
    assert await ann.calls.JoinNodes(captured) == first, "the owner gets the first outcome again"
    assert not (await ann.queries.ListNodes(pb.ListNodesRequest(zone="z1"))).nodes, "the command took effect once"


async def test_a_command_under_an_id_used_by_another_principal_is_refused(plane: Guarded) -> None:
    ann, eve = plane.caller("operator/ann"), plane.caller("operator/eve")
    command_id = plane.plane.command_id()
    await eve.calls.FreezeWrites(pb.FreezeWritesRequest(command_id=command_id, zone="z9"))
    answer = await ann.calls.FreezeWrites(pb.FreezeWritesRequest(command_id=command_id, zone="z1"))
    assert (answer.outcome, command_id in answer.reason) == (pb.OUTCOME_REFUSED, True)
    old = await ann.calls.FreezeWrites(
        pb.FreezeWritesRequest(command_id=plane.plane.command_id(late_ms=3_600_000), zone="z1")
    )
    assert old.outcome == pb.OUTCOME_REFUSED
    assert list((await ann.queries.GetStatus(pb.GetStatusRequest())).frozen) == ["z9"]


# --- S13: a stolen certificate ---------------------------------------------------------------------------------------


async def test_one_stolen_operator_certificate_cannot_withdraw_the_fleet(plane: Guarded) -> None:
    eve, viewer = plane.caller("operator/eve"), plane.caller("viewer/vic")
    nodes = [pb.NodeSpec(name=f"n{i}", addresses=[f"10.0.{i // 250}.{i % 250 + 1}"]) for i in range(600)]
    joined = await eve.calls.JoinNodes(pb.JoinNodesRequest(zone="z1", nodes=nodes))
    assert len(await rules_of(viewer, joined.position)) > 0
    drop = pb.PolicySpec(name="drop-all", priority=99, action="drop")
    assert (await eve.calls.SetPolicy(pb.SetPolicyRequest(policy=drop))).outcome == pb.OUTCOME_HELD
    narrow = pb.PolicySpec(name="default", action="allow", sources={"no": "node"})
    assert (await eve.calls.SetPolicy(pb.SetPolicyRequest(policy=narrow))).outcome == pb.OUTCOME_HELD
    await eve.calls.DeletePolicy(pb.DeletePolicyRequest(name="default"))
    position = (await eve.calls.UpdateZone(pb.UpdateZoneRequest(zone="z1", set_labels=True))).position
    assert (await refused(eve.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-change", permille=1000))))[0] == (
        Code.PERMISSION_DENIED
    )
    for hold in (await viewer.queries.ListHolds(pb.ListHoldsRequest())).holds:
        approve = pb.ApproveHoldRequest(hold=hold.hold, hash=hold.hash)
        assert (await refused(eve.calls.ApproveHold(approve)))[0] == Code.PERMISSION_DENIED
    assert {rule.action for rule in await rules_of(viewer, position)} == {"allow"}


async def rules_of(caller: Caller, position: str) -> list[pb.Rule]:
    pages = caller.queries.GetRules(pb.GetRulesRequest(zone="z1", min_position=position))
    return [rule async for page in pages for rule in page.rules]


# --- refusals to start -----------------------------------------------------------------------------------------------


async def test_a_server_does_not_start_with_a_parser_without_a_nesting_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.server.api_implementation.Type", lambda: "python")
    with pytest.raises(ExceptionGroup) as caught:
        async with guarded(tmp_path):
            pass
    assert "parser 'python' must be 'upb'" in str(caught.value.exceptions[0])


async def test_a_server_does_not_start_while_a_method_has_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(METHODS, "Commands.FreezeWrites")
    with pytest.raises(ExceptionGroup) as caught:
        async with guarded(tmp_path):
            pass
    assert "Commands.FreezeWrites must have an entry that names the roles that may call it" in str(
        caught.value.exceptions[0]
    )
