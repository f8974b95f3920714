"""Whether a host keeps new workload away until its DPUs serve it, as DPF's DPUReady controller decides.

A DPUService with the label `svc.dpu.nvidia.com/critical` carries the network of hosts. A host has the taint
`dpu.nvidia.com/dpu-ready` while one of its DPUs that must run such a service does not serve. Without critical services
no host has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import NamedTuple

import msgspec

from projections.resources.clusters import in_cluster, selected_clusters
from projections.resources.derivation import Derivation
from projections.resources.handover import bmc_address
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU, DPU_SERVICE, NODE
from projections.resources.selectors import node_selects
from projections.resources.service_specs import ServiceSpec
from projections.resources.specs import JSON, Labels, Spec, read, read_json
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from projections.resources.step_facts import HostRef, StepFacts, step_facts
from projections.zones.dpus.phases import READY
from schemas.resources.dpf.names import CRITICAL_SERVICE, DPU_READY

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels of nodes that never get the taint."""
READY_MARK = "dpuplane.io/host-dpu-ready"
"""Annotation of a Node whose taint the plane has set."""


class _ServiceController(Spec, frozen=True):
    is_disabled: bool | None = msgspec.field(default=None, name="disableDPUReadyTaints")


class _OperatorConfigSpec(Spec, frozen=True):
    dpu_service_controller: _ServiceController | None = None


class CriticalService(NamedTuple):
    """A service without which a host has no network: where it runs."""

    clusters: tuple[str, ...]
    nodes: JSON | None
    """The selector of nodes in these clusters."""
    service_id: str = ""
    """The label of its pods."""


class ReadinessRules(NamedTuple):
    """The rules for all hosts of a source. If the taint is disabled, hosts stay as they are."""

    is_disabled: bool
    services: tuple[CriticalService, ...]


class HostReadiness:
    """Which Nodes shall have the taint, kept up to date with a state and its derivation."""

    def __init__(self) -> None:
        self._rules: dict[str, ReadinessRules] = {}
        self._dpus: MutableMapping[str, dict[str, None]] = {}
        """The wanted DPUs of each host, by the key of the host's Node."""
        self._named: MutableMapping[str, dict[str, None]] = {}
        """The wanted DPUs by name."""
        self._node_of: dict[str, str] = {}

    def update(
        self, state: ResourcesState, derivation: Derivation, wanted: Iterable[str] | None, stated: Iterable[str] | None
    ) -> dict[str, None]:
        """Take over changes: the keys of wanted objects that changed, and of those that were stated or observed; None
        stands for all. Returns the Nodes that may have to change. The cost is that of the changes."""
        touched: dict[str, None] = {}
        for key in dict.fromkeys((*self._node_of, *derivation.dpus.winners)) if wanted is None else wanted:
            touched |= self._read_dpu(derivation, key)
        for key in state.objects.rows if stated is None else stated:
            at = object_id(key)
            if at.kind == DPU and key in self._node_of:
                touched[self._node_of[key]] = None
            elif at.kind == NODE:
                touched |= {key: None} if key in state.objects.rows or key in self._dpus else {}
                touched |= {self._node_of[dpu]: None for dpu in self._named.get(at.name, ())}
        rules = {
            source: rules_of(state, derivation, source)
            for source in sorted({object_id(node).source for node in (*self._dpus, *touched)})
        }
        changed = {source for source, found in rules.items() if found != self._rules.get(source)}
        self._rules = rules
        return touched | {node: None for node in self._dpus if changed and object_id(node).source in changed}

    def shall_have_taint(self, state: ResourcesState, derivation: Derivation, node: str) -> bool | None:
        """Whether a Node shall have the taint; None if it stays as it is: its taint is disabled, its cluster does not
        state it, or it is of a host without DPUs, and the plane has set no taint."""
        row = state.objects.rows.get(node)
        source = object_id(node).source
        rules = self._rules.get(source) or rules_of(state, derivation, source)
        if rules.is_disabled or (row is not None and any(label in row.labels for label in CONTROL_PLANE)):
            return None
        found = [step_facts(state, derivation, object_id(key).name) for key in self._dpus.get(node, ())]
        facts = [each for each in found if each is not None]
        if not facts:
            return False if row is None or READY_MARK in row.annotations else None
        if row is None and facts[0].host.is_external:
            return None
        return any(_lacks_service(state, rules, each) for each in facts)

    def host_of(self, state: ResourcesState, derivation: Derivation, node: str) -> tuple[HostRef, str]:
        """The host of a Node, and the address of the BMC of its first DPU, empty if it has none."""
        for key in self._dpus.get(node, ()):
            facts = step_facts(state, derivation, object_id(key).name)
            device = derivation.selection.hosts.devices.get(derivation.dpus.holders.get(key, ""))
            if facts is not None and device is not None:
                return facts.host, bmc_address(state, device)
        row = state.objects.rows.get(node)
        return HostRef(object_id(node), "", row is not None and row.is_external), ""

    def _read_dpu(self, derivation: Derivation, key: str) -> dict[str, None]:
        touched: dict[str, None] = {}
        if earlier := self._node_of.pop(key, ""):
            touched[earlier] = None
            _remove(self._dpus, earlier, key)
            _remove(self._named, object_id(key).name, key)
        device = derivation.selection.hosts.devices.get(derivation.dpus.holders.get(key, ""))
        if device is not None:
            node = self._node_of[key] = ObjectId(device.source, NODE, "", device.host).key
            touched[node] = None
            self._dpus.setdefault(node, {})[key] = None
            self._named.setdefault(object_id(key).name, {})[key] = None
        return touched


def rules_of(state: ResourcesState, derivation: Derivation, source: str) -> ReadinessRules:
    """The rules for the hosts of a source, by its DPFOperatorConfigs and critical services."""
    configs = [state.objects.rows[key] for key in state.of_kind(source, DPF_OPERATOR_CONFIG)]
    return ReadinessRules(any(map(_is_disabled, configs)), tuple(_critical_services(state, derivation, source)))


def has_taint(row: Resource) -> bool:
    """Whether a Node has the taint, as its cluster states it."""
    return any(each.get("key") == DPU_READY for each in read_json(row).get("taints") or ())


def _lacks_service(state: ResourcesState, rules: ReadinessRules, facts: StepFacts) -> bool:
    """Whether a critical service does not run on a DPU that must run it."""
    return not _serves(state, facts) and any(_on_dpu(state, rules.services, facts))


def critical_services(state: ResourcesState, derivation: Derivation, facts: StepFacts) -> Iterator[str]:
    """The ids of the critical services that a DPU must run. Pods of a service without an id cannot be told apart."""
    services = _critical_services(state, derivation, object_id(facts.key).source)
    for each in _on_dpu(state, services, facts):
        if each.service_id:
            yield each.service_id


def _on_dpu(state: ResourcesState, services: Iterable[CriticalService], facts: StepFacts) -> Iterator[CriticalService]:
    """The services that a DPU must run."""
    labels = _labels(state, facts)
    for each in services:
        if (not facts.cluster or facts.cluster in each.clusters) and node_selects(each.nodes)(labels):
            yield each


def _serves(state: ResourcesState, facts: StepFacts) -> bool:
    """Whether a DPU has passed all its steps, the last of which waits for its services, and its node is ready."""
    seen = state.seen.get(facts.key)
    if seen is None or seen.phase != READY:
        return False
    node = state.seen.get(_cluster_node(facts).key) if facts.cluster else None
    return node is None or node.is_ready


def _labels(state: ResourcesState, facts: StepFacts) -> Labels:
    """The labels of a DPU's node in its cluster: those that it shall have until it has joined."""
    node = state.seen.get(_cluster_node(facts).key) if facts.cluster else None
    found = node.fields.get("labels") if node is not None else None
    return (found if isinstance(found, dict) else {}) | facts.node_labels


def _cluster_node(facts: StepFacts) -> ObjectId:
    return in_cluster(facts.cluster, NODE, "", object_id(facts.key).name)


def _critical_services(state: ResourcesState, derivation: Derivation, source: str) -> Iterator[CriticalService]:
    for key, labels, spec in _services(state, derivation, source):
        if CRITICAL_SERVICE not in labels or isinstance(spec, str) or spec.deploy_in_cluster:
            continue
        clusters = selected_clusters(state, object_id(key).source, spec.clusters)
        if not isinstance(clusters, str):
            yield CriticalService(tuple(clusters), spec.service_daemon_set.node_selector, spec.service_id or "")


def _services(
    state: ResourcesState, derivation: Derivation, source: str
) -> Iterator[tuple[str, Labels, ServiceSpec | str]]:
    """The DPUServices of a source as their deployments want them, else as they are stated."""
    wanted = derivation.children.of_kind(source, DPU_SERVICE)
    for key in sorted({*wanted, *state.of_kind(source, DPU_SERVICE)}):
        row = state.objects.rows.get(key)
        if key in derivation.children.winners:
            child = derivation.children.winners[key].as_row(0)
            yield key, child.labels | (row.labels if row is not None else {}), read(ServiceSpec, child)
        elif row is not None and not row.deleted_ms:
            yield key, row.labels, read(ServiceSpec, row)


def _is_disabled(config: Resource) -> bool:
    spec = read(_OperatorConfigSpec, config)
    given = None if isinstance(spec, str) else spec.dpu_service_controller
    return given is not None and bool(given.is_disabled)


def _remove(index: MutableMapping[str, dict[str, None]], entry: str, key: str) -> None:
    index[entry].pop(key)
    if not index[entry]:
        del index[entry]
