"""What the configuration of a DPU is rendered from, collected from the objects of its source."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from projections.resources.blame import absent
from projections.resources.clusters import selected_clusters
from projections.resources.conditions.world import World
from projections.resources.configuration.flavor import FlavorSpec
from projections.resources.configuration.inputs import Inputs, Join
from projections.resources.configuration.templates import FlavorTemplateSpec, rendered_flavor
from projections.resources.devices import HostDevice
from projections.resources.go_templates.render import Fault
from projections.resources.kinds import (
    DPF_OPERATOR_CONFIG,
    DPU_CLUSTER,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_NODE,
    NODE,
    short_name,
)
from projections.resources.specs import JSON, Labels, Spec, read
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import PROVISIONING

TRUSTED_FUNCTIONS = f"{PROVISIONING}/num-of-trusted-sfs"
REBOOT_COMMAND = f"{PROVISIONING}/reboot-command"
POWER_CYCLE_COMMAND = f"{PROVISIONING}/powercycle-command"
TEMPLATE_KEY = "BF_CFG_TEMPLATE"
"""The key of a ConfigMap with a user's template for bf.cfg."""
CONFIG_MAP = "ConfigMap.core"

_TRUSTED_MAX = 10
_MTU = 1500


class FoundFlavor(NamedTuple):
    """The spec of a flavor, stated or rendered from a template, and the annotations of its object."""

    spec: JSON
    annotations: Labels


class _Networking(Spec, frozen=True):
    control_plane_mtu: int | None = msgspec.field(default=None, name="controlPlaneMTU")


class _InstallInterface(Spec, frozen=True):
    install_via_redfish: JSON | None = None


class _Provisioning(Spec, frozen=True):
    install_interface: _InstallInterface | None = None
    template: str | None = msgspec.field(default=None, name="bfCFGTemplateConfigMap")


class _OperatorConfigSpec(Spec, frozen=True):
    deployment_mode: str | None = None
    networking: _Networking | None = None
    provisioning_controller: _Provisioning | None = None


class _DeviceSpec(Spec, frozen=True):
    number_of_pfs: int | None = msgspec.field(default=None, name="numberOfPFs")


def flavor_of(world: World, wanted: Wanted) -> FoundFlavor | Fault:
    """The flavor of a wanted DPU: the stated one, or the one that a DPUFlavorTemplate gives for its DPUDevice."""
    owner, at = world.derivation.sets.get(wanted.owner), wanted.at
    template = owner.spec.dpu_template.spec.dpu_flavor_template if owner is not None else None
    if template is None:
        return stated_flavor(world, at, str(wanted.spec.get("dpuFlavor", "")))
    device = device_of(world, wanted)
    return flavor_of_template(world, at, template, device.spec.values or {} if device is not None else {})


def stated_flavor(world: World, at: ObjectId, name: str) -> FoundFlavor | Fault:
    """The DPUFlavor of this name in the namespace of a DPU."""
    key = ObjectId(at.source, DPU_FLAVOR, at.namespace, name).key
    row = world.stated(key)
    if row is None:
        return Fault(absent(key).message)
    return FoundFlavor(msgspec.json.decode(row.spec), row.annotations)


def flavor_of_template(world: World, at: ObjectId, name: str, values: JSON) -> FoundFlavor | Fault:
    """The flavor that the DPUFlavorTemplate of this name gives for these values."""
    key = ObjectId(at.source, DPU_FLAVOR_TEMPLATE, at.namespace, name).key
    row = world.stated(key)
    if row is None:
        return Fault(absent(key).message)
    spec = read(FlavorTemplateSpec, row)
    if isinstance(spec, str):
        return Fault(spec)
    found = rendered_flavor(spec, values)
    return Fault(f"{short_name(key)}: {found}") if isinstance(found, Fault) else FoundFlavor(found, row.annotations)


def device_of(world: World, wanted: Wanted) -> HostDevice | None:
    """The device that a wanted DPU is on."""
    holder = world.derivation.dpus.holders.get(wanted.at.key, "")
    return world.derivation.selection.hosts.devices.get(holder)


def inputs_of(world: World, wanted: Wanted, flavor: FoundFlavor, join: Join | None) -> Inputs | Fault:
    """The input of the rendering for a wanted DPU with this flavor."""
    try:
        spec = msgspec.convert(flavor.spec, FlavorSpec)
    except msgspec.ValidationError as error:
        return Fault(f"spec of the flavor: {error}")
    config = _operator_config(world, wanted.at.source)
    if isinstance(config, Fault):
        return config
    provisioning = config.provisioning_controller or _Provisioning()
    template = _user_template(world, wanted.at, provisioning.template)
    if isinstance(template, Fault):
        return template
    interface = provisioning.install_interface
    has_redfish = interface is not None and interface.install_via_redfish is not None
    trusted = flavor.annotations.get(TRUSTED_FUNCTIONS, "")
    return Inputs(
        hostname=wanted.at.name,
        flavor=spec,
        join=join,
        is_out_of_band=has_redfish or config.deployment_mode == "zero-trust",
        control_plane_mtu=(config.networking and config.networking.control_plane_mtu) or _MTU,
        physical_functions=_physical_functions(world, wanted),
        trusted_functions=int(trusted) if trusted in map(str, range(1, _TRUSTED_MAX + 1)) else 0,
        has_additional_reboot=_skips_reboot(world, wanted),
        user_template=template,
    )


def cluster_of(world: World, wanted: Wanted) -> str | None:
    """The key of the DPU cluster that a DPU joins: the one that it is allocated to, else the first that its DPUSet
    selects; None if it joins none."""
    cluster = wanted.spec.get("cluster") or {}
    if cluster.get("name"):
        namespace = str(cluster.get("namespace") or wanted.at.namespace)
        return ObjectId(wanted.at.source, DPU_CLUSTER, namespace, str(cluster["name"])).key
    selector = cluster.get("selector")
    found = selected_clusters(world.state, wanted.at.source, selector)
    return found[0] if found and not isinstance(found, str) else None


def _operator_config(world: World, source: str) -> _OperatorConfigSpec | Fault:
    """The DPFOperatorConfig of a source. A source without one has the defaults."""
    for key in world.state.of_kind(source, DPF_OPERATOR_CONFIG):
        row = world.state.objects.rows[key]
        if not row.deleted_ms:
            found = read(_OperatorConfigSpec, row)
            return Fault(f"{short_name(key)}: {found}") if isinstance(found, str) else found
    return _OperatorConfigSpec()


def _user_template(world: World, at: ObjectId, name: str | None) -> str | Fault | None:
    """The user's template for bf.cfg in a ConfigMap, as it was observed."""
    if not name:
        return None
    key = ObjectId(at.source, CONFIG_MAP, at.namespace, name).key
    row = world.state.observed.rows.get(key)
    data: Any = msgspec.json.decode(row.observation).get("data") if row is not None else None
    text = data.get(TEMPLATE_KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        return Fault(f"{short_name(key)}, which has the template for bf.cfg, has no {TEMPLATE_KEY} or is not known")
    return text


def _physical_functions(world: World, wanted: Wanted) -> int:
    device = device_of(world, wanted)
    row = world.stated(device.key) if device is not None and device.number < 0 else None
    spec = read(_DeviceSpec, row) if row is not None else None
    return (spec.number_of_pfs if isinstance(spec, _DeviceSpec) else None) or 1


def _skips_reboot(world: World, wanted: Wanted) -> bool:
    """Whether the plane does not reboot the host, so that the DPU reboots by itself."""
    host = str(wanted.spec.get("dpuNodeName") or wanted.spec.get("nodeName") or "")
    at = wanted.at
    for key in (ObjectId(at.source, DPU_NODE, at.namespace, host).key, ObjectId(at.source, NODE, "", host).key):
        row = world.stated(key)
        if row is not None and "skip" in (
            row.annotations.get(REBOOT_COMMAND),
            row.annotations.get(POWER_CYCLE_COMMAND),
        ):
            return True
    return False
