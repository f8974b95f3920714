"""The stages of networks, as annotations of the DPFOperatorConfig of a source state them.

DPF's schemas have no field for stages, so they are annotations: the manifests stay valid for DPF. Networks follow from
many objects that often change together, so their stages are stated once for a source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from projections.field_checks import quoted
from projections.resources.durations import duration_ms
from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.network_stages.rows import PREFIX
from projections.resources.state import ResourcesState
from projections.staging.plan import ALL, StagePlan, fault_of_stages

STAGES = f"{PREFIX}stages"
BAKE_TIME = f"{PREFIX}bake-time"
FAILURE_BUDGET = f"{PREFIX}failure-budget"
ANNOTATIONS = (STAGES, BAKE_TIME, FAILURE_BUDGET)


def stages_of(state: ResourcesState, source: str) -> StagePlan | str | None:
    """The stages that a source states, or the fault of its annotations; None if it states none. The oldest of
    several DPFOperatorConfigs counts."""
    rows = state.objects.rows
    configs = [(rows[key].created_ms, key) for key in state.of_kind(source, DPF_OPERATOR_CONFIG)]
    return stages_in(rows[min(configs)[1]].annotations) if configs else None


def stages_in(annotations: Mapping[str, str]) -> StagePlan | str | None:
    """The stages in annotations, or the fault of one of them; None if they have none."""
    found = {name: text.strip() for name, text in sorted(annotations.items()) if name.startswith(PREFIX)}
    for name in found:
        if name not in ANNOTATIONS:
            return f"annotation {name}: is unknown; the annotations are {', '.join(ANNOTATIONS)}"
    if not found:
        return None
    if STAGES not in found:
        return f"annotation {min(found)}: has no meaning without {STAGES}"
    stages = [each.strip() for each in found[STAGES].split(",")]
    stages += [ALL] if stages[-1] != ALL else []
    bake_ms = duration_ms(found.get(BAKE_TIME, "0"))
    if bake_ms is None:
        return f"annotation {BAKE_TIME}: {quoted(found[BAKE_TIME])} must be a duration such as 90s, 10m or 1h30m"
    budget = found.get(FAILURE_BUDGET, "0")
    fault = fault_of_stages(stages, bake_ms, budget)
    return f"annotation {PREFIX}{fault.replace('_', '-')}" if fault else StagePlan(tuple(stages), bake_ms, budget)


def annotation_faults(annotations: Mapping[str, str]) -> Iterator[str]:
    """The fault of the annotations of a DPFOperatorConfig, with its path in the object."""
    found = stages_in(annotations)
    if isinstance(found, str):
        name, _, fault = found.removeprefix("annotation ").partition(": ")
        yield f'metadata.annotations["{name}"]: {fault}'
