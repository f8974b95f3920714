"""The gate of a listener that asks for certificates: who calls, and whether the table lets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from commands.calls import auth
from commands.calls.denials import Denials
from commands.calls.identities import Identities, Unauthenticated
from projections.fleet.principals import Principal

_PEM = "x509_pem_cert"


class Gate:
    """Asked at every call, so that a certificate which has expired meanwhile opens nothing any more."""

    def __init__(self, identities: Identities, denials: Denials) -> None:
        self.denials = denials
        self._identities = identities

    def identify(self, auth_context: Callable[[], Mapping[str, Iterable[bytes]]], peer: Callable[[], str]) -> Principal:
        """Whom the certificate of a connection names. Raises Unauthenticated."""
        certificates = list(auth_context().get(_PEM, ()))
        try:
            if len(certificates) != 1:
                raise Unauthenticated("certificate: none was given")
            return self._identities.identify(certificates[0]).principal
        except Unauthenticated as error:
            self.denials.turn_away(peer().rpartition(":")[0], str(error))
            raise

    @property
    def revision(self) -> int:
        """Of the list of revoked certificates: a call that began under another one is asked again who makes it."""
        return self._identities.revision

    def denial(self, method: str, principal: Principal, request: Any) -> str | None:
        """None if they may; else why not, counted and logged."""
        fault = auth.denial(method, principal, request)
        if fault is not None:
            self.denials.deny(str(principal), fault)
        return fault
