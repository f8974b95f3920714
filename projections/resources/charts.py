"""The chart that a DPUServiceTemplate names, and what is observed of it: the versions that the service needs.

Versions are annotations of the chart, which a driver reads. An annotation of the template itself counts before them: so
a plane that cannot reach the repository works too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from projections.resources.observation import Observation
from projections.resources.service_specs import HelmChart
from projections.resources.specs import Spec, read
from projections.resources.state import Resource
from schemas.resources.dpf.names import DOCA_VERSION

NEEDED = (DOCA_VERSION,)
"""The annotations that name versions which a service needs."""
CHART, VERSIONS = "chart", "versions"
"""Fields of the observation: the chart that was read, and the versions by annotation."""
VERSION_CHARACTERS_MAX = 256


class _TemplateSpec(Spec, frozen=True):
    helm_chart: HelmChart = HelmChart()


class Chart(NamedTuple):
    """A version of a chart in a repository, or of a registry if it begins with oci://."""

    repository: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.repository.rstrip('/')}/{self.name}:{self.version}"


def chart_of(row: Resource) -> Chart | None:
    """The chart of a template; None if the template does not name a chart of a repository."""
    spec = read(_TemplateSpec, row)
    if isinstance(spec, str):
        return None
    source = spec.helm_chart.source
    found = Chart(source.repo_url, source.chart or "", source.version)
    return found if all(found) else None


def is_read(row: Resource) -> bool:
    """Whether the versions that a service needs are read from its chart: its template does not state them."""
    return not row.deleted_ms and not all(name in row.annotations for name in NEEDED) and chart_of(row) is not None


def needed_versions(row: Resource, seen: Observation | None) -> dict[str, str]:
    """The versions that the service of a template needs, by annotation."""
    of_chart: Any = {}
    if seen is not None and seen.is_ready and is_current(row, seen):
        of_chart = seen.fields.get(VERSIONS)
    found = of_chart if isinstance(of_chart, Mapping) else {}
    texts = {name: row.annotations.get(name, found.get(name)) for name in NEEDED}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def is_current(row: Resource, seen: Observation) -> bool:
    """Whether an observation is about the chart that the template names now."""
    return seen.fields.get(CHART) == str(chart_of(row))


def observation_of(chart: Chart, annotations: Mapping[str, str] | None, fault: str = "") -> str:
    """The observation of a chart that was read, or of one that cannot be."""
    versions = {
        name: annotations[name][:VERSION_CHARACTERS_MAX] for name in NEEDED if annotations and name in annotations
    }
    fields: dict[str, Any] = {"ready": annotations is not None, CHART: str(chart)}
    fields |= {VERSIONS: versions} if versions else {}
    fields |= {"message": fault} if fault else {}
    return msgspec.json.encode(fields).decode()
