"""The gate of a listener that asks for certificates: who calls, and whether the table lets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from commands.rpc import authorization
from commands.rpc.authentication import CertificateAuthenticator, Unauthenticated
from commands.rpc.denials import Denials
from projections.fleet.principals import Principal

_PEM = "x509_pem_cert"


class AccessControl:
    """Asked at every call, so that a certificate which has expired meanwhile opens nothing any more."""

    def __init__(self, authenticator: CertificateAuthenticator, denials: Denials) -> None:
        self.denials = denials
        self._authenticator = authenticator

    def authenticate(
        self, auth_context: Callable[[], Mapping[str, Iterable[bytes]]], peer: Callable[[], str]
    ) -> Principal:
        """Whom the certificate of a connection names. Raises Unauthenticated."""
        certificates = list(auth_context().get(_PEM, ()))
        try:
            if len(certificates) != 1:
                raise Unauthenticated("certificate: none was given")
            return self._authenticator.authenticate(certificates[0]).principal
        except Unauthenticated as error:
            self.denials.count_unauthenticated(peer().rpartition(":")[0], str(error))
            raise

    @property
    def revision(self) -> int:
        """Of the list of revoked certificates: a call that began under another one is asked again who makes it."""
        return self._authenticator.revision

    def denial_reason(self, method: str, principal: Principal, request: Any) -> str | None:
        """None if they may; else why not, counted and logged."""
        fault = authorization.denial_reason(method, principal, request)
        if fault is not None:
            self.denials.count_denied(str(principal), fault)
        return fault
