"""The registrar of separate simulators logs once that no server responds."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from commands.client.client import PlaneClient
from deploy.process import remote_registrar
from deploy.process.remote_registrar import RemoteRegistrar
from schemas.api import dpuplane_pb2 as pb
from tests.support.eventually import until
from tests.support.served import now_ms, served


async def test_an_unavailable_plane_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_registrar, "CHECK_S", 0.01)
    calls = 0

    async def counted(client: PlaneClient, method: str, request: Any) -> Any:
        nonlocal calls
        calls += 1
        return await query(client, method, request)

    query = PlaneClient.query
    monkeypatch.setattr(PlaneClient, "query", counted)
    registrar = RemoteRegistrar(["127.0.0.1:1"], now_ms=now_ms, rng=random.Random(1))
    asking = asyncio.ensure_future(registrar.zones())
    await until(lambda: calls > 3)
    asking.cancel()
    await registrar.close()
    (told,) = [record.getMessage() for record in caplog.records if record.name == "deploy.process.remote_registrar"]
    assert "zones not listed by 127.0.0.1:1" in told


async def test_an_available_plane_is_not_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, logger="deploy.process.remote_registrar")
    async with served(tmp_path / "plane") as plane:
        await plane.join("z1", pb.NodeSpec(name="n1"))
        registrar = RemoteRegistrar([plane.address], now_ms=now_ms, rng=random.Random(1))
        assert set(await registrar.zones()) == {"z1"}
        await registrar.close()
    assert not [record for record in caplog.records if record.name == "deploy.process.remote_registrar"]


async def test_a_named_zone_that_the_plane_lacks_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane:
        await plane.join("z1", pb.NodeSpec(name="n1"))
        names = frozenset({"z1", "z2", "z3"})
        registrar = RemoteRegistrar([plane.address], now_ms=now_ms, rng=random.Random(1), zones=names)
        assert set(await registrar.zones()) == {"z1"}
        await registrar.close()
    told = [record.getMessage() for record in caplog.records if record.name == "deploy.process.remote_registrar"]
    assert told == ["zones not known to the plane yet, simulated once they exist: z2,z3"]
