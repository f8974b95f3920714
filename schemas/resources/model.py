"""Common parts of the models of custom resources: names in camel case, and types of fields.

A field that a user may leave out is optional, and absent in an object. Unknown fields are ignored, because a later
version of the plane may have written the object. The API server itself refuses unknown fields.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

LABEL_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62})?$"
"""The pattern of projections/field_checks.check_label_key, without its length checks for keys with a prefix."""
ZONE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""The pattern of projections/field_checks.check_zone."""
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
"""One line without control characters; projections/field_checks.check_text also refuses some other Unicode
characters."""
MAX_LABELS = 128

Text = Annotated[str, Field(max_length=253, pattern=PRINTABLE)]
Message = Annotated[str, Field(max_length=1024, pattern=PRINTABLE)]
ZoneName = Annotated[str, Field(pattern=ZONE_NAME, max_length=63)]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Labels = Annotated[
    dict[str, Text],
    Field(
        max_length=MAX_LABELS,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": f"self.all(key, size(key) <= 317 && key.matches(r'{LABEL_KEY}'))",
                    "message": "a key must be 1 to 63 letters, digits, '.', '_' and '-', after an optional PREFIX/",
                }
            ]
        },
    ),
]
"""The labels of an object, or a selector: labels that must all match."""


class Model(BaseModel):
    """A part of an object."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
    )


def validated(*rules: tuple[str, str]) -> dict[str, Any]:
    """The configuration of a model with CEL rules, each with its message."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


class Condition(Model):
    """One aspect of an object's state, by the API conventions of Kubernetes."""

    type: Annotated[str, Field(max_length=316, pattern=r"^[A-Za-z]([A-Za-z0-9]*)$")]
    """The aspect, such as Ready."""
    status: Annotated[str, Field(json_schema_extra={"enum": ["True", "False", "Unknown"]})]
    """Whether the condition holds; Unknown means that the plane cannot tell."""
    observed_generation: Count = 0
    """The metadata.generation that the condition was computed from."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """The time of the last change of the field status."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """The reason of the last change, as one word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """The reason in a sentence for people."""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=8,
        description="The state of the object for people and for `kubectl wait --for=condition=...`.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]
ObservedGeneration = Annotated[
    int,
    Field(
        ge=0,
        description="The metadata.generation that this status was computed from.",
        json_schema_extra={"format": "int64"},
    ),
]

Stated = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9a-f]*$",
        description="The digest of the last spec that the plane took into its log, or refused.",
    ),
]


class LogPosition(Model):
    """The part of the log that a status was computed from: one log generation, and the next offset of each partition
    that it depends on. A status never goes back in any of them."""

    generation: Count = 0
    """The generation of the log; a restore from a backup makes a later one."""
    fleet: Count = 0
    """The next offset of the topic fleet."""
    zones: Count = 0
    """The next offset of the object's partition of the topic zones."""
    cliques: Count = 0
    """The next offset of the object's partition of the topic cliques."""
    installs: Count = 0
    """The next offset of the object's partition of the topic installs."""


def forward_only(*topics: str) -> dict[str, Any]:
    """The configuration of a model of objects whose `status.logPosition` never goes back in these topics.

    The rule belongs to the whole object: a rule of the status would not run for an update that removes the status.
    """

    def compared(part: str, operator: str) -> str:
        old, new = (f"{side}.?status.?logPosition.?{part}.orValue(0)" for side in ("oldSelf", "self"))
        return f"{new} {operator} {old}"

    offsets = " && ".join(compared(topic, ">=") for topic in topics)
    rule = {
        "rule": f"{compared('generation', '>')} || ({compared('generation', '==')} && {offsets})",
        "message": "logPosition must not go back",
        "fieldPath": ".status.logPosition",
    }
    return {"x-kubernetes-validations": [rule]}
