"""Whether the image of a deployment has the versions that its services need.

They are annotations of the service's chart, or of its DPUServiceTemplate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from projections.field_checks import quoted
from projections.resources.blame import Blame
from projections.resources.charts import needed_versions
from projections.resources.deployments.specs import DPUDeploymentSpec
from projections.resources.deployments.version_ranges import version, version_range
from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE, DPU_SERVICE_TEMPLATE, short_name
from projections.resources.observation import Observation
from projections.resources.state import ObjectId, Resource
from schemas.resources.dpf.names import DOCA_VERSION

_VERSIONS = {DOCA_VERSION: "doca"}
"""The versions that a service may need, with their names in `status.versions` of an image."""


def mismatches(
    at: ObjectId,
    spec: DPUDeploymentSpec,
    services: Iterable[str],
    rows: Mapping[str, Resource],
    seen: Mapping[str, Observation],
) -> Iterator[Blame]:
    """The blames on templates of these services whose versions the image does not have."""
    kind, name = (BFB, spec.dpus.bfb) if spec.dpus.bfb else (BLUEFIELD_SOFTWARE, spec.dpus.blue_field_software)
    image = ObjectId(at.source, kind, at.namespace, name or "").key
    for service in services:
        key = ObjectId(at.source, DPU_SERVICE_TEMPLATE, at.namespace, spec.services[service].service_template).key
        for annotation, needed in needed_versions(rows[key], seen.get(key)).items():
            yield from _mismatch(key, annotation, needed, image, seen.get(image))


def _mismatch(key: str, annotation: str, needed: str, image: str, seen: Observation | None) -> Iterator[Blame]:
    wanted, name = version_range(needed), _VERSIONS[annotation]
    needs = f"{short_name(key)} needs version {quoted(needed)} of {annotation}"
    if wanted is None:
        yield Blame(key, f"{needs}, which is no range of versions")
    elif seen is None or not seen.is_ready:
        yield Blame(image, f"{needs}, and the versions of {short_name(image)} are not known yet", is_unknown=True)
    else:
        versions = seen.fields.get("versions")
        text = str(versions.get(name) or "") if isinstance(versions, dict) else ""
        found = version(text)
        if found is None:
            yield Blame(image, f"{needs}, and no version of {name} can be read from {short_name(image)}")
        elif not wanted.has(found):
            yield Blame(image, f"{needs}, and {short_name(image)} has {quoted(text)}")
