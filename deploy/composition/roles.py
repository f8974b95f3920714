"""The parts of a process by its roles: the folds that it reads, the replica, and the actors that react to the folds.

Only this module assembles these parts. `plane.py` passes a real log, clock and listeners; the simulation passes
simulated ones, and therefore runs the code of production.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from deploy.composition.topics import TOPICS
from drivers.backends.bmc import Connect
from drivers.decisions.buffer import DecisionBuffer
from drivers.forwarder import Forwarder
from drivers.internal_events import InternalEvents
from drivers.provisioning.attempts import Executor
from drivers.provisioning.device import DeviceExecutor
from drivers.provisioning.provisioner import Provisioner
from drivers.relays.delivery_hooks import DeliveryHooks
from drivers.relays.relay import Relay, RelaySettings
from drivers.relays.replica_rules import ReplicaRules
from drivers.timers import Timers
from eventstore.folding.fold import Fold
from eventstore.log import EventLog
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.tracing import LogTracing
from eventstore.state_store.store import StateStore
from projections.zones.dpus.phases import CLUSTER, DEVICE, NODE


@dataclass(frozen=True, slots=True)
class ActorContext:
    """The dependencies of an actor. `connect` connects to BMCs."""

    replica: Replica
    ranks: Ranks
    connect: Connect
    now_ms: Callable[[], int]
    rng: Callable[[], random.Random]


class Actor(Protocol):
    """A background task of a process: it reads the folds and appends internal events. Replicas with a later rank wait
    longer, so that usually only one of them acts.
    """

    @property
    def internal_events(self) -> InternalEvents: ...

    async def run(self) -> None: ...


ActorFactory: TypeAlias = Callable[[ActorContext], Actor]


def _forwarder(context: ActorContext) -> Actor:
    return Forwarder(context.replica, context.ranks, now_ms=context.now_ms, rng=context.rng())


def _timers(context: ActorContext) -> Actor:
    return Timers(context.replica, context.ranks, now_ms=context.now_ms, rng=context.rng())


def _provisioner(context: ActorContext) -> Actor:
    executors = {name: make(context) for name, make in EXECUTORS.items()}
    return Provisioner(context.replica, context.ranks, executors, now_ms=context.now_ms, rng=context.rng())


def _device(context: ActorContext) -> Executor:
    return DeviceExecutor(context.connect)


EXECUTORS: Mapping[str, Callable[[ActorContext], Executor]] = {
    DEVICE: _device,
    NODE: _device,
    CLUSTER: _device,
}
"""Executors of lifecycle steps by name. The steps of a node and of a DPU cluster have the executor of the device,
because a simulated device stands for all three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One role of a process. The topics that the role reads (topics.py) determine its folds."""

    creates_log: bool = False
    """Whether the role may create a new log. Only a role that accepts commands may."""
    listener: str | None = None
    """The setting with the address on which the role listens, besides `http`."""
    is_child: bool = False
    """Whether a process with every role starts a child process for this role, which folds at its own pace. This needs
    Kafka: an embedded log belongs to one process."""
    needs: str | None = None
    """The setting that the role requires. A process with every role omits this role if the setting is not given."""
    actors: Mapping[str, ActorFactory] = field(default_factory=dict)
    """The actors of the role by name."""


ALL_ROLES = "all"
"""The role of a process that has every role."""

ROLES: Mapping[str, Role] = {
    "api": Role(creates_log=True, listener="listen", actors={"forwarder": _forwarder, "timers": _timers}),
    "relay": Role(listener="agents"),
    "provisioner": Role(actors={"provisioner": _provisioner}),
    "decisions": Role(is_child=True),
    "kubernetes": Role(needs="kubeconfig"),
}


def roles_named(name: str) -> tuple[str, ...]:
    """The roles of a process with this role in its settings, and of its child processes."""
    return tuple(ROLES) if name == ALL_ROLES else (name,)


def roles_in_process(name: str, is_set: Callable[[str], bool]) -> tuple[str, ...]:
    """The roles of a process with this role in its settings. The roles of child processes are left out, and so
    are roles whose required setting is not given."""
    if name != ALL_ROLES:
        return (name,)
    return tuple(name for name, role in ROLES.items() if not role.is_child and (not role.needs or is_set(role.needs)))


def creates_log(roles: Collection[str]) -> bool:
    """Whether a process with these roles may create a new log."""
    return any(ROLES[role].creates_log for role in roles)


def folds_of(partition_count: int, roles: Collection[str] | None = None) -> list[Fold[Any]]:
    """The folds that a process with these roles reads; without roles, every fold."""
    wanted = [spec for spec in TOPICS if roles is None or not spec.readers.isdisjoint(roles)]
    return [make(partition_count) for spec in wanted for make in spec.folds]


def replica_of(
    roles: Collection[str],
    log: EventLog,
    store: StateStore,
    name: str,
    *,
    now_ms: Callable[[], int],
    rng: random.Random,
    decisions: DecisionBuffer | None = None,
    tracing: LogTracing | None = None,
) -> Replica:
    """The replica of a process. Only a replica that accepts commands may create a new log. A replica with a buffer of
    decisions folds only as fast as the writer of decisions empties the buffer."""
    return Replica(
        log,
        folds_of(log.partition_count, roles),
        store=store,
        name=name,
        now_ms=now_ms,
        rng=rng,
        creates=creates_log(roles),
        sink=decisions,
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
    """The relay of a process. It serves every zone unless `zones` names some."""
    settings = RelaySettings(zones=zones)
    rules = ReplicaRules(replica)
    return Relay(rules, name=replica.name, now_ms=now_ms, rng=rng, settings=settings, delivery=delivery)


def actors_of(roles: Collection[str], context: ActorContext) -> dict[str, Actor]:
    """The actors of a process with these roles, by name, in the order of the table: `roles` may be a set."""
    own = [role for name, role in ROLES.items() if name in roles]
    return {name: make(context) for role in own for name, make in role.actors.items()}
