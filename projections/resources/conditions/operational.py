"""The operational conditions of a DPU: whether it is healthy in service, also long after its installation.

They have DPF's names, and are true as DPF's DPUReady controller says. They follow from what is observed of the DPU's
node and of its pods in its DPU cluster, and from the network documents on the DPU. Without a DPU cluster it has none.
node-problem-detector must report each of its conditions only if the DPFOperatorConfig installs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from projections.memo import Memo
from projections.resources.blame import Blame
from projections.resources.clusters import cluster_source, in_cluster
from projections.resources.conditions.condition import Condition, condition, with_ready
from projections.resources.conditions.world import World
from projections.resources.dpus import allocated_cluster
from projections.resources.host_readiness import critical_services
from projections.resources.kinds import DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, NODE, short_name
from projections.resources.observation import Observation
from projections.resources.operator_settings import settings_of
from projections.resources.state import ObjectId, object_id
from projections.resources.step_facts import step_facts
from projections.zones.dpus.phases import READY
from schemas.resources.dpf.dpu import NODE_PROBLEMS, OPERATIONAL_CONDITIONS

SUMMARY, PROBLEMS, CRITICAL, OTHERS, INTERFACES, CHAINS = OPERATIONAL_CONDITIONS
_DETECTOR = "node-problem-detector"


class _Node(msgspec.Struct, frozen=True):
    checks: dict[str, str] = {}


class _Pod(msgspec.Struct, frozen=True):
    service: str = ""
    message: str = ""


class _Network(msgspec.Struct, frozen=True):
    applied: int = 0
    selected: int = 0
    staged: int = 0
    lacking: tuple[str, ...] = ()


class _Lack(NamedTuple):
    """The DPUs on which a chain or an interface is not ready, as far as they are named, and whether there are more."""

    names: frozenset[str]
    has_more: bool


_node = msgspec.json.Decoder(_Node)
_pod = msgspec.json.Decoder(_Pod)
_network = msgspec.json.Decoder(_Network)
_lacks: Memo[str, _Lack] = Memo(10_000)


def operational_conditions(key: str, world: World) -> tuple[Condition, ...]:
    """The operational conditions of a DPU, the summary first."""
    wanted = world.wanted(key)
    cluster = allocated_cluster(wanted) if wanted is not None else None
    if cluster is None:
        return ()
    node = in_cluster(cluster, NODE, "", object_id(key).name).key
    seen = world.observed.get(node)
    if seen is None:
        absent = [_without_node(key, cluster, world)]
        found = [condition(aspect, absent) for aspect in (PROBLEMS, CRITICAL, OTHERS, INTERFACES, CHAINS)]
    else:
        critical, others = _unready_pods(key, node, world)
        found = [
            condition(PROBLEMS, _problems(key, node, seen, world), "Error"),
            condition(CRITICAL, critical, "Error"),
            condition(OTHERS, others, "Error"),
            condition(INTERFACES, _lacking(key, DPU_SERVICE_INTERFACE, world)),
            condition(CHAINS, _lacking(key, DPU_SERVICE_CHAIN, world)),
        ]
    summary, *rest = with_ready(found)
    return (summary._replace(type=SUMMARY), *rest)


def _without_node(key: str, cluster: str, world: World) -> Blame:
    """A DPU in service has lost its node, if the nodes of its cluster are observed. Other DPUs are to get theirs."""
    seen = world.observed.get(key)
    is_lost = seen is not None and seen.phase == READY
    has_nodes = next(iter(world.state.seen_of_kind(cluster_source(cluster), NODE)), None) is not None
    if is_lost and has_nodes:
        return Blame(key, f"{short_name(key)} has no node in {short_name(cluster)} any more")
    return Blame(key, f"{short_name(key)} has no node in {short_name(cluster)} yet", is_unknown=True)


def _problems(key: str, node: str, seen: Observation, world: World) -> Iterator[Blame]:
    """The problems that node-problem-detector reports of the node, and the reports that it owes."""
    checks = _node.decode(seen.text).checks
    source = object_id(key).source
    detector = ObjectId(source, DPU_SERVICE, settings_of(world.state, source).namespace, _DETECTOR).key
    is_installed = detector in world.derivation.children.winners
    for kind in NODE_PROBLEMS:
        if checks.get(kind):
            yield Blame(node, f"{short_name(node)} has the problem {kind}: {checks[kind]}")
        elif kind not in checks and is_installed:
            yield Blame(node, f"{_DETECTOR} reports no {kind} of {short_name(node)}", is_unknown=True)


def _unready_pods(key: str, node: str, world: World) -> tuple[list[Blame], list[Blame]]:
    """The unready pods on the node: those of critical services, and the others."""
    critical: list[Blame] = []
    others: list[Blame] = []
    pods = sorted(world.state.unready_pods.get(node, ()))
    facts = step_facts(world.state, world.derivation, object_id(key).name) if pods else None
    services = frozenset(critical_services(world.state, world.derivation, facts)) if facts is not None else frozenset()
    for pod in pods:
        found = _pod.decode(world.state.seen[pod].text)
        why = f": {found.message}" if found.message else ""
        blame = Blame(pod, f"{short_name(pod)} of service {found.service} is not ready{why}")
        (critical if found.service in services else others).append(blame)
    return critical, others


def _lacking(key: str, kind: str, world: World) -> Iterator[Blame]:
    """The chains or the interfaces that are not ready on a DPU. An observation names some of the DPUs only."""
    at = object_id(key)
    for part in world.state.of_kind(at.source, kind):
        seen = world.observed.get(part)
        if seen is None or seen.is_ready:
            continue
        lack = _lacks.of(seen.text, _lack)
        if at.name in lack.names:
            yield Blame(part, f"{short_name(part)} is not ready on {short_name(key)}")
        elif lack.has_more:
            yield Blame(part, f"{short_name(part)} is not ready on every DPU", is_unknown=True)


def _lack(text: str) -> _Lack:
    found = _network.decode(text)
    return _Lack(frozenset(found.lacking), found.selected - found.applied - found.staged > len(found.lacking))
