"""A real API server for the tests that ask for it: one per test run, started at the first use.

`control_plane` is the server of the run. Its tests share it, so each uses names of its own (`cluster`) and leaves the
server as it found it. A test that stops programs, sets etcd back or compacts it takes `own_control_plane` instead.

With `--use-cluster`, `control_plane` is the cluster of KUBECONFIG. Tests marked `started_cluster` are then deselected:
they compact etcd, or need a server without controllers.

The first run builds the programs from Go modules, which takes minutes, and shows its progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drivers.kubernetes.client import connect
from schemas.kubernetes.api import KubernetesApi
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.build import NEEDED, BuildFailed, program
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.given_cluster import KUBECONFIG, OPTION, ClusterRefused, GivenCluster
from tests.support.kubernetes.kwok_nodes import CONTROLLERS, STAGES
from tests.support.kubernetes.requests import create_namespace, get

UPSTREAM_CRDS = "UPSTREAM_CRDS"
"""Names a folder with the definitions of upstream's driver, which are not in this tree."""
DPF_CRDS = "DPF_CRDS"
"""Names a folder with DPF's definitions of release 24.10, which are not in this tree."""
THIRD_PARTY_CRDS = "THIRD_PARTY_CRDS"
"""Names a folder with definitions of Argo CD, Kamaji, NVIPAM and Multus, which are not in this tree."""
COMPARING = {"upstream_crds": UPSTREAM_CRDS, "dpf_crds": DPF_CRDS, "third_party_crds": THIRD_PARTY_CRDS}
"""The folder that the tests with a marker need."""
PROGRAMS = {
    "kubernetes_programs": NEEDED,
    "control_plane": NEEDED,
    "own_control_plane": NEEDED,
    "garbage_collected": ("kube-controller-manager",),
    "argo_cd_programs": ("kube-controller-manager", "argocd", "redis"),
    "gnoi_peer": ("gnoi-peer",),
    "bmc_mock": ("bmc-mock",),
    "kwok_programs": ("kube-controller-manager", "kube-scheduler", "kwok"),
}
"""The programs that a fixture needs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION, action="store_true", help=f"run the Kubernetes tests on the cluster of {KUBECONFIG}, which has no Nodes"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    markers = [marker for marker, folder in COMPARING.items() if folder not in os.environ]
    markers += ["started_cluster"] if config.getoption(OPTION) else []
    unwanted = [item for item in items if any(map(item.get_closest_marker, markers))]
    config.hook.pytest_deselected(items=unwanted)
    items[:] = [item for item in items if item not in unwanted]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs that the chosen tests need: before the first test, as the time of a test is limited."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.getoption(OPTION):
        used.discard("control_plane")
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    with contextlib.suppress(BuildFailed):  # the tests that need the programs fail with it
        for fixture, names in PROGRAMS.items():
            for name in names if fixture in used else ():
                program(name, reporter.write_line)


@pytest.fixture(scope="session")
def kubernetes_programs() -> None:
    """The programs of a control plane."""
    for name in NEEDED:
        program(name)


@pytest.fixture(scope="session")
def argo_cd_programs(kubernetes_programs: None) -> None:
    """The programs of Argo CD, and the controllers that make what a chart has."""
    for name in PROGRAMS["argo_cd_programs"]:
        program(name)


@pytest.fixture(scope="session")
def kwok_programs(kubernetes_programs: None) -> None:
    """The programs of a control plane, and those that create, schedule and play pods."""
    for name in PROGRAMS["kwok_programs"]:
        program(name)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server of this test run."""
    folder = tmp_path_factory.mktemp("kubernetes")
    if not request.config.getoption(OPTION):
        yield from _running(folder)
        return
    try:
        with asyncio.Runner() as runner:
            given = runner.run(_given(folder))
            yield given
            runner.run(given.clean())
    except ClusterRefused as refused:
        pytest.exit(str(refused), pytest.ExitCode.USAGE_ERROR)


async def _given(folder: Path) -> GivenCluster:
    given = GivenCluster(folder)
    async with connect(str(given.kubeconfig())) as api:
        await given.check(api)
    return given


@pytest.fixture
def own_control_plane(kubernetes_programs: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """An API server for one test, which may stop its programs and set its etcd back."""
    yield from _running(tmp_path / "kubernetes")


@pytest.fixture
def garbage_collected(own_control_plane: ControlPlane) -> ControlPlane:
    """An API server for one test, where objects whose owners are gone are deleted."""
    own_control_plane.start_controllers("garbage-collector-controller")
    return own_control_plane


@pytest.fixture
def kwok_cluster(kwok_programs: None, own_control_plane: ControlPlane) -> ControlPlane:
    """A cluster for one test, whose scheduler and controllers run pods of DaemonSets on Nodes. kwok plays the kubelets:
    Nodes that a test creates become ready and stay so, and pods on them get addresses and become ready."""
    own_control_plane.start_controllers(",".join(CONTROLLERS))
    own_control_plane.start_scheduler()
    own_control_plane.start_kwok(STAGES)
    return own_control_plane


def _running(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder)
    try:
        with asyncio.Runner() as runner:
            runner.run(plane.start())
        yield plane
    finally:
        plane.stop()


class Cluster:
    """A control plane as one test sees it: a connection of its administrator, and names of its own."""

    def __init__(self, plane: ApiServer, api: KubernetesApi, prefix: str) -> None:
        self.plane = plane
        self.api = api
        self.prefix = prefix
        """Begins every name of a cluster-wide object of the test."""
        self.namespace = prefix


@pytest.fixture
async def cluster(control_plane: ApiServer) -> AsyncIterator[Cluster]:
    """The API server of the test run, with a prefix and a namespace for this test. The namespace of a given cluster is
    deleted at the end."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(str(control_plane.kubeconfig())))
        found = Cluster(control_plane, api, f"test-{random.SystemRandom().getrandbits(40):010x}")
        await create_namespace(api, found.namespace)
        if isinstance(control_plane, GivenCluster):
            await control_plane.allow_pods(api, found.namespace)
        yield found
        if isinstance(control_plane, GivenCluster):
            path = f"/api/v1/namespaces/{found.namespace}"
            await api.delete(path, uid=(await get(api, path))["metadata"]["uid"])
