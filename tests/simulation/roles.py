"""Which parts a process of the plane has, and how they are put together: all of them as in production."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from drivers.backends.bmc import Bmc
from drivers.forwarder import Forwarder
from drivers.provisioner import Provisioner
from drivers.relay import Relay
from drivers.replica_rules import ReplicaRules
from drivers.timers import Timers
from eventstore.beacons import Beacons
from eventstore.fold import Fold
from eventstore.log import EventLog
from eventstore.replica import Replica
from projections.cliques import CliqueFold
from projections.fleet import FleetFold
from projections.installs import InstallsFold
from projections.zone import ZoneFold
from tests.simulation.network import WiredBmc

if TYPE_CHECKING:
    from tests.simulation.process import Life, Process


FOLDED = {"api": {"zones", "fleet", "cliques", "installs"}, "relay": {"zones", "fleet"}, "provisioner": {"zones"}}
"""What a process with a role folds."""


def folds(partition_count: int, roles: Collection[str] = ("api",)) -> list[Fold[Any]]:
    """The folds of a process with these roles."""
    every: list[Fold[Any]] = [ZoneFold(), CliqueFold(), FleetFold(partition_count), InstallsFold()]
    return [fold for fold in every if any(fold.topic in FOLDED[role] for role in roles)]


def start_roles(process: Process, life: Life, log: EventLog) -> None:
    """Start everything in the task group of this life."""
    roles, now_ms, name = process.roles, process.now_ms, process.name

    def rng() -> random.Random:
        return random.Random(f"{process.rng.random()}")

    def connect(address: str) -> Bmc:
        return WiredBmc(process.bmcs.connect(address))

    mine = folds(log.partition_count, roles)
    replica = life.replica = Replica(
        log, mine, store=life.store, name=name, now_ms=now_ms, rng=rng(), creates="api" in roles
    )
    ranks = life.beacons = Beacons(log, replica, roles=sorted(roles), addresses={}, version="simulated", rng=rng())
    life.spawn(replica.run(), "replica")
    life.spawn(ranks.run(), "beacons")
    if "api" in roles:
        life.spawn(Forwarder(replica, ranks, now_ms=now_ms, rng=rng()).run(), "forwarder")
        life.spawn(Timers(replica, ranks, now_ms=now_ms, rng=rng()).run(), "timers")
    if "relay" in roles:
        life.relay = Relay(ReplicaRules(replica), name=name, now_ms=now_ms, rng=rng())
        life.spawn(_relay(replica, life.relay), "relay")
    if "provisioner" in roles:
        life.spawn(Provisioner(replica, ranks, connect, now_ms=now_ms, rng=rng()).run(), "provisioner")


async def _relay(replica: Replica, relay: Relay) -> None:
    """A relay distributes once its tables are those of the log."""
    await replica.ready()
    await relay.run()
