"""Principals: the identity in a URI, and the principal behind an actor of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.field_checks import NAME_PATTERN, is_printable
from projections.fleet.withdrawals.principals import (
    HOST_AGENT,
    PRINCIPAL_ROLES,
    Principal,
    check_trust_domain,
    parse_uri,
    person,
    trust_domain_of,
    uri_of,
)

NAMES = st.from_regex(NAME_PATTERN, fullmatch=True)


@given(st.sampled_from(PRINCIPAL_ROLES), NAMES)
def test_a_principal_is_read_back_from_its_uri(role: str, name: str) -> None:
    name = f"a/{name.rpartition('/')[2]}" if role == HOST_AGENT else name
    principal = Principal(role, name)
    uri = uri_of("example.org", principal)
    assert parse_uri(uri, "example.org") == principal
    assert trust_domain_of(uri) == "example.org"
    assert person(str(principal)) == person(f"?{name}") == name


@given(st.text(max_size=80))
def test_any_other_text_is_refused_in_one_sentence(text: str) -> None:
    for uri in (text, f"spiffe://{text}", f"spiffe://example.org/{text}", f"spiffe://example.org/operator/{text}"):
        found = parse_uri(uri, "example.org")
        if isinstance(found, str):
            assert found.startswith("certificate: ")
            assert is_printable(found)
        else:
            assert uri_of("example.org", found) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://other.org/operator/ann",
        "spiffe://example.org.evil.net/operator/ann",
        "spiffe://example.org@evil.net/operator/ann",
        "SPIFFE://example.org/operator/ann",
        "https://example.org/operator/ann",
        "spiffe://example.org/admin/ann",
        "spiffe://example.org/operator/",
        "spiffe://example.org/operator/../approver/ann",
        "spiffe://example.org//operator/ann",
        "spiffe://example.org/operator/ann?x=1",
        "spiffe://example.org/operator/ann\nlevel=info",
        "spiffe://example.org/operator/%61nn",
        "spiffe://example.org/operator/a/b/c",
        "spiffe://example.org/host-agent/n1",
        "spiffe://example.org/host-agent//n1",
        "spiffe://example.org/host-agent/a/",
        "spiffe://example.org/host-agent/a/b/n1",
    ],
)
def test_a_uri_that_only_resembles_a_principal_is_refused(uri: str) -> None:
    assert isinstance(parse_uri(uri, "example.org"), str)


@pytest.mark.parametrize("domain", ["", "Example.org", "a b", "a/b", "-a", "a:1", "x" * 256])
def test_an_invalid_trust_domain_is_refused(domain: str) -> None:
    assert check_trust_domain("trust_domain", domain) is not None


def test_one_person_has_many_roles_and_replicas_are_not_persons() -> None:
    assert {person(actor) for actor in ("approver/ann", "operator/ann", "?ann")} == {"ann"}
    assert person("node-agent/k8s/n1") == "k8s/n1"
    assert person("timers/replica-1") == "timers/replica-1"
