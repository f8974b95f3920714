"""A plane behind its API with mutual TLS, in this process, and its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from commands.rpc.access import AccessControl
from commands.rpc.authentication import CertificateAuthenticator
from commands.rpc.denials import Denials
from deploy.tls.certificates import Certificates
from eventstore.log import ZONES
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, QueriesStub
from tests.support.certs import TRUST_DOMAIN, CertFiles, CertIssuer
from tests.support.eventually import until
from tests.support.served import Served, now_ms, served


class Clock:
    """The plane's wall clock; a test can advance it."""

    ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


class Caller:
    """A caller with a channel of its own. `calls` and `queries` are the generated stubs."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        options = (("grpc.use_local_subchannel_pool", 1),)
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self.calls: Any = CommandsStub(self.channel)
        self.queries: Any = QueriesStub(self.channel)


class Guarded:
    """The plane and its callers."""

    def __init__(
        self,
        plane: Served,
        cert_issuer: CertIssuer,
        certificates: Certificates,
        access: AccessControl,
        *,
        authenticator: CertificateAuthenticator,
        clock: Clock,
    ) -> None:
        self.plane = plane
        self.cert_issuer = cert_issuer
        self.certificates = certificates
        self.access = access
        self.clock = clock
        self.authenticator = authenticator
        self._callers: list[Caller] = []

    def caller(self, who: str | CertFiles | None) -> Caller:
        """A caller with a certificate for `ROLE/NAME` of this plane's authority, with another certificate, or without
        TLS.
        """
        cert_files = self.cert_issuer.issue(who) if isinstance(who, str) else who
        caller = Caller(self.plane.address, cert_files.channel if cert_files is not None else None)
        self._callers.append(caller)
        return caller

    async def close(self) -> None:
        await asyncio.gather(*(caller.channel.close(None) for caller in self._callers))


@asynccontextmanager
async def guarded(folder: Path, **options: Any) -> AsyncIterator[Guarded]:
    """A ready plane that requires client certificates."""
    cert_issuer = CertIssuer(folder / "certs")
    certificates = cert_issuer.issue("plane/local").certificates
    clock = Clock()
    authenticator = CertificateAuthenticator(TRUST_DOMAIN, clock)
    access = AccessControl(authenticator, Denials())
    credentials = certificates.grpc_server()
    async with served(
        folder / "plane", access=access, credentials=credentials, has_reflection=False, **options
    ) as plane:
        found = Guarded(plane, cert_issuer, certificates, access, authenticator=authenticator, clock=clock)
        try:
            yield found
        finally:
            await found.close()


async def allow_agents(
    plane: Guarded, zone: str, *, networks: Sequence[str] = (), label_keys: Sequence[str] = ()
) -> None:
    """Set as operator which fields node agents may state in a zone, and wait until the zone has received it."""
    request = pb.UpdateZoneRequest(
        zone=zone,
        set_agent_networks=True,
        agent_networks=networks,
        set_agent_label_keys=True,
        agent_label_keys=label_keys,
    )
    answer = await plane.caller("operator/ann").calls.UpdateZone(request)
    assert answer.outcome == pb.OUTCOME_DONE, answer.reason
    replica = plane.plane.replica
    state = replica.state(replica.partition_for(ZONES, zone))
    wanted = (tuple(sorted(networks)), tuple(sorted(label_keys)))

    def is_heard() -> bool:
        row = state.zone_rows.rows.get(zone)
        return row is not None and (row.agent_networks, row.agent_label_keys) == wanted

    await until(is_heard)
