"""A pool of addresses for nodes whose file has none: the hosts of a network, assigned in file order.

An existing node keeps its address if that is in the pool, and no other node gets the address of an existing node. So
removing a row from the file changes no address of the rows after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address, ip_network

from commands.inventory.batches import ExistingNode, PlannedNode
from commands.inventory.rows import bad_file
from projections.field_checks import quoted

_NO_HOSTS = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/32",
        "127.0.0.0/8",
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/127",
        "::ffff:0:0/96",
        "ff00::/8",
    )
)
"""Networks of the addresses that check_address4 and check_address6 refuse."""


class AddressPool:
    """Assigns the hosts of a network. `existing` are the nodes of the plane. Raises InventoryError if the text is not a
    network.
    """

    def __init__(self, text: str, existing: Mapping[str, ExistingNode]) -> None:
        try:
            network = ip_network(text)
        except ValueError:
            raise bad_file(
                f"address_pool: {quoted(text)} must be a network without host bits, for example 10.0.0.0/16"
            ) from None
        self._is_four = network.version == ip_address(0).version
        first, last = int(network.network_address), int(network.broadcast_address)
        if network.prefixlen < network.max_prefixlen - 1:
            first += 1
            last -= self._is_four
        for special in _NO_HOSTS:
            if special.version == network.version and int(special[0]) <= last and first <= int(special[-1]):
                raise bad_file(f"address_pool: {quoted(text)} must have host addresses only, and overlaps {special}")
        self._text = text
        self._first, self._last, self._next = first, last, first
        self._existing = existing
        self._used = {self._of(node) for node in existing.values()}

    def assign(self, node: PlannedNode, planned: Collection[int], line: int) -> PlannedNode:
        """The node with an address of the pool. `planned` has the addresses that earlier rows of the file use, with
        IPv6 addresses as negative numbers: none of them is assigned again. Raises InventoryError."""
        existing = self._existing.get(node.name)
        address = self._of(existing) if existing is not None else 0
        if not self._first <= address <= self._last or self._signed(address) in planned:
            address = self._next_free(line)
        return node._replace(address4=address) if self._is_four else node._replace(address6=address)

    def _next_free(self, line: int) -> int:
        while self._next in self._used:
            self._next += 1
        if self._next > self._last:
            raise bad_file(
                f"address_pool: {quoted(self._text)} has no address left: it must have one for every node", line
            )
        self._next += 1
        return self._next - 1

    def _of(self, node: ExistingNode) -> int:
        return node.address4 if self._is_four else node.address6

    def _signed(self, address: int) -> int:
        return address if self._is_four else -address
