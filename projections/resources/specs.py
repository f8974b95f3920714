"""The fields of specs that derivations use, as typed values. Fields that are only copied stay JSON values.

A spec was validated when it was applied, maybe by an older release with other rules. Reading is therefore total: a spec
that does not fit is a fault, which becomes a condition of its object.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from projections.resources.json_limits import fault_of_limits
from projections.resources.state import Resource

JSON = dict[str, Any]
Labels = dict[str, str]


class Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The base of all specs: JSON names are in camel case."""


class Named(Spec, frozen=True):
    """A reference to an object of the same namespace."""

    name: str = ""


class ClusterSpec(Spec, frozen=True):
    """The DPU cluster that a DPU joins, and the DPU's node there."""

    node_labels: Labels | None = None
    node_annotations: Labels | None = None
    selector: JSON | None = None


class DPUTemplateSpec(Spec, frozen=True):
    """How a DPU is provisioned."""

    bfb: Named | None = None
    blue_field_software: Named | None = None
    dpu_flavor: str | None = None
    dpu_flavor_template: str | None = None
    node_effect: JSON | None = None
    cluster: ClusterSpec | None = None
    automatic_node_reboot: bool | None = None
    astra_enabled: bool | None = None
    secure_boot: bool | None = None


class DPUTemplate(Spec, frozen=True):
    """The template of a DPU."""

    annotations: Labels | None = None
    spec: DPUTemplateSpec = DPUTemplateSpec()


class RollingUpdate(Spec, frozen=True):
    """The pace of an update."""

    max_unavailable: int | str | None = None


class DPUSetStrategy(Spec, frozen=True):
    """How DPUs that exist already get a changed template."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class DPUSetSpec(Spec, frozen=True):
    """A template, and selectors of both generations."""

    strategy: DPUSetStrategy | None = None
    node_selector: JSON | None = None
    dpu_node_selector: JSON | None = None
    dpu_selector: Labels | None = None
    dpu_device_selector: JSON | None = None
    dpu_template: DPUTemplate = DPUTemplate()


class DPUNodeSpec(Spec, frozen=True):
    """A host and its DPUDevices."""

    dpus: tuple[Named, ...] | None = None


class DPUDeviceSpec(Spec, frozen=True):
    """A device."""

    serial_number: str = ""
    cluster: ClusterSpec | None = None
    values: JSON | None = None


Read = TypeVar("Read", bound=Spec)
_object = msgspec.json.Decoder(dict[str, Any])
_decoders: dict[type[Spec], msgspec.json.Decoder[Any]] = {}


def read(kind: type[Read], row: Resource) -> Read | str:
    """The spec of an object, or the fault why it cannot be read."""
    if fault := fault_of_limits(row.spec):
        return f"spec: {fault}"
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        found: Read = decoder.decode(row.spec)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        return f"spec: {error}"
    return found


def read_json(row: Resource) -> JSON:
    """The spec of an object as JSON, empty if it cannot be read."""
    if fault_of_limits(row.spec):
        return {}
    try:
        found: JSON = _object.decode(row.spec)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return {}
    return found


def without_absent(fields: JSON) -> JSON:
    """These fields without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
