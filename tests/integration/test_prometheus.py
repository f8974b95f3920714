"""A real Prometheus scrapes a plane over TLS: every metric exists, every rule is evaluated, every panel has data."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.clock import now_ms
from deploy.grafana.dashboard import in_planes
from deploy.grafana.panels import ROWS
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.web.metrics.catalog import CATALOG, CLOCK_OFFSET, DECISIONS, DECISIONS_LAG
from schemas.api import dpuplane_pb2 as pb
from tests.support.certs import CertIssuer
from tests.support.guarded import Caller
from tests.support.prometheus import Prometheus, promtool, scraping

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
ADDRESS = "127.0.0.1:0"


@asynccontextmanager
async def busy_plane(cert_issuer: CertIssuer, data: Path) -> AsyncIterator[Plane]:
    """A plane with TLS after events of every kind."""
    revoked = data.with_name("revoked")
    revoked.write_text("2a\n")
    cert_files = {**cert_issuer.issue("plane/one").settings, "tls_revoked": revoked}
    settings = load_settings(
        {"data": data, "simulate": "2", "listen": ADDRESS, "http": ADDRESS, "agents": ADDRESS, **cert_files}, None, {}
    )
    async with Plane.start(settings, now_ms=now_ms, rng=random.Random(3), expected_zones=("z1", "z2")) as plane:
        ann = Caller(plane.addresses["api"], cert_issuer.issue("operator/ann").channel)
        try:
            await ann.calls.JoinNodes(
                pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n", addresses=["10.0.0.1"])])
            )
            await ann.calls.LeaveNodes(pb.LeaveNodesRequest(zone="nowhere", names=["nobody"]))
            await ann.calls.FreezeWrites(pb.FreezeWritesRequest(zone="z2"))
            await ann.calls.JoinNodes(
                pb.JoinNodesRequest(zone="z2", nodes=[pb.NodeSpec(name="m", addresses=["10.0.0.2"])])
            )
            dpu = (await ann.queries.ListDpus(pb.ListDpusRequest(zone="z1"))).dpus[0].dpu
            await ann.calls.RequestLifecycle(
                pb.RequestLifecycleRequest(
                    zone="z1", dpu=dpu, verb=pb.RequestLifecycleRequest.VERB_PROVISION, image="image-1"
                )
            )
            yield plane
        finally:
            await ann.channel.close(None)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Plane, CertIssuer, Prometheus]]:
    cert_issuer = CertIssuer(tmp_path / "certs")
    async with (
        busy_plane(cert_issuer, tmp_path / "plane") as plane,
        scraping(tmp_path, plane.addresses["http"], cert_issuer.issue("viewer/prometheus"), RULES) as prometheus,
    ):
        yield plane, cert_issuer, prometheus


async def until_found(prometheus: Prometheus, query: str) -> list[Any]:
    async with asyncio.timeout(60):
        while not (found := await prometheus.series(query)):
            await asyncio.sleep(0.25)
    return found


async def test_every_metric_rule_and_panel_works_on_a_running_plane(
    watched: tuple[Plane, CertIssuer, Prometheus],
) -> None:
    plane, cert_issuer, prometheus = watched
    assert (await until_found(prometheus, 'up{job="dpuplane"}'))[0]["value"][1] == "1"
    await until_found(prometheus, 'dpuplane_steps_total{result="done"}')
    await until_found(prometheus, 'dpuplane_zone_frozen{zone="z2"}')
    await until_found(prometheus, 'dpuplane_oldest_missing_change_timestamp_seconds{zone="z2"}')

    text = await scraped(plane, cert_issuer)
    linted = promtool("check", "metrics", stdin=text)
    assert linted.status == 0, linted.output
    families = {
        line.split()[2].decode()
        for line in text.splitlines()
        if line.startswith((b"# TYPE dpuplane_", b"# TYPE grpc_"))
    }
    # An embedded plane has no other process to compare its clock with, and no decisions topic. This one has no
    # Kubernetes edge; test_kubernetes_nodes.py checks the metrics of one.
    described = {found.name for found in CATALOG if found not in (CLOCK_OFFSET, DECISIONS, DECISIONS_LAG)}
    described -= {name for name in described if name.startswith("dpuplane_kubernetes_")}
    assert families == described, "the catalogue must list exactly the exported metrics"

    joined = 'grpc_server_handled_total{grpc_method="JoinNodes",grpc_code="OK"}'
    assert (await prometheus.series(joined))[0]["value"][1] == "2"

    rules = (await prometheus.ask("rules"))["groups"][0]["rules"]
    assert all(rule["health"] == "ok" for rule in rules), rules
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                found = await until_found(
                    prometheus, in_planes(query.expr).replace("$__rate_interval", "1m").replace("$plane", "tested")
                )
                assert found, (panel.title, query.expr)


async def scraped(plane: Plane, cert_issuer: CertIssuer) -> bytes:
    context = cert_issuer.issue("viewer/test").certificates.client_context()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://{plane.addresses['http']}/metrics", ssl=context) as response,
    ):
        assert response.status == 200
        return await response.read()
