"""Moments on the page: live, past or invalid ones, times in UTC, and charts in proportion to time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from schemas.api import dpuplane_pb2 as pb
from tests.support.browser import misplaced, opened_page
from tests.support.shown_plane import ShownPlane, shown_plane

pytestmark = pytest.mark.asyncio(loop_scope="module")

UTC_MOMENT = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ShownPlane]:
    data: Path = tmp_path_factory.mktemp("moments") / "plane"
    async with shown_plane(data, dpus_per_zone=2) as found:
        await found.join("rack-1", "n-1", net=1)
        await found.calls.ClaimIndices(
            pb.ClaimIndicesRequest(domain="training", clique="c1", claims=[pb.ClaimSpec(node="n-1")])
        )
        yield found


async def expect_live(page: Page) -> None:
    await expect(page.locator("#pulse")).to_contain_text("Live")
    await expect(page.locator("#timebar .ago")).to_have_text("live")
    assert "at=" not in page.url


@pytest.mark.parametrize("leave", ["button", "slider", "step"])
async def test_every_way_to_choose_now_shows_the_live_page(shown: ShownPlane, leave: str) -> None:
    async with opened_page(shown.browser, shown.address) as page:
        await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
        began_ms = int(await page.locator("#moment").get_attribute("min") or 0)
        await page.goto(f"{shown.address}#/fleet?at={began_ms + 1}")
        await expect(page.locator("#pulse")).to_contain_text("The past")
        match leave:
            case "button":
                await page.get_by_role("button", name="Back to now").click()
            case "slider":
                await page.locator("#moment").focus()
                await page.keyboard.press("End")
            case _:
                await page.get_by_role("button", name="+10 min").click()
        await expect(page.locator("#pulse")).to_contain_text("Live")
        await expect_live(page)
        zone = f"rack-{leave}"
        await shown.join(zone, f"n-{leave}", net=10 + len(leave))
        await expect(page.locator(f'.tile[data-zone="{zone}"]')).to_be_visible()


@pytest.mark.parametrize("at", ["yesterday", "-5", "0", "1.5", "9" * 30])
async def test_a_url_with_an_invalid_moment_shows_an_error_and_no_live_data(shown: ShownPlane, at: str) -> None:
    for view in ("fleet", "lifecycle", "cliques", "holds", "log"):
        async with opened_page(shown.browser, f"{shown.address}#/{view}?at={at}") as page:
            await expect(page.locator("#pulse")).to_contain_text("No such moment")
            await expect(page.locator("#notices .notice")).to_have_text(
                re.compile(f"^at: “{re.escape(at)}” must be a moment in milliseconds since 1970")
            )
            await expect(page.locator(".tile[data-zone], tbody tr, .card")).to_have_count(0)
            await page.get_by_role("button", name="Back to now").click()
            await expect_live(page)
            await expect(page.locator(".notice")).to_have_count(0)


async def test_a_url_with_an_unknown_view_lists_the_views(shown: ShownPlane) -> None:
    async with opened_page(shown.browser, f"{shown.address}#/nodes") as page:
        await expect(page.locator("h1")).to_have_text("No such view")
        await expect(page.locator("main")).to_contain_text("This page has no view “nodes”.")
        await expect(page.locator(".tile[data-zone]")).to_have_count(0)
        await page.locator("main").get_by_role("link", name="Fleet").click()
        await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
        await page.goto(f"{shown.address}#/fleeet")
        await expect(page.locator("main")).to_contain_text("This page has no view “fleeet”.")


async def test_times_are_in_utc_in_every_time_zone_of_the_browser(shown: ShownPlane) -> None:
    async with opened_page(shown.browser, shown.address, timezone_id="Asia/Kolkata", locale="de-DE") as page:
        moment = page.locator("#timebar .moment")
        await expect(moment).to_have_text(UTC_MOMENT)
        seen = "(element) => [element.textContent, element.dateTime, element.title]"
        said, exact, hover = await moment.evaluate(seen)  # read all elements at once, because the time advances
        assert said == f"{exact[:19].replace('T', ' ')} UTC"
        assert hover == _in_kolkata(exact)
        await page.get_by_text("The last changes as a table").click()
        change = page.locator("#changes tbody time").first
        await expect(change).to_have_text(UTC_MOMENT)
        assert await change.get_attribute("title") == _in_kolkata(str(await change.get_attribute("datetime")))
        await page.get_by_role("link", name="Log").click()
        await expect(page.locator(".events thead")).to_contain_text("appended (UTC)")
        row = page.locator("tbody tr time").first
        exact = str(await row.get_attribute("datetime"))
        assert exact[11:19] == str(await row.text_content())[:8]
        assert await row.get_attribute("title") == f"{exact[:19].replace('T', ' ')} UTC, {_in_kolkata(exact)}"


def _in_kolkata(exact: str) -> str:
    """The tooltip of a time in a browser in India."""
    local = datetime.fromisoformat(exact) + timedelta(hours=5, minutes=30)
    return f"{local:%Y-%m-%d %H:%M:%S} GMT+5:30 (your time)"


async def test_every_view_with_colours_has_a_legend(shown: ShownPlane) -> None:
    legends = {
        "fleet": "every DPU up to date",
        "lifecycle": "DPUs that failed",
        "cliques": "its daemon is not ready",
        "fleet?zone=rack-1": "some of the DPUs",
    }
    for view, meaning in legends.items():
        async with opened_page(shown.browser, f"{shown.address}#/{view}") as page:
            legend = page.locator(".legend", has_text=meaning)
            await expect(legend).to_be_visible()
            for width in (360, 1280):
                await page.set_viewport_size({"width": width, "height": 740})
                assert await misplaced(page) == [], (view, width)


PLACED = """async () => {
  const { LatencyPlot } = await import("/page/js/charts.js");
  const root = document.body.appendChild(document.createElement("div"));
  const plot = new LatencyPlot(root);
  const change = (append_time_ms) => (
    { append_time_ms, p50_latency_ms: 5, p99_latency_ms: 9, max_latency_ms: 12, dpus: 4, version: 1 });
  plot.show([0, 60_000, 10_000].map((after) => change(1_800_000_000_000 + after)));
  const drawn = () => new Promise((done) => setTimeout(done, 50));
  await drawn();
  const places = plot.plot.data[0].map((second) => plot.plot.valToPos(second, "x"));
  plot.show([change(1_800_000_000_000)]);
  await drawn();
  const alone = plot.plot.valToPos(plot.plot.data[0][0], "x") / plot.plot.over.clientWidth;
  plot.close();
  root.remove();
  return [...places, alone];
}"""


async def test_the_axis_of_the_chart_of_changes_is_proportional_to_time(shown: ShownPlane) -> None:
    async with opened_page(shown.browser, shown.address) as page:
        await expect(page.locator("#pulse")).to_contain_text("Live")
        first, second, third, alone = await page.evaluate(PLACED)
        assert first < second < third, "changes are ordered by time and not by version"
        assert (second - first) / (third - first) == pytest.approx(1 / 6, abs=0.01)
        assert alone == pytest.approx(0.5, abs=0.01), "a single change is drawn in the middle"
