"""A read-only Schema Registry with the schemas of the plane's topics, so that any Kafka tool decodes the log.

Paths, bodies, content type and error codes are those of Confluent's registry: a consumer is configured with this
address and uses its own deserializer. Ids are pinned (eventstore/avro/released.py), so every process of every plane
gives the same responses without storage. Other registries (Confluent's, Karapace) are processes of their own with a
topic for their state; these few read-only paths need neither.

A subject is the full name of an event type, such as `dpuplane.NodesJoined` (RecordNameStrategy): one topic holds many
types, and one type is in several topics with any prefix. Deserializers use the id only. The topic `replicas` holds
beacons in JSON, without a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from eventstore.avro.released import Schema, released

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ROOTS = ("schemas", "subjects", "config", "mode", "compatibility", "contexts", "exporters", "dek-registry")
LATEST = ("latest", "-1")
VERSION_MAX = (1 << 31) - 1
_NUMBER = re.compile("[0-9]{1,10}")
"""At most 10 digits: a path can have a number of thousands of digits, for which `int` raises ValueError."""

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
NO_LEVEL_OF_ITS_OWN, NO_MODE_OF_ITS_OWN, BAD_VERSION = 40408, 40409, 42202


class RegistryError(Exception):
    """An error response. The HTTP status is the first three digits of the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SchemaRegistry:
    """All released schemas, by id and by subject."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self._by_id = {schema.id: schema for schema in schemas}
        self._subjects: dict[str, dict[int, Schema]] = {}
        for schema in self._by_id.values():
            self._subjects.setdefault(_subject(schema), {})[schema.version] = schema

    def by_id(self, text: str) -> Schema:
        schema = self._by_id.get(_number(text))
        if schema is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {text} not found")
        return schema

    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    def versions(self, subject: str) -> Mapping[int, Schema]:
        found = self._subjects.get(subject)
        if found is None:
            raise RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, text: str) -> Schema:
        versions = self.versions(subject)
        number = max(versions) if text in LATEST else _number(text)
        if not 1 <= number <= VERSION_MAX:
            raise RegistryError(
                BAD_VERSION,
                f"The specified version '{text}' is not a valid version id. "
                'Allowed values are between [1, 2^31-1] and the string "latest"',
            )
        if number not in versions:
            raise RegistryError(VERSION_NOT_FOUND, f"Version {number} not found.")
        return versions[number]


def _number(text: str) -> int:
    """The schema id or version in this text; 0, which no schema has, if the text is no number."""
    return int(text) if _NUMBER.fullmatch(text) else 0


Ask = Callable[[web.Request], Any]


def schemas() -> Sequence[web.AbstractRouteDef]:
    """The registry of this program's schemas."""
    return routes(released())


def routes(of: Iterable[Schema]) -> Sequence[web.AbstractRouteDef]:
    """The registry's routes, for the HTTP server of a process."""
    registry = SchemaRegistry(of)
    asks: dict[str, Ask] = {
        "/schemas/types": lambda request: ["AVRO"],
        "/schemas/ids/{id}": lambda request: {"schema": _text(registry.by_id(request.match_info["id"]))},
        "/schemas/ids/{id}/schema": lambda request: registry.by_id(request.match_info["id"]).document,
        "/schemas/ids/{id}/subjects": lambda request: [_subject(registry.by_id(request.match_info["id"]))],
        "/schemas/ids/{id}/versions": lambda request: [_place(registry.by_id(request.match_info["id"]))],
        "/subjects": lambda request: [
            subject for subject in registry.subjects() if subject.startswith(request.query.get("subjectPrefix", ""))
        ],
        "/subjects/{subject}/versions": lambda request: sorted(registry.versions(request.match_info["subject"])),
        "/subjects/{subject}/versions/{version}": lambda request: _whole(_asked(registry, request)),
        "/subjects/{subject}/versions/{version}/schema": lambda request: _asked(registry, request).document,
        "/subjects/{subject}/versions/{version}/referencedby": lambda request: _asked(registry, request) and [],
        # Registration is not supported, so nothing is checked. A new version may need schemas/upcasts.py.
        "/config": lambda request: {"compatibilityLevel": "NONE"},
        "/config/{subject}": lambda request: _own(request, NO_LEVEL_OF_ITS_OWN, {"compatibilityLevel": "NONE"}),
        "/mode": lambda request: {"mode": "READONLY"},
        "/mode/{subject}": lambda request: _own(request, NO_MODE_OF_ITS_OWN, {"mode": "READONLY"}),
    }
    rest = [f"/{root}{{rest:(/.*)?}}" for root in ROOTS]
    return [
        *(web.get(path, _answering(ask)) for path, ask in asks.items()),
        *(web.route("*", path, _refuse) for path in rest),
    ]


def _answering(ask: Ask) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        try:
            return _response(ask(request))
        except RegistryError as error:
            return _response({"error_code": error.code, "message": str(error)}, int(str(error.code)[:3]))

    return answer


async def _refuse(request: web.Request) -> web.Response:
    if request.method in ("GET", "HEAD"):
        return _response({"error_code": 404, "message": "HTTP 404 Not Found"}, 404)
    message = f"{request.method} is refused: this registry is read-only: schemas are released with dpuplane"
    response = _response({"error_code": 405, "message": message}, 405)
    response.headers["Allow"] = "GET, HEAD"
    return response


def _response(body: Any, status: int = 200) -> web.Response:
    text = json.dumps(body, separators=(",", ":"))
    return web.Response(body=text.encode(), status=status, headers={"Content-Type": CONTENT_TYPE})


def _asked(registry: SchemaRegistry, request: web.Request) -> Schema:
    return registry.version(request.match_info["subject"], request.match_info["version"])


def _own(request: web.Request, code: int, of_all: dict[str, str]) -> dict[str, str]:
    """The setting of one subject. No subject has a setting of its own, so the response is an error or, with
    `defaultToGlobal`, the global setting."""
    if request.query.get("defaultToGlobal", "").lower() == "true":
        return of_all
    subject, what = request.match_info["subject"], "compatibility" if "compatibilityLevel" in of_all else "mode"
    raise RegistryError(code, f"Subject '{subject}' does not have subject-level {what} configured")


def _subject(schema: Schema) -> str:
    return f"{schema.document['namespace']}.{schema.name}"


def _place(schema: Schema) -> dict[str, Any]:
    return {"subject": _subject(schema), "version": schema.version}


def _whole(schema: Schema) -> dict[str, Any]:
    return {**_place(schema), "id": schema.id, "schema": _text(schema)}


def _text(schema: Schema) -> str:
    return json.dumps(schema.document, separators=(",", ":"))
