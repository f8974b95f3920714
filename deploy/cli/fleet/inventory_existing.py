"""The data that an import reads from the plane: the existing nodes before it, and the held nodes after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from commands.inventory.batches import ExistingNode
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import list_all_pages
from deploy.cli.shared.progress import ProgressLine
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms

_PAGE = 1_000


class ExistingState(NamedTuple):
    """The plane before an import: the nodes by name, the names of held nodes, and the holds of nodes. `holds` maps the
    number of each hold to a hash of its content."""

    nodes: dict[str, ExistingNode]
    held: set[str]
    holds: dict[int, str]


def read_existing(client: Client) -> ExistingState:
    """All nodes of the plane. A node that is briefly in two zones is returned once, with its newest incarnation."""
    existing = ExistingState({}, set(), {hold.hold: hold.hash for hold in _holds(client)})
    newest: dict[str, tuple[int, str]] = {}
    labels: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
    for node in _every_node(client):
        incarnation = (to_ms(node.create_time), node.uid)
        if newest.get(node.name, (-1, "")) > incarnation:
            continue
        newest[node.name] = incarnation
        own = tuple(sorted(node.labels.items()))
        addresses = {address.version: int(address) for address in map(ip_address, node.addresses)}
        existing.nodes[node.name] = ExistingNode(
            node.zone, addresses.get(4, 0), addresses.get(6, 0), labels.setdefault(own, own)
        )
        if node.held:
            existing.held.add(node.name)
    return existing


def held_by_import(
    client: Client, names: Collection[str], existing: ExistingState, position: str
) -> tuple[int, list[int]]:
    """The number of nodes that holds of this import keep in their earlier state, and the numbers of these holds.

    The responses are at least as new as `position`. A hold of new nodes has no command id. It belongs to this import if
    it was created or changed during the import. The nodes are read again only if there is such a hold: reading a large
    plane takes longer than the import.
    """
    client.raise_min_position(position)
    own = [hold for hold in _holds(client) if hold.command_id in client.sent_command_ids]
    nameless = [hold for hold in _holds(client) if not hold.command_id and existing.holds.get(hold.hold) != hold.hash]
    held = sum(hold.node_count for hold in own)
    if nameless:
        fresh = {node.name for node in _every_node(client) if node.held} - existing.held
        held = max(held, len(fresh & set(names)))
    return held, sorted(hold.hold for hold in (*own, *nameless))


def _holds(client: Client) -> list[pb.Hold]:
    found = list_all_pages(client, "ListHolds", pb.ListHoldsRequest(), pb.ListHoldsResponse, "holds")
    return [hold for hold in found.holds if hold.subject == "members"]


def _every_node(client: Client) -> Iterator[pb.Node]:
    request, read = pb.ListNodesRequest(page_size=_PAGE), 0
    with ProgressLine("reading the plane") as progress:
        while True:
            page: pb.ListNodesResponse = client.query("ListNodes", request)
            yield from page.nodes
            read += len(page.nodes)
            progress.count(f"{read:,} nodes read")
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
