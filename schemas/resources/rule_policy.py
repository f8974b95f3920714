"""RulePolicy: which nodes may reach the DPUs of which zones."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.kinds import Column, Kind
from schemas.resources.model import (
    Conditions,
    Count,
    Labels,
    LogPosition,
    Model,
    ObservedGeneration,
    Stated,
    forward_only,
    validated,
)

MAX_PRIORITY = 1_000_000
MAX_PORT_RANGES = 64
MAX_STAGES = 10
MAX_BAKE_S = 30 * 86_400
ALL = "100%"
"""The last stage: all DPUs."""
SIZE = r"[0-9]{1,9}|([0-9]{1,2}|100)%"
"""The pattern of projections/sizes.read_size."""
LABEL = r"[^=\x00-\x1f\x7f]{1,317}=[^\x00-\x1f\x7f]{0,253}"
"""KEY=VALUE; projections/field_checks.check_labels also checks the form of the key."""

Stage = Annotated[str, Field(max_length=571, pattern=rf"^({SIZE}|{LABEL})$")]
Port = Annotated[int, Field(ge=0, le=65_535)]


class PortRange(Model):
    """Ports from the first to the last one, both included."""

    model_config = ConfigDict(
        json_schema_extra=validated(("self.first <= self.last", "last must not be below first")),
    )

    first: Port
    """The first port."""
    last: Port
    """The last port."""


class Staging(Model):
    """The stages of a change: the DPUs of one stage get it after those of the stages before."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (f"self.stages[size(self.stages) - 1] == '{ALL}'", f"the last stage must be {ALL}"),
            (f"self.stages.filter(stage, stage == '{ALL}').size() <= 1", f"only the last stage may be {ALL}"),
        ),
    )

    stages: Annotated[list[Stage], Field(min_length=2, max_length=MAX_STAGES)]
    """The share of all DPUs that have the change after each stage, as a number or percentage; KEY=VALUE adds the DPUs
    of all zones with this label. The last stage is 100%."""
    bake_time_seconds: Annotated[int, Field(ge=0, le=MAX_BAKE_S)] = 0
    """The least duration of each stage."""
    failure_budget: Annotated[str, Field(max_length=9, pattern=rf"^({SIZE})$")] = "0"
    """How many DPUs may fail before the change is held, as a number or percentage: they refuse the table, go back to an
    older one, or do not report it in time."""


class RulePolicySpec(Model):
    """A policy allows or denies the nodes that it selects access to the DPUs of the zones that it selects."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!has(self.ports) || size(self.ports) == 0 || self.protocol in ['tcp', 'udp']",
                "ports need the protocol tcp or udp",
            )
        )
    )

    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    """The policy of the highest priority decides; at equal priority drop goes before allow."""
    state: Literal["Present", "Absent"] = "Present"
    """Absent deletes the policy from the plane. Deleting the object deletes no policy."""
    action: Literal["allow", "drop"]
    """The action on packets from the selected nodes."""
    protocol: Literal["any", "tcp", "udp", "icmp"] = "any"
    """The protocol of these packets."""
    ports: Annotated[list[PortRange], Field(max_length=MAX_PORT_RANGES)] = []
    """TCP or UDP ports; empty means all ports."""
    sources: Labels = {}
    """Labels of nodes, all of which must match; empty matches every node."""
    zones: Labels = {}
    """Labels of zones, all of which must match; empty matches every zone."""
    staging: Staging | None = None
    """How a change of the policy reaches the DPUs. Without it all DPUs get the change at once."""


class RulePolicyStatus(Model):
    """The state of the policy in the plane."""

    observed_generation: ObservedGeneration = 0
    stated: Stated | None = None
    log_position: LogPosition | None = None
    version: Count = 0
    """The position in topic fleet of the policy's last change."""
    hold: Count | None = None
    """The number of the hold that the last change waits for."""
    zones: Count = 0
    """Zones that the policy selects."""
    addresses: Count = 0
    """Addresses of the nodes that the policy selects."""
    conditions: Conditions = []


class RulePolicy(Model):
    """A rule policy of the plane. The plane takes each change of the spec once; over a budget, the change waits for two
    approvers. Deleting the object leaves the policy in force: set state to Absent first."""

    model_config = ConfigDict(json_schema_extra=forward_only("fleet"))

    spec: RulePolicySpec
    status: RulePolicyStatus | None = None


RULE_POLICY = Kind(
    name="RulePolicy",
    plural="rulepolicies",
    model=RulePolicy,
    short_names=("rulepol",),
    categories=("dpuplane",),
    columns=(
        Column("Action", ".spec.action"),
        Column("Priority", ".spec.priority", "integer"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Hold", ".status.hold", "integer"),
        Column("Zones", ".status.zones", "integer"),
        Column("Addresses", ".status.addresses", "integer"),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
