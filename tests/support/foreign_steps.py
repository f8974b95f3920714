"""Steps of a DPU on a BMC that others wrote, with the log that attempts leave behind."""

from __future__ import annotations

import asyncio

import aiohttp

from deploy.clock import now_ms
from drivers.provisioning.attempts import CallTiming, Executor
from drivers.redfish.certificates import PresentedCertificates
from drivers.redfish.client import RedfishClient, base_url
from drivers.redfish.connection import Context
from drivers.redfish.installer import RedfishInstaller, Wanted
from drivers.redfish.sessions import Credentials
from tests.support.attempted_steps import AttemptedSteps


class ForeignSteps(AttemptedSteps):
    """The steps of one DPU at this address. `client` is a client of the test."""

    def __init__(self, address: str, session: aiohttp.ClientSession, credentials: Credentials) -> None:
        super().__init__("", address, "image/1")
        self.credentials = credentials
        self.wanted = Wanted()
        self.url = ""
        self.client = RedfishClient(session, base_url(address))
        self.client.basic = aiohttp.BasicAuth(credentials.user, credentials.password)
        self.timing = CallTiming(call_s=30.0, poll_s=0.02, poll_max_s=0.05)
        self._session = session

    def context(self) -> Context:
        """What the attempts of a process share; each attempt is the first one of its process."""

        async def credentials(dpu: str) -> Credentials:
            return self.credentials

        def connect(address: str) -> RedfishClient:
            return RedfishClient(self._session, base_url(address))

        return Context(connect, credentials, None, now_ms, asyncio.Semaphore(1), PresentedCertificates())

    def installer(self) -> Executor:
        async def wanted_of(dpu: str, image: str) -> Wanted:
            return self.wanted

        async def url_of(dpu: str, image: str) -> str:
            return self.url

        return RedfishInstaller(self.context(), url_of, wanted_of)
