"""References between objects: the fields of a spec that name another object.

An object that others refer to is not removed before them. DPF protects the same objects with finalizers and webhooks
(internal/provisioning/controllers, DPUDeployment controller). Objects that DPF does not protect are not here: an object
that names one of them says in its conditions what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PROVISIONING = "provisioning.dpu.nvidia.com"
SERVICES = "svc.dpu.nvidia.com"

EACH = "*"
"""A step of a path that stands for every value of a mapping or list."""

_INSTALLED = (
    ("bfb.name", f"BFB.{PROVISIONING}"),
    ("blueFieldSoftware.name", f"BlueFieldSoftware.{PROVISIONING}"),
    ("dpuFlavor", f"DPUFlavor.{PROVISIONING}"),
    ("dpuFlavorTemplate", f"DPUFlavorTemplate.{PROVISIONING}"),
)

REFERENCES: Mapping[str, tuple[tuple[str, str], ...]] = {
    f"DPUSet.{PROVISIONING}": tuple((f"dpuTemplate.spec.{path}", kind) for path, kind in _INSTALLED),
    f"DPU.{PROVISIONING}": (
        ("bfb", f"BFB.{PROVISIONING}"),
        ("blueFieldSoftware", f"BlueFieldSoftware.{PROVISIONING}"),
        ("dpuFlavor", f"DPUFlavor.{PROVISIONING}"),
        ("cluster", f"DPUCluster.{PROVISIONING}"),
    ),
    f"DPUDeployment.{SERVICES}": (
        ("dpus.bfb", f"BFB.{PROVISIONING}"),
        ("dpus.blueFieldSoftware", f"BlueFieldSoftware.{PROVISIONING}"),
        ("dpus.flavor", f"DPUFlavor.{PROVISIONING}"),
        ("dpus.flavorTemplate", f"DPUFlavorTemplate.{PROVISIONING}"),
        (f"services.{EACH}.serviceTemplate", f"DPUServiceTemplate.{SERVICES}"),
        (f"services.{EACH}.serviceConfiguration", f"DPUServiceConfiguration.{SERVICES}"),
    ),
}
"""The paths of references in the spec of each kind, with the kind that each refers to. Each path leads to a name, or to
a mapping with `name` and `namespace`."""


class Reference(NamedTuple):
    """A reference in a spec. An empty namespace is that of the object with the spec."""

    path: str
    kind: str
    namespace: str
    name: str


def references(kind: str, spec: Any) -> Iterator[Reference]:
    """The references of a spec."""
    for path, target in REFERENCES.get(kind, ()):
        for found, value in _values(spec, path.split("."), ""):
            at, namespace, name = found, "", value
            if isinstance(value, Mapping):
                at, namespace, name = f"{found}.name", value.get("namespace") or "", value.get("name")
            if isinstance(name, str) and name and isinstance(namespace, str):
                yield Reference(at, target, namespace, name)


def _values(value: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield path, value
        return
    if isinstance(value, Mapping):
        names = sorted(value) if steps[0] == EACH else [steps[0]] if steps[0] in value else []
        for name in names:
            yield from _values(value[name], steps[1:], f"{path}.{name}" if path else name)
