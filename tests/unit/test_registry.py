"""The registry's responses, compared with those of Confluent's registry to the same requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from deploy.operations.export.schema_registry import CONTENT_TYPE, routes
from eventstore.avro.released import Schema, released

Client = TestClient[web.Request, web.Application]

TWO_VERSIONS = (
    Schema("Moved", 1, 100, {"type": "record", "name": "Moved", "namespace": "dpuplane", "fields": []}),
    Schema("Moved", 2, 101, {"type": "record", "name": "Moved", "namespace": "dpuplane", "fields": [], "doc": "2"}),
)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    application = web.Application()
    application.add_routes(routes((*released(), *TWO_VERSIONS)))
    async with TestClient(TestServer(application)) as found:
        yield found


async def test_every_schema_is_found_by_id_and_by_subject(client: Client) -> None:
    for schema in released():
        subject = f"dpuplane.{schema.name}"
        by_id = await client.get(f"/schemas/ids/{schema.id}", params={"subject": "dpuplane.zones-value"})
        assert by_id.headers["Content-Type"] == CONTENT_TYPE
        assert json.loads((await by_id.json())["schema"]) == schema.document
        whole = await (await client.get(f"/subjects/{subject}/versions/{schema.version}")).json()
        assert (whole["subject"], whole["version"], whole["id"]) == (subject, schema.version, schema.id)
        assert json.loads(whole["schema"]) == schema.document
        places = await (await client.get(f"/schemas/ids/{schema.id}/versions")).json()
        assert places == [{"subject": subject, "version": schema.version}]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/schemas/types", ["AVRO"]),
        ("/subjects/dpuplane.Moved/versions", [1, 2]),
        ("/subjects/dpuplane.Moved/versions/-1/schema", TWO_VERSIONS[1].document),
        ("/subjects/dpuplane.Moved/versions/1/schema", TWO_VERSIONS[0].document),
        ("/subjects/dpuplane.Moved/versions/1/referencedby", []),
        ("/subjects?subjectPrefix=dpuplane.Mov", ["dpuplane.Moved"]),
        ("/schemas/ids/101/schema", TWO_VERSIONS[1].document),
        ("/schemas/ids/100/subjects", ["dpuplane.Moved"]),
        ("/config", {"compatibilityLevel": "NONE"}),
        ("/config/dpuplane.Moved?defaultToGlobal=true", {"compatibilityLevel": "NONE"}),
        ("/mode", {"mode": "READONLY"}),
        ("/mode/dpuplane.Moved?defaultToGlobal=true", {"mode": "READONLY"}),
    ],
)
async def test_existing_objects_are_returned_as_by_confluent(client: Client, path: str, answer: object) -> None:
    response = await client.get(path)
    assert (response.status, await response.json(content_type=CONTENT_TYPE)) == (200, answer)


async def test_latest_is_the_newest_version(client: Client) -> None:
    latest = await (await client.get("/subjects/dpuplane.Moved/versions/latest")).json()
    assert (latest["version"], latest["id"]) == (2, 101)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/subjects/dpuplane.Nothing/versions", 404, 40401),
        ("/subjects/dpuplane.Nothing/versions/1", 404, 40401),
        ("/subjects/dpuplane.Moved/versions/3", 404, 40402),
        ("/subjects/dpuplane.Moved/versions/0", 422, 42202),
        ("/subjects/dpuplane.Moved/versions/first", 422, 42202),
        ("/subjects/dpuplane.Moved/versions/9999999999", 422, 42202),
        ("/schemas/ids/999", 404, 40403),
        ("/schemas/ids/" + "9" * 5_000, 404, 40403),
        ("/subjects/dpuplane.Moved/versions/" + "9" * 5_000, 422, 42202),
        ("/schemas/ids/one", 404, 40403),
        ("/schemas/ids/²", 404, 40403),
        ("/config/dpuplane.Moved", 404, 40408),
        ("/mode/dpuplane.Moved", 404, 40409),
        ("/schemas/nothing", 404, 404),
    ],
)
async def test_missing_objects_have_the_error_codes_of_confluent(
    client: Client, path: str, status: int, code: int
) -> None:
    response = await client.get(path)
    body = await response.json(content_type=CONTENT_TYPE)
    assert (response.status, body["error_code"]) == (status, code)
    assert body["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/subjects/dpuplane.Moved/versions"),
        ("POST", "/subjects/dpuplane.Moved"),
        ("POST", "/compatibility/subjects/dpuplane.Moved/versions/latest"),
        ("PUT", "/config"),
        ("PUT", "/mode/dpuplane.Moved"),
        ("DELETE", "/subjects/dpuplane.Moved"),
    ],
)
async def test_nothing_can_be_written(client: Client, method: str, path: str) -> None:
    response = await client.request(method, path, json={"schema": "{}"})
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    body = await response.json(content_type=CONTENT_TYPE)
    assert body["error_code"] == 405
    assert "read-only" in body["message"]
