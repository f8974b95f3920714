"""The checks of a DPUServiceIPAM: every address belongs to its network, everything fits, and nothing shrinks.

A pool that shrinks, or whose blocks change their size, would take addresses from pods that use them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from schemas.resources.dpf.admission import Spec
from schemas.resources.faults import Fault

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

NETWORKS = ("ipv4Network", "network")
SUBNETS = ("ipv4Subnet", "subnet")
SIZE = {"network": "prefixSize", "subnet": "perNodeIPCount"}
PER_CLUSTER = {"network": "subnetsPerDPUCluster", "subnet": "blocksPerDPUCluster"}


def pool_faults(spec: Spec, older: Spec | None) -> Iterator[Fault]:
    """The faults of a pool."""
    field, mode = _chosen(spec)
    pool, path = spec[field], f"spec.{field}"
    network = _network(pool[mode])
    if network is None:
        yield Fault(f"{path}.{mode}", f"must be a network such as 10.1.0.0/16, but is {pool[mode]!r}")
        return
    yield from _network_faults(pool, network, path) if mode == "network" else _subnet_faults(pool, network, path)
    yield from _range_faults(pool, network, path)
    for at, route in enumerate(pool.get("routes", [])):
        if _network(route["dst"]) is None:
            yield Fault(f"{path}.routes[{at}].dst", f"must be a network such as 0.0.0.0/0, but is {route['dst']!r}")
    if older is not None:
        yield from _change_faults(pool, network, path, mode, older)


def _chosen(spec: Spec) -> tuple[str, str]:
    """The field with the pool, and its mode."""
    (found,) = [name for name in NETWORKS + SUBNETS if name in spec]
    return found, "network" if found in NETWORKS else "subnet"


def _network(text: str) -> Network | None:
    """A network of the form ADDRESS/BITS. Python would take netmasks and zones, too, and an IPv4 address in an IPv6
    one has two families."""
    address, _, bits = text.rpartition("/")
    if _address(address) is None or not (bits.isascii() and bits.isdecimal() and len(bits) <= 3):
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    is_ambiguous = isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id)
    return None if is_ambiguous else found


def _network_faults(pool: Mapping[str, Any], network: Network, path: str) -> Iterator[Fault]:
    size = pool["prefixSize"]
    if not network.prefixlen <= size <= network.max_prefixlen or size == 0:
        yield Fault(f"{path}.prefixSize", f"must be from {network.prefixlen} to {network.max_prefixlen}, but is {size}")
        return
    for node, text in pool.get("allocations", {}).items():
        subnet = _network(text)
        if subnet is None or subnet.prefixlen != size or not _within(subnet.network_address, network):
            yield Fault(f"{path}.allocations.{node}", f"must be a /{size} of {network}, but is {text!r}")
    last = 2 ** (network.max_prefixlen - size) - 1
    if not 0 <= pool.get("gatewayIndex", 0) <= last:
        yield Fault(f"{path}.gatewayIndex", f"must be from 0 to {last} in a /{size}, but is {pool['gatewayIndex']}")
    yield from _share_faults(pool, "network", 2 ** (size - network.prefixlen), path)


def _subnet_faults(pool: Mapping[str, Any], network: Network, path: str) -> Iterator[Fault]:
    if network.prefixlen > network.max_prefixlen - 2:
        yield Fault(f"{path}.subnet", f"must have at least 4 addresses, but is {network}")
        return
    if not _is_within(pool["gateway"], network):
        yield Fault(f"{path}.gateway", f"must be an address in {network}, but is {pool['gateway']!r}")
    usable = network.num_addresses - (2 if network.version == 4 else 1)
    if not 1 <= pool["perNodeIPCount"] <= usable:
        yield Fault(f"{path}.perNodeIPCount", f"must be from 1 to {usable}, but is {pool['perNodeIPCount']}")
        return
    yield from _share_faults(pool, "subnet", usable // pool["perNodeIPCount"], path)


def _share_faults(pool: Mapping[str, Any], mode: str, available: int, path: str) -> Iterator[Fault]:
    share = pool.get(PER_CLUSTER[mode])
    if share is not None and not 1 <= share <= available:
        yield Fault(f"{path}.{PER_CLUSTER[mode]}", f"must be from 1 to {available}, but is {share}")


def _range_faults(pool: Mapping[str, Any], network: Network, path: str) -> Iterator[Fault]:
    for at, text in enumerate(pool.get("exclusions", [])):
        if not _is_within(text, network):
            yield Fault(f"{path}.exclusions[{at}]", f"must be an address in {network}, but is {text!r}")
    for at, ends in enumerate(pool.get("excludeRanges", [])):
        wrong = [end for end in ("startIP", "endIP") if not _is_within(ends[end], network)]
        for end in wrong:
            yield Fault(f"{path}.excludeRanges[{at}].{end}", f"must be an address in {network}, but is {ends[end]!r}")
        if not wrong and int(ipaddress.ip_address(ends["startIP"])) > int(ipaddress.ip_address(ends["endIP"])):
            yield Fault(f"{path}.excludeRanges[{at}].endIP", f"must not be below startIP, which is {ends['startIP']}")


def _change_faults(pool: Mapping[str, Any], network: Network, path: str, mode: str, older: Spec) -> Iterator[Fault]:
    field, earlier_mode = _chosen(older)
    earlier, before = older[field], _network(older[field][earlier_mode])
    if mode != earlier_mode or (before is not None and before.version != network.version):
        yield Fault(path, f"cannot replace {field}: make another DPUServiceIPAM for it")
        return
    if before is not None and not (_within(before[0], network) and _within(before[-1], network)):
        yield Fault(f"{path}.{mode}", f"must not shrink: {before} is in use")
    if pool[SIZE[mode]] != earlier[SIZE[mode]]:
        yield Fault(f"{path}.{SIZE[mode]}", f"is immutable, and was {earlier[SIZE[mode]]}")
    share, was = pool.get(PER_CLUSTER[mode]), earlier.get(PER_CLUSTER[mode])
    if (share is None) != (was is None):
        yield Fault(f"{path}.{PER_CLUSTER[mode]}", "cannot be added or removed later")
    elif share is not None and share < was:
        yield Fault(f"{path}.{PER_CLUSTER[mode]}", f"must not fall below {was}")


def _is_within(text: str, network: Network) -> bool:
    address = _address(text)
    return address is not None and _within(address, network)


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network
