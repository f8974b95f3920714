"""Conditions of images, clusters, hosts, devices, DPUSets and DPUs."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

from projections.resources.blame import Blame, absent
from projections.resources.conditions import set_dpus
from projections.resources.conditions.condition import BLAMES_MAX, READY, Condition, condition, with_ready
from projections.resources.conditions.hosts import on_host
from projections.resources.conditions.rollouts import counts_to_ready, of_rollout
from projections.resources.conditions.set_dpus import NOT_PROVISIONED
from projections.resources.conditions.world import World
from projections.resources.devices import listed_devices
from projections.resources.dpus import allocated_cluster
from projections.resources.handover import handover
from projections.resources.kinds import (
    BFB,
    BLUEFIELD_SOFTWARE,
    DPU_CLUSTER,
    DPU_DEVICE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_NODE,
    short_name,
)
from projections.resources.rollouts.allocating import selector_of, waits_for
from projections.resources.specs import JSON, DPUTemplateSpec
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted
from projections.zones.dpus.phases import ERROR, SERVICE_READINESS
from schemas.resources.dpf.names import DPU_NODE_NAME

_NOT_DOWNLOADED = "has not been downloaded yet"


def of_image(key: str, world: World) -> tuple[Condition, ...]:
    """A BFB or BlueFieldSoftware: downloaded and verified."""
    return (condition(READY, _some(world.unready(key, _NOT_DOWNLOADED))),)


def of_device(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUDevice: in a DPUNode that exists."""
    if key in world.derivation.selection.hosts.devices:
        return with_ready([condition("NodeAttached", ()), *_shared_serial(key, world)])
    at, row = object_id(key), world.stated(key)
    host = row.labels.get(DPU_NODE_NAME) if row else None
    if host:
        blame = world.missing(ObjectId(at.source, DPU_NODE, at.namespace, host).key)
    else:
        blame = Blame(key, f"no DPUNode lists {short_name(key)}, and it has no label {DPU_NODE_NAME}")
    return with_ready([condition("NodeAttached", _some(blame or Blame(key, f"{short_name(key)} cannot be read")))])


def _shared_serial(key: str, world: World) -> Iterator[Condition]:
    """A condition that exists only for a device whose serial number others have, too: they are one card."""
    others = world.derivation.selection.hosts.twins(key)
    if others:
        first = heapq.nsmallest(BLAMES_MAX, others)
        blames = [Blame(each, f"{short_name(each)} has the serial number of {short_name(key)}") for each in first]
        yield condition("SerialNumberUnique", blames, "Error", more=len(others) - len(first))


def of_node(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUNode: the devices that it lists exist and are its own, and its DPUs are ready."""
    at, row = object_id(key), world.stated(key)
    listed = [ObjectId(at.source, DPU_DEVICE, at.namespace, name).key for name in listed_devices(row)] if row else []
    invalid = [blame for each, count in Counter(listed).items() for blame in _invalid_entry(key, each, count, world)]
    devices = [
        each
        for each in (*listed, *world.derivation.selection.hosts.labelled(key))
        if each in world.derivation.selection.hosts.devices
    ]
    unready = (blame for each in dict.fromkeys(devices) for blame in _unready_dpus(each, world))
    return (
        condition(READY, (*invalid, *unready), "Error" if invalid else "Pending"),
        condition("InvalidDPUDetails", invalid, "Error")._replace(names_fault=True),
    )


def _invalid_entry(key: str, device: str, count: int, world: World) -> Iterator[Blame]:
    """Why a DPUNode must not list a device, or not as often."""
    row, found = world.stated(device), world.derivation.selection.hosts.devices.get(device)
    if row is None:
        yield absent(device)
        return
    at = object_id(key)
    host = found.host if found is not None else row.labels.get(DPU_NODE_NAME, at.name)
    if host != at.name:
        other = at._replace(name=host).key
        yield Blame(other, f"{short_name(device)} belongs to {short_name(other)}, not to {short_name(key)}")
    if count > 1:
        yield Blame(key, f"{short_name(key)} lists {short_name(device)} {count} times")


def of_set(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUSet: its prerequisites exist, no older DPUSet has a device that it selects, and its DPUs are ready."""
    faults = [*_faults_of_set(key, world)]
    needed = [*_needed_by_set(key, world)]
    found = [condition("DPUSetPrereqsReconciled", (*faults, *needed), "Error" if faults else "Pending")]
    updated = of_rollout(key, world)
    if updated is not None and counts_to_ready(key, world):
        found.append(updated)
    unready, more = set_dpus.unready(key, world)
    ready, *rest = with_ready([*found, condition("DPUsReady", unready, more=more)])
    if ready.holds and not world.derivation.dpus.wanted_by(key):
        ready = ready._replace(message=f"{short_name(key)} has no DPU: its selectors match no DPUDevice of a DPUNode")
    others = [each for each in rest if each.type != "DPUsReady"]
    return (ready, *others) if updated is None or updated in others else (ready, *others, updated)


def of_dpu(key: str, world: World) -> tuple[Condition, ...]:
    """A DPU: its image and flavor exist, and it has been provisioned."""
    wanted, at = world.wanted(key), object_id(key)
    if wanted is None:
        return (condition(READY, [Blame(key, f"no DPUSet wants {short_name(key)}")], "AwaitingDeletion"),)
    found = []
    for aspect, kind, field in (
        ("BFBReady", BFB, "bfb"),
        ("BlueFieldSoftwareReady", BLUEFIELD_SOFTWARE, "blueFieldSoftware"),
    ):
        if name := wanted.spec.get(field):
            image = ObjectId(at.source, kind, at.namespace, name).key
            found.append(condition(aspect, _some(world.unready(image, _NOT_DOWNLOADED))))
    found.append(condition("DPUFlavorExists", _missing_flavor(wanted.owner, wanted.spec, world)))
    causes = [blame for each in found for blame in each.blames]
    found += _cluster_condition(key, wanted, world)
    own, seen = world.unready(key, NOT_PROVISIONED), world.observed.get(key)
    if own is None:
        return (condition(READY, ()), *found)
    if seen is not None and seen.phase == SERVICE_READINESS:
        found.append(condition("ServiceReadiness", [own]))
    told = handover(world.state, world.derivation, key)
    if isinstance(told, Blame) and seen is None and not causes:
        return (condition(READY, [told], "Error"), *found)
    has_failed = seen is not None and seen.phase == ERROR
    causes = causes or [*on_host(key, wanted.spec, world)]
    if seen is None:
        causes = causes or [blame for each in found for blame in each.blames if not blame.is_unknown]
    return (condition(READY, causes or [own], "Error" if has_failed else "Pending"), *found)


def _cluster_condition(key: str, wanted: Wanted, world: World) -> Iterator[Condition]:
    """Whether a DPU has a DPU cluster that is ready. DPUs of an installation without DPU clusters have no such
    condition."""
    cluster = allocated_cluster(wanted)
    if cluster is not None:
        yield condition("DPUClusterReady", _some(world.unready(cluster, "has not answered yet")))
    elif selector_of(wanted) is not None or world.state.of_kind(wanted.at.source, DPU_CLUSTER):
        why = waits_for(world.state, wanted)
        text = f"{short_name(key)} waits for a DPU cluster: {why}" if why else f"{short_name(key)} joins a DPU cluster"
        yield condition("DPUClusterReady", [Blame(key, text, is_unknown=not why)])


def _unready_dpus(device: str, world: World) -> Iterator[Blame]:
    """The blames on the DPUs of a device that are not ready. They name no phase, except that of a failure: with it,
    each step of a DPU would be a write of its DPUNode, too."""
    for key in world.derivation.dpus.of_owner(device):
        blame, seen = world.unready(key, NOT_PROVISIONED), world.observed.get(key)
        is_under_way = seen is not None and seen.phase != ERROR and world.missing(key) is None
        if blame is not None and is_under_way:
            blame = Blame(key, f"{short_name(key)} is not ready yet")
        yield from _some(blame)


def _faults_of_set(key: str, world: World) -> Iterator[Blame]:
    fault = world.derivation.set_faults.get(key)
    if fault is not None:
        yield Blame(key, f"{short_name(key)} selects nothing, because its spec has a fault: {fault}")
    for owner, device in world.derivation.selection.lost_to(key).items():
        name = short_name(device.partition("#")[0])
        yield Blame(owner, f"{name} belongs to {short_name(owner)}, which is older than {short_name(key)}")
    for dpu, holder in heapq.nsmallest(BLAMES_MAX, _lost_names(key, world)):
        yield Blame(holder, f"{short_name(dpu)} is already the DPU of {short_name(holder.partition('#')[0])}")


def _lost_names(key: str, world: World) -> Iterator[tuple[str, str]]:
    """The DPUs of a DPUSet whose names DPUs of other devices have, with those devices."""
    for dpu, device, holder in world.derivation.dpus.contested():
        if world.derivation.selection.winner(device) == key:
            yield dpu, holder


def _needed_by_set(key: str, world: World) -> Iterator[Blame]:
    found = world.derivation.sets.get(key)
    if found is None:
        return
    template = found.spec.dpu_template.spec
    for kind, name in (
        (BFB, template.bfb.name if template.bfb else None),
        (BLUEFIELD_SOFTWARE, template.blue_field_software.name if template.blue_field_software else None),
    ):
        if name:
            image = ObjectId(found.at.source, kind, found.at.namespace, name).key
            yield from _some(world.unready(image, _NOT_DOWNLOADED))
    yield from _some(_flavor_of(found.at, template, world))


def _flavor_of(at: ObjectId, template: DPUTemplateSpec, world: World) -> Blame | None:
    name, kind = template.dpu_flavor, DPU_FLAVOR
    if template.dpu_flavor_template:
        name, kind = template.dpu_flavor_template, DPU_FLAVOR_TEMPLATE
    return world.missing(ObjectId(at.source, kind, at.namespace, name).key) if name else None


def _missing_flavor(owner: str, spec: JSON, world: World) -> Iterator[Blame]:
    found = world.derivation.sets.get(owner)
    if found is not None and spec.get("dpuFlavor"):
        yield from _some(_flavor_of(found.at, found.spec.dpu_template.spec, world))


def _some(blame: Blame | None) -> tuple[Blame, ...]:
    return () if blame is None else (blame,)
