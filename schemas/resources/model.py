"""What the models of custom resources share: names in camel case, and the types of their fields.

A field that a user may leave out is optional, and absent in an object. Unknown fields are ignored: an object may
have been written by a later version; the API server refuses them on its side.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

LABEL_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62})?$"
"""projections/field_checks.check_label_key, without the lengths of a key with a prefix."""
ZONE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""projections/field_checks.check_zone."""
MAX_LABELS = 128

Text = Annotated[str, Field(max_length=253)]
Message = Annotated[str, Field(max_length=1024)]
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
"""Labels, or a conjunction of labels that select."""


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
    status: Annotated[str, Field(json_schema_extra={"enum": ["True", "False", "Unknown"]})]
    observed_generation: Count = 0
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    message: Annotated[str, Field(max_length=32768)] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=8,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class LogPosition(Model):
    """The part of the log that a status was computed from: one log generation, and the next offset of each partition
    that it depends on. A status never goes back in any of them."""

    generation: Count = 0
    fleet: Count = 0
    zones: Count = 0
    cliques: Count = 0
    installs: Count = 0
