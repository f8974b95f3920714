"""Events about rollouts of DPUSets, and about the DPU clusters of DPUs."""

from __future__ import annotations

from schemas.envelope import Event


class RolloutPlanned(Event, frozen=True, gc=False):
    """The DPUs of a DPUSet, the image identity that each shall have, and the limits of the way there.

    A driver states what it derived from the objects before `position`; the fold refuses a statement that is older than
    the last one, or than the last change of the DPUSet, its DPUDeployment, and the objects that they refer to. A plan
    may need several records, each with the same fields before the columns. The fold acts on it once the sum of the
    digests of its rows equals `digest`. Columns have changed DPUs only; an empty identity removes a DPU from the set.

    `template` and `stated` are JSON: the fields of the DPUSet's template whose change means a new installation, as they
    have effect and as the user states them. They differ while an earlier revision is pinned. Both are empty once the
    DPUSet is gone. `deployment` is the name of the DPUDeployment that wants the DPUSet, empty if a user states it.
    `waves` are the sizes of all waves as the user gives them. A group is a part of a wave that is updated before the
    next one.
    """

    schema_id = 38
    source: str
    namespace: str
    name: str
    deployment: str
    position: int
    template: str
    stated: str
    strategy: str
    max_unavailable: str
    waves: list[str]
    bake_ms: int
    failure_budget: str
    is_paused: bool
    digest: int
    dpus: list[str]
    identities: list[str]
    wave_numbers: list[int]
    groups: list[int]


class RolloutAdvanced(Event, frozen=True, gc=False):
    """A driver saw that rollouts can advance: DPUs can be released, a wave is complete, or a limit is exceeded.

    The fold decides what happens, within its own limits and by its own counts, so a duplicate changes nothing.
    """

    schema_id = 39
    source: str
    namespaces: list[str]
    names: list[str]


class RolloutRequested(Event, frozen=True, gc=False):
    """An operator pauses, resumes or undoes a rollout: of a DPUSet, or of all DPUSets of a DPUDeployment.

    `verb` is pause, resume or undo. `revision` is the number of the revision to return to, 0 for the one before.
    """

    schema_id = 40
    source: str
    kind: str
    namespace: str
    name: str
    verb: str
    revision: int


class DpusAllocated(Event, frozen=True, gc=False):
    """A driver proposes DPU clusters for DPUs, as derived from the objects before `position`.

    `clusters` are the names of DPUClusters as NAMESPACE/NAME; an empty one releases the place of a DPU that exists no
    more. The fold refuses a cluster that is full, not ready or changed since, and never allocates a DPU twice.
    """

    schema_id = 41
    source: str
    position: int
    namespaces: list[str]
    names: list[str]
    clusters: list[str]
