"""Faults of networks and clocks."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

NETWORK = (
    CatalogEntry(54, "a process and the brokers are cut off", ("real: cut from log", "simulated: isolation")),
    CatalogEntry(55, "requests arrive, responses are lost", ("real: log answers lost", "real: api answers lost")),
    CatalogEntry(
        56,
        "brokers see different majorities",
        ("real: brokers bridged", "real: broker isolated", "real: controller answers lost"),
    ),
    CatalogEntry(
        57,
        "cut off from devices only, or from an API server only",
        (
            "real: cut from devices",
            "real: device links half-open",
            "tests/integration/test_kubernetes_write_faults.py::"
            "test_a_server_that_was_away_stops_nothing_and_gets_one_write_per_changed_object",
        ),
    ),
    CatalogEntry(
        58,
        "loss, delay, duplication, reordering",
        ("real: packets lost", "real: frames delayed", "simulated: records that landed late"),
    ),
    CatalogEntry(
        59,
        "resets, half-open connections, single bytes, 20 kB a second",
        (
            "real: connections reset",
            "real: log half-open",
            "real: log byte by byte",
            "real: api byte by byte",
            "real: frames byte by byte",
            "real: low bandwidth",
        ),
    ),
    CatalogEntry(
        60, "names that resolve slowly, to no address, or not at all", lacks="the lab hosts have addresses and no names"
    ),
    CatalogEntry(
        61,
        "large packets vanish",
        ("real: large packets lost",),
        lacks="networks with IPv6 only",
    ),
    CatalogEntry(
        62,
        "clocks that jump",
        ("real: clock ahead", "real: clock behind", "real: clock strobes", "simulated: clock jump"),
    ),
    CatalogEntry(
        63,
        "a machine that was suspended without notice",
        ("real: role frozen", "real: all roles frozen"),
        lacks="five minutes of it: the tests take seconds, which exceeds every timeout of the plane",
    ),
    CatalogEntry(
        64,
        "a part of the machines is unreachable or loses packets",
        ("real: link down", "real: link flaps", "real: packets lost"),
    ),
)
