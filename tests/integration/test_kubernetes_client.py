"""The client of the Kubernetes API against servers and proxies that answer badly."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509

from drivers.kubernetes.client import connect
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from schemas.kubernetes.api import ApiError, KubernetesApi, WatchEvent
from tests.support.certs import CertIssuer

PATH = "/api/v1/nodes"
HOST = "127.0.0.1"
EVENT = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, folder: Path, token: str = "secret") -> AsyncIterator[KubernetesApi]:
    """A client of a server that answers everything by the handler."""
    application = web.Application(client_max_size=1 << 24)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with connect(str(kubeconfig(folder, f"http://{HOST}:{port}", token))) as api:
            yield api
    finally:
        await runner.cleanup()


def kubeconfig(folder: Path, server: str, token: str) -> Path:
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def watched(api: KubernetesApi, *, idle_s: float = 5.0) -> tuple[list[WatchEvent], ApiError | None]:
    """The events of a watch, and the error that ended it."""
    found: list[WatchEvent] = []
    try:
        async with api.watch(PATH, {"watch": "true"}, idle_s=idle_s) as events:
            async for event in events:
                found.append(event)  # noqa: PERF401 - the events before an error count
    except ApiError as error:
        return found, error
    return found, None


def stream(*parts: bytes, is_cut: bool = False) -> Handler:
    """A watch that sends these bytes; cut, its connection breaks off after them."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if is_cut:
            await asyncio.sleep(0.1)
            assert request.transport is not None
            request.transport.abort()
        return response

    return handle


def line(event: Any = EVENT) -> bytes:
    return json.dumps(event).encode() + b"\n"


async def test_a_request_carries_the_token_and_its_body(tmp_path: Path) -> None:
    seen: list[tuple[str, str, str, Any]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        about = (request.method, request.headers["Authorization"], request.headers["Content-Type"])
        seen.append((*about, await request.json() if request.can_read_body else None))
        return web.json_response({"query": dict(request.query)})

    async with served(handle, tmp_path) as api:
        assert json.loads(await api.get(PATH, {"labelSelector": "a in (b,c)"})) == {
            "query": {"labelSelector": "a in (b,c)"}
        }
        await api.patch(PATH, [{"op": "remove", "path": "/a"}], "json")
        await api.patch(PATH, {"spec": {}}, "apply", {"fieldManager": "us", "force": "true"})
        await api.delete(PATH, uid="u")
    assert [each[0] for each in seen] == ["GET", "PATCH", "PATCH", "DELETE"]
    assert {each[1] for each in seen} == {"Bearer secret"}
    assert [each[2] for each in seen[1:3]] == ["application/json-patch+json", "application/apply-patch+yaml"]
    assert seen[1][3] == [{"op": "remove", "path": "/a"}]
    assert seen[3][3]["preconditions"] == {"uid": "u"}


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 1999 23:59:29 GMT"}, 30.0),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 2010 23:59:29 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
@pytest.mark.parametrize("is_status", [True, False])
async def test_a_refusal_has_its_words_and_its_pause(
    tmp_path: Path, headers: dict[str, str], pause_s: float | None, is_status: bool
) -> None:
    status = {"kind": "Status", "message": "too many", "reason": "TooManyRequests", "code": 429}
    body = json.dumps(status) if is_status else "<html>too many</html>"

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers=headers, text=body)

    async with served(handle, tmp_path) as api:
        with pytest.raises(ApiError) as caught:
            await api.get(PATH)
        _, error = await watched(api)
    for found in (caught.value, error):
        assert found is not None and found.status == 429 and "too many" in str(found)
        assert found.retry_after_s == pause_s and not found.may_have_taken_effect


async def test_a_server_that_is_not_there_may_or_may_not_have_acted(tmp_path: Path) -> None:
    async with served(stream(b"{"), tmp_path):
        pass
    async with connect(str(tmp_path / "kubeconfig")) as api:
        with pytest.raises(ApiError) as caught:
            await api.create(PATH, {})
        _, error = await watched(api)
    assert caught.value.status == 0 and caught.value.may_have_taken_effect
    assert error is not None and error.status == 0


@pytest.mark.parametrize(
    ("handler", "count", "reason"),
    [
        (stream(line(), line()), 2, None),
        (stream(line()[:10], line()[10:]), 1, None),
        (stream(line(), line()[:10], is_cut=True), 1, "Unreachable"),
        (stream(line(), line()[:10]), 1, "Malformed"),
        (stream(b"<html>\n"), 0, "Malformed"),
        (stream(line(), line({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})), 1, "Expired"),
        (stream(line({"type": "ADDED", "object": {"a": "x" * (1 << 20)}})), 1, None),
        (stream(line({"type": "ADDED", "object": {"a": "x" * (1 << 23)}})), 0, "TooLong"),
    ],
)
async def test_a_watch_ends_as_its_lines_do(tmp_path: Path, handler: Handler, count: int, reason: str | None) -> None:
    async with served(handler, tmp_path) as api:
        events, error = await watched(api)
    assert len(events) == count
    assert (error.reason if error else None) == reason


async def test_a_silent_watch_is_stalled_even_when_bytes_trickle(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    async with served(handle, tmp_path) as api:
        _, error = await watched(api, idle_s=0.5)
    assert error is not None and (error.status, error.reason) == (0, "Stalled")


async def test_expired_credentials_are_read_again(tmp_path: Path) -> None:
    valid, seen = "first", []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({}, status=200 if seen[-1] == f"Bearer {valid}" else 401)

    async with served(handle, tmp_path, token="first") as api:
        server = yaml.safe_load((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
        await api.get(PATH)
        valid = "second"
        kubeconfig(tmp_path, server, "second")
        await api.create(PATH, {})
        valid = "third"
        with pytest.raises(ApiError) as caught:
            await api.get(PATH)
        assert caught.value.status == 401
    assert seen == [f"Bearer {token}" for token in ("first", "first", "second", "second")]


@asynccontextmanager
async def served_with_tls(
    issuers: list[CertIssuer], folder: Path, accepted: Callable[[], int]
) -> AsyncIterator[tuple[KubernetesApi, ssl.SSLContext]]:
    """A client of a server with TLS that accepts the client certificate with one serial number. The context of the
    server may be changed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_OPTIONAL
    for issuer in issuers:
        context.load_verify_locations(issuer.authority.cert)
    serve_as(context, issuers[0])

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {"serialNumber": "0"}
        return web.json_response({}, status=200 if int(certificate["serialNumber"], 16) == accepted() else 401)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    kubeconfig_with_certificates(folder, issuers[0], runner.addresses[0][1])
    try:
        async with connect(str(folder / "kubeconfig")) as api:
            yield api, context
    finally:
        await runner.cleanup()


def serve_as(context: ssl.SSLContext, issuer: CertIssuer) -> None:
    files = issuer.issue("plane/server")
    context.load_cert_chain(files.cert, files.key)


def kubeconfig_with_certificates(folder: Path, issuer: CertIssuer, port: int = 0) -> int:
    """Write a kubeconfig with a new client certificate; returns its serial number. Without a port, the server stays."""
    path = folder / "kubeconfig"
    server = f"https://{HOST}:{port}" if port else yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
    content = yaml.safe_load(kubeconfig(folder, server, "").read_text())
    files = issuer.issue("operator/edge")
    (folder / "client.pem").write_bytes(files.cert.read_bytes())
    (folder / "client.key").write_bytes(files.key.read_bytes())
    (folder / "ca.pem").write_bytes(issuer.authority.cert.read_bytes())
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    content["users"][0]["user"] = {"client-certificate": "client.pem", "client-key": "client.key"}
    path.write_text(yaml.safe_dump(content))
    return x509.load_pem_x509_certificate(files.cert.read_bytes()).serial_number


async def test_a_client_certificate_that_was_replaced_is_used_without_a_restart(tmp_path: Path) -> None:
    issuer, accepted = CertIssuer(tmp_path / "issuer"), 0
    async with served_with_tls([issuer], tmp_path, lambda: accepted) as (api, _):
        accepted = kubeconfig_with_certificates(tmp_path, issuer)
        await api.get(PATH)
        await api.create(PATH, {})


async def test_an_authority_that_was_replaced_is_trusted_without_a_restart(tmp_path: Path) -> None:
    old, new = CertIssuer(tmp_path / "old"), CertIssuer(tmp_path / "new")
    accepted = 0
    async with served_with_tls([old, new], tmp_path, lambda: accepted) as (api, context):
        serve_as(context, new)
        accepted = kubeconfig_with_certificates(tmp_path, new)
        await api.get(PATH)


async def test_a_server_with_the_certificate_of_another_authority_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old, new = CertIssuer(tmp_path / "old"), CertIssuer(tmp_path / "new")
    async with served_with_tls([old, new], tmp_path, lambda: 0) as (api, context):
        serve_as(context, new)
        with pytest.raises(ApiError, match=r"^the certificate of 127\.0\.0\.1:\d+ is not valid: ") as caught:
            await api.get(PATH)
    assert caught.value.status == 0


@pytest.mark.parametrize("content", ["", "a: [", "{}", "clusters: 3"])
async def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(KubeconfigInvalid, match="broken"):
        async with connect(str(path)):
            pass
    with pytest.raises(KubeconfigInvalid, match=r"absent.*No such file"):
        async with connect(str(tmp_path / "absent")):
            pass


async def test_requests_do_not_wait_for_hundreds_of_watches(tmp_path: Path) -> None:
    """Each watch has a connection for itself, and each host that waits for something may have a watch."""
    opened = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal opened
        if "watch" not in request.query:
            return web.json_response({"opened": opened})
        opened += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line())
        await asyncio.get_running_loop().create_future()
        return response

    async with served(handle, tmp_path) as api, AsyncExitStack() as stack:
        for _ in range(300):
            await stack.enter_async_context(api.watch(PATH, {"watch": "true"}, idle_s=600.0))
        assert json.loads(await api.get(PATH)) == {"opened": 300}
