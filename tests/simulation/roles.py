"""Which parts a process of the plane has, and how they are put together: all of them as in production."""

from __future__ import annotations

import random
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


def folds(partition_count: int) -> list[Fold[Any]]:
    """All folds of the plane."""
    return [ZoneFold(), CliqueFold(), FleetFold(partition_count), InstallsFold()]


def start_roles(process: Process, life: Life, log: EventLog) -> None:
    """Start everything in the task group of this life."""

    def rng() -> random.Random:
        return random.Random(f"{process.rng.random()}")

    now_ms = process.now_ms
    life.replica = Replica(
        log, folds(log.partition_count), store=life.store, name=process.name, now_ms=now_ms, rng=rng()
    )
    life.beacons = Beacons(
        log, life.replica, roles=sorted(process.roles), addresses={}, version="simulated", rng=rng()
    )
    life.spawn(life.replica.run(), "replica")
    life.spawn(life.beacons.run(), "beacons")
    ranks = life.beacons
    life.relay = Relay(ReplicaRules(life.replica), name=process.name, now_ms=now_ms, rng=rng())
    life.spawn(_relay(life), "relay")

    def connect(address: str) -> Bmc:
        return WiredBmc(process.bmcs.connect(address))

    provisioner = Provisioner(life.replica, ranks, connect, now_ms=now_ms, rng=rng())
    life.spawn(provisioner.run(), "provisioner")
    life.spawn(Forwarder(life.replica, ranks, now_ms=now_ms, rng=rng()).run(), "forwarder")
    life.spawn(Timers(life.replica, ranks, now_ms=now_ms, rng=rng()).run(), "timers")


async def _relay(life: Life) -> None:
    """A relay distributes once its tables are those of the log."""
    await life.replica.ready()
    await life.relay.run()
