"""What a process with some roles consists of: the folds it reads, the replica, and the parts that act on what they say.

The one place where they are put together. `plane.py` gives them real listeners, a real log and a real clock; the
simulation gives them simulated ones, so that what runs there is what runs in production.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from deploy.topics import TOPICS
from drivers.backends.bmc import Connect
from drivers.decisions.missed import Earlier, nothing_earlier
from drivers.decisions.owed import Owed, Room
from drivers.decisions.writer import DecisionWriter
from drivers.forwarder import Forwarder
from drivers.provisioning.provisioner import Provisioner
from drivers.relays.delivery_hooks import DeliveryHooks
from drivers.relays.relay import Relay, RelaySettings
from drivers.relays.replica_rules import ReplicaRules
from drivers.timers import Timers
from eventstore.folding.fold import Fold
from eventstore.log import EventLog, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.tracing import LogTracing
from eventstore.state_store.store import StateStore
from projections.decisions.decided import DECIDED_TOPICS

ROLES = ("api", "relay", "provisioner")


@dataclass(slots=True)
class Actors:
    """What a process does by rank, as far as its roles have it. Each is to be run until it ends, and carries counts."""

    forwarder: Forwarder | None = None
    decisions: DecisionWriter | None = None
    timers: Timers | None = None
    provisioner: Provisioner | None = None

    def named(self) -> dict[str, Forwarder | DecisionWriter | Timers | Provisioner]:
        """Those that are there, by name."""
        every = {
            "forwarder": self.forwarder,
            "decisions": self.decisions,
            "timers": self.timers,
            "provisioner": self.provisioner,
        }
        return {name: actor for name, actor in every.items() if actor is not None}


def folds_of(partition_count: int, roles: Collection[str] = ROLES) -> list[Fold[Any]]:
    """The folds that a process with these roles reads."""
    return [make(partition_count) for spec in TOPICS if not spec.readers.isdisjoint(roles) for make in spec.folds]


def replica_of(
    roles: Collection[str],
    log: EventLog,
    store: StateStore,
    name: str,
    *,
    now_ms: Callable[[], int],
    rng: random.Random,
    decisions: bool = True,
    tracing: LogTracing | None = None,
) -> Replica:
    """The replica of a process. Only one that takes commands may make a new log, and spells out what is decided."""
    folds, takes_commands, room = folds_of(log.partition_count, roles), "api" in roles, Room()

    def listener_for(partition: Partition) -> Owed | None:
        return Owed(room) if decisions and takes_commands and partition.topic in DECIDED_TOPICS else None

    return Replica(
        log,
        folds,
        store=store,
        name=name,
        now_ms=now_ms,
        rng=rng,
        creates=takes_commands,
        listener_for=listener_for,
        tracing=tracing,
    )


def relay_of(
    replica: Replica,
    *,
    now_ms: Callable[[], int],
    rng: random.Random,
    zones: frozenset[str] = frozenset(),
    delivery: DeliveryHooks | None = None,
) -> Relay:
    """The relay of a process, for every zone unless some are named."""
    settings = RelaySettings(zones=zones)
    rules = ReplicaRules(replica)
    return Relay(rules, name=replica.name, now_ms=now_ms, rng=rng, settings=settings, delivery=delivery)


def actors_of(
    roles: Collection[str],
    replica: Replica,
    ranks: Ranks,
    connect: Connect,
    *,
    now_ms: Callable[[], int],
    rng: Callable[[], random.Random],
    earlier: Earlier = nothing_earlier,
) -> Actors:
    """What a process with these roles does by rank. `connect` reaches BMCs, `earlier` saved states."""
    actors = Actors()
    if "api" in roles:
        actors.forwarder = Forwarder(replica, ranks, now_ms=now_ms, rng=rng())
        owed = {part: heard for part, heard in replica.listeners.items() if isinstance(heard, Owed)}
        if owed:
            actors.decisions = DecisionWriter(replica, owed, ranks, now_ms=now_ms, rng=rng(), earlier=earlier)
        actors.timers = Timers(replica, ranks, now_ms=now_ms, rng=rng())
    if "provisioner" in roles:
        actors.provisioner = Provisioner(replica, ranks, connect, now_ms=now_ms, rng=rng())
    return actors
