"""The DPU that a DPUSet wants for a device, in the form of the current release or of release 24.10.

Names, labels and fields are those of DPF's DPUSet controller (DPUSet controller, createDPU).
"""

from __future__ import annotations

from projections.resources.devices import FEATURE_PREFIX, Device
from projections.resources.kinds import DPU
from projections.resources.specs import JSON, ClusterSpec, DPUSetSpec, DPUTemplateSpec, Labels, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted, suffix
from schemas.resources.dpf.names import DPU_DEVICE_NAME, DPU_NODE_NAME, DPU_SET_NAME, DPU_SET_NAMESPACE, PROVISIONING

_OLD_LABELS = (
    ("pci-address", f"{PROVISIONING}/dpu-pciAddress"),
    ("pf0-name", f"{PROVISIONING}/dpu-pf-name"),
)
"""Labels of a DPU of release 24.10, by the property that node feature discovery states."""

REINSTALLING_FIELDS = ("bfb", "blueFieldSoftware", "dpuFlavor", "secureBoot")
"""Fields of a DPU whose change means a new installation. The first that differs is the reported one."""


def dpu_name(device: Device) -> str:
    """The name of a DPU, which is also the name of its node in its DPU cluster."""
    return f"{device.host.lower()}-{device.name}"


def wanted_dpu(at: ObjectId, labels: Labels, spec: DPUSetSpec, device: Device, *, is_held: bool = False) -> Wanted:
    """The DPU of a device, as the DPUSet `at` wants it."""
    template = spec.dpu_template
    return Wanted(
        at=ObjectId(at.source, DPU, at.namespace, dpu_name(device)),
        owner=at.key,
        spec=_spec(template.spec, device),
        labels=_labels(at, labels, device),
        annotations=template.annotations or {},
        is_held=is_held,
    )


def flavor_name(template: str, device: Device) -> str:
    """The DPUFlavor that a DPUFlavorTemplate is rendered to: one for all devices with the same values."""
    return f"{template}-{suffix(template, device.spec.values or {})}"


def _labels(at: ObjectId, labels: Labels, device: Device) -> Labels:
    own = {DPU_SET_NAME: at.name, DPU_SET_NAMESPACE: at.namespace}
    if device.number < 0:
        own |= {DPU_DEVICE_NAME: device.name, DPU_NODE_NAME: device.host}
        return own | labels | device.labels | own
    prefix = f"{FEATURE_PREFIX}{device.number}-"
    found = {label: device.labels[prefix + name] for name, label in _OLD_LABELS if prefix + name in device.labels}
    return labels | found | own


def _spec(template: DPUTemplateSpec, device: Device) -> JSON:
    if device.number < 0:
        where = {"dpuNodeName": device.host, "dpuDeviceName": device.name, "serialNumber": device.spec.serial_number}
    else:
        where = {"nodeName": device.host}
    flavor = template.dpu_flavor
    if template.dpu_flavor_template is not None:
        flavor = flavor_name(template.dpu_flavor_template, device)
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
