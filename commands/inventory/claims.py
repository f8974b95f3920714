"""The claims of a planned clique as requests that fill one record each."""

from __future__ import annotations

from collections.abc import Iterator

from commands.inventory.plan import CliquePlan
from schemas.api import dpuplane_pb2 as pb
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS


def claim_requests(clique: CliquePlan) -> Iterator[pb.ClaimIndicesRequest]:
    """Claims of all members, in order."""
    largest = max((len(node) + len(address) for node, address in clique.members), default=1)
    count = min(MAX_ITEMS, MAX_COMMAND_BYTES // largest)
    for start in range(0, len(clique.members), count):
        claims = [pb.ClaimSpec(node=node, address=address) for node, address in clique.members[start : start + count]]
        yield pb.ClaimIndicesRequest(domain=clique.domain, clique=clique.clique, claims=claims)
