"""The API under mutual TLS: admission, the actor in the log, and permissions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from commands.streams.sessions import LEASE_S
from eventstore.avro.codec import decode
from eventstore.log import FLEET_0
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import StreamsStub
from tests.support.certs import TRUST_DOMAIN, CertFiles, CertIssuer
from tests.support.guarded import Guarded, guarded

Code = grpc.StatusCode


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as found:
        yield found


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def join(*names: str) -> pb.JoinNodesRequest:
    return pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name=name) for name in names])


def freeze() -> pb.FreezeWritesRequest:
    return pb.FreezeWritesRequest(zone="z1")


async def test_the_actor_in_the_log_is_the_principal_of_the_certificate(plane: Guarded) -> None:
    assert (await plane.caller("operator/ann").calls.FreezeWrites(freeze())).outcome == pb.OUTCOME_DONE
    actors = []
    async for _, records in plane.plane.log.read({FLEET_0: 0}):
        actors = [event.envelope.actor for event in map(decode, (r.value for r in records)) if hasattr(event, "zone")]
        break
    assert actors == ["operator/ann"]


async def test_a_denial_names_method_principal_and_role_and_appends_nothing(plane: Guarded) -> None:
    stated = await plane.plane.stated()
    said = await refused(plane.caller("viewer/vic").calls.FreezeWrites(freeze()))
    assert said == (
        Code.PERMISSION_DENIED,
        "Commands.FreezeWrites: viewer/vic must have the role approver or operator",
    )
    assert await plane.plane.stated() == stated
    assert plane.access.denials.denied == 1


async def test_a_node_agent_may_join_claim_and_leave_for_its_node_only(plane: Guarded) -> None:
    agent, operator = plane.caller("node-agent/n1"), plane.caller("operator/ann")
    assert (await operator.calls.JoinNodes(join("n0"))).outcome == pb.OUTCOME_DONE
    assert (await agent.calls.JoinNodes(join("n1"))).outcome == pb.OUTCOME_DONE
    assert (
        await agent.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    ).index == 0
    for call in (
        agent.calls.JoinNodes(join("n1", "n2")),
        agent.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n2"])),
        agent.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n2")])),
        agent.calls.ReportDaemonReadiness(
            pb.ReportDaemonReadinessRequest(domain="d", clique="c", node="n2", ready=True)
        ),
        agent.queries.GetNode(pb.GetNodeRequest(name="n2")),
        agent.queries.ListNodes(pb.ListNodesRequest()),
        agent.queries.GetCommand(pb.GetCommandRequest(command_id=plane.plane.command_id())),
        agent.calls.JoinNodesStream(iter([join("n2")])),
    ):
        assert (await refused(call))[0] == Code.PERMISSION_DENIED
    assert (await agent.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n1"]))).outcome == pb.OUTCOME_DONE


async def test_a_claimed_name_is_refused_beside_a_certificate(plane: Guarded) -> None:
    call = plane.caller("operator/ann").calls.FreezeWrites(freeze(), metadata=[("x-dpuplane-as", "root")])
    code, details = await refused(call)
    assert (code, "the certificate names the caller, operator/ann" in details) == (Code.PERMISSION_DENIED, True)


async def test_a_stream_is_refused_like_a_call(plane: Guarded) -> None:
    async def rules() -> list[pb.Rules]:
        agent = plane.caller("dpu-agent/d1")
        return [page async for page in agent.queries.GetRules(pb.GetRulesRequest(zone="z1"))]

    assert (await refused(rules()))[0] == Code.PERMISSION_DENIED


async def test_two_approvers_are_two_persons_with_the_role(plane: Guarded) -> None:
    operator, approver = plane.caller("operator/ann"), plane.caller("approver/bob")
    budget = pb.SetBudgetRequest(kind="denied-by-leave", permille=0, min_addresses=1)
    assert (await refused(operator.calls.SetBudget(budget)))[0] == Code.PERMISSION_DENIED
    assert (await approver.calls.SetBudget(budget)).outcome == pb.OUTCOME_DONE
    joined = await operator.calls.JoinNodes(
        pb.JoinNodesRequest(
            zone="z1", nodes=[pb.NodeSpec(name=f"n{i}", addresses=[f"10.0.0.{i}"]) for i in range(1, 9)]
        )
    )
    # A node that fleet does not have is in no table, so its leave is not held.
    await operator.queries.ListPolicies(pb.ListPoliciesRequest(min_position=joined.position))
    leave = pb.LeaveNodesRequest(zone="z1", names=[f"n{i}" for i in range(1, 5)])
    assert (await refused(approver.calls.LeaveNodes(leave)))[0] == Code.PERMISSION_DENIED
    assert (await operator.calls.LeaveNodes(leave)).outcome == pb.OUTCOME_HELD
    (hold,) = (await operator.queries.ListHolds(pb.ListHoldsRequest())).holds
    approve = pb.ApproveHoldRequest(hold=hold.hold, hash=hold.hash)
    assert (await refused(operator.calls.ApproveHold(approve)))[0] == Code.PERMISSION_DENIED
    again = plane.caller("approver/bob")  # another certificate of the same person
    for one in (approver, again):
        answer = await one.calls.ApproveHold(approve)
        assert answer.reason.startswith(f"hold {hold.hold} has 1 of 2 approvals")
    answer = await plane.caller("approver/cid").calls.ApproveHold(approve)
    assert (answer.outcome, answer.reason) == (pb.OUTCOME_DONE, "")


async def test_a_command_id_belongs_to_its_principal_and_its_body(plane: Guarded) -> None:
    command_id = plane.plane.command_id()
    request = pb.FreezeWritesRequest(zone="z1", command_id=command_id)
    ann, bob = plane.caller("operator/ann"), plane.caller("operator/bob")
    first = await ann.calls.FreezeWrites(request)
    assert first.outcome == pb.OUTCOME_DONE
    assert await ann.calls.FreezeWrites(request) == first
    stated = await plane.plane.stated()
    other_body = pb.FreezeWritesRequest(zone="z2", command_id=command_id)
    other_role = plane.caller("approver/ann")
    for call in (
        bob.calls.FreezeWrites(request),
        ann.calls.FreezeWrites(other_body),
        other_role.calls.FreezeWrites(request),
    ):
        answer = await call
        assert answer.outcome == pb.OUTCOME_REFUSED
        assert command_id in answer.reason
    frozen = (await ann.queries.GetStatus(pb.GetStatusRequest())).frozen
    assert list(frozen) == ["z1"]
    assert (await plane.plane.stated())["fleet/0"] <= stated["fleet/0"] + 3, "copies are in the log and have no effect"


# --- S1: certificates without a valid principal ---------------------------------------------------------------------


def forged(
    cert_issuer: CertIssuer, *names: x509.GeneralName, cn: str = "x", signed_by_itself: bool = False
) -> CertFiles:
    """A certificate with the given names, signed by the plane's authority or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    ca = x509.load_pem_x509_certificate(cert_issuer.authority.cert.read_bytes())
    ca_key = serialization.load_pem_private_key((cert_issuer.folder / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=ca.subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=1),
        not_valid_after=now + timedelta(hours=1),
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(key if signed_by_itself else ca_key, hashes.SHA256())
    cert, key_file = cert_issuer.folder / f"forged-{id(signed)}.pem", cert_issuer.folder / f"forged-{id(signed)}.key"
    cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return CertFiles(cert, key_file, cert_issuer.authority.cert)


def uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


OPERATOR = f"spiffe://{TRUST_DOMAIN}/operator/ann"

NOBODIES: dict[str, tuple[tuple[x509.GeneralName, ...], str]] = {
    "only a common name": ((), "has 0 URI names"),
    "a host name that looks like one": ((x509.DNSName("spiffe"), x509.DNSName(TRUST_DOMAIN)), "has 0 URI names"),
    "two names": ((uri(OPERATOR), uri(f"spiffe://{TRUST_DOMAIN}/approver/ann")), "has 2 URI names"),
    "another trust domain": ((uri("spiffe://other.example/operator/ann"),), "must begin with spiffe://test.example/"),
    "a domain that only begins so": ((uri("spiffe://test.example.evil/operator/ann"),), "must begin with"),
    "a role there is not": ((uri(f"spiffe://{TRUST_DOMAIN}/admin/ann"),), "must be one of"),
    "no name": ((uri(f"spiffe://{TRUST_DOMAIN}/operator/"),), "name: ''"),
    "another scheme": ((uri(f"https://{TRUST_DOMAIN}/operator/ann"),), "must begin with"),
}


@pytest.mark.parametrize("case", NOBODIES)
async def test_a_certificate_without_a_valid_principal_is_unauthenticated(plane: Guarded, case: str) -> None:
    names, says = NOBODIES[case]
    cert_files = forged(plane.cert_issuer, *names, cn=OPERATOR if not names else "x")
    code, details = await refused(plane.caller(cert_files).queries.ListZones(pb.ListZonesRequest()))
    assert code == Code.UNAUTHENTICATED
    assert says in details
    assert plane.access.denials.unauthenticated == 1


async def test_no_handshake_without_a_certificate_of_the_authority(plane: Guarded, tmp_path: Path) -> None:
    cert_issuer = plane.cert_issuer
    elsewhere = CertIssuer(tmp_path / "elsewhere").issue("operator/ann")
    now = datetime.now(UTC)
    day = timedelta(days=1)
    strangers = {
        "of another authority": CertFiles(elsewhere.cert, elsewhere.key, cert_issuer.authority.cert),
        "signed by itself": forged(cert_issuer, uri(OPERATOR), signed_by_itself=True),
        "expired": cert_issuer.issue("operator/old", now=now - day),
        "not valid yet": cert_issuer.issue("operator/early", now=now + day),
    }
    for case, cert_files in strangers.items():
        code, details = await refused(plane.caller(cert_files).queries.ListZones(pb.ListZonesRequest()))
        assert code == Code.UNAVAILABLE, (case, details)
    bare = grpc.ssl_channel_credentials(cert_issuer.authority.cert.read_bytes())
    async with grpc.aio.secure_channel(plane.plane.address, bare) as channel:
        list_zones = channel.unary_unary("/dpuplane.v1.Queries/ListZones", lambda _: b"", lambda raw: raw)
        assert (await refused(list_zones(None)))[0] == Code.UNAVAILABLE
    assert (await refused(plane.caller(None).queries.ListZones(pb.ListZonesRequest())))[0] == Code.UNAVAILABLE
    assert list((await plane.caller("viewer/vic").queries.ListZones(pb.ListZonesRequest())).zones) == []


async def test_a_connection_does_not_outlive_its_certificate(plane: Guarded) -> None:
    caller = plane.caller("viewer/vic")
    await caller.queries.ListZones(pb.ListZonesRequest())
    plane.clock.ahead_ms = 2 * 3_600_000
    code, details = await refused(caller.queries.ListZones(pb.ListZonesRequest()))
    assert code == Code.UNAUTHENTICATED
    assert details == "certificate: the one of viewer/vic has expired; reconnect with a new one"


async def test_a_stream_of_joins_ends_when_its_certificate_expires(plane: Guarded) -> None:
    stream = plane.caller("operator/ann").calls.JoinNodesStream()
    await stream.write(join("n1"))
    viewer = plane.caller("viewer/vic")
    async with asyncio.timeout(90):
        while not (await viewer.queries.ListNodes(pb.ListNodesRequest())).nodes:
            await asyncio.sleep(0.01)
    stated = await plane.plane.stated()
    plane.clock.ahead_ms = 2 * 3_600_000
    await stream.write(join("n2"))
    says = "certificate: the one of operator/ann has expired; reconnect with a new one"
    assert await refused(stream) == (Code.UNAUTHENTICATED, says)
    assert await plane.plane.stated() == stated


async def test_a_server_of_another_authority_is_not_trusted(plane: Guarded, tmp_path: Path) -> None:
    cert_files = plane.cert_issuer.issue("operator/ann")
    other = CertIssuer(tmp_path / "elsewhere").authority.cert
    caller = plane.caller(cert_files._replace(ca=other))
    assert (await refused(caller.calls.FreezeWrites(freeze())))[0] == Code.UNAVAILABLE


async def test_the_schema_is_not_available_without_reflection(plane: Guarded) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(plane.caller("operator/ann").channel)

    async def ask() -> list[Any]:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        return [answer async for answer in stub.ServerReflectionInfo(iter([request]))]

    assert (await refused(ask()))[0] == Code.UNIMPLEMENTED


async def test_a_node_agent_keeps_the_session_of_its_own_node_only(plane: Guarded) -> None:
    agent = plane.caller("node-agent/n1")
    streams = StreamsStub(agent.channel)
    claim = pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1", uid="pod-1")])
    assert (await agent.calls.ClaimIndices(claim)).index == 0

    def message(node: str, uid: str = "pod-1") -> pb.KeepSessionRequest:
        return pb.KeepSessionRequest(domain="d", clique="c", node=node, uid=uid, session="s1")

    held = streams.KeepSession()
    for _ in range(3):
        await held.write(message("n1"))
        answer = await held.read()
        assert answer.lease.seconds == round(LEASE_S) and answer.revision
    [member] = (await agent.queries.GetClique(pb.GetCliqueRequest(domain="d", clique="c"))).members
    assert member.session_alive
    await held.write(message("n2"))
    assert await refused(held.read()) == (
        Code.PERMISSION_DENIED,
        "Streams.KeepSession: node-agent/n1 must act for its own node only, not for 'n2'",
    )
    other = streams.KeepSession()
    await other.write(message("n1", uid="pod-2"))
    assert (await refused(other.read()))[0] == Code.INVALID_ARGUMENT
    outsider = StreamsStub(plane.caller("viewer/vic").channel).KeepSession()
    await outsider.write(message("n1"))
    assert (await refused(outsider.read()))[0] == Code.PERMISSION_DENIED
