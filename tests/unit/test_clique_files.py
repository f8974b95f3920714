"""Peers file, hosts mapping and reload signal: exact texts, and properties over generated histories of a clique."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from projections.cliques.files import (
    FREE_SLOT_ADDRESS,
    SIGNAL_INTERVAL_MS,
    Reload,
    dns_name,
    hosts_mapping,
    merge_hosts,
    peers_file,
    reload,
    slot_addresses,
)
from tests.support.cliques import CliquesPartition

SLOTS = st.tuples(*[st.sampled_from([FREE_SLOT_ADDRESS, "10.0.0.1", "10.0.0.2"])] * 3)


def test_a_name_has_the_hash_of_kubernetes() -> None:
    """FNV-1a of "foobar" is 3214735720. Kubernetes replaces the digits 0 to 9 by 4 5 6 7 8 9 b c d f."""
    assert dns_name("foobar", 7) == "compute-domain-daemon-7658c79c64-0007"


@given(st.text(min_size=1))
def test_names_are_dns_labels(domain: str) -> None:
    assert re.fullmatch(r"compute-domain-daemon-[4-9bcdf]{1,10}-4095", dns_name(domain, 4_095))


def test_the_peers_file_has_one_line_per_slot() -> None:
    lines = peers_file("d", 18).splitlines()
    assert lines == [dns_name("d", index) for index in range(18)]
    assert peers_file("d", 4_096).count("\n") == 4_096


def test_slots_without_a_daemon_or_without_an_address_stay_on_the_machine() -> None:
    log = CliquesPartition()
    assert log.state.cliques == {}
    assert slot_addresses(log.state, "d", "c") == ()
    log.resize(3)
    log.claim("a", "u")
    log.claim("b", "v", address="2001:db8::2")
    assert log.slot_addresses() == (FREE_SLOT_ADDRESS, "2001:db8::2", FREE_SLOT_ADDRESS)


def test_merging_replaces_the_lines_of_upstream() -> None:
    old = "127.0.0.1 localhost\n" + "# Compute Domain Daemon mappings\n" * 3 + "10.0.0.9\tcompute-domain-daemon-0000\n"
    assert merge_hosts(old, hosts_mapping("foobar", ("10.0.0.1",))) == (
        "127.0.0.1 localhost\n# Compute Domain Daemon mappings\n10.0.0.1\tcompute-domain-daemon-7658c79c64-0000\n"
    )


@given(st.lists(st.tuples(st.integers(0, 4_000), SLOTS), max_size=40))
def test_signals_keep_apart_and_the_last_state_is_signalled(steps: list[tuple[int, tuple[str, ...]]]) -> None:
    state, now_ms, sent = Reload(), 0, list[int]()
    current: tuple[str, ...] = (FREE_SLOT_ADDRESS,) * 3
    for pause_ms, following in steps:
        due = now_ms + pause_ms
        if state.wake_ms is not None and state.wake_ms <= due:
            now_ms = state.wake_ms
            state, is_due = reload(state, current, now_ms)
            sent += [now_ms] * is_due
        now_ms, current = due, following
        state, is_due = reload(state, current, now_ms)
        sent += [now_ms] * is_due
    if state.wake_ms is not None:
        state, is_due = reload(state, current, state.wake_ms)
        assert is_due
    assert state.wake_ms is None
    assert all(
        now in (FREE_SLOT_ADDRESS, then)
        for now, then in zip(
            current, (*state.resolved, FREE_SLOT_ADDRESS, FREE_SLOT_ADDRESS, FREE_SLOT_ADDRESS), strict=False
        )
    )
    assert all(later - earlier >= SIGNAL_INTERVAL_MS for earlier, later in itertools.pairwise(sent))


def test_a_peer_that_comes_back_at_its_address_needs_no_signal_until_names_were_read_without_it() -> None:
    state, _ = reload(Reload(), ("10.0.0.1", FREE_SLOT_ADDRESS), 0)
    state, is_due = reload(state, (FREE_SLOT_ADDRESS, FREE_SLOT_ADDRESS), 10_000)
    assert not is_due
    _, is_due = reload(state, ("10.0.0.1", FREE_SLOT_ADDRESS), 20_000)
    assert not is_due
    state, is_due = reload(state, (FREE_SLOT_ADDRESS, "10.0.0.2"), 30_000)
    assert is_due
    _, is_due = reload(state, ("10.0.0.1", "10.0.0.2"), 40_000)
    assert is_due
