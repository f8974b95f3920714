"""DPURack: a zone of the plane, with its labels and limits as spec and the compact state of its DPUs as status."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.kinds import Column, Kind
from schemas.resources.model import (
    LABEL_KEY,
    Conditions,
    Count,
    Labels,
    LogPosition,
    Model,
    ObservedGeneration,
    Stated,
    Text,
    ZoneName,
    forward_only,
    validated,
)

MAX_STATUS_BYTES = 2_000
MAX_OFFENDERS = 5
MAX_RANGES = 12
MAX_NETWORKS = 64

Limit = Annotated[int, Field(ge=0, le=1_000_000)]
Attempts = Annotated[int, Field(ge=0, le=1_000)]
Network = Annotated[str, Field(max_length=43, pattern=r"^[0-9a-f.:]+/[0-9]{1,3}$")]
LabelKey = Annotated[str, Field(max_length=317, pattern=LABEL_KEY)]


class AttemptLimits(Model):
    """Maximum number of attempts at a step of a DPU, by kind of failure; 0 means the default."""

    transient: Attempts | None = None
    """Attempts when the BMC does not respond."""
    device: Attempts | None = None
    """Attempts when the device reports a failed step."""
    operator: Attempts | None = None
    """Attempts at a fault that needs a person."""


class DPURackSpec(Model):
    """The properties of a zone that users set. An absent field leaves that property of the zone unchanged."""

    model_config = ConfigDict(
        json_schema_extra=validated(("has(self.zone) == has(oldSelf.zone)", "zone is immutable")),
    )

    zone: Annotated[ZoneName | None, Field(json_schema_extra=validated(("self == oldSelf", "zone is immutable")))] = (
        None
    )
    """The zone's name; by default the name of the object. It is immutable."""
    labels: Labels | None = None
    """All labels of the zone, for policies to select."""
    parallel_installs: Limit | None = None
    """DPUs that may be installed at the same time; 0 means the default."""
    unavailable_nodes: Limit | None = None
    """Nodes that may be unavailable at the same time; 0 means the default."""
    agent_networks: Annotated[list[Network] | None, Field(max_length=MAX_NETWORKS)] = None
    """Networks that the addresses of the zone's node agents must be in."""
    agent_label_keys: Annotated[list[LabelKey] | None, Field(max_length=128)] = None
    """Keys of labels that the zone's node agents own."""
    attempts: AttemptLimits | None = None


class RulesStatus(Model):
    """The rule table of the zone, and the number of DPUs that have it."""

    version: Count = 0
    """The position in topic fleet of the table's last change."""
    digest: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")] = ""
    """The digest of the table: equal digests mean equal tables."""
    rules: Count = 0
    """Rules in the table."""
    applied: Count = 0
    """DPUs that have applied this version."""
    in_hardware: Count = 0
    """DPUs that have this version in hardware."""


class Offender(Model):
    """A DPU that needs a person's attention."""

    dpu: Text
    """The name of the DPU."""
    reason: Text
    """The fault of the DPU."""


class DPURackStatus(Model):
    """The compact state of a zone: at most 2 kB at any scale."""

    observed_generation: ObservedGeneration = 0
    stated: Stated | None = None
    log_position: LogPosition | None = None
    nodes: Count = 0
    """Nodes of the zone."""
    dpus: Count = 0
    """DPUs of the zone."""
    ready_dpus: Count = 0
    """DPUs in the phase Ready."""
    phases: Annotated[dict[str, Count], Field(max_length=32)] = {}
    """DPUs by phase of their lifecycle, without Ready."""
    members: Annotated[list[Text], Field(max_length=MAX_RANGES)] = []
    """Names of the zone's nodes as ranges, such as rack-7-node-[001-018]; empty if they do not fit."""
    rules: RulesStatus = RulesStatus()
    frozen: bool = False
    """Whether writes to the devices of the zone are stopped, by a freeze of the zone or of all."""
    offenders: Annotated[list[Offender], Field(max_length=MAX_OFFENDERS)] = []
    """The DPUs that most need a person; `dpuplane dpus list --stuck` prints all."""
    conditions: Conditions = []


class DPURack(Model):
    """A zone of the plane: the nodes and DPUs that share one rule table. The plane makes an object for every zone that
    has none. Deleting an object changes nothing in the plane, which makes it again."""

    model_config = ConfigDict(json_schema_extra=forward_only("fleet", "zones", "installs"))

    spec: DPURackSpec = DPURackSpec()
    status: DPURackStatus | None = None


DPU_RACK = Kind(
    name="DPURack",
    plural="dpuracks",
    model=DPURack,
    short_names=("rack", "dpur"),
    categories=("dpuplane",),
    columns=(
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Nodes", ".status.nodes", "integer"),
        Column("DPUs", ".status.dpus", "integer"),
        Column("Ready DPUs", ".status.readyDpus", "integer"),
        Column("Rules", ".status.rules.rules", "integer", priority=1),
        Column("Version", ".status.rules.version", "integer", priority=1),
        Column("Frozen", ".status.frozen", "boolean", priority=1),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
