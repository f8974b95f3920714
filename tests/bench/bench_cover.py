"""The exact cover of addresses: whole, against the standard library and netaddr, and under a single change."""

from __future__ import annotations

import ipaddress

import netaddr
import numpy as np

from projections.rules.prefixes import WIDTH4, Cover, Net, cover4, cover6
from tests.bench.figures import Figure, median_seconds

COUNT = 200_000
BASE4 = 0x0A000000
HIGH6 = 0xFD00_0000_0000_0000


def figures() -> list[Figure]:
    rng = np.random.default_rng(7)
    offsets = np.sort(rng.permutation(int(COUNT / 0.95))[:COUNT])
    return [*_whole4(offsets), *_whole6(offsets), *(_single(size) for size in (1_000, 1_000_000))]


def _whole4(offsets: np.ndarray) -> list[Figure]:
    addresses = (offsets + BASE4).astype(np.uint32)
    objects = [ipaddress.IPv4Network(int(address)) for address in addresses]
    ours = median_seconds(lambda: cover4(addresses)) * 1e3
    standard = median_seconds(lambda: list(ipaddress.collapse_addresses(objects)), runs=1) * 1e3
    texts = [str(address) for address in objects]
    other = median_seconds(lambda: netaddr.cidr_merge(texts), runs=1) * 1e3
    name = "cover of 200,000 IPv4 addresses, 5 % holes"
    return [
        Figure(name, ours, "ms", standard, "ipaddress", 5.0, "lower"),
        Figure(name, ours, "ms", other, "netaddr", 5.0, "lower"),
    ]


def _whole6(offsets: np.ndarray) -> list[Figure]:
    low = offsets.astype(np.uint64)
    high = np.full(len(low), HIGH6, np.uint64)
    ours = median_seconds(lambda: cover6(high, low)) * 1e3
    objects = [ipaddress.IPv6Network((HIGH6 << 64) + int(address)) for address in low]
    standard = median_seconds(lambda: list(ipaddress.collapse_addresses(objects)), runs=1) * 1e3
    return [Figure("cover of 200,000 IPv6 addresses, 5 % holes", ours, "ms", standard, "ipaddress", 50.0, "lower")]


def _single(size: int) -> Figure:
    """One address removed and added again in the middle of `size` contiguous ones: the longest update path."""
    addresses = np.arange(BASE4, BASE4 + size, dtype=np.uint32)
    cover = Cover(WIDTH4, cover4(addresses).tolist())
    changed = BASE4 + size // 2

    def change() -> None:
        net = Net()
        cover.remove(changed, net)
        cover.add(changed, net)

    ours = median_seconds(change, runs=101) / 2 * 1e3
    whole = median_seconds(lambda: cover4(addresses)) * 1e3
    return Figure(f"one change among {size:,} addresses", ours, "ms", whole, "cover anew", 1.0, "lower")
