"""The client of the Kubernetes API in an environment that names a proxy, or has credentials of its own."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError
from tests.integration.test_kubernetes_client import HOST, PATH, kubeconfig

TOKEN = "secret"
UNKNOWN = "http://cluster.invalid:6443"
"""An API server that only the proxy reaches."""
BASIC = f"Basic {base64.b64encode(b'user:password').decode()}"


class Seen:
    """A server that answers every request, and what it was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return web.json_response({})


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of the test may have a proxy."""
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[Seen]:
    found = Seen()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        found.port = runner.addresses[0][1]
        yield found
    finally:
        await runner.cleanup()


async def test_credentials_of_netrc_are_not_read(server: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp refuses a request with such credentials and a token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login user password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with connect(str(kubeconfig(tmp_path, f"http://{HOST}:{server.port}", TOKEN))) as api:
        await api.get(PATH)
    assert [each.headers["Authorization"] for each in server.requests] == [f"Bearer {TOKEN}"]


async def test_requests_go_through_the_proxy_of_the_environment(
    server: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:password@{HOST}:{server.port}")
    monkeypatch.setenv("NO_PROXY", "other.invalid")
    async with connect(str(kubeconfig(tmp_path, UNKNOWN, TOKEN))) as api:
        await api.get(PATH)
    (request,) = server.requests
    assert str(request.url) == f"{UNKNOWN}{PATH}"
    assert request.headers["Proxy-Authorization"] == BASIC
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"


async def test_a_server_that_the_environment_excepts_is_reached_without_its_proxy(
    server: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{server.port}")
    monkeypatch.setenv("NO_PROXY", "cluster.invalid")
    async with connect(str(kubeconfig(tmp_path, UNKNOWN, TOKEN))) as api:
        with pytest.raises(ApiError) as caught:
            await api.get(PATH)
    assert caught.value.status == 0 and not server.requests
