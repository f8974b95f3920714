"""Serializes protobuf messages to dictionaries, for the JSON and YAML of scripts and the page, and values to YAML.

Field names are in snake_case, and default values are included. Unlike protobuf's own JSON, 64-bit integers are numbers:
the plane's offsets, versions and counts are exact as JSON numbers, and scripts must not compare versions as text.
Enum values are short: `done` for `OUTCOME_DONE`. Times and durations are text as in protobuf's JSON:
`2026-11-25T03:30:00.250Z` and `1.500s`; an absent time or duration has no field.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import short_name

JsonObject = dict[str, Any]

_ANSWERS = {method.output_type for method in pb.DESCRIPTOR.services_by_name["Queries"].methods} & {
    message for message in pb.DESCRIPTOR.message_types_by_name.values() if "position" in message.fields_by_name
}


def message_to_dict(message: Message) -> JsonObject:
    """A message as a dictionary, with every field that is set or has a default."""
    return {
        field.name: _value(message, field)
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _item(message: Message) -> JsonObject:
    """A nested message. An empty field `position` is omitted: the outer message has the position."""
    message_fields = message_to_dict(message)
    if message.DESCRIPTOR in _ANSWERS and not message_fields["position"]:
        del message_fields["position"]
    return message_fields


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        item = field.message_type.fields_by_name["value"]
        return {str(key): _single(value[key], item) for key in sorted(value)}
    if field.is_repeated:
        return [_single(item, field) for item in value]
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if isinstance(value, Timestamp | Duration):
        return value.ToJsonString()
    if field.message_type is not None:
        return _item(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return short_name(known) if known is not None else value
    return value.hex() if isinstance(value, bytes) else value


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def yaml_text(value: Any, *, sort_keys: bool = False, explicit_start: bool = False) -> str:
    """A value as a YAML document. Text of several lines is a literal block, as people write it in manifests."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=_yaml_dumper(), sort_keys=sort_keys, allow_unicode=True, explicit_start=explicit_start
    )
    return text


@cache
def _yaml_dumper() -> Any:
    """A dumper of plain values. The import of PyYAML takes longer than most commands."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def represented(dumper: Dumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represented)
    return Dumper
