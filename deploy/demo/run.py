"""Runs the demo's scenario against a plane that it starts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import uvloop

from commands.inventory.plan import InventoryPlan
from deploy.clock import now_ms
from deploy.demo.load import DemoClient
from deploy.demo.progress import Display
from deploy.demo.scenario import DemoSizes, Scenario
from deploy.demo.summary import Summary
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.telemetry.logs import configure_logs

FREE_PORT = "127.0.0.1:0"


def run_demo(fleet: InventoryPlan, sizes: DemoSizes, *, data: Path | None, kafka: str) -> Summary:
    """Run the whole demo; with `kafka`, on new topics of that cluster. Raises PlaneError."""
    rng = random.Random()
    place = {"kafka": kafka, "topic_prefix": f"demo-{rng.getrandbits(32):08x}"} if kafka else {"data": data}
    listeners = dict.fromkeys(("listen", "http", "agents"), FREE_PORT)
    settings = load_settings({**place, **listeners, "simulate": sizes.dpus_per_zone}, None, {})
    configure_logs("WARNING")

    async def run() -> Summary:
        async with (
            Plane.start(settings, now_ms=now_ms, rng=rng, expected_zones=fleet.zones) as plane,
            DemoClient(plane.addresses["api"], now_ms=now_ms, rng=rng) as api,
        ):
            with Display() as display:
                return await Scenario(plane, api, fleet, sizes, display).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
