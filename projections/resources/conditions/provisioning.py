"""Conditions of images, clusters, hosts, devices, DPUSets and DPUs."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame, absent
from projections.resources.conditions.condition import READY, Condition, condition, with_ready
from projections.resources.conditions.world import World
from projections.resources.devices import listed_devices
from projections.resources.kinds import (
    BFB,
    BLUEFIELD_SOFTWARE,
    DPU_DEVICE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_NODE,
    short_name,
)
from projections.resources.specs import JSON, DPUTemplateSpec
from projections.resources.state import ObjectId, object_id
from schemas.resources.dpf.names import DPU_NODE_NAME

_NOT_DOWNLOADED = "has not been downloaded yet"
_NOT_PROVISIONED = "has not been provisioned yet"


def of_image(key: str, world: World) -> tuple[Condition, ...]:
    """A BFB or BlueFieldSoftware: downloaded and verified."""
    return (condition(READY, _some(world.unready(key, _NOT_DOWNLOADED))),)


def of_cluster(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUCluster: its API server answers."""
    return (condition(READY, _some(world.unready(key, "has not answered yet"))),)


def of_device(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUDevice: in a DPUNode that exists."""
    if key in world.derivation.selection.hosts.devices:
        return with_ready([condition("NodeAttached", ())])
    at, row = object_id(key), world.stated(key)
    host = row.labels.get(DPU_NODE_NAME) if row else None
    if host:
        blame = world.missing(ObjectId(at.source, DPU_NODE, at.namespace, host).key)
    else:
        blame = Blame(key, f"no DPUNode lists {short_name(key)}, and it has no label {DPU_NODE_NAME}")
    return with_ready([condition("NodeAttached", _some(blame or Blame(key, f"{short_name(key)} cannot be read")))])


def of_node(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUNode: the devices that it lists exist, and its DPUs are ready."""
    at, row = object_id(key), world.stated(key)
    listed = [ObjectId(at.source, DPU_DEVICE, at.namespace, name).key for name in listed_devices(row)] if row else []
    invalid = [absent(each) for each in listed if world.stated(each) is None]
    devices = [
        each
        for each in (*listed, *world.derivation.selection.hosts.labelled(key))
        if each in world.derivation.selection.hosts.devices
    ]
    unready = (blame for each in dict.fromkeys(devices) for blame in _unready_dpus(each, world))
    return (condition(READY, (*invalid, *unready), "Error" if invalid else "Pending"),)


def of_set(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUSet: its prerequisites exist, no older DPUSet has a device that it selects, and its DPUs are ready."""
    faults = [*_faults_of_set(key, world)]
    needed = [*_needed_by_set(key, world)]
    found = [condition("DPUSetPrereqsReconciled", (*faults, *needed), "Error" if faults else "Pending")]
    selection = world.derivation.selection
    dpus = (
        blame
        for device in selection.members(key)
        if selection.winner(device) == key
        for blame in _unready_dpus(device, world)
    )
    ready, *rest = with_ready([*found, condition("DPUsReady", dpus)])
    return (ready, *(each for each in rest if each.type != "DPUsReady"))


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
    own = world.unready(key, _NOT_PROVISIONED)
    if own is None:
        return (condition(READY, ()), *found)
    causes = [blame for each in found for blame in each.blames]
    seen = world.observed.get(key)
    has_failed = seen is not None and seen.phase == "Error"
    return (condition(READY, causes or [own], "Error" if has_failed else "Pending"), *found)


def _unready_dpus(device: str, world: World) -> Iterator[Blame]:
    for key in world.derivation.dpus.of_owner(device):
        yield from _some(world.unready(key, _NOT_PROVISIONED))


def _faults_of_set(key: str, world: World) -> Iterator[Blame]:
    fault = world.derivation.set_faults.get(key)
    if fault is not None:
        yield Blame(key, f"{short_name(key)} selects nothing, because its spec has a fault: {fault}")
    for owner, device in world.derivation.selection.lost_to(key).items():
        name = short_name(device.partition("#")[0])
        yield Blame(owner, f"{name} belongs to {short_name(owner)}, which is older than {short_name(key)}")
    for dpu, holder in sorted(_lost_names(key, world).items()):
        yield Blame(holder, f"{short_name(dpu)} is already the DPU of {short_name(holder.partition('#')[0])}")


def _lost_names(key: str, world: World) -> dict[str, str]:
    """The DPUs of a DPUSet whose names DPUs of other devices have."""
    selection = world.derivation.selection
    owned = (device for device in selection.members(key) if selection.winner(device) == key)
    return {dpu: holder for device in owned for dpu, holder in world.derivation.dpus.lost(device).items()}


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
