"""A real API server for the tests that ask for it: one per test run, started at the first use.

`control_plane` is the server of the run. Its tests share it, so each uses names of its own (`cluster`) and leaves the
server as it found it. A test that stops programs, sets etcd back or compacts it takes `own_control_plane` instead.

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
from tests.support.kubernetes.build import NEEDED, BuildFailed, program
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create_namespace

UPSTREAM_CRDS = "UPSTREAM_CRDS"
"""Names a folder with the definitions of upstream's driver, which are not in this tree."""
PROGRAMS = {"kubernetes_programs": NEEDED, "garbage_collected": ("kube-controller-manager",)}
"""The programs that a fixture needs."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if UPSTREAM_CRDS in os.environ:
        return
    comparing = [item for item in items if item.get_closest_marker("upstream_crds")]
    config.hook.pytest_deselected(items=comparing)
    items[:] = [item for item in items if item not in comparing]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs that the chosen tests need: before the first test, as the time of a test is limited."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
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
def control_plane(kubernetes_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The API server of this test run."""
    yield from _running(tmp_path_factory.mktemp("kubernetes"))


@pytest.fixture
def own_control_plane(kubernetes_programs: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """An API server for one test, which may stop its programs and set its etcd back."""
    yield from _running(tmp_path / "kubernetes")


@pytest.fixture
def garbage_collected(own_control_plane: ControlPlane) -> ControlPlane:
    """An API server for one test, where objects whose owners are gone are deleted."""
    own_control_plane.start_controllers("garbage-collector-controller")
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

    def __init__(self, plane: ControlPlane, api: KubernetesApi, prefix: str) -> None:
        self.plane = plane
        self.api = api
        self.prefix = prefix
        """Begins every name of a cluster-wide object of the test."""
        self.namespace = prefix


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """The API server of the test run, with a prefix and a namespace for this test."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(str(control_plane.kubeconfig())))
        found = Cluster(control_plane, api, f"test-{random.SystemRandom().getrandbits(40):010x}")
        await create_namespace(api, found.namespace)
        yield found
