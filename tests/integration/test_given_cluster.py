"""Test runs on a cluster that the user gives, with a client certificate or a token."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivers.kubernetes.client import connect
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.given_cluster import KUBECONFIG, OPTION, ClusterRefused, GivenCluster
from tests.support.kubernetes.requests import create, get

HERE = Path(__file__).parent
RUN_S = 200
CHOSEN = (  # with impersonated users, the faulting proxy, Nodes; the last one is deselected
    "test_hold_verdicts.py::test_one_person_is_never_two",
    "test_clique_scenarios.py::test_21_a_pod_that_only_the_cache_has_keeps_its_index_until_its_deletion_is_seen",
    "test_kubernetes_nodes.py::test_a_zone_whose_last_node_went_away_while_no_edge_ran_is_emptied",
    "test_kubernetes_rights_and_kinds.py::test_a_namespace_that_is_terminating_gets_few_attempts",
)


async def run_tests(kubeconfig: Path, *chosen: str) -> tuple[int, str]:
    """The exit code and the output of a test run on the cluster of a kubeconfig."""
    command = [sys.executable, "-m", "pytest", OPTION, "-q", "-p", "no:cacheprovider", *(str(HERE / c) for c in chosen)]
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=HERE.parents[1],
        env={**os.environ, KUBECONFIG: str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(RUN_S):
        output, _ = await child.communicate()
    assert child.returncode is not None
    return child.returncode, output.decode()


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def certified(kubeconfig: Path, folder: Path) -> tuple[Path, Path]:
    """An authority, and a kubeconfig of an administrator with a certificate of it instead of a token."""
    ca, ca_key, cert, key = (folder / name for name in ("ca.crt", "ca.key", "ann.crt", "ann.key"))
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1")
    openssl(*new, "-subj", "/CN=ca", "-keyout", str(ca_key), "-out", str(ca))
    signed = ("-CA", str(ca), "-CAkey", str(ca_key), "-addext", "extendedKeyUsage=clientAuth")
    openssl(*new, "-subj", "/O=system:masters/CN=ann", "-keyout", str(key), "-out", str(cert), *signed)
    content: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    files = {"client-certificate-data": cert, "client-key-data": key}
    encoded = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    content["users"][0]["user"] = encoded
    given = folder / "given.kubeconfig"
    given.write_text(yaml.safe_dump(content))
    return ca, given


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_tests_run_on_a_cluster_without_nodes(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    ca, given = certified(own_control_plane.kubeconfig(), tmp_path)
    own_control_plane.kill("kube-apiserver")
    own_control_plane.client_authority = ca
    await own_control_plane.start()
    status, output = await run_tests(given, *CHOSEN)
    assert status == 0, output
    assert "3 passed, 1 deselected" in output, output
    async with connect(str(own_control_plane.kubeconfig())) as api:
        assert (await get(api, "/apis/resource.nvidia.com/v1beta1/computedomains"))["kind"] == "ComputeDomainList"
        assert (await get(api, "/api/v1/nodes"))["items"] == []


async def test_a_cluster_with_nodes_of_its_own_is_refused(own_control_plane: ControlPlane) -> None:
    async with connect(str(own_control_plane.kubeconfig())) as api:
        await create(api, "/api/v1/nodes", {"metadata": {"name": "worker-1"}})
        status, output = await run_tests(own_control_plane.kubeconfig(), "test_kubernetes_nodes.py")
        assert status == pytest.ExitCode.USAGE_ERROR
        assert f"{OPTION}: {own_control_plane.url} has Nodes that no test made (worker-1), and" in output
        (node,) = (await get(api, "/api/v1/nodes"))["items"]
        assert node["metadata"]["name"] == "worker-1"


@pytest.mark.parametrize(
    ("user", "sentence"),
    [("", f"kubectl cannot read {KUBECONFIG}: "), ("{exec: {command: x, apiVersion: v1}}", "neither a token nor a")],
)
def test_an_unusable_kubeconfig_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, sentence: str
) -> None:
    given = tmp_path / "kubeconfig"
    monkeypatch.setenv(KUBECONFIG, str(given))
    if user:
        cluster = "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\ncurrent-context: a\n"
        context = "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        given.write_text(f"{cluster}{context}users: [{{name: a, user: {user}}}]")
    with pytest.raises(ClusterRefused, match=f"^{OPTION}: .*{sentence}"):
        GivenCluster(tmp_path / "cluster")
