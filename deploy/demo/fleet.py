"""The fleet of the demo: a generated one, or one from an inventory file. Both go through the importer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address

from commands.inventory.batches import NodeBatch
from commands.inventory.claims import claim_requests
from commands.inventory.plan import ImportOptions, InventoryPlan, plan
from schemas.api import dpuplane_pb2 as pb

GPUS = ("h100", "gb200", "gb300")
FIRST_ADDRESS = int(IPv4Address("10.0.0.1"))
CLIQUE_DOMAIN = "demo"


def generate_fleet(*, nodes: int, zones: int, clique_size: int, cliques: int | None) -> InventoryPlan:
    """`nodes` nodes in `zones` zones, rack by rack; the first `cliques` times `clique_size` of them are in cliques."""
    in_cliques = nodes if cliques is None else cliques * clique_size
    lines = ["name,zone,address,gpu,clique"]
    for number in range(nodes):
        zone = number * zones // nodes
        member = "yes" if number < in_cliques else "no"
        address = IPv4Address(FIRST_ADDRESS + number)
        lines.append(f"node-{number:06},zone-{zone:04},{address},{GPUS[zone % len(GPUS)]},{member}")
    if not in_cliques:
        return plan(io.BytesIO("\n".join(lines).encode()), ImportOptions())
    options = ImportOptions(clique_size=clique_size, clique_when=("clique", "yes"), clique_domain=CLIQUE_DOMAIN)
    return plan(io.BytesIO("\n".join(lines).encode()), options)


def joins(fleet: InventoryPlan, per_command: int) -> Iterator[pb.JoinNodesRequest]:
    """Commands that join the whole fleet, at most `per_command` nodes in each."""
    for batch in fleet.batches:
        for start in range(0, len(batch.names), per_command):
            yield join(batch, start, start + per_command)


def join(batch: NodeBatch, start: int, stop: int) -> pb.JoinNodesRequest:
    """A command that joins the nodes of a batch from `start` (inclusive) to `stop` (exclusive)."""
    columns = pb.NodeColumns(
        names=batch.names[start:stop],
        addresses4=batch.addresses4[4 * start : 4 * stop],
        addresses6=batch.addresses6[16 * start : 16 * stop],
        label_sets=[pb.LabelSet(labels=labels) for labels in batch.label_sets],
        label_index=batch.label_index if len(batch.label_index) == 1 else batch.label_index[start:stop],
    )
    return pb.JoinNodesRequest(zone=batch.zone, columns=columns)


def claims(fleet: InventoryPlan, share: int = 1) -> Iterator[pb.ClaimIndicesRequest]:
    """Commands that claim indices for every `share`-th member of each clique, beginning with the first."""
    for clique in fleet.cliques:
        yield from claim_requests(replace(clique, members=clique.members[::share]))


def capacities(fleet: InventoryPlan) -> Iterator[pb.SetCliqueCapacityRequest]:
    """Commands that set the planned capacity of every clique."""
    for clique in fleet.cliques:
        yield pb.SetCliqueCapacityRequest(domain=clique.domain, clique=clique.clique, capacity=clique.capacity)
