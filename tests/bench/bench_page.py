"""The page at 200 zones of 1,000 simulated DPUs, in a real Chromium beside the plane on the same cores.

First picture: from the request until every tile is painted. Then ten joins a second, each of which changes the table of
every zone: frame times, the number of messages, the largest age of the data shown, and the cost of the page to the
plane's loop.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from playwright.async_api import Browser, Page

from deploy.process.plane import Plane
from tests.bench.apart import apart
from tests.bench.figures import Figure, percentile
from tests.bench.planes import all_up_to_date, fill, serving_plane, submit
from tests.bench.workload import joins
from tests.support.browser import browsing

ZONES = 200
DPUS_PER_ZONE = 1_000
NODES = 2_000
JOINS_PER_S = 10
CHECK_S = 20
FIRST_PICTURES = 5

PAINTED = "() => document.querySelectorAll('.tile[data-zone]').length === %d"
"""A script that waits until every zone has a tile. Later frames depend only on the browser."""

WATCH = """() => {
  const frames = [], long = [];
  let last = performance.now();
  const step = (now) => { frames.push(now - last); last = now; window.frames_ = frames; requestAnimationFrame(step); };
  requestAnimationFrame(step);
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => long.push(entry.duration)))
    .observe({ entryTypes: ["longtask"] });
  window.long_ = long;
}"""


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, DPUS_PER_ZONE)
        return uvloop.run(_measure(data))


async def _measure(data: Path) -> list[Figure]:
    async with serving_plane(data, simulate=DPUS_PER_ZONE) as plane, browsing() as browser:
        await all_up_to_date(plane, ZONES, NODES, ZONES * DPUS_PER_ZONE)
        address = f"http://{plane.addresses['http']}/"
        pictures = [await _first_picture(browser, address) for _ in range(FIRST_PICTURES)]
        context = await browser.new_context(viewport={"width": 1440, "height": 900})
        page = await context.new_page()
        bytes_seen = await _counting(page)
        await page.goto(address)
        await page.wait_for_function(PAINTED % ZONES)
        await page.evaluate(WATCH)
        before, cpu = bytes_seen[0], time.process_time()
        await _join(plane)
        cpu_share = (time.process_time() - cpu) / CHECK_S
        frames, long = await page.evaluate("[window.frames_, window.long_]")
        received = (bytes_seen[0] - before) / CHECK_S
        messages = bytes_seen[1]
        await context.close()
        blind = time.process_time()
        await _join(plane, first=NODES + CHECK_S * JOINS_PER_S)
        blind_share = (time.process_time() - blind) / CHECK_S
    name = f"{ZONES * DPUS_PER_ZONE:,} DPUs in {ZONES} zones"
    burst = f"{JOINS_PER_S} changes/s of every zone"
    return [
        Figure(f"page, first picture of {name}, p50", percentile(pictures, 0.5), "ms", aim=1_000.0, better="lower"),
        Figure(f"page, frame at {burst}, p50", percentile(frames, 0.5), "ms", aim=17.0, better="lower"),
        Figure(f"page, frame at {burst}, p99", percentile(frames, 0.99), "ms", better="lower"),
        Figure(f"page, long tasks at {burst}", len(long) / CHECK_S, "/s", better="lower"),
        Figure("page, messages", messages / CHECK_S, "/s", better="higher"),
        Figure("page, received", received / 1_000, "kB/s", better="lower"),
        Figure("plane's CPU while looked at", 100 * cpu_share, "%", 100 * blind_share, "unwatched", better="lower"),
    ]


async def _first_picture(browser: Browser, address: str) -> float:
    """Milliseconds, with an empty browser cache."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    began = time.perf_counter()
    await page.goto(address, wait_until="commit")
    await page.wait_for_function(PAINTED % ZONES, polling="raf")
    took_ms = (time.perf_counter() - began) * 1e3
    await context.close()
    return took_ms


async def _counting(page: Page) -> list[int]:
    """Bytes and messages of the feed up to now."""
    seen = [0, 0]
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")

    def count(event: dict[str, Any]) -> None:
        seen[0] += len(event["data"])
        seen[1] += 1

    session.on("Network.eventSourceMessageReceived", count)
    return seen


async def _join(plane: Plane, first: int = NODES) -> None:
    """Send joins at an even pace during the measurement."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number, event in enumerate(joins(CHECK_S * JOINS_PER_S, ZONES, per_record=1, first=first, seed=first), 1):
        await submit(plane, event)
        await asyncio.sleep(max(0.0, began_s + number / JOINS_PER_S - loop.time()))
