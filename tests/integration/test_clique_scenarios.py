"""Runs the scenarios of cliques on a real API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from tests.contract.clique_scenarios import AssignScenarios, Opened
from tests.contract.daemon_scenarios import BesideScenarios
from tests.support.kubernetes.clique_cluster import REPLICA, CliqueCluster
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import install
from tests.support.memory_log import START_MS
from tests.support.memory_plane import plane


@pytest.fixture
def opened(cluster: Cluster) -> Opened:
    @asynccontextmanager
    async def opened() -> AsyncIterator[CliqueCluster]:
        await install(cluster.api, *map(definition, UPSTREAM_KINDS))
        async with plane() as made:
            loop_ms = round(asyncio.get_running_loop().time() * 1_000)
            made.ahead_ms = round(time.time() * 1_000) - loop_ms - START_MS
            await made.start(REPLICA, "api")
            east = CliqueCluster(cluster.api, cluster.namespace, made, Random(7))
            try:
                yield east
            finally:
                await east.stop()

    return opened


class TestAssign(AssignScenarios):
    pass


class TestBeside(BesideScenarios):
    pass
