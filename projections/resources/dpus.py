"""The DPU that a DPUSet wants for a device, in the form of the current release or of release 24.10.

Names, labels and fields are those of createDPU in DPF's DPUSet controller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from projections.resources.devices import FEATURE_PREFIX, HostDevice
from projections.resources.kinds import DPU, DPU_CLUSTER
from projections.resources.selecting import Age
from projections.resources.specs import JSON, ClusterSpec, DPUSetSpec, DPUTemplateSpec, Labels, without_absent
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted, suffix
from projections.zones.dpus.phases import PROVISIONING, READY, REBOOTING
from schemas.resources.dpf import names
from schemas.resources.dpf.names import (
    DPU_DEVICE_NAME,
    DPU_NODE_NAME,
    DPU_SET_NAME,
    DPU_SET_NAMESPACE,
    HOST_POWER_CYCLE_REQUIRED,
)

_OLD_LABELS = (
    ("pci-address", f"{names.PROVISIONING}/dpu-pciAddress"),
    ("pf0-name", f"{names.PROVISIONING}/dpu-pf-name"),
)
"""Labels of a DPU of release 24.10, by the property that node feature discovery states."""

_OUTDATED = (
    ("bfb", "OutdatedBFB"),
    ("dpuFlavor", "OutdatedDPUFlavor"),
    ("secureBoot", "OutdatedSecureBoot"),
    ("blueFieldSoftware", "OutdatedBlueFieldSoftware"),
)
"""Fields of a DPU whose change means a new installation, in the order in which DPF reports them."""

_AFTER_REBOOT = frozenset((*PROVISIONING[PROVISIONING.index(REBOOTING) + 1 :], READY))


class EffectiveSet(NamedTuple):
    """A DPUSet in the form that selects devices: as its deployment wants it, else as a user states it.

    `template_digest` is the digest of the spec of its DPUFlavorTemplate, empty without one. `spec` has the pinned
    template of an earlier revision, if there is one, and `stated` is the spec without the pin.
    """

    at: ObjectId
    age: Age
    labels: Labels
    spec: DPUSetSpec
    is_held: bool
    template_digest: str
    stated: DPUSetSpec
    annotations: Labels


def dpu_name(device: HostDevice) -> str:
    """The name of a DPU, which is also the name of its node in its DPU cluster."""
    return f"{device.host.lower()}-{device.name}"


def dpu_id(owner: ObjectId, device: HostDevice) -> ObjectId:
    """The identity of the DPU of a device that a DPUSet selects."""
    return ObjectId(owner.source, DPU, owner.namespace, dpu_name(device))


def wanted_dpu(owner: EffectiveSet, device: HostDevice, cluster: str | None = None) -> Wanted:
    """The DPU of a device, as its DPUSet wants it. `cluster` is the key of the DPUCluster that it is allocated to."""
    template = owner.spec.dpu_template
    spec = _spec(template.spec, device, owner.template_digest)
    if cluster is not None:
        at = object_id(cluster)
        spec["cluster"] = {**spec.get("cluster", {}), "name": at.name, "namespace": at.namespace}
    return Wanted(
        at=ObjectId(owner.at.source, DPU, owner.at.namespace, dpu_name(device)),
        owner=owner.at.key,
        spec=spec,
        labels=_labels(owner.at, owner.labels, device),
        annotations=template.annotations or {},
        is_held=owner.is_held,
    )


def without_used(wanted: Wanted, phase: str) -> Wanted:
    """A wanted DPU without the annotations that serve one installation, if a DPU in this phase has used them. The next
    installation has them again: DPF makes the DPU anew for it."""
    if HOST_POWER_CYCLE_REQUIRED not in wanted.annotations or phase not in _AFTER_REBOOT:
        return wanted
    kept = {key: value for key, value in wanted.annotations.items() if key != HOST_POWER_CYCLE_REQUIRED}
    return replace(wanted, annotations=kept)


def allocated_cluster(wanted: Wanted) -> str | None:
    """The key of the DPUCluster in a wanted DPU; None if it is not allocated to one."""
    cluster = wanted.spec.get("cluster", {})
    if "name" not in cluster:
        return None
    return ObjectId(wanted.at.source, DPU_CLUSTER, cluster["namespace"], cluster["name"]).key


def outdated_reason(spec: JSON, wanted: JSON) -> str | None:
    """Why a DPU with this spec must be installed anew to be as wanted; None if it need not."""
    return next((reason for field, reason in _OUTDATED if spec.get(field) != wanted.get(field)), None)


def flavor_name(template: str, template_digest: str, device: HostDevice) -> str:
    """The DPUFlavor that a DPUFlavorTemplate is rendered to: one for all devices with the same values."""
    return f"{template}-{suffix(template, template_digest, device.spec.values or {})}"


def _labels(at: ObjectId, labels: Labels, device: HostDevice) -> Labels:
    own = {DPU_SET_NAME: at.name, DPU_SET_NAMESPACE: at.namespace}
    if device.number < 0:
        own |= {DPU_DEVICE_NAME: device.name, DPU_NODE_NAME: device.host}
        return own | labels | device.labels | own
    prefix = f"{FEATURE_PREFIX}{device.number}-"
    found = {label: device.labels[prefix + name] for name, label in _OLD_LABELS if prefix + name in device.labels}
    return labels | found | own


def _spec(template: DPUTemplateSpec, device: HostDevice, template_digest: str) -> JSON:
    if device.number < 0:
        where = {"dpuNodeName": device.host, "dpuDeviceName": device.name, "serialNumber": device.spec.serial_number}
    else:
        where = {"nodeName": device.host}
    flavor = template.dpu_flavor
    if template.dpu_flavor_template is not None:
        flavor = flavor_name(template.dpu_flavor_template, template_digest, device)
    return without_absent(
        {
            **where,
            "pciAddress": device.pci_address,
            "bfb": template.bfb.name if template.bfb else None,
            "blueFieldSoftware": template.blue_field_software.name if template.blue_field_software else None,
            "dpuFlavor": flavor,
            "nodeEffect": template.node_effect,
            "cluster": _cluster(template.cluster, device.spec.cluster),
            "automaticNodeReboot": template.automatic_node_reboot if device.number >= 0 else None,
            "astraEnabled": template.astra_enabled,
            "secureBoot": template.secure_boot,
        }
    )


def _cluster(template: ClusterSpec | None, device: ClusterSpec | None) -> JSON | None:
    """The labels and annotations of the DPU's node. A label or annotation of the device takes precedence over the one
    of the template."""
    parts = [part for part in (template, device) if part is not None]
    labels = {key: value for part in parts for key, value in (part.node_labels or {}).items()}
    annotations = {key: value for part in parts for key, value in (part.node_annotations or {}).items()}
    found = without_absent(
        {
            "nodeLabels": labels or None,
            "nodeAnnotations": annotations or None,
            "selector": template.selector if template else None,
        }
    )
    return found or None
