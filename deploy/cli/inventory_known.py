"""What an import reads of the plane: the nodes that are there before, and the nodes that are held afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from commands.inventory.batches import KnownNode
from deploy.cli.client import Client
from deploy.cli.progress import ProgressLine
from schemas.api import dpuplane_pb2 as pb

_PAGE = 1_000


class Known(NamedTuple):
    """The plane before an import: its nodes by name, the held ones, and the hash of each hold of nodes."""

    nodes: dict[str, KnownNode]
    held: set[str]
    holds: dict[int, str]


def read_known(client: Client) -> Known:
    """All nodes of the plane. Of a node that is in two zones for a moment, the newest incarnation."""
    known = Known({}, set(), _holds(client))
    newest: dict[str, tuple[int, str]] = {}
    labels: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
    for node in _every_node(client):
        incarnation = (node.created_ms, node.uid)
        if newest.get(node.name, (-1, "")) > incarnation:
            continue
        newest[node.name] = incarnation
        own = tuple(sorted(node.labels.items()))
        addresses = {address.version: int(address) for address in map(ip_address, node.addresses)}
        known.nodes[node.name] = KnownNode(
            node.zone, addresses.get(4, 0), addresses.get(6, 0), labels.setdefault(own, own)
        )
        if node.held:
            known.held.add(node.name)
    return known


def held_since(client: Client, names: Collection[str], known: Known, position: str) -> tuple[int, list[int]]:
    """How many of these nodes a hold keeps as they were, as of a position; and the holds of nodes.

    The nodes are read again only if an import changed a hold: to read a large plane takes longer than to import it.
    """
    client.no_older_than(position)
    holds = _holds(client)
    held = known.held if holds == known.holds else {node.name for node in _every_node(client) if node.held}
    return len(held & set(names)), sorted(holds)


def _holds(client: Client) -> dict[int, str]:
    found: pb.HoldList = client.query("ListHolds", pb.ListHoldsRequest())
    return {hold.hold: hold.hash for hold in found.holds if hold.subject == "members"}


def _every_node(client: Client) -> Iterator[pb.Node]:
    request, read = pb.ListNodesRequest(page_size=_PAGE), 0
    with ProgressLine("reading the plane") as progress:
        while True:
            page: pb.NodeList = client.query("ListNodes", request)
            yield from page.nodes
            read += len(page.nodes)
            progress.count(f"{read:,} nodes read")
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
