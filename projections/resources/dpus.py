"""The DPU that a DPUSet wants for a device, in the form of the current release or of release 24.10.

Names, labels and fields are those of DPF's DPUSet controller (DPUSet controller, createDPU).
"""

from __future__ import annotations

from typing import NamedTuple

from projections.resources.devices import FEATURE_PREFIX, Device
from projections.resources.kinds import DPU
from projections.resources.selecting import Age
from projections.resources.specs import JSON, ClusterSpec, DPUSetSpec, DPUTemplateSpec, Labels, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted, suffix
from schemas.resources.dpf.names import DPU_DEVICE_NAME, DPU_NODE_NAME, DPU_SET_NAME, DPU_SET_NAMESPACE, PROVISIONING

_OLD_LABELS = (
    ("pci-address", f"{PROVISIONING}/dpu-pciAddress"),
    ("pf0-name", f"{PROVISIONING}/dpu-pf-name"),
)
"""Labels of a DPU of release 24.10, by the property that node feature discovery states."""

_OUTDATED = (
    ("bfb", "OutdatedBFB"),
    ("dpuFlavor", "OutdatedDPUFlavor"),
    ("secureBoot", "OutdatedSecureBoot"),
    ("blueFieldSoftware", "OutdatedBlueFieldSoftware"),
)
"""Fields of a DPU whose change means a new installation, in the order in which DPF reports them."""


class EffectiveSet(NamedTuple):
    """A DPUSet that somebody stated or a deployment wants. A stated set that its deployment wants is as wanted.

    `template_digest` is that of the spec of its DPUFlavorTemplate, empty without one.
    """

    at: ObjectId
    age: Age
    labels: Labels
    spec: DPUSetSpec
    is_held: bool
    template_digest: str


def dpu_name(device: Device) -> str:
    """The name of a DPU, which is also the name of its node in its DPU cluster."""
    return f"{device.host.lower()}-{device.name}"


def wanted_dpu(owner: EffectiveSet, device: Device) -> Wanted:
    """The DPU of a device, as its DPUSet wants it."""
    template = owner.spec.dpu_template
    return Wanted(
        at=ObjectId(owner.at.source, DPU, owner.at.namespace, dpu_name(device)),
        owner=owner.at.key,
        spec=_spec(template.spec, device, owner.template_digest),
        labels=_labels(owner.at, owner.labels, device),
        annotations=template.annotations or {},
        is_held=owner.is_held,
    )


def outdated_reason(spec: JSON, wanted: JSON) -> str | None:
    """Why a DPU with this spec must be installed anew to be as wanted; None if it need not."""
    return next((reason for field, reason in _OUTDATED if spec.get(field) != wanted.get(field)), None)


def flavor_name(template: str, template_digest: str, device: Device) -> str:
    """The DPUFlavor that a DPUFlavorTemplate is rendered to: one for all devices with the same values."""
    return f"{template}-{suffix(template, template_digest, device.spec.values or {})}"


def _labels(at: ObjectId, labels: Labels, device: Device) -> Labels:
    own = {DPU_SET_NAME: at.name, DPU_SET_NAMESPACE: at.namespace}
    if device.number < 0:
        own |= {DPU_DEVICE_NAME: device.name, DPU_NODE_NAME: device.host}
        return own | labels | device.labels | own
    prefix = f"{FEATURE_PREFIX}{device.number}-"
    found = {label: device.labels[prefix + name] for name, label in _OLD_LABELS if prefix + name in device.labels}
    return labels | found | own


def _spec(template: DPUTemplateSpec, device: Device, template_digest: str) -> JSON:
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
    """The labels and annotations of the DPU's node. Those of the device win over those of the template."""
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
