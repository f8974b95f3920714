"""The identity of what is installed on a DPU: `<name of the image>/<digest>`. Zones know it as the name of the image.

The digest covers everything whose change requires a new installation: the address of the image, the flavor as it is
rendered for the device, and secure boot. Equal identities are equal installations, so a DPU is never installed anew for
an object that was replaced by an equal one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.memo import Memo
from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE, DPU_FLAVOR, DPU_FLAVOR_TEMPLATE
from projections.resources.specs import JSON
from projections.resources.state import ObjectId, ResourcesState
from projections.resources.wanted import Wanted, digest

_FLAVOR = "dpuFlavor"
_IMAGES = {"bfb": BFB, "blueFieldSoftware": BLUEFIELD_SOFTWARE}
INSTALLED: Mapping[str, str] = {**_IMAGES, _FLAVOR: DPU_FLAVOR}
"""The fields of a DPU that name an object whose content is installed on it, with the kinds of these objects."""

_UNINSTALLED: Mapping[str, tuple[str, ...]] = {
    DPU_FLAVOR: ("dpuResources", "systemReservedResources", "serviceReadiness"),
    **dict.fromkeys((BFB, BLUEFIELD_SOFTWARE), ("fileName", "versions")),
}
"""Fields that are no part of an installation. The fields of a flavor place services and make a DPU wait for them; the
fields of an image are about its place in the image store and its content."""


def install_identity(state: ResourcesState, wanted: Wanted) -> str | None:
    """The identity of the installation of a wanted DPU; None if its image or its flavor does not exist."""
    image = image_of(wanted)
    found = state.objects.rows.get(image.key) if image is not None else None
    flavor = _flavor(state, wanted)
    if image is None or found is None or flavor is None:
        return None
    return _identities.of((image.name, found.spec, flavor, bool(wanted.spec.get("secureBoot"))), _identity)


def image_of(wanted: Wanted) -> ObjectId | None:
    """The BFB or BlueFieldSoftware of a wanted DPU."""
    for field, kind in _IMAGES.items():
        if name := wanted.spec.get(field):
            return ObjectId(wanted.at.source, kind, wanted.at.namespace, name)
    return None


def installed_fields(kind: str, spec: str) -> JSON:
    """The fields of an image's or a flavor's spec whose change requires a new installation."""
    fields: JSON = msgspec.json.decode(spec)
    without = _UNINSTALLED.get(kind, ())
    return {name: value for name, value in fields.items() if name not in without}


def _flavor(state: ResourcesState, wanted: Wanted) -> str | None:
    """The content of the flavor of a DPU. The name of a flavor that is rendered from a template has a digest of the
    template and of the device's values, and therefore stands for its content."""
    name = wanted.spec.get(_FLAVOR)
    if not name:
        return ""
    at, rows = wanted.at, state.objects.rows
    template = name.rpartition("-")[0]
    if template and ObjectId(at.source, DPU_FLAVOR_TEMPLATE, at.namespace, template).key in rows:
        return str(name)
    row = rows.get(ObjectId(at.source, DPU_FLAVOR, at.namespace, name).key)
    return None if row is None else row.spec


_identities: Memo[tuple[str, str, str, bool], str] = Memo(1_000)


def _identity(parts: tuple[str, str, str, bool]) -> str:
    name, image, flavor, secure_boot = parts
    content = installed_fields(DPU_FLAVOR, flavor) if flavor.startswith("{") else flavor
    return f"{name}/{digest(installed_fields(BFB, image), content, secure_boot)}"
