"""Events about staged changes: of rule policies in fleet, in one order with all other edits of policies; of networks in
resources.
"""

from __future__ import annotations

from schemas.envelope import Event


class PolicyStaged(Event, frozen=True, gc=False):
    """Sets or deletes (if `is_deleted`) a rule policy in stages: the DPUs of each stage get the change after the DPUs
    of the stages before it.

    The fields from `priority` to `zones` are those of PolicySet, and have no meaning for a deletion. A stage is the
    share of all DPUs that have the change after it, as a number or a percentage; or `KEY=VALUE`, which adds the DPUs of
    all zones with this label. The last stage is `100%`. A stage lasts at least `bake_ms`. `failure_budget`, a number or
    a percentage, is how many DPUs may fail before the change is held.
    """

    schema_id = 46
    name: str
    is_deleted: bool
    priority: int
    action: str
    protocol: str
    ports: list[int]
    sources: dict[str, str]
    zones: dict[str, str]
    stages: list[str]
    bake_ms: int
    failure_budget: str


class StageDpusNamed(Event, frozen=True, gc=False):
    """A driver names DPUs of the next stage of a staged change. A stage may need several records.

    `change` is the version of the staged change: the position after its first record. `stage` counts from 1. `total` is
    the number of DPUs that the change concerns. Each DPU has its zone in `zones` and its name in `dpus`.
    """

    schema_id = 47
    change: int
    stage: int
    total: int
    zones: list[str]
    dpus: list[str]


class StageObserved(Event, frozen=True, gc=False):
    """A driver saw how far the DPUs of the released stages are. The fold decides what follows from it.

    `stage` is the number of released stages. `named` is the number of DPUs that the driver has named for the next
    stage, 0 if the next one is the last. `waiting` is the number of DPUs that should have the change and neither have
    reported it nor failed. `failed` are DPUs as ZONE/NAME, each with its reason in `reasons`.
    """

    schema_id = 48
    change: int
    stage: int
    total: int
    named: int
    waiting: int
    failed: list[str]
    reasons: list[str]


class StagesRequested(Event, frozen=True, gc=False):
    """An operator pauses, resumes or undoes the staged change of a policy. `verb` is pause, resume or undo."""

    schema_id = 49
    name: str
    verb: str


class NetworksStaged(Event, frozen=True, gc=False):
    """A driver saw that the networks of a source are not those of its last staged change: a new one begins. It is in
    resources.

    `networks` is their text (projections/resources/network_documents/stated_text.py), as of the position `to_offset` of
    this partition. The other fields are those of PolicyStaged, as annotations of the source's DPFOperatorConfig state
    them. Without `stages` the source states none any more, and its networks change at once again.
    """

    schema_id = 51
    source: str
    to_offset: int
    networks: str
    stages: list[str]
    bake_ms: int
    failure_budget: str
