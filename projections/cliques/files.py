"""Files of a clique's daemons: the peers file and the hosts mapping; and the reload signals.

The peers file names every slot of the clique, taken or free, and never changes while daemons run: a daemon finds its
own index in it at start. Only the address of a name changes, in the hosts file: one line per slot, a free slot at
127.0.0.2, so that no lookup leaves the machine. Names contain a hash of the domain, as upstream's do since #1448. So if
an address is reused, daemons of two domains that meet at it refuse each other.

On a signal, the daemon (IMEX) resolves the names again. It ignores a signal that comes within 5 s of the previous one.
So signals are coalesced: the first change is signalled at once, later changes in the window together at its end, and
the final state always. Slots that only became free need no signal.
"""

from __future__ import annotations

import msgspec

from projections.cliques.state import CliquesState, clique_key

FREE_SLOT_ADDRESS = "127.0.0.2"
"""Address of a slot without a daemon; upstream's choice (#1465)."""

SIGNAL_INTERVAL_MS = 5_250
"""Minimum time between two signals: the daemon's 5 s, and a margin for a timer that fires early."""

_PREFIX = "compute-domain-daemon-"
_HEADER = "# Compute Domain Daemon mappings"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def dns_name(domain: str, index: int) -> str:
    return f"{_PREFIX}{_domain_hash(domain)}-{index:04d}"


def slot_addresses(state: CliquesState, domain: str, clique: str) -> tuple[str, ...]:
    """The address of each index, FREE_SLOT_ADDRESS where there is none. Empty for an unknown clique."""
    key = clique_key(domain, clique)
    found = state.cliques.get(key)
    if found is None:
        return ()
    addresses = [FREE_SLOT_ADDRESS] * found.capacity
    for index, node in found.holders.items():
        addresses[index] = state.members.rows[f"{key}/{node}"].address or FREE_SLOT_ADDRESS
    return tuple(addresses)


def peers_file(domain: str, capacity: int) -> str:
    """The daemon's nodes config: one DNS name per slot."""
    return "".join(f"{dns_name(domain, index)}\n" for index in range(capacity))


def hosts_mapping(domain: str, addresses: tuple[str, ...]) -> str:
    """One line per slot: its address and its DNS name."""
    return "".join(f"{address}\t{dns_name(domain, index)}\n" for index, address in enumerate(addresses))


def merge_hosts(existing: str, mapping: str) -> str:
    """A hosts file with the managed mapping replaced by this one, and every other line unchanged."""
    foreign = [line for line in existing.splitlines() if _PREFIX not in line and line != _HEADER]
    kept = "".join(f"{line}\n" for line in foreign)
    return f"{kept}{_HEADER}\n{mapping}"


class Reload(msgspec.Struct, frozen=True):
    """The slots at the last signal, its time, and the time of the next check (None: at the next change)."""

    resolved: tuple[str, ...] = ()
    signalled_ms: int | None = None
    wake_ms: int | None = None


def reload(state: Reload, addresses: tuple[str, ...], now_ms: int) -> tuple[Reload, bool]:
    """The state of reloads after this call, and whether to signal the daemon now. `addresses` are the present slots.
    Call it after each change, and at `wake_ms`."""
    if not _needs_signal(state.resolved, addresses):
        return msgspec.structs.replace(state, wake_ms=None), False
    if state.signalled_ms is not None and now_ms < state.signalled_ms + SIGNAL_INTERVAL_MS:
        return msgspec.structs.replace(state, wake_ms=state.signalled_ms + SIGNAL_INTERVAL_MS), False
    return Reload(addresses, now_ms, None), True


def _needs_signal(resolved: tuple[str, ...], addresses: tuple[str, ...]) -> bool:
    """Whether a daemon that resolved names at the last signal would miss or confuse a peer."""
    known = resolved + (FREE_SLOT_ADDRESS,) * (len(addresses) - len(resolved))
    return any(now not in (FREE_SLOT_ADDRESS, then) for now, then in zip(addresses, known, strict=False))


def _domain_hash(domain: str) -> str:
    """The FNV-1a hash of the uid in decimal, re-encoded without vowels, as in Kubernetes' pod-template-hash."""
    value = 0x811C9DC5
    for byte in domain.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(value))
