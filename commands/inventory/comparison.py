"""The effects of an import: compares the nodes of a plan with those of the plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from commands.inventory.batches import ExistingNode, NodeBatch
from commands.inventory.plan import InventoryPlan


class Comparison(NamedTuple):
    """Counts of an import's effects: on the nodes of the file, on other nodes of its zones, and on addresses.

    `moved` counts the nodes of the file that the plane has in another zone. `readdressed` counts the nodes of the file
    that the plane has with another address, moved or not. `not_in_file` counts the nodes of the plane that are in a
    zone of the file but not in the file: an import does not change them. `added` counts the addresses that no node of
    the plane has before the import, `removed` the addresses that no node has after it.
    """

    new: int
    moved: int
    changed: int
    unchanged: int
    not_in_file: int
    readdressed: int
    added: int
    removed: int

    @property
    def shifts_most(self) -> bool:
        """Whether most known nodes of the file would get another address or zone, for example after a shift of its
        rows.
        """
        existing = self.moved + self.changed + self.unchanged
        return 2 * max(self.readdressed, self.moved) > existing


def compare(plan: InventoryPlan, existing: Mapping[str, ExistingNode]) -> Comparison:
    """Compare a plan with the nodes of the plane."""
    new = moved = changed = unchanged = readdressed = 0
    names: set[str] = set()
    planned: set[int] = set()
    for batch in plan.batches:
        names.update(batch.names)
        for name, node in _nodes(batch):
            planned.update(addresses_of(node))
            was = existing.get(name)
            if was is None:
                new += 1
                continue
            readdressed += (was.address4, was.address6) != (node.address4, node.address6)
            if was.zone != node.zone:
                moved += 1
            elif was == node:
                unchanged += 1
            else:
                changed += 1
    zones = set(plan.zones)
    others = {name: node for name, node in existing.items() if name not in names}
    before = {address for node in existing.values() for address in addresses_of(node)}
    after = planned | {address for node in others.values() for address in addresses_of(node)}
    not_in_file = sum(node.zone in zones for node in others.values())
    return Comparison(
        new, moved, changed, unchanged, not_in_file, readdressed, len(after - before), len(before - after)
    )


def addresses_of(node: ExistingNode) -> Iterator[int]:
    """The addresses of a node as numbers; an IPv6 address is a negative one."""
    yield from filter(None, (node.address4, -node.address6))


def _nodes(batch: NodeBatch) -> Iterator[tuple[str, ExistingNode]]:
    sets = [tuple(labels.items()) for labels in batch.label_sets]
    for place, name in enumerate(batch.names):
        index = batch.label_index
        labels = sets[index[0] if len(index) == 1 else index[place]] if index else ()
        address4 = int.from_bytes(batch.addresses4[4 * place : 4 * place + 4], "big")
        address6 = int.from_bytes(batch.addresses6[16 * place : 16 * place + 16], "big")
        yield name, ExistingNode(batch.zone, address4, address6, labels)
