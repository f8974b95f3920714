"""Kubeconfigs that cannot be used: named before anything is created, and no end of the other edges later."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.kubernetes.node_facts import NodeRules
from deploy.composition.kubernetes_edge import EdgeSettings, KubernetesEdge
from deploy.operations.doctor.kubernetes import check_sources
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.web.metrics.catalog import KUBERNETES_CURRENT
from deploy.web.metrics.kubernetes import collect
from drivers.kubernetes.client import connect
from drivers.kubernetes.kubeconfig import PROGRAM_S, unusable
from eventstore.errors import FatalError
from schemas.kubernetes.api import KubernetesApi
from schemas.resources import KINDS
from schemas.resources.crds import definition
from tests.support.kubernetes.requests import create, install
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.memory_plane import plane
from tests.support.served import now_ms

SERVER = "https://127.0.0.1:1"


def kubeconfig(**changed: Any) -> str:
    user, cluster = changed.pop("user", {"token": "secret"}), changed.pop("cluster", {"server": SERVER})
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    return yaml.safe_dump(content | changed)


def program(code: str) -> dict[str, Any]:
    """A user whose credentials come from a program."""
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", code]}}


FAULTS = {
    "a: [b\nc: d": "line 2 is not valid YAML: ",
    "hello": "incomplete or has a wrong type",
    "": "incomplete or has a wrong type",
    "\0": "not valid YAML",
    kubeconfig(**{"current-context": "gone"}): "Expected object with name gone in .*/contexts list",
    kubeconfig(clusters=[]): "Expected object with name test in .*/clusters list",
    kubeconfig(users=[]): "incomplete or has a wrong type",
    kubeconfig(cluster={}): "incomplete or has a wrong type",
    kubeconfig(cluster={"server": SERVER, "certificate-authority": "/none/ca.pem"}): "not exist: /none/ca.pem",
    kubeconfig(cluster={"server": SERVER, "certificate-authority-data": "aGVsbG8="}): "not valid PEM: NO_CERTIFICATE",
    kubeconfig(user={"client-certificate": "none.pem", "client-key": "none.key"}): "not exist: .*/none.pem",
    kubeconfig(user={"tokenFile": "/none/token"}): "/none/token: No such file or directory",
    kubeconfig(user=program("import sys; sys.exit('no login\\nat all')")): "process returned 1. no login at all",
    kubeconfig(user=program("print('hello')")): "failed to decode process output",
}


@pytest.mark.parametrize(("content", "why"), FAULTS.items(), ids=range(len(FAULTS)))
async def test_a_kubeconfig_that_cannot_be_used_is_named_before_anything_is_created(
    tmp_path: Path, content: str, why: str
) -> None:
    (tmp_path / "good").write_text(kubeconfig())
    (tmp_path / "bad").write_text(content)
    given = f"east={tmp_path}/good,west={tmp_path}/bad"
    settings = load_settings({"data": tmp_path / "plane", "kubeconfig": given}, None, {})
    with pytest.raises(FatalError, match=rf"^kubeconfig: '.*/bad' of source 'west' cannot be used: .*{why}") as caught:
        async with Plane.start(settings, now_ms=now_ms, rng=random.Random(3)):
            pass
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "plane").exists()
    good, bad = await check_sources(settings)
    assert (good.ok, bad.ok) == (False, False)
    assert "Nodes not listed: no connection to 127.0.0.1:1: " in good.found
    assert f"cannot be used: {str(caught.value).partition('used: ')[2]}" in bad.found, "doctor says the same"


def test_a_program_without_an_answer_is_named() -> None:
    assert unusable(TimeoutError()) == f"its program has given no credentials within {PROGRAM_S:.0f} s"


@pytest.mark.virtual_clock
async def test_an_edge_whose_kubeconfig_cannot_be_used_reports_it_and_connects_once_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other edge of the process joins its Nodes meanwhile."""
    servers = {name: SimulatedApi(random.Random(1)) for name in ("east", "west")}
    file = tmp_path / "west"
    file.write_text("clusters: [")
    async with plane() as made:
        made.ahead_ms = 100_000_000_000  # Nodes of the simulated server have a creation time of their own
        replica = (await made.start("r1", "api", "kubernetes")).replica

        def started(source: str) -> KubernetesEdge:
            @asynccontextmanager
            async def opened() -> AsyncIterator[KubernetesApi]:
                async with connect(str(file if source == "west" else kubeconfig_file), source=source):
                    yield servers[source]

            settings = EdgeSettings(nodes=NodeRules(source=source, labels=[]))
            found = KubernetesEdge(opened, replica, made.ranks("r1"), settings, now_ms=made.now_ms, rng=made.rng())
            made.spawn("r1", found.run())
            return found

        kubeconfig_file = tmp_path / "east"
        kubeconfig_file.write_text(kubeconfig())
        for name, server in servers.items():
            labels = {"topology.kubernetes.io/rack": "rack-1"}
            await create(server, "/api/v1/nodes", {"metadata": {"name": f"of-{name}", "labels": labels}})
        west, east = started("west"), started("east")
        await made.until(lambda: "east/of-east" in made.zone("rack-1").nodes.rows)
        await asyncio.sleep(120.0)
        assert east.status_of_source().is_watched and not east.status_of_source().fault
        said = west.status_of_source()
        assert not said.is_watched and "cannot be used: line 1 is not valid YAML" in said.fault
        (current,) = [found for found in collect([west, east]) if found.name == KUBERNETES_CURRENT.name]
        assert {sample.labels["source"]: sample.value for sample in current.samples} == {"west": 0.0, "east": 1.0}
        warnings = [record for record in caplog.records if "not connected" in record.message]
        said_of = [vars(record)["source"] for record in warnings]
        assert said_of in (["west"], ["west"] * 2), "the first and the tenth of some ten retries are logged"
        file.write_text(kubeconfig())
        await made.until(lambda: "west/of-west" in made.zone("rack-1").nodes.rows, timeout_s=60.0)
        assert west.status_of_source().is_watched and not west.status_of_source().fault


@pytest.mark.virtual_clock
async def test_every_warning_of_an_edge_names_its_source(caplog: pytest.LogCaptureFixture) -> None:
    server = SimulatedApi(random.Random(1))
    async with plane() as made:
        await install(server, *map(definition, KINDS))
        replica = (await made.start("r1", "api", "kubernetes")).replica

        @asynccontextmanager
        async def opened() -> AsyncIterator[KubernetesApi]:
            yield server

        settings = EdgeSettings(nodes=NodeRules(source="west", labels=[]), has_status=True)
        edge = KubernetesEdge(opened, replica, made.ranks("r1"), settings, now_ms=made.now_ms, rng=made.rng())
        made.spawn("r1", edge.run())
        await made.until(lambda: edge.status_of_source().is_watched)
        server.faults.refuse(500, "create", times=10_000, within="/events")
        server.faults.refuse(403, "create", times=10_000, within="/dpuracks")
        await create(server, "/api/v1/nodes", {"metadata": {"name": "too-new"}})  # by the clock of this plane
        await made.join("z1", "n1")
        await asyncio.sleep(60.0)
        server.faults.clear()
        server.faults.refuse(503, "create", within="/dpuracks")
        await made.join("z2", "n2")
        await asyncio.sleep(60.0)
        server.go_down()
        await asyncio.sleep(60.0)
    found = {record.message: vars(record).get("source") for record in caplog.records if "kubernetes" in record.name}
    assert set(found.values()) == {"west"}, found
    for start in ("list or watch failed", "object not written", "write to the API server failed", "Kubernetes Event"):
        assert any(message.startswith(start) for message in found), f"{start}: {sorted(found)}"
