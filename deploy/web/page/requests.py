"""Common handling of the page's requests: access checks, parameters, and the form of errors.

The page shows the whole fleet without a password if it listens on the loopback only, so other sites must not read it
through their visitor's browser. A browser names the requesting site (`Sec-Fetch-Site`), and DNS rebinding is visible in
`Host`: requests to a listener on the loopback must name `localhost` or an IP address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from commands.rpc.error_details import NotFound, PermissionDenied, fault_of
from eventstore.errors import PermanentError, TransientError
from projections.field_checks import quoted

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_STORE = {**HEADERS, "Cache-Control": "no-store"}

_OWN_SITES = frozenset({"same-origin", "none", ""})


class BadQuery(PermanentError):
    """An invalid query parameter."""


class NotReady(TransientError):
    """The request cannot be answered yet, or not by this process at present."""


def data(serve: Callable[[web.Request], Awaitable[Any]]) -> Handler:
    """A handler that responds with one JSON value, or with a status and a sentence."""

    async def answer(request: web.Request) -> web.Response:
        try:
            check_site(request)
            return as_json(await serve(request))
        except (PermanentError, TransientError, TimeoutError) as error:
            return refused(error)

    return answer


def as_json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, headers=NO_STORE, content_type="application/json")


def refused(error: Exception) -> web.Response:
    """The response for an error: one sentence and its status."""
    fault = fault_of(error)
    told = {"error": str(fault), "reason_code": str(fault.reason), "reason_fields": fault.fields}
    return as_json(told, _status(error))


def parameters(request: web.Request, allowed: Collection[str]) -> dict[str, str]:
    """The query, each parameter once. Raises BadQuery."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise BadQuery(f"query: {quoted(name)} is not a parameter; the known ones are {known}")
        if name in found:
            raise BadQuery(f"{name}: must be given once only")
        found[name] = value
    return found


def number(name: str, text: str, *, most: int) -> int:
    """A parameter that is a whole number; 0 if it is missing. Raises BadQuery."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) > most:
        raise BadQuery(f"{name}: {quoted(text)} must be a whole number from 0 to {most}")
    return int(text)


def check_site(request: web.Request) -> None:
    """Raises PermissionDenied for a browser's request from another site."""
    if request.headers.get("Sec-Fetch-Site", "") not in _OWN_SITES:
        raise PermissionDenied("Sec-Fetch-Site: other sites must not read this page's data")
    transport = request.transport
    local = transport.get_extra_info("sockname") if transport is not None else None
    if local and ip_address(str(local[0]).partition("%")[0]).is_loopback and not _is_local(_host(request)):
        raise PermissionDenied(
            f"Host: {quoted(request.host)} must be localhost or an IP address on a loopback listener"
        )


def _host(request: web.Request) -> str:
    """The requested host; empty if it is invalid."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _status(error: Exception) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, PermissionDenied):
        return 403
    return 400 if isinstance(error, PermanentError) else 503
