"""The part of a DPUSet's template whose change means a new installation, and an earlier one in its place.

A rollback pins the template of an earlier revision. The pin has effect until the user states another template, so the
object of the user stays as it is, and everything that follows from it is as the earlier revision wants it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from projections.resources.install_identity import installed_fields
from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE, DPU_FLAVOR, DPU_FLAVOR_TEMPLATE
from projections.resources.rollouts.rows import Rollout
from projections.resources.specs import JSON, DPUSetSpec, Named, without_absent
from projections.resources.state import ObjectId, ResourcesState, object_id
from projections.resources.wanted import digest

_KINDS = {
    "bfb": BFB,
    "blueFieldSoftware": BLUEFIELD_SOFTWARE,
    "dpuFlavor": DPU_FLAVOR,
    "dpuFlavorTemplate": DPU_FLAVOR_TEMPLATE,
}
"""The kind of the object that each field names."""
CONTENT = "content"
"""The field with the digest of the objects that a template refers to: they may change under the same names."""


def template_text(state: ResourcesState, at: ObjectId, spec: DPUSetSpec) -> str:
    """The template of a DPUSet as far as its change means a new installation, as JSON."""
    fields = _fields(spec)
    keys = (ObjectId(at.source, _KINDS[field], at.namespace, fields[field]).key for field in _KINDS if field in fields)
    rows = [(key, state.objects.rows.get(key)) for key in keys]
    content = [installed_fields(object_id(key).kind, row.spec) if row is not None else None for key, row in rows]
    return _text(fields | {CONTENT: digest(content)})


def stated_text(spec: DPUSetSpec) -> str:
    """The same without the content of the objects that it refers to: what the user states."""
    return _text(_fields(spec))


def without_content(template: str) -> str:
    """The text that the user would state for a template."""
    return _text(fields_of(template))


def fields_of(template: str) -> JSON:
    """The fields of a template without the digest of its objects, for people."""
    found: JSON = msgspec.json.decode(template) if template else {}
    found.pop(CONTENT, None)
    return found


def with_pin(spec: DPUSetSpec, row: Rollout | None) -> DPUSetSpec:
    """The spec of a DPUSet with its pinned template, if it has one that has effect."""
    if row is None or not row.pin or stated_text(spec) != row.pinned_against:
        return spec
    pinned = fields_of(row.pin)
    image, software = pinned.get("bfb"), pinned.get("blueFieldSoftware")
    template = replace(
        spec.dpu_template.spec,
        bfb=Named(image) if image else None,
        blue_field_software=Named(software) if software else None,
        dpu_flavor=pinned.get("dpuFlavor"),
        dpu_flavor_template=pinned.get("dpuFlavorTemplate"),
        secure_boot=pinned.get("secureBoot"),
    )
    return replace(spec, dpu_template=replace(spec.dpu_template, spec=template))


def _fields(spec: DPUSetSpec) -> JSON:
    template = spec.dpu_template.spec
    return without_absent(
        {
            "bfb": template.bfb.name if template.bfb else None,
            "blueFieldSoftware": template.blue_field_software.name if template.blue_field_software else None,
            "dpuFlavor": template.dpu_flavor,
            "dpuFlavorTemplate": template.dpu_flavor_template,
            "secureBoot": template.secure_boot,
        }
    )


def _text(fields: JSON) -> str:
    return msgspec.json.encode(fields, order="sorted").decode()
