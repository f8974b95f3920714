"""Types that several of DPF's kinds share, among them types of Kubernetes itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from schemas.resources.kinds import Column
from schemas.resources.model import Model, validated

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
CONDITION_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
MAX_MTU = 9216
MIN_MTU = 1280

ANY_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

StringMap = dict[str, str]
AnyObject = Annotated[dict[str, Any], WithJsonSchema(ANY_OBJECT)]
"""An object of any fields, such as the values of a Helm chart."""
IntOrString = Annotated[int | str, WithJsonSchema({"x-kubernetes-int-or-string": True})]
Quantity = Annotated[int | str, WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY})]
Quantities = dict[str, Quantity]
"""Amounts by resource, such as cpu and memory."""
Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Name = Annotated[str, Field(min_length=1)]
IPv4 = Annotated[str, Field(json_schema_extra={"format": "ipv4"})]
ServiceMTU = Annotated[int, Field(ge=MIN_MTU, le=MAX_MTU)]
DPUType = Literal["Unknown", "BlueField2", "BlueField3", "BlueField4"]
DPUMode = Literal["dpu", "zero-trust", "nic"]
DeploymentMode = Literal["zero-trust", "host-trusted"]
RebootMethod = Literal[
    "Unknown", "NoAction", "PowerCycle", "SystemReboot", "SystemLevelReset", "FirmwareReset", "DPUWarmReboot"
]
"""The reset that a change of firmware or of its configuration needs."""
InstallInterface = Literal["gNOI", "hostAgent", "redfish"]


def immutable(message: str = "Value is immutable") -> dict[str, Any]:
    """The rule that a value never changes. The rule does not run for an update that adds or removes the value."""
    return validated(("self == oldSelf", message))


def extra(*parts: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """Additions to a schema, with the rules of all of them."""
    rules = [rule for part in parts for rule in part.get("x-kubernetes-validations", ())]
    found = {key: value for part in parts for key, value in part.items()} | keywords
    return found | ({"x-kubernetes-validations": rules} if rules else {})


def named(maximum: int, *parts: dict[str, Any]) -> ConfigDict:
    """The configuration of a kind whose names are at most `maximum` characters: labels, generated objects or host names
    are made from them."""
    limit = validated((f"self.metadata.name.size() <= {maximum}", f"name length can't be bigger than {maximum} chars"))
    return ConfigDict(json_schema_extra=extra(limit, *parts))


class Condition(Model):
    """One aspect of an object's state, by the API conventions of Kubernetes."""

    type: Annotated[str, Field(max_length=316, pattern=CONDITION_TYPE)]
    """The aspect, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: Annotated[Int64 | None, Field(ge=0)] = None
    """The metadata.generation that the condition was computed from."""
    last_transition_time: Time
    """The time of the last change of the field status."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=CONDITION_REASON)]
    """The reason of the last change, as one word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """The reason in a sentence for people."""


Conditions = Annotated[list[Condition] | None, Field(description="The state of the object, aspect by aspect.")]
ConditionMap = Annotated[
    list[Condition] | None,
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""Conditions that several writers apply, each its own."""
ObservedGeneration = Annotated[
    Int64 | None, Field(description="The metadata.generation that this status was computed from.")
]


class ConditionsStatus(Model):
    """The status of kinds that report conditions only."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None


_ATOMIC = {"x-kubernetes-list-type": "atomic"}


class Requirement(Model):
    """A condition on a label or field."""

    key: str
    """The label or field."""
    operator: str
    """The comparison: In, NotIn, Exists or DoesNotExist, and for nodes Gt or Lt."""
    values: Annotated[list[str] | None, Field(json_schema_extra=_ATOMIC)] = None
    """The values to compare with."""


class LabelSelector(Model):
    """Labels and conditions on labels, all of which must match; empty matches everything."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: StringMap | None = None
    """Labels that must all have these values."""
    match_expressions: Annotated[list[Requirement] | None, Field(json_schema_extra=_ATOMIC)] = None


class NodeSelectorTerm(Model):
    """Conditions on a node, all of which must match."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_expressions: Annotated[list[Requirement] | None, Field(json_schema_extra=_ATOMIC)] = None
    match_fields: Annotated[list[Requirement] | None, Field(json_schema_extra=_ATOMIC)] = None


class NodeSelector(Model):
    """Terms of which one must match."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(json_schema_extra=_ATOMIC)]


class ObjectMeta(Model):
    """Labels and annotations of objects that are made from a template."""

    labels: StringMap | None = None
    """Labels of the objects."""
    annotations: StringMap | None = None
    """Annotations of the objects."""


class RollingUpdate(Model):
    """The pace of an update of a DaemonSet."""

    max_surge: IntOrString | None = None
    """Pods that may run beside the older ones."""
    max_unavailable: IntOrString | None = None
    """Pods that may be unavailable at the same time."""


class UpdateStrategy(Model):
    """How a DaemonSet replaces its pods."""

    type: str | None = None
    """RollingUpdate or OnDelete."""
    rolling_update: RollingUpdate | None = None


AGE = Column("Age", ".metadata.creationTimestamp", "date")
READY = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")
REASON = Column("Reason", ".status.conditions[?(@.type=='Ready')].reason")
PHASE_OF_READY = Column("Phase", ".status.conditions[?(@.type=='Ready')].reason")
