"""The distribution's Chromium, driven by playwright, with the accessibility checker axe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.requirements import missing_requirement

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
INSTALL = "apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core"
INSTALL_TIMEOUT_S = 240
PATIENCE_MS = 60_000

expect.set_options(timeout=PATIENCE_MS)


@cache
def executable() -> str:
    """The path of Chromium. It is installed from the distribution's packages if possible; otherwise the test is
    skipped.
    """
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(f"apt-get update -qq && {INSTALL}", shell=True, check=False, timeout=INSTALL_TIMEOUT_S)
        found = _find()
    if found is None:
        missing_requirement(f"no Chromium on this machine; `{INSTALL}` (as root) makes it available")
    return found


def _find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    path = executable()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened_page(browser: Browser, address: str, **options: Any) -> AsyncIterator[Page]:
    """A new browser page at this address. The context fails on exit if the page reported an error."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    page = await context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    try:
        await page.goto(address)
        yield page
        assert not faults, faults
    finally:
        await context.close()


async def violations(page: Page) -> list[str]:
    """Accessibility violations that axe found, one line each."""
    await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = await page.evaluate("axe.run()")
    return [f"{each['id']}: {node['html'][:200]}" for each in found["violations"] for node in each["nodes"]]


SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"
"""A script that waits until the layout has adapted to the size of the window."""

MISPLACED = (Path(__file__).parent / "misplaced.js").read_text()


async def misplaced(page: Page) -> list[str]:
    """Elements that lie off screen and cannot be scrolled to, are clipped, or overlap another element."""
    await page.evaluate(SETTLED)
    found: list[str] = await page.evaluate(MISPLACED)
    return found
