"""Runs the contract of KubernetesApi on a real API server and on the simulated one."""

from __future__ import annotations

import random

import pytest

from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.contract.kubernetes_api import ApiUnderTest, KubernetesApiContract
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create_namespace, install
from tests.support.kubernetes.simulated.api import SimulatedApi


class RealApi(ApiUnderTest):
    def __init__(self, cluster: Cluster) -> None:
        self.api, self.prefix, self.namespace = cluster.api, cluster.prefix, cluster.namespace
        self._plane = cluster.plane

    async def compact(self) -> None:
        assert isinstance(self._plane, ControlPlane), "the tests that compact are marked `started_cluster`"
        await self._plane.compact_etcd()


class TestRealApi(KubernetesApiContract):
    @pytest.fixture
    async def server(self, cluster: Cluster) -> ApiUnderTest:
        await install(cluster.api, definition(DPU_RACK))
        return RealApi(cluster)

    @pytest.mark.started_cluster
    async def test_a_list_that_is_too_old_to_continue_is_gone(self, server: ApiUnderTest) -> None:
        await super().test_a_list_that_is_too_old_to_continue_is_gone(server)

    @pytest.mark.started_cluster
    async def test_a_watch_from_a_forgotten_version_is_gone(self, server: ApiUnderTest) -> None:
        await super().test_a_watch_from_a_forgotten_version_is_gone(server)


class SimulatedApiUnderTest(ApiUnderTest):
    def __init__(self) -> None:
        self.api = self.simulated = SimulatedApi(random.Random(7))
        self.prefix = self.namespace = "test-7"

    async def compact(self) -> None:
        self.simulated.compact()


@pytest.mark.virtual_clock
class TestSimulatedApi(KubernetesApiContract):
    @pytest.fixture
    async def server(self) -> ApiUnderTest:
        server = SimulatedApiUnderTest()
        await install(server.api, definition(DPU_RACK))
        await create_namespace(server.api, server.namespace)
        return server
