"""Access control of a listener that asks for certificates: authenticates the peer and authorizes the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from commands.rpc import authorization
from commands.rpc.authentication import CertificateAuthenticator, Unauthenticated
from commands.rpc.denials import Denials
from projections.fleet.withdrawals.principals import Principal

_PEM = "x509_pem_cert"


class AccessControl:
    """Checks every call, so that a certificate that expires or is revoked stops working on open connections."""

    def __init__(self, authenticator: CertificateAuthenticator, denials: Denials) -> None:
        self.denials = denials
        self._authenticator = authenticator

    def authenticate(
        self, auth_context: Callable[[], Mapping[str, Iterable[bytes]]], peer: Callable[[], str]
    ) -> Principal:
        """The principal that the certificate of a connection names. Raises Unauthenticated."""
        certificates = list(auth_context().get(_PEM, ()))
        try:
            if len(certificates) != 1:
                raise Unauthenticated("certificate: a client certificate is required, and none was given")
            return self._authenticator.authenticate(certificates[0]).principal
        except Unauthenticated as error:
            self.denials.count_unauthenticated(peer().rpartition(":")[0], str(error))
            raise

    @property
    def revision(self) -> int:
        """The revision of the revocation list. A call that began under an earlier revision is authenticated again."""
        return self._authenticator.revision

    def denial_reason(self, method: str, principal: Principal, request: Any) -> str | None:
        """Why the principal may not call the method, counted and logged; None if it may."""
        fault = authorization.denial_reason(method, principal, request)
        if fault is not None:
            self.denials.count_denied(str(principal), fault)
        return fault
