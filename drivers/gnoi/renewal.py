"""The renewal of the certificate of a management service, by Rotate of gNOI.

The device makes a key, the plane signs a certificate for it, and the device presents that one while the stream is open.
The plane connects anew, and only then lets the device keep it. A stream that ends earlier sets the device back, so an
attempt may end at any message. If the answer to the last message is lost, the device has either certificate: both are
of the authority, and the next attempt reads which one it is.

A service that does not offer its certificates, or presents one that is not among them, is renewed by another program.
The plane then only reports when its certificate ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.gnoi.answers import ended, error_of
from drivers.gnoi.client import GnoiClient, connected
from drivers.gnoi.credentials import CredentialsOf
from drivers.provisioning.attempts import Attempt
from drivers.redfish.certificates import RENEW_BEFORE, BmcAuthority, day_of, names_host, peer_certificate, utc
from projections.zones.dpus.certificates import AUTHORITY, CERTIFICATE_FACT, ENDS_FACT
from schemas.openconfig import cert_pb2

KEY_BITS = 2_048
PRESENTED_S = 30.0
"""Longest time for which a device may take to present a certificate that it has loaded."""
WATCHED = timedelta(days=45)
"""A certificate of another program that is valid for less time is renewed so often that its end says nothing."""
_WHAT = "renew its certificate"


class _Presented(NamedTuple):
    """The certificate that a device presents, and the id by which the device keeps it."""

    id: str
    certificate: x509.Certificate


class CertificateRenewal:
    """Renews certificates of management services. Without the key of the authority, it only reads them."""

    def __init__(self, authority: BmcAuthority | None, credentials: CredentialsOf, now_ms: Callable[[], int]) -> None:
        self._authority = authority
        self._credentials = credentials
        self._now_ms = now_ms

    async def run(self, attempt: Attempt, client: GnoiClient) -> dict[str, str]:
        """Renew the certificate of a device if it ends soon. Returns the facts about the one that it has then."""
        certificate = await self._renewed(attempt, client)
        if certificate is not None:
            return {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: day_of(certificate.not_valid_after_utc)}
        try:
            found = await self._trusted(attempt, client)
        except Unreachable:  # before TLS 1.3, a connection without a client certificate fails in the handshake
            return {}
        return {} if found is None else _facts_of_others(attempt, found)

    async def visit(self, attempt: Attempt, client: GnoiClient) -> dict[str, str]:
        """Do the same for a Ready DPU. Raises NeedsOperator if the device still has a certificate that ends soon, after
        half of the time in which it is to be renewed."""
        facts = await self.run(attempt, client)
        certificate = await self._trusted(attempt, client)
        if certificate is None:
            raise TaskFailed(f"certificate: {client.host} presented one that is not of bmc_ca, or does not name it")
        left = certificate.not_valid_after_utc - utc(self._now_ms())
        if left < renewed_within(certificate) / 2:
            signs = self._authority is not None and self._authority.signs
            why = "its service keeps it" if signs else "the plane has no bmc_ca_key"
            day = day_of(certificate.not_valid_after_utc)
            raise NeedsOperator(f"certificate: that of {client.host} ends on {day}, and was not renewed: {why}")
        return facts

    async def _renewed(self, attempt: Attempt, client: GnoiClient) -> x509.Certificate | None:
        """The certificate of the device, renewed if it was time; None if the plane is not to renew it."""
        if self._authority is None or not self._authority.signs:
            return None
        presented = await self._read(attempt, client, self._authority)
        if presented is None or not is_due(presented.certificate, utc(self._now_ms())):
            return presented and presented.certificate
        return await self._rotated(attempt, client, self._authority, presented)

    async def _trusted(self, attempt: Attempt, client: GnoiClient) -> x509.Certificate | None:
        """The certificate that the device presents; None if it is not one of the authority for this device. The
        connection that shows it is not verified, unlike those of all other calls."""
        found = await attempt.call(partial(peer_certificate, client.host), alters=False)
        try:
            certificate = x509.load_der_x509_certificate(found)
        except ValueError:
            return None
        is_own = self._authority is not None and _is_own(self._authority, client.host, certificate)
        return certificate if is_own else None

    async def _read(self, attempt: Attempt, client: GnoiClient, authority: BmcAuthority) -> _Presented | None:
        """The certificate that the device presents; None if the plane is not to renew it."""
        offered = await attempt.call(client.read_certificates, alters=False)
        own = dict(_own(authority, client.host, offered))
        if not own:
            return None
        found = await attempt.call(partial(peer_certificate, client.host), alters=False)
        return next((_Presented(name, own[name]) for name in sorted(own) if _der(own[name]) == found), None)

    async def _rotated(
        self, attempt: Attempt, client: GnoiClient, authority: BmcAuthority, old: _Presented
    ) -> x509.Certificate:
        """The certificate that the device has after a rotation; the old one if it cannot rotate certificates."""
        stream = client.rotate()
        try:
            return await self._rotate(attempt, client, authority, stream, old.id)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                return old.certificate
            raise error_of(client.host, _WHAT, error) from error
        except asyncio.InvalidStateError:  # the device has ended the stream while a message was written
            code, details = await stream.code(), await stream.details()
            raise error_of(client.host, _WHAT, ended(code, details)) from None
        finally:
            stream.cancel()

    async def _rotate(
        self, attempt: Attempt, client: GnoiClient, authority: BmcAuthority, stream: Any, name: str
    ) -> x509.Certificate:
        call = attempt.call
        generate = cert_pb2.GenerateCSRRequest(csr_params=_parameters(client.host), certificate_id=name)
        await call(partial(stream.write, cert_pb2.RotateCertificateRequest(generate_csr=generate)))
        answer = _answer(client.host, await call(stream.read, alters=False), "generated_csr")
        signed = authority.sign(answer.generated_csr.csr.csr, client.host, utc(self._now_ms()))
        loaded = cert_pb2.Certificate(type=cert_pb2.CT_X509, certificate=signed)
        load = cert_pb2.LoadCertificateRequest(certificate=loaded)  # without a bundle the device keeps its authorities
        await call(partial(stream.write, cert_pb2.RotateCertificateRequest(load_certificate=load)))
        _answer(client.host, await call(stream.read, alters=False), "load_certificate")
        certificate = x509.load_pem_x509_certificate(signed)
        await self._tested(attempt, client.host, certificate)
        finalize = cert_pb2.RotateCertificateRequest(finalize_rotation=cert_pb2.FinalizeRequest())
        await call(partial(stream.write, finalize))
        await call(stream.done_writing)
        if await call(stream.read, alters=False) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            raise TaskFailed(f"certificate: {client.host} answered the end of a rotation with another message")
        return certificate

    async def _tested(self, attempt: Attempt, host: str, certificate: x509.Certificate) -> None:
        """Wait until the device presents the certificate, and make a call over a new connection."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + PRESENTED_S
        while await _presented(attempt, host) != _der(certificate):
            if loop.time() > ends_s:
                raise TaskFailed(f"certificate: {host} accepted a new one, and does not present it")
            await asyncio.sleep(attempt.timing.poll_s)
        async with connected(attempt.dpu.bmc_address, self._credentials()) as fresh:
            await attempt.call(fresh.read_serial, alters=False)


def _own(authority: BmcAuthority, host: str, offered: Mapping[str, bytes]) -> Iterator[tuple[str, x509.Certificate]]:
    """The certificates of the authority for this host."""
    for name, pem in offered.items():
        try:
            certificate = x509.load_pem_x509_certificate(pem)
        except ValueError:
            continue
        if _is_own(authority, host, certificate):
            yield name, certificate


def _is_own(authority: BmcAuthority, host: str, certificate: x509.Certificate) -> bool:
    return authority.has_issued(certificate) and names_host(certificate, host)


def _facts_of_others(attempt: Attempt, certificate: x509.Certificate) -> dict[str, str]:
    """The facts about a certificate that another program renews. An end that was reported is withdrawn if there is none
    to report."""
    if certificate.not_valid_after_utc - certificate.not_valid_before_utc >= WATCHED:
        return {ENDS_FACT: day_of(certificate.not_valid_after_utc)}
    return {ENDS_FACT: ""} if attempt.dpu.facts.get(ENDS_FACT) else {}


async def _presented(attempt: Attempt, host: str) -> bytes:
    """The certificate that the device presents; none while it loads one and refuses connections."""
    try:
        return await attempt.call(partial(peer_certificate, host), alters=False)
    except Unreachable:
        return b""


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate is to be renewed."""
    return certificate.not_valid_after_utc - now < renewed_within(certificate)


def renewed_within(certificate: x509.Certificate) -> timedelta:
    """The time before the end of a certificate in which it is renewed: 30 days, or a third of its time."""
    return min(RENEW_BEFORE, (certificate.not_valid_after_utc - certificate.not_valid_before_utc) / 3)


def _parameters(host: str) -> cert_pb2.CSRParams:
    return cert_pb2.CSRParams(
        type=cert_pb2.CT_X509,
        min_key_size=KEY_BITS,
        key_type=cert_pb2.KT_RSA,
        common_name=urlsplit(f"https://{host}").hostname or host,
        country="XX",
        state="-",
        city="-",
        organization="dpuplane",
        organizational_unit="BMC",
    )


def _answer(host: str, answer: Any, kind: str) -> Any:
    """The answer, which must be of this kind."""
    if answer is grpc.aio.EOF:  # type: ignore[attr-defined]
        raise Unreachable(f"certificate: {host} ended a rotation before it had a certificate")
    if answer.WhichOneof("rotate_response") != kind:
        raise TaskFailed(f"certificate: {host} answered a rotation with {answer.WhichOneof('rotate_response')}")
    return answer


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
