"""Annotations of charts, from a real HTTPS server: a repository's index, and a registry's manifest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from drivers.charts import chart_reader
from drivers.charts.chart_reader import ChartReader, RefusedChart, UnreadChart
from drivers.charts.repository_secrets import Credential
from drivers.images.sources import AllowedHosts
from projections.resources.charts import Chart
from tests.support.chart_server import TOKEN, ChartServer, serving_charts

DOCA = "dpu.nvidia.com/doca-version"
INDEX = b"""apiVersion: v1
entries:
  doca-hbn:
  - annotations:
      dpu.nvidia.com/doca-version: '>= 3.1.0'
      other: "1"
    apiVersion: v2
    description: |-
      A chart whose text has lines like
      doca-telemetry:
    name: doca-hbn
    version: 2.0.0
  - annotations:
      dpu.nvidia.com/doca-version: ">= 2.9.0"
    version: 1.0.0
  doca-telemetry:
    - version: 1.0.0
      name: doca-telemetry
  quoted.name:
  - version: "1.10"
generated: "2026-01-01T00:00:00Z"
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ChartServer, ChartReader]]:
    async with serving_charts(tmp_path) as (server, session):
        server.index = INDEX
        yield server, ChartReader(session, AllowedHosts(["127.0.0.1"]))


async def test_the_index_of_a_repository_has_them_by_version(served: tuple[ChartServer, ChartReader]) -> None:
    server, reader = served
    assert (await reader.annotations(Chart(server.repository, "doca-hbn", "2.0.0"))) == {DOCA: ">= 3.1.0", "other": "1"}
    assert (await reader.annotations(Chart(f"{server.repository}/", "doca-hbn", "1.0.0")))[DOCA] == ">= 2.9.0"
    assert await reader.annotations(Chart(server.repository, "doca-telemetry", "1.0.0")) == {}
    assert await reader.annotations(Chart(server.repository, "quoted.name", "1.10")) == {}
    server.index = json.dumps({"entries": {"a": [{"version": "1", "annotations": {DOCA: "3"}}]}}).encode()
    assert await reader.annotations(Chart(server.repository, "a", "1")) == {DOCA: "3"}


async def test_the_manifest_of_a_registry_has_them_and_needs_a_token(served: tuple[ChartServer, ChartReader]) -> None:
    server, reader = served
    server.manifests["doca-hbn/manifests/2.0.0_build.1"] = {"annotations": {DOCA: ">= 3.1.0"}, "layers": []}
    chart = Chart(server.registry, "doca-hbn", "2.0.0+build.1")
    assert await reader.annotations(chart) == {DOCA: ">= 3.1.0"}
    assert server.authorizations == ["", f"Bearer {TOKEN}"]
    server.needs_token = False
    assert await reader.annotations(chart) == {DOCA: ">= 3.1.0"}
    assert server.requests["token"] == 1


@pytest.mark.parametrize(
    ("index", "chart", "reason"),
    [
        (INDEX, "doca", "has no chart 'doca'"),
        (INDEX, "doca-hbn", "has no version '9' of chart 'doca-hbn'"),
        (b"<html>", "doca-hbn", "has no chart 'doca-hbn'"),
        (b"entries:\n  a:\n  - [", "a", "the index cannot be parsed where it has chart 'a'"),
        (b"entries:\n  a:\n  - version: {}\n", "a", "the index cannot be parsed where it has chart 'a'"),
        (b'{"entries": 1}', "a", "the index cannot be parsed where it has chart 'a'"),
        (b"entries:\n  a:\n" + b"  - x: 1\n" * 200_000, "a", "the index has more than 1 MiB about chart 'a'"),
    ],
)
async def test_an_index_without_the_version(
    served: tuple[ChartServer, ChartReader], index: bytes, chart: str, reason: str
) -> None:
    server, reader = served
    server.index = index
    with pytest.raises(UnreadChart) as found:
        await reader.annotations(Chart(server.repository, chart, "9"))
    assert reason in str(found.value)


async def test_a_server_that_fails(served: tuple[ChartServer, ChartReader], monkeypatch: pytest.MonkeyPatch) -> None:
    server, reader = served
    chart = Chart(server.repository, "doca-hbn", "2.0.0")
    server.answers = [503]
    with pytest.raises(UnreadChart, match=r"/charts/index.yaml answered with status 503"):
        await reader.annotations(chart)
    with pytest.raises(UnreadChart, match="answered with status 404"):
        await reader.annotations(Chart(server.registry, "missing", "1"))
    server.manifests["odd/manifests/1"] = {"annotations": 1}
    with pytest.raises(UnreadChart, match="is no manifest of a chart"):
        await reader.annotations(Chart(server.registry, "odd", "1"))
    monkeypatch.setattr(chart_reader, "INDEX_BYTES_MAX", 1 << 20)
    server.index = b"#" * (1 << 21)
    with pytest.raises(UnreadChart, match="has more than 1 MiB"):
        await reader.annotations(chart)
    monkeypatch.setattr(chart_reader, "READ_S", 0.2)
    server.stalls = True
    with pytest.raises(UnreadChart, match="did not answer within 0 s"):
        await reader.annotations(chart)


async def test_redirections_stay_on_allowed_servers(served: tuple[ChartServer, ChartReader]) -> None:
    server, reader = served
    chart = Chart(server.registry, "doca-hbn", "2.0.0")
    for target, reason in (
        ("https://169.254.169.254/latest", "local address 169.254.169.254"),
        (f"http://{server.address}/charts", "must begin with https://"),
        ("", "redirects more than 5 times"),
    ):
        server.redirects_to = target or f"https://{server.address}/charts/index.yaml"
        with pytest.raises(UnreadChart, match=reason):
            await reader.annotations(chart)


async def test_a_token_is_not_sent_to_another_server(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with serving_charts(tmp_path / "a") as (server, _), serving_charts(tmp_path / "b") as (other, _):
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session:
            reader = ChartReader(session, AllowedHosts(["127.0.0.1"]))
            other.needs_token = False
            other.manifests["a/manifests/1"] = {"annotations": {DOCA: "3"}}
            server.redirects_to = f"https://{other.address}/v2/nvidia/charts/a/manifests/1"
            assert await reader.annotations(Chart(server.registry, "a", "1")) == {DOCA: "3"}
    assert (server.authorizations[-1], other.authorizations) == (f"Bearer {TOKEN}", [""])


CREDENTIAL = Credential("argocd/doca", "robot", "hidden")


async def test_private_charts_are_for_the_user_of_the_credential(served: tuple[ChartServer, ChartReader]) -> None:
    server, reader = served
    server.user = CREDENTIAL.header
    server.manifests["a/manifests/1"] = {"annotations": {DOCA: "3"}}
    for chart in (Chart(server.repository, "doca-hbn", "2.0.0"), Chart(server.registry, "a", "1")):
        for wrong in (None, CREDENTIAL._replace(password="other")):
            with pytest.raises(RefusedChart, match="answered with status 401") as refused:
                await reader.annotations(chart, wrong)
            assert "other" not in str(refused.value)
        assert DOCA in await reader.annotations(chart, CREDENTIAL)
    server.takes_basic = True
    assert await reader.annotations(Chart(server.registry, "a", "1"), CREDENTIAL) == {DOCA: "3"}
    assert "hidden" not in repr(CREDENTIAL)


async def test_a_password_is_not_sent_to_another_server(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with (
        serving_charts(tmp_path / "a") as (server, _),
        serving_charts(tmp_path / "b") as (other, _),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        reader = ChartReader(session, AllowedHosts(["127.0.0.1"]))
        other.user = CREDENTIAL.header
        server.redirects_to = f"{other.repository}/index.yaml"
        with pytest.raises(RefusedChart):
            await reader.annotations(Chart(server.repository, "a", "1"), CREDENTIAL)


async def test_a_server_that_is_away(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        reader = ChartReader(session, AllowedHosts(["127.0.0.1"]))
        with pytest.raises(UnreadChart, match=r"127\.0\.0\.1:1 cannot be read"):
            await reader.annotations(Chart("https://127.0.0.1:1/charts", "a", "1"))
        with pytest.raises(UnreadChart, match="must have no credentials"):
            await reader.annotations(Chart("https://user:secret@127.0.0.1:1/charts", "a", "1"))
