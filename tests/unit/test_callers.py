"""Callers without certificates: any claimed name is accepted from the loopback interface, and none from elsewhere."""

from __future__ import annotations

import pytest

from commands.rpc.error_details import PermissionDenied
from commands.rpc.middleware import principal_of
from eventstore.errors import PermanentError
from schemas.api.metadata import PRINCIPAL_KEY

METADATA = ((PRINCIPAL_KEY, "olga"), ("other", "x"))


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:7", "ipv6:[::1]:7", "ipv6:%5B::1%5D:7", "unix:/run/plane"])
def test_a_claimed_name_from_the_loopback_is_an_unproved_principal(peer: str) -> None:
    assert principal_of(METADATA, lambda: peer) == "?olga"
    assert principal_of((), lambda: peer) == "?anonymous"


@pytest.mark.parametrize("peer", ["ipv4:10.0.0.1:7", "ipv4:12.7.0.1:7", "ipv6:[2001:db8::1]:7", "ipv6:[::10]:7", ""])
def test_a_claimed_name_from_elsewhere_is_denied(peer: str) -> None:
    with pytest.raises(PermissionDenied, match=f"{PRINCIPAL_KEY}: 'olga' may be given on the loopback interface only"):
        principal_of(METADATA, lambda: peer)
    assert principal_of((), lambda: peer) == "?anonymous"


def test_an_invalid_name_is_refused_with_its_field() -> None:
    with pytest.raises(PermanentError, match=f"^{PRINCIPAL_KEY}: "):
        principal_of(((PRINCIPAL_KEY, "a b\n"),), lambda: "ipv4:127.0.0.1:7")
