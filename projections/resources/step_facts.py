"""The facts of the objects that the steps of a DPU need: its host and the effect on it, its cluster, its node's labels.

A DPU that no object wants, for example one that an operator registered, has no facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from projections.resources.derivation import Derivation
from projections.resources.durations import duration_ms
from projections.resources.host_effects import Effect, effect_of
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU, DPU_CLUSTER, DPU_NODE, NODE
from projections.resources.specs import JSON, Labels, Named, Spec, read
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from schemas.resources.dpf.names import (
    HOST,
    HOST_POWER_CYCLE_REQUIRED,
    POWER_CYCLE_COMMAND,
    REBOOT_COMMAND,
)

HOST_AGENT, EXTERNAL, SCRIPT, NONE = "hostAgent", "external", "script", "none"
SKIP = "skip"
DEFAULT_MTU = 1_500
LABEL_MAX = 63
"""Maximum length of the value of a label."""
DEFAULT_SYNC_MS = 30_000
DEFAULT_HOSTS_MAX = 50
"""Both defaults are DPF's."""


class _Controller(Spec, frozen=True):
    sync: str | None = msgspec.field(default=None, name="multiDPUOperationsSyncWaitTime")
    hosts_max: int | None = msgspec.field(default=None, name="maxUnavailableDPUNodes")


class _Networking(Spec, frozen=True):
    high_speed_mtu: int | None = msgspec.field(default=None, name="highSpeedMTU")


class _OperatorConfigSpec(Spec, frozen=True):
    provisioning_controller: _Controller | None = None
    networking: _Networking | None = None


class _RebootMethod(Spec, frozen=True):
    external: JSON | None = None
    script: Named | None = None
    none: JSON | None = None


class _NodeSpec(Spec, frozen=True):
    node_reboot_method: _RebootMethod | None = None


class _ClusterRef(Spec, frozen=True):
    name: str | None = None
    namespace: str | None = None
    node_labels: Labels | None = None
    node_annotations: Labels | None = None


class _DPUSpec(Spec, frozen=True):
    dpu_node_name: str | None = None
    node_name: str | None = None
    node_effect: JSON | None = None
    cluster: _ClusterRef | None = None


class HostRef(NamedTuple):
    """A host: the object that stands for it, a DPUNode, or a Node in the form of release 24.10."""

    at: ObjectId
    namespace: str
    """The namespace of the objects about the host."""
    is_external: bool
    """Whether the host is a node of the Kubernetes cluster that the objects come from."""

    @property
    def name(self) -> str:
        return self.at.name


class HostReboot(NamedTuple):
    """How a host is rebooted. `script` names the ConfigMap of the method script. `command` is cycle, reset or skip,
    and empty if nobody states it."""

    method: str
    script: str = ""
    command: str = ""


class MaintenanceLimits(NamedTuple):
    """`sync_ms` is the time that a maintenance waits for other DPUs of the host. At most `hosts_max` hosts of a source
    are in maintenance."""

    sync_ms: int = DEFAULT_SYNC_MS
    hosts_max: int = DEFAULT_HOSTS_MAX


class StepFacts(NamedTuple):
    """The facts that the objects state about a DPU.

    `cluster` is the key of its DPUCluster, empty while it has none. `mtu` is that of the ports of DPUs on hosts.
    """

    key: str
    host: HostRef
    effect: Effect
    reboot: HostReboot
    limits: MaintenanceLimits
    needs_power_cycle: bool
    cluster: str
    node_labels: Labels
    node_annotations: Labels
    mtu: int = DEFAULT_MTU


def step_facts(state: ResourcesState, derivation: Derivation, dpu: str) -> StepFacts | None:
    """The facts of a DPU in one partition; None if no object of it wants the DPU."""
    key = next(_keys(derivation, dpu), None)
    if key is None:
        return None
    wanted, at = derivation.dpus.winners[key], object_id(key)
    spec = msgspec.convert(wanted.spec, _DPUSpec)
    host = _host(at, spec, state.objects.rows)
    cluster = spec.cluster or _ClusterRef()
    return StepFacts(
        key,
        host,
        effect_of(spec.node_effect),
        _reboot(host, state.objects.rows),
        limits_of(state, at.source),
        wanted.annotations.get(HOST_POWER_CYCLE_REQUIRED, "false").lower() == "true",
        _cluster(at, cluster),
        ({HOST: host.name} if len(host.name) <= LABEL_MAX else {}) | (cluster.node_labels or {}),
        cluster.node_annotations or {},
        mtu_of(state, at.source),
    )


def limits_of(state: ResourcesState, source: str) -> MaintenanceLimits:
    """The limits of maintenances of a source, as its DPFOperatorConfig states them."""
    for key in state.of_kind(source, DPF_OPERATOR_CONFIG):
        spec = read(_OperatorConfigSpec, state.objects.rows[key])
        if isinstance(spec, str) or spec.provisioning_controller is None:
            continue
        given = spec.provisioning_controller
        sync_ms = duration_ms(given.sync) if given.sync is not None else None
        return MaintenanceLimits(DEFAULT_SYNC_MS if sync_ms is None else sync_ms, given.hosts_max or DEFAULT_HOSTS_MAX)
    return MaintenanceLimits()


def mtu_of(state: ResourcesState, source: str) -> int:
    """The MTU of the ports of DPUs on hosts of a source, as its DPFOperatorConfig states it."""
    for key in state.of_kind(source, DPF_OPERATOR_CONFIG):
        spec = read(_OperatorConfigSpec, state.objects.rows[key])
        if not isinstance(spec, str) and spec.networking is not None and spec.networking.high_speed_mtu:
            return spec.networking.high_speed_mtu
    return DEFAULT_MTU


def _keys(derivation: Derivation, dpu: str) -> Iterator[str]:
    """The keys of wanted DPUs of this name. DPUSets of several namespaces may want one each; the first has it."""
    places = {(each.at.source, each.at.namespace): None for each in derivation.sets.values()}
    for source, namespace in sorted(places):
        key = ObjectId(source, DPU, namespace, dpu).key
        if key in derivation.dpus.winners:
            yield key


def _host(at: ObjectId, spec: _DPUSpec, rows: Mapping[str, Resource]) -> HostRef:
    name = spec.dpu_node_name or spec.node_name or ""
    node = ObjectId(at.source, DPU_NODE, at.namespace, name)
    if node.key not in rows and spec.node_name:
        node = ObjectId(at.source, NODE, "", name)
    row = rows.get(node.key)
    return HostRef(node, at.namespace, row is not None and row.is_external)


def _reboot(host: HostRef, rows: Mapping[str, Resource]) -> HostReboot:
    row = rows.get(host.at.key)
    if row is None:
        return HostReboot(HOST_AGENT)
    command = row.annotations.get(POWER_CYCLE_COMMAND) or row.annotations.get(REBOOT_COMMAND, "")
    if host.at.kind == NODE:
        return HostReboot(EXTERNAL, "", command)
    spec = read(_NodeSpec, row)
    method = None if isinstance(spec, str) else spec.node_reboot_method
    if method is None:
        return HostReboot(HOST_AGENT, "", command)
    if method.script is not None:
        return HostReboot(SCRIPT, method.script.name, command)
    chosen = EXTERNAL if method.external is not None else NONE if method.none is not None else HOST_AGENT
    return HostReboot(chosen, "", command)


def _cluster(at: ObjectId, given: _ClusterRef) -> str:
    if not given.name:
        return ""
    return ObjectId(at.source, DPU_CLUSTER, given.namespace or at.namespace, given.name).key
