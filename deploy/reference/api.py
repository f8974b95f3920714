"""The page of the API: every method with its roles, and every message, with the comments of the .proto files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from commands.rpc.authorization import METHODS
from deploy.reference.markdown import code, table
from deploy.reference.markdown import page as whole
from eventstore.reasons import Reason
from schemas.api.generate import HERE as PROTOS
from schemas.api.generate import describe

Comments = Mapping[tuple[int, ...], str]

_MESSAGES, _FIELDS, _SERVICES, _METHODS = 4, 2, 6, 2
"""Numbers of these fields in descriptor.proto: comments are found by the path of their element."""


def page() -> str:
    """The page of the API."""
    files = _files()
    sections = [part for file in files for part in _file(file)]
    return whole(
        "API",
        "gRPC at `--listen` ([dpuplane.proto](../../schemas/api/dpuplane.proto)), and the messages of the agent link "
        "at `--agents` ([agent.proto](../../schemas/api/agent.proto)). Roles are those of certificates; a `node-agent` "
        "may act for its own node only, a `host-agent` for its own host.",
        *sections,
        "## Reason codes",
        "In `reason_code` of a refused or unknown result and `reason` of an ErrorInfo. A code keeps its meaning. "
        "Clients must expect codes that they do not know.",
        table(("code", ""), [(code(reason), reason.meaning) for reason in Reason]),
    )


def _files() -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "described"
        describe(PROTOS.parent.parent, path)
        found = FileDescriptorSet.FromString(path.read_bytes())
    return sorted(found.file, key=lambda file: not file.service)


def _file(file: FileDescriptorProto) -> list[str]:
    comments = {
        tuple(place.path): " ".join((place.leading_comments or place.trailing_comments).split())
        for place in file.source_code_info.location
    }
    heads = ("method", "request", "answer", "roles", "")
    parts = []
    for number, service in enumerate(file.service):
        rows = [
            (
                code(method.name),
                _streamed(method.input_type, is_stream=method.client_streaming),
                _streamed(method.output_type, is_stream=method.server_streaming),
                _roles(f"{service.name}.{method.name}"),
                comments.get((_SERVICES, number, _METHODS, index), ""),
            )
            for index, method in enumerate(service.method)
        ]
        parts.append(f"## {service.name}\n\n{table(heads, rows)}")
    parts.append(f"## Messages of {Path(file.name).name}")
    return parts + [
        _message(message, (_MESSAGES, number), comments) for number, message in enumerate(file.message_type)
    ]


def _roles(method: str) -> str:
    rule = METHODS[method]
    agents = [*(["node-agent"] if rule.node_names else []), *(["host-agent"] if rule.host_names else [])]
    return ", ".join([*sorted(rule.roles), *agents])


def _message(message: DescriptorProto, place: tuple[int, ...], comments: Comments) -> str:
    maps = {f".{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        (code(field.name), code(_type(field, maps)), comments.get((*place, _FIELDS, number), ""))
        for number, field in enumerate(message.field)
    ]
    said = comments.get(place, "")
    return "\n\n".join(part for part in (f"### {message.name}", said, table(("field", "type", ""), rows)) if part)


def _type(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
    nested = next((entry for name, entry in maps.items() if field.type_name.endswith(name)), None)
    if nested is not None:
        return f"map of {_type(nested.field[0], {})} to {_type(nested.field[1], {})}"
    name = _short(field.type_name) or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if field.label == FieldDescriptorProto.LABEL_REPEATED else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _streamed(name: str, *, is_stream: bool) -> str:
    return f"{'stream of ' if is_stream else ''}`{_short(name)}`"
