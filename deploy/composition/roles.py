"""The parts of a process by its roles: the folds that it reads, the replica, and the actors that react to the folds.

Only this module assembles these parts. `plane.py` passes a real log, clock and listeners; the simulation passes
simulated ones, and therefore runs the code of production.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from deploy.composition.executors import EXECUTORS, StepParts, accepts_of, parts_of, sweeps_of
from deploy.composition.host_connections import HostConnections
from deploy.composition.topics import TOPICS
from drivers.backends.bmc import Connect
from drivers.decisions.buffer import DecisionBuffer
from drivers.discovery.discoverer import Discoverer
from drivers.discovery.prober import Prober
from drivers.forwarder import Forwarder
from drivers.internal_events import InternalEvents
from drivers.provisioning.attempts import Executor
from drivers.provisioning.device import UrlOf, no_url
from drivers.provisioning.host_taints import HostTaints
from drivers.provisioning.maintenance_sweep import MaintenanceSweep
from drivers.provisioning.node_labels import NodeLabels
from drivers.provisioning.provisioner import Provisioner
from drivers.relays.delivery_hooks import DeliveryHooks
from drivers.relays.relay import Relay, RelaySettings
from drivers.relays.replica_networks import ReplicaNetworks
from drivers.relays.replica_rules import ReplicaRules
from drivers.resources.handover import Handover
from drivers.resources.network_stages import NetworkStages
from drivers.resources.networks import Networks
from drivers.resources.partition_task import PartitionTask, ResourcesActor, TaskContext
from drivers.resources.rollouts import Rollouts
from drivers.stages import Stages
from drivers.timers import Timers
from eventstore.folding.fold import Fold
from eventstore.log import EventLog
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API, DECISION_WRITER, KUBERNETES, PROVISIONER, RELAY
from eventstore.replicas.tracing import LogTracing
from eventstore.state_store.store import StateStore


@dataclass(frozen=True, slots=True)
class ActorContext:
    """The dependencies of an actor. `connect` connects to BMCs, `hosts` to the hosts and clusters of DPUs, `prober`
    searches for BMCs if the process can, `url_of` gives the URLs of installations, and `installers` are those of real
    devices, by the scheme of their addresses."""

    replica: Replica
    ranks: Ranks
    connect: Connect
    hosts: HostConnections
    now_ms: Callable[[], int]
    rng: Callable[[], random.Random]
    prober: Prober | None = None
    url_of: UrlOf = no_url
    installers: Mapping[str, Executor] = field(default_factory=dict)


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


def _rollouts(context: ActorContext) -> Actor:
    return _resources_actor(partial(Rollouts, rng=context.rng()), context)


def _handover(context: ActorContext) -> Actor:
    return _resources_actor(partial(Handover, rng=context.rng()), context)


def _networks(context: ActorContext) -> Actor:
    return _resources_actor(Networks, context)


def _network_stages(context: ActorContext) -> Actor:
    return _resources_actor(NetworkStages, context)


def _resources_actor(make_task: Callable[[TaskContext], PartitionTask], context: ActorContext) -> Actor:
    return ResourcesActor(make_task, context.replica, context.ranks, now_ms=context.now_ms)


def _timers(context: ActorContext) -> Actor:
    return Timers(context.replica, context.ranks, now_ms=context.now_ms, rng=context.rng())


def _stages(context: ActorContext) -> Actor:
    return Stages(context.replica, context.ranks, now_ms=context.now_ms, rng=context.rng())


def _provisioner(context: ActorContext) -> Actor:
    return _provisioner_of(context, with_device=True)


def _host_steps(context: ActorContext) -> Actor:
    """The steps on hosts and in DPU clusters, in a process that is connected to their source cluster."""
    return _provisioner_of(context, with_device=False)


def _maintenance_sweep(context: ActorContext) -> Actor:
    return _sweep_of(context, with_device=True)


def _cluster_sweep(context: ActorContext) -> Actor:
    """The sweep of the maintenances of source clusters, in a process that is connected to them."""
    return _sweep_of(context, with_device=False)


def _sweep_of(context: ActorContext, *, with_device: bool) -> Actor:
    parts = _parts_of(context)
    return MaintenanceSweep(
        context.replica,
        context.ranks,
        parts.maintenances,
        parts.facts,
        accepts=sweeps_of(context.hosts, with_device=with_device),
        role=_role_of_steps(with_device=with_device),
        rng=context.rng(),
    )


def _host_taints(context: ActorContext) -> Actor:
    return _taints_of(context, with_device=True)


def _cluster_taints(context: ActorContext) -> Actor:
    """The taints of hosts in source clusters, in a process that is connected to them."""
    return _taints_of(context, with_device=False)


def _taints_of(context: ActorContext, *, with_device: bool) -> Actor:
    return HostTaints(
        context.replica,
        context.ranks,
        context.hosts.host,
        accepts=sweeps_of(context.hosts, with_device=with_device),
        role=_role_of_steps(with_device=with_device),
        rng=context.rng(),
    )


def _role_of_steps(*, with_device: bool) -> str:
    return PROVISIONER if with_device else KUBERNETES


def _parts_of(context: ActorContext) -> StepParts:
    return parts_of(
        context.replica,
        context.connect,
        context.hosts,
        context.url_of,
        now_ms=context.now_ms,
        rng=context.rng(),
        installers=context.installers,
    )


def _node_labels(context: ActorContext) -> Actor:
    parts = _parts_of(context)
    rng = context.rng()
    return NodeLabels(
        context.replica, context.ranks, parts.nodes, parts.maintenances, parts.facts, role=KUBERNETES, rng=rng
    )


def _provisioner_of(context: ActorContext, *, with_device: bool) -> Actor:
    parts = replace(_parts_of(context), has_devices=with_device)
    return Provisioner(
        context.replica,
        context.ranks,
        {name: make(parts) for name, make in EXECUTORS.items()},
        now_ms=context.now_ms,
        rng=context.rng(),
        accepts=accepts_of(parts),
        role=_role_of_steps(with_device=with_device),
    )


def _discovery(context: ActorContext) -> Actor:
    return Discoverer(context.replica, context.ranks, context.prober, now_ms=context.now_ms, rng=context.rng())


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
    API: Role(
        creates_log=True,
        listener="listen",
        actors={
            "forwarder": _forwarder,
            "handover": _handover,
            "network_stages": _network_stages,
            "networks": _networks,
            "rollouts": _rollouts,
            "stages": _stages,
            "timers": _timers,
        },
    ),
    RELAY: Role(listener="agents"),
    PROVISIONER: Role(
        listener="images",
        actors={
            "provisioner": _provisioner,
            "maintenance_sweep": _maintenance_sweep,
            "host_taints": _host_taints,
            "discovery": _discovery,
        },
    ),
    DECISION_WRITER: Role(is_child=True),
    KUBERNETES: Role(
        needs="kubeconfig",
        actors={
            "provisioner": _host_steps,
            "maintenance_sweep": _cluster_sweep,
            "host_taints": _cluster_taints,
            "node_labels": _node_labels,
        },
    ),
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
    rules, networks = ReplicaRules(replica), ReplicaNetworks(replica)
    return Relay(
        rules, name=replica.name, now_ms=now_ms, rng=rng, settings=settings, delivery=delivery, networks=networks
    )


def actors_of(roles: Collection[str], context: ActorContext) -> dict[str, Actor]:
    """The actors of a process with these roles, by name, in the order of the table: `roles` may be a set. If two actors
    have one name, the process has the first."""
    makers: dict[str, ActorFactory] = {}
    for actor, make in (each for name, role in ROLES.items() if name in roles for each in role.actors.items()):
        makers.setdefault(actor, make)
    return {name: make(context) for name, make in makers.items()}
