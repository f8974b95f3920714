"""Runs the scenarios of cliques on the simulated API server, on the virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from tests.contract.clique_scenarios import AssignScenarios, Opened
from tests.contract.daemon_scenarios import BesideScenarios
from tests.support.kubernetes.clique_cluster import REPLICA, CliqueCluster
from tests.support.kubernetes.requests import create_namespace, install
from tests.support.kubernetes.simulated.api import EPOCH_S, SimulatedApi
from tests.support.memory_log import START_MS
from tests.support.memory_plane import plane

NAMESPACE = "driver"


@asynccontextmanager
async def simulated(seed: int = 7) -> AsyncIterator[CliqueCluster]:
    """A cluster on the simulated API server."""
    api = SimulatedApi(Random(seed))
    await install(api, *map(definition, UPSTREAM_KINDS))
    await create_namespace(api, NAMESPACE)
    async with plane() as made:
        made.ahead_ms = EPOCH_S * 1_000 - START_MS
        await made.start(REPLICA, "api")
        east = CliqueCluster(api, NAMESPACE, made, Random(seed))
        try:
            yield east
        finally:
            await east.stop()


@pytest.fixture
def opened() -> Opened:
    return simulated


@pytest.mark.virtual_clock
class TestAssign(AssignScenarios):
    pass


@pytest.mark.virtual_clock
class TestBeside(BesideScenarios):
    pass
