"""A real plane with simulated DPUs, its page in a real Chromium, and a stub for its commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc
from playwright.async_api import Browser

from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.support.browser import browsing
from tests.support.planes import serving


class ShownPlane(NamedTuple):
    """The address of the page, the command stub, and a browser."""

    address: str
    calls: Any
    browser: Browser

    async def join(self, zone: str, *names: str, net: int = 1) -> None:
        """Join these nodes, with the addresses 10.NET.0.1 and up."""
        nodes = [pb.NodeSpec(name=name, addresses=[f"10.{net}.0.{n}"]) for n, name in enumerate(names, 1)]
        answer = await self.calls.JoinNodes(pb.JoinNodesRequest(zone=zone, nodes=nodes))
        assert answer.outcome == pb.OUTCOME_DONE, answer

    async def began_ms(self) -> int:
        """The start of the log, in ms."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}page/data/span") as response:
            first: int = (await response.json())["first_ms"]
            return first


@asynccontextmanager
async def shown_plane(data: Path, *, dpus_per_zone: int) -> AsyncIterator[ShownPlane]:
    async with (
        serving("--data", str(data), "--simulate", str(dpus_per_zone)) as plane,
        browsing() as browser,
        grpc.aio.insecure_channel(plane.address("api")) as channel,
    ):
        yield ShownPlane(f"http://{plane.address('http')}/", CommandsStub(channel), browser)
