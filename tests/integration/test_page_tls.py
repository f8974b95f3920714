"""The page under mutual TLS: a browser with the certificate of a reader sees everything, and any other nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, expect

from tests.support.browser import browsing, opened_page
from tests.support.certs import CertFiles, CertIssuer
from tests.support.planes import run, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Guarded(NamedTuple):
    """A plane under mutual TLS, the issuer of its certificates, and a browser."""

    origin: str
    api: str
    cert_issuer: CertIssuer
    browser: Browser

    async def join(self, node: str, zone: str) -> None:
        operator = self.cert_issuer.issue("operator/ann")
        ran = await run(
            "nodes", "join", node, "--zone", zone, "--address", "10.0.0.1", *operator.flags, server=self.api
        )
        assert ran.status == 0, ran.stderr


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    folder = tmp_path_factory.mktemp("page-tls")
    cert_issuer = CertIssuer(folder / "certs")
    own = cert_issuer.issue("plane/local")
    files = ("--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-client-ca", str(own.ca))
    async with serving("--data", str(folder / "plane"), *files) as plane, browsing() as browser:
        yield Guarded(f"https://{plane.address('http')}", plane.address("api"), cert_issuer, browser)


def presenting(origin: str, cert_files: CertFiles) -> dict[str, Any]:
    """A browser context with this client certificate for this plane."""
    certificate = {"origin": origin, "certPath": str(cert_files.cert), "keyPath": str(cert_files.key)}
    return {"client_certificates": [certificate], "ignore_https_errors": True}  # our authority is not the browser's


async def test_a_viewer_sees_the_live_fleet_and_past_moments(guarded: Guarded) -> None:
    viewer = presenting(guarded.origin, guarded.cert_issuer.issue("viewer/vic"))
    async with opened_page(guarded.browser, f"{guarded.origin}/", **viewer) as page:
        await expect(page.locator("#pulse")).to_contain_text("Live")
        await guarded.join("n1", "rack-1")
        await expect(page.locator('.tile[data-zone="rack-1"]')).to_be_visible()
        await page.get_by_role("link", name="Log").click()
        await expect(page.locator("tbody tr", has_text="NodesJoined")).to_contain_text("operator/ann")
        await page.get_by_role("button", name="−1 s", exact=True).click()
        await expect(page.locator("#pulse")).to_contain_text("The past")


@pytest.mark.parametrize(("who", "status"), [("", 401), ("node-agent/n1", 403), ("dpu-agent/d1", 403)])
async def test_a_role_without_read_permission_gets_the_reason_only(guarded: Guarded, who: str, status: int) -> None:
    own: dict[str, Any] = (
        presenting(guarded.origin, guarded.cert_issuer.issue(who)) if who else {"ignore_https_errors": True}
    )
    context = await guarded.browser.new_context(**own)
    try:
        page = await context.new_page()
        for path in ("", "page/js/main.js", "page/data/fleet", "page/feed"):
            answer = await page.goto(f"{guarded.origin}/{path}")
            assert answer is not None and answer.status == status, path
            said = await page.locator("body").inner_text()
            assert said.startswith(
                "certificate: a client certificate is required, and none was given"
                if not who
                else f"/{path}: {who} must have the role"
            )
    finally:
        await context.close()


async def test_a_certificate_of_another_authority_is_rejected(guarded: Guarded, tmp_path: Path) -> None:
    stranger = presenting(guarded.origin, CertIssuer(tmp_path).issue("viewer/vic"))
    context = await guarded.browser.new_context(**stranger)
    try:
        page = await context.new_page()
        with pytest.raises(Error, match="net::ERR_"):
            await page.goto(f"{guarded.origin}/")
    finally:
        await context.close()
