"""The mock of a BMC as a child of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import aiohttp

from deploy.tls.self_signed import self_signed, server_context
from tests.support.bmc_mock.front import ROOT, Front, fronted
from tests.support.child_programs import ChildPrograms, free_ports

HOST = "127.0.0.1"
START_S = 120.0
SERIAL = "437XR1138R2"
"""The serial number of the chassis of the mock, which is also the name of its system."""


class Mock(NamedTuple):
    """A running mock: its address as the plane has it, and the front there."""

    address: str
    front: Front


@asynccontextmanager
async def served_mock(program: Path, folder: Path) -> AsyncIterator[Mock]:
    """The mock behind its front. It ends with the context."""
    (port,) = free_ports(HOST, 1)
    base = f"http://{HOST}:{port}"
    context = server_context(*self_signed(folder, [HOST], datetime.now(UTC)))
    programs = ChildPrograms(folder)
    programs.start("bmc-mock", str(program), "-addr", f"{HOST}:{port}")
    try:
        async with asyncio.timeout(START_S):
            while not await _answers(base):
                programs.raise_if_ended()
                await asyncio.sleep(0.1)
        async with fronted(base, context, HOST) as (front, address):
            yield Mock(address, front)
    finally:
        programs.stop()


async def _answers(base: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{base}{ROOT}/") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False
