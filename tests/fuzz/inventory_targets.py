"""Inventory files with options: each gives a plan that can be applied as a whole, or faults with their lines.

The first line of an input selects the options.
"""

from __future__ import annotations

from io import BytesIO

from commands.inventory.plan import ImportOptions, InventoryError, plan
from commands.inventory.rows import MAX_FAULTS
from eventstore.avro.codec import encode
from eventstore.ids import envelope, uuid7
from projections.columns import fault_of_nodes
from schemas.events import MAX_ITEMS, NodesJoined
from tests.fuzz.target import Target, check_refusal
from tests.support.toy_records import T0, Issuer

_ISSUER = Issuer()


def inventory(data: bytes) -> bool:
    first, _, content = data.partition(b"\n")
    try:
        found = plan(BytesIO(content), options_of(first))
    except InventoryError as error:
        check_refusal(error)
        assert error.count >= len(error.faults) > 0
        assert len(error.faults) <= MAX_FAULTS
        for fault in error.faults:
            check_refusal(fault)
        return False
    names = [name for batch in found.batches for name in batch.names]
    assert len(names) == len({*names}) == found.node_count
    assert {batch.zone for batch in found.batches} == {*found.zones}
    assert {node for clique in found.cliques for node, _ in clique.members} <= {*names}
    for batch in found.batches:
        assert 1 <= len(batch.names) <= MAX_ITEMS
        event = NodesJoined(
            envelope(batch.zone, "?ann", uuid7(T0, _ISSUER.rng)),
            batch.zone,
            list(batch.names),
            [],
            [],
            batch.addresses4,
            batch.addresses6,
            list(batch.label_sets),
            list(batch.label_index),
        )
        assert fault_of_nodes(event, T0) is None, fault_of_nodes(event, T0)
        encode(event)
    return True


def options_of(line: bytes) -> ImportOptions:
    """The options of an input; each letter sets one. The planner must refuse options that exclude each other."""
    return ImportOptions(
        name_column="sn" if b"n" in line else "",
        zone_column="rack" if b"r" in line else "",
        zone_size=2 if b"2" in line else -1 if b"-" in line else 0,
        address_column="ip" if b"i" in line else "",
        address_pool="10.0.0.0/29"
        if b"4" in line
        else "2001:db8::/125"
        if b"6" in line
        else "0/0"
        if b"0" in line
        else "",
        clique_size=3 if b"c" in line else 0,
        clique_when=("gpu", "yes") if b"w" in line else None,
        clique_domain="d" if b"d" in line else "inventory",
        skip_bad_rows=b"s" in line,
    )


TARGETS = (Target("inventory", inventory),)
