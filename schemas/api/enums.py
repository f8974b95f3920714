"""Short names of the API's enum values, as the CLI, the metrics and JSON output show them: `done` for `OUTCOME_DONE`.

Protobuf's style guide requires the name of the enum as a prefix of each value. People and scripts see the short name
in lower case.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import EnumDescriptor, EnumValueDescriptor

from schemas.api import dpuplane_pb2 as pb


def short_name(value: EnumValueDescriptor) -> str:
    """The name of a value in lower case, without the prefix for its enum: `table_full` for CODE_TABLE_FULL."""
    return value.name.removeprefix(_prefix(value.type)).lower()


def values_by_short_name(enum: EnumDescriptor) -> dict[str, Any]:
    """The numbers of an enum by short name, without the zero value, which stands for an absent value."""
    return {short_name(value): value.number for value in enum.values if value.number}


def outcome_name(outcome: int) -> str:
    """The short name of an outcome. Raises KeyError for an unknown number."""
    return short_name(pb.Outcome.DESCRIPTOR.values_by_number[outcome])


def _prefix(enum: EnumDescriptor) -> str:
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in enum.name).lstrip("_")
    return f"{words.upper()}_"


_Verb = pb.RequestLifecycleRequest.Verb

LIFECYCLE_VERBS: dict[str, pb.RequestLifecycleRequest.Verb] = values_by_short_name(_Verb.DESCRIPTOR)
"""The number of each verb of RequestLifecycle by short name."""
