"""Principals: a role and a name, from the URI in a certificate, in the form of an actor of the log.

`spiffe://TRUST_DOMAIN/ROLE/NAME` is `ROLE/NAME` in the log. The name of a host agent is `NAMESPACE/HOST`: hosts of two
namespaces may have one name. An actor without a certificate is `?NAME`. A person with certificates of two roles is one
person, and the rule of two approvers counts persons.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from projections import actors
from projections.field_checks import check_name, quoted

VIEWER = "viewer"
OPERATOR = "operator"
APPROVER = "approver"
NODE_AGENT = actors.NODE_AGENT
HOST_AGENT = "host-agent"
DPU_AGENT = "dpu-agent"
PROVISIONER = "provisioner"
SIMULATOR = "simulator"
PLANE = "plane"

PRINCIPAL_ROLES = (VIEWER, OPERATOR, APPROVER, NODE_AGENT, HOST_AGENT, DPU_AGENT, PROVISIONER, SIMULATOR, PLANE)
"""`simulator` may act for every DPU: issue its certificates for test fleets only."""

_SCHEME = "spiffe://"
_TRUST_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,253}[a-z0-9])?")


class Principal(NamedTuple):
    """A principal that a certificate names."""

    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.role}/{self.name}"


def check_trust_domain(field: str, value: str) -> str | None:
    """Why a trust domain is invalid, in one sentence; None if it is valid."""
    if _TRUST_DOMAIN.fullmatch(value):
        return None
    return (
        f"{field}: {quoted(value)} must be 1 to 255 lower-case letters, digits, '.', '_' and '-', such as example.org"
    )


def check_principal(field: str, role: str, name: str) -> str | None:
    """Why a role cannot have a name, in one sentence; None if it can."""
    if role == HOST_AGENT and "/" not in name:
        return f"{field}: {quoted(name)} must be NAMESPACE/HOST for role {role}"
    return check_name(field, name)


def uri_of(trust_domain: str, principal: Principal) -> str:
    return f"{_SCHEME}{trust_domain}/{principal}"


def trust_domain_of(uri: str) -> str:
    """The trust domain of a URI, empty if it has none."""
    found = uri.removeprefix(_SCHEME).partition("/")[0] if uri.startswith(_SCHEME) else ""
    return "" if check_trust_domain("trust domain", found) else found


def parse_uri(uri: str, trust_domain: str) -> Principal | str:
    """The principal of a certificate's URI, or one sentence with the reason why it names none."""
    prefix = f"{_SCHEME}{trust_domain}/"
    if not uri.startswith(prefix):
        return f"certificate: {quoted(uri)} must begin with {prefix}"
    role, _, name = uri.removeprefix(prefix).partition("/")
    if role not in PRINCIPAL_ROLES:
        return f"certificate: role {quoted(role)} of {quoted(uri)} must be one of {', '.join(PRINCIPAL_ROLES)}"
    fault = check_principal("certificate: name", role, name)
    return fault if fault is not None else Principal(role, name)


def person(actor: str) -> str:
    """The person behind an actor of the log, without the role: `approver/ann`, `operator/ann` and `?ann` are ann."""
    if actor.startswith("?"):
        return actor[1:]
    role, slash, name = actor.partition("/")
    return name if slash and role in PRINCIPAL_ROLES else actor
