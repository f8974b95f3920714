"""Faults of networks and clocks."""

from __future__ import annotations

from tests.faults.catalog.entry import NO_KUBERNETES, CatalogEntry

NETWORK = (
    CatalogEntry(54, "a process and the brokers are cut off", ("real: cut from log", "simulated: isolation")),
    CatalogEntry(55, "requests pass, answers are lost", ("real: log answers lost", "real: api answers lost")),
    CatalogEntry(
        56,
        "brokers see different majorities",
        ("real: brokers bridged", "real: broker isolated", "real: controllers deaf"),
    ),
    CatalogEntry(
        57,
        "cut off from devices only",
        ("real: cut from devices", "real: device links half-open"),
        lacks=f"cut off from an API server only: {NO_KUBERNETES}",
    ),
    CatalogEntry(
        58,
        "loss, delay, repetition, another order",
        ("real: packets lost", "real: frames delayed", "simulated: records that landed late"),
    ),
    CatalogEntry(
        59,
        "resets, half-open connections, single bytes, 20 kB a second",
        (
            "real: connections reset",
            "real: log half-open",
            "real: log in crumbs",
            "real: api in crumbs",
            "real: frames in crumbs",
            "real: narrow network",
        ),
    ),
    CatalogEntry(
        60, "names that do not resolve, or late, or to nothing", lacks="hosts here have addresses and no names"
    ),
    CatalogEntry(
        61,
        "large packets vanish",
        ("real: large packets lost",),
        lacks="networks of IPv6 only",
    ),
    CatalogEntry(
        62,
        "clocks that jump",
        ("real: clock ahead", "real: clock behind", "real: clock strobes", "simulated: clock jump"),
    ),
    CatalogEntry(
        63,
        "a machine that stood still and knows it not",
        ("real: role frozen", "real: all roles frozen"),
        lacks="five minutes of it: the longest here is seconds, which is more than anybody waits for anybody",
    ),
    CatalogEntry(
        64, "a part of the machines is gone or lossy", ("real: cable pulled", "real: cable flaps", "real: packets lost")
    ),
)
