"""Runs the contract of installers on a management service that speaks gNMI and gNOI."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tests.contract.installer import InstalledDpu, InstallerContract
from tests.support.gnoi.packages import package
from tests.support.gnoi.service import Identity, Service, served
from tests.support.gnoi.steps import IMAGE, GnoiSteps

pytestmark = pytest.mark.timeout(600)


class GnoiDpu(GnoiSteps):
    """A DPU whose management service is as delivered. What happened on it is read after each attempt."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.content = package(IMAGE, 1_000)
        self.installs = 0
        self.restarts = 0
        self.has_image = False
        self._planned = ""

    def fail_next(self, how: str) -> None:
        self._planned = how

    def exchange(self) -> None:
        self.dpu = replace(self.dpu, serial="another")

    async def before_attempt(self) -> None:
        if self._planned:
            await self.service.plan(self._planned)
        self._planned = ""

    async def after_attempt(self) -> None:
        state = await self.service.state()
        self.installs, self.restarts, self.has_image = state.installs, state.restarts, state.running == IMAGE


class TestGnoi(InstallerContract):
    @pytest.fixture(autouse=True)
    async def served(self, gnoi_identity: Identity) -> AsyncIterator[None]:
        async with served(gnoi_identity) as self._service:
            yield

    async def dpu(self) -> InstalledDpu:
        await self._service.renew()
        return GnoiDpu(self._service)
