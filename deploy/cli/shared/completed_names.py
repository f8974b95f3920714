"""Shell completion of names that the plane has.

The user waits for a key press, so the query has a short deadline. A query that is late or fails completes nothing and
prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from deploy.cli.shared.client import Client

DEADLINE_S = 1.0
PAGES_MAX = 5
PAGE = 1_000
"""Names per page. A plane may have a million nodes; only the first PAGES_MAX pages (5,000 names) are completed."""

NameSource = Callable[["Client", Mapping[str, Any]], Iterable[str]]


class CompletedName(click.ParamType[str]):
    """A parameter that takes any text, and completes the names that the plane has."""

    name = "text"

    def __init__(self, ask: NameSource) -> None:
        self._ask = ask

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an empty value: a script with an unset variable would otherwise list everything."""
        if not value and ctx and param and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
            self.fail("must not be empty" + ("" if param.required else "; omit it instead"), param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = sorted({name for name in _asked(self._ask, ctx.params) if name.startswith(incomplete)})
        return [CompletionItem(name) for name in found]


def _asked(ask: NameSource, given: Mapping[str, Any]) -> list[str]:
    """Names from the plane, queried with the connection options of the command line that is completed. Empty if the
    query is late or fails."""
    from deploy.cli.shared.errors import NotFoundError, Refused, Unreachable
    from deploy.cli.shared.options import make_client

    tls = {name: given.get(name) for name in ("tls_cert", "tls_key", "tls_ca")}
    servers = given.get("servers") or ["127.0.0.1:7080"]
    try:
        with make_client(servers, given.get("principal") or "", DEADLINE_S, tls=tls) as client:
            return list(ask(client, given))
    except (NotFoundError, Refused, Unreachable, click.UsageError):
        return []


def _pages(client: Client, method: str, request: Any, field: str) -> Iterator[Any]:
    request.page_size = PAGE
    for _ in range(PAGES_MAX):
        page = client.query(method, request)
        yield from getattr(page, field)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _zones(client: Client, _given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    return (zone.zone for zone in _pages(client, "ListZones", pb.ListZonesRequest(), "zones"))


def _nodes(client: Client, given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    return (node.name for node in _pages(client, "ListNodes", pb.ListNodesRequest(zone=_zone(given)), "nodes"))


def _dpus(client: Client, given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    return (dpu.dpu for dpu in _pages(client, "ListDpus", pb.ListDpusRequest(zone=_zone(given)), "dpus"))


def _zone(given: Mapping[str, Any]) -> str:
    return str(given.get("zone") or "")


def _domains(client: Client, _given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    return (clique.domain for clique in _pages(client, "ListCliques", pb.ListCliquesRequest(), "cliques"))


def _cliques(client: Client, given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    request = pb.ListCliquesRequest(domain=given.get("domain") or "")
    return (clique.clique for clique in _pages(client, "ListCliques", request, "cliques"))


def _policies(client: Client, _given: Mapping[str, Any]) -> Iterable[str]:
    from schemas.api import dpuplane_pb2 as pb

    return (policy.name for policy in _pages(client, "ListPolicies", pb.ListPoliciesRequest(), "policies"))


ZONE, NODE, DPU, DOMAIN, CLIQUE, POLICY = map(CompletedName, (_zones, _nodes, _dpus, _domains, _cliques, _policies))
