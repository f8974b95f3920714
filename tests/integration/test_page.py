"""The page in a real Chromium, against a real plane with simulated DPUs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import expect

from schemas.api import dpuplane_pb2 as pb
from tests.support.browser import misplaced, opened_page, violations
from tests.support.shown_plane import ShownPlane, shown_plane

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<img src=x onerror=window.hacked=1>"
VIEWS = ("fleet", "lifecycle", "cliques", "holds", "log")
NARROW = (360, 480, 705, 800)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ShownPlane]:
    data: Path = tmp_path_factory.mktemp("page") / "plane"
    async with shown_plane(data, dpus_per_zone=8) as found:
        for number in range(1, 7):
            await found.join(f"rack-{number}", *(f"n-{number}-{n}" for n in range(30)), net=number)
        await _add_objects_of_all_kinds(found.calls)
        yield found


async def _add_objects_of_all_kinds(calls: Any) -> None:
    """Create objects of all kinds that the page shows, with hostile names and texts."""
    for number in range(4):
        claim = pb.ClaimIndicesRequest(
            domain="training", clique="c1", claims=[pb.ClaimSpec(node=f"n-1-{number}", address=f"10.1.0.{number}")]
        )
        await calls.ClaimIndices(claim)
    await calls.RegisterDpu(
        pb.RegisterDpuRequest(
            zone="rack-2",
            dpu="odd",
            node="n-2-1",
            serial=HOSTILE,
            bmc_address=f"redfish://127.0.0.1:9/{HOSTILE}".replace(" ", "/"),
        )
    )
    await calls.RequestLifecycle(
        pb.RequestLifecycleRequest(zone="rack-2", dpu="odd", verb="VERB_PROVISION", image="bundle-1")
    )
    await calls.FreezeWrites(pb.FreezeWritesRequest(zone="rack-6"))
    await calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-leave", permille=1, min_addresses=3))
    await calls.LeaveNodes(pb.LeaveNodesRequest(zone="rack-5", names=[f"n-5-{n}" for n in range(20)]))


async def test_a_new_zone_gets_a_tile_and_its_dpus_become_up_to_date(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, fleet.address) as page:
        await expect(page.locator(".tiles .tile")).to_have_count(6)
        await fleet.join("rack-7", "n-7-1", net=7)
        tile = page.locator('.tile[data-zone="rack-7"]')
        await expect(tile).to_have_attribute(
            "aria-label", "rack-7: 8 of 8 DPUs up to date, every DPU up to date", timeout=60_000
        )
        await expect(tile).to_have_attribute("data-state", "current")
        await expect(page.locator('.tile[data-zone="rack-6"]')).to_have_attribute("data-state", "frozen")
        await expect(page.locator(".figure", has_text="Change to hardware")).to_contain_text("ms")
        await expect(page.locator("#histogram tbody tr").first).to_be_visible()


async def test_the_page_can_be_used_with_the_keyboard_alone(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, fleet.address) as page:
        await expect(page.locator('.tile[data-zone="rack-2"]')).to_be_visible()
        await page.locator("#filter").focus()
        await page.keyboard.press("Tab")
        await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator('.tile[data-zone="rack-2"]')).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#drawer-title")).to_have_text("Zone rack-2")
        await expect(page.locator("#drawer")).to_contain_text("Its newest tables")
        await page.keyboard.press("Escape")
        await expect(page.locator("#drawer")).not_to_be_visible()
        await expect(page.locator('.tile[data-zone="rack-2"]')).to_be_focused()
        await page.keyboard.press("End")
        await expect(page.locator(".tiles .tile").last).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
async def test_the_page_has_no_accessibility_violations(fleet: ShownPlane, view: str, scheme: str) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/{view}", color_scheme=scheme) as page:
        await expect(page.locator("#pulse")).to_contain_text("Live")
        await expect(
            page.locator(".tile[data-zone], .phases li, .card, .panel table, .panel pre, .command").first
        ).to_be_visible()
        assert await violations(page) == []


async def test_an_open_zone_has_no_accessibility_violations(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/fleet?zone=rack-2") as page:
        await expect(page.locator("#drawer dl")).to_be_visible()
        assert await violations(page) == []


async def test_stuck_dpus_are_listed_with_reason_and_advice(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/lifecycle") as page:
        row = page.locator("tr", has_text="odd")
        await expect(row).to_contain_text("must be redfish://HOST:PORT")
        await expect(row.locator("code")).to_have_text("dpuplane dpus retry odd --zone rack-2")


async def test_a_hold_shows_the_command_to_approve_it(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/holds") as page:
        await expect(page.locator(".panel h2")).to_contain_text("Hold")
        digest = await page.locator("dl.facts dd.mono").last.text_content()
        await expect(page.locator(".command code").first).to_contain_text(f"--hash {digest} --as YOUR-NAME")
        await expect(page.locator("#views")).to_contain_text("1 waiting")


async def test_texts_of_users_are_never_interpreted_as_html(fleet: ShownPlane) -> None:
    for view in (
        *VIEWS,
        "log?subject=odd",
        "fleet?zone=rack-2",
        f"log?subject={HOSTILE}",
        f"cliques?domain={HOSTILE}",
    ):
        context = await fleet.browser.new_context()
        page = await context.new_page()
        await page.goto(f"{fleet.address}#/{view}")
        await expect(page.locator("#pulse")).to_contain_text("Live")
        if view == "log?subject=odd":
            await page.locator("button[aria-expanded]", has_text="DpuRegistered").click()
            await expect(page.locator("pre").first).to_contain_text(HOSTILE)
        for button in (await page.locator("button[aria-expanded]").all())[:5]:
            await button.click()
        assert await page.locator("img").count() == 0
        assert await page.evaluate("window.hacked") is None
        await context.close()


async def test_the_log_can_be_browsed_by_type_and_in_pages(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/log") as page:
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(50)
        first = await rows.first.text_content()
        await page.get_by_role("button", name="Older").click()
        await expect(page.get_by_role("button", name="Newer")).to_be_visible()
        await expect(rows.first).not_to_have_text(str(first))
        await page.get_by_label("Type").select_option("WritesFrozen")
        await page.get_by_role("button", name="Search").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("rack-6")


async def test_a_past_moment_is_shown_whole_and_has_a_link(fleet: ShownPlane) -> None:
    await asyncio.sleep(0.01)
    before_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.01)
    await fleet.join("rack-8", "n-8-1", net=8)
    async with opened_page(fleet.browser, fleet.address) as page:
        await expect(page.locator('.tile[data-zone="rack-8"]')).to_be_visible()
    context = await fleet.browser.new_context()
    page = await context.new_page()
    await page.goto(f"{fleet.address}#/fleet?at={before_ms}")
    await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible(timeout=60_000)
    await expect(page.locator('.tile[data-zone="rack-8"]')).to_have_count(0)
    await expect(page.locator("#timebar")).to_have_attribute("data-past", "")
    await page.get_by_role("link", name="Log").click()
    await expect(page.locator("tbody tr").first).to_be_visible()
    assert "n-8-1" not in str(await page.locator("tbody").text_content())
    await page.get_by_role("link", name="Fleet", exact=True).click()
    await page.get_by_role("button", name="Back to now").click()
    await expect(page.locator('.tile[data-zone="rack-8"]')).to_be_visible()
    await context.close()


async def test_a_past_moment_shows_its_own_alerts_holds_and_stuck_dpus(fleet: ShownPlane) -> None:
    frozen = "zone rack-4, zone rack-6: frozen"
    await fleet.calls.FreezeWrites(pb.FreezeWritesRequest(zone="rack-4"))
    await asyncio.sleep(0.01)
    then_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.01)
    await fleet.calls.ThawWrites(pb.ThawWritesRequest(zone="rack-4"))
    async with opened_page(fleet.browser, fleet.address) as page:
        await expect(page.locator(".notice")).to_have_text(re.compile("^zone rack-6: frozen"))
    async with opened_page(fleet.browser, f"{fleet.address}#/fleet?at={then_ms}") as page:
        await expect(page.locator('.tile[data-zone="rack-4"]')).to_have_attribute("data-state", "frozen")
        await expect(page.locator(".notice")).to_have_text(re.compile(f"^{frozen}"))
        await expect(page.locator("#views")).to_contain_text("1 waiting")
        await page.get_by_role("button", name="Back to now").click()
        await expect(page.locator(".notice")).to_have_text(re.compile("^zone rack-6: frozen"))
    began_ms = await fleet.began_ms()
    async with opened_page(fleet.browser, f"{fleet.address}#/fleet?at={began_ms}") as page:
        await expect(page.locator("#tiles-caption")).to_contain_text("none yet")
        await expect(page.locator(".notice")).to_have_count(0)
        await expect(page.locator("#views .badge")).to_have_count(0)


async def test_the_page_retries_while_a_past_moment_is_folded(fleet: ShownPlane) -> None:
    context = await fleet.browser.new_context()
    page = await context.new_page()
    folding = {"error": "as_of: 3 of 9 records are folded (33 %); repeat the query"}
    await page.route("**/page/data/fleet?*", lambda route: route.fulfill(status=503, json=folding))
    await page.goto(f"{fleet.address}#/fleet?at={time.time_ns() // 1_000_000}")
    await expect(page.locator("#tiles-caption")).to_contain_text("3 of 9 records are folded (33 %)")
    await expect(page.locator(".notice")).to_have_count(0)
    await page.unroute_all()
    await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
    await context.close()


async def test_an_invalid_moment_shows_the_reason_and_no_data(fleet: ShownPlane) -> None:
    context = await fleet.browser.new_context()
    page = await context.new_page()
    await page.goto(fleet.address)
    await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
    await page.goto(f"{fleet.address}#/fleet?at={2 * time.time_ns() // 1_000_000}")
    await expect(page.locator(".notice")).to_contain_text("as_of: ")
    await expect(page.locator("#pulse")).to_contain_text("No such moment")
    await expect(page.locator("#tiles-caption")).to_have_text("this moment cannot be shown")
    await expect(page.locator(".tile[data-zone]")).to_have_count(0)
    await page.get_by_role("button", name="Back to now").click()
    await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
    await context.close()


async def test_sorting_and_search_of_zones_survive_a_visit_to_the_log(fleet: ShownPlane) -> None:
    async with opened_page(fleet.browser, fleet.address) as page:
        await page.get_by_label("Order").select_option("behind")
        await page.get_by_label("Find").fill("RACK-2")
        await expect(page.locator(".tiles .tile")).to_have_count(1)
        await page.get_by_role("link", name="Log").click()
        await page.get_by_role("link", name="Fleet", exact=True).click()
        await expect(page.locator(".tiles .tile")).to_have_count(1)
        await expect(page.get_by_label("Order")).to_have_value("behind")


@pytest.mark.parametrize("view", [*VIEWS, "fleet?zone=rack-2", "lifecycle?phase=Initializing"])
async def test_no_element_is_cut_off_or_overlaps_on_a_narrow_screen(fleet: ShownPlane, view: str) -> None:
    async with opened_page(fleet.browser, f"{fleet.address}#/{view}", has_touch=True) as page:
        await expect(page.locator("#pulse")).to_contain_text("Live")
        await expect(
            page.locator("#drawer td, .tile[data-zone], .phases li, .card, .panel table, .command").first
        ).to_be_visible()
        for width in NARROW:
            await page.set_viewport_size({"width": width, "height": 740})
            assert await misplaced(page) == [], (view, width)


async def test_invalid_queries_are_refused_with_one_sentence(fleet: ShownPlane) -> None:
    asked = {
        "fleet?zone=a": (400, "query: 'zone' is not a parameter; the known ones are"),
        "fleet?at=then": (400, "as_of: 'then' must be"),
        "dpus?phase=Asleep": (400, "phase: 'Asleep' must be one of"),
        "dpus?stuck=maybe": (400, "stuck: 'maybe' must be a whole number"),
        "dpus?zone=a&zone=b": (400, "zone: must be given once only"),
        "cliques?page_token=x": (400, "page_token: 'x' must be"),
        "events?type=Nothing": (400, "type: 'Nothing' must be the name of an event"),
        "events?before=zones/99999=1": (400, "before: "),
        "events?at=99999999999999999": (400, "as_of: "),
        "zone?zone=nowhere": (404, "zone: 'nowhere' is not known"),
    }
    async with aiohttp.ClientSession() as session:
        for path, (status, sentence) in asked.items():
            async with session.get(f"{fleet.address}page/data/{path}") as response:
                said = json.loads(await response.text())["error"]
                assert (response.status, said.startswith(sentence)) == (status, True), (path, said)
                assert "\n" not in said


async def test_other_origins_may_not_read_the_data_of_the_page(fleet: ShownPlane) -> None:
    port = fleet.address.rsplit(":", 1)[1].rstrip("/")
    async with aiohttp.ClientSession() as session:
        for path, headers in (
            ("page/data/span", {"Sec-Fetch-Site": "cross-site"}),
            ("page/data/span", {"Host": f"rebound.example:{port}"}),
            ("page/feed", {"Sec-Fetch-Site": "same-site"}),
            ("page/js/main.js", {"Host": f"rebound.example:{port}"}),
            ("page/data/span", {"Host": "localhost:port"}),
            ("page/feed", {"Host": "localhost:99999999"}),
        ):
            async with session.get(fleet.address + path, headers=headers) as response:
                assert response.status == 403, (path, headers)
        async with session.get(fleet.address) as response:
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            text, tag = await response.text(), response.headers["ETag"]
            assert "style=" not in text and "<script>" not in text
        async with session.get(fleet.address, headers={"If-None-Match": tag}) as response:
            assert response.status == 304
        async with session.get(f"{fleet.address}page/data/span") as response:
            assert response.headers["Cache-Control"] == "no-store"
        async with session.get(f"{fleet.address}page/../pyproject.toml") as response:
            assert response.status == 404
