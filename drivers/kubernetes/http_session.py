"""The HTTP session of the library's client, which looks up the proxy of the environment once.

kubernetes_asyncio lets aiohttp look for a proxy in the environment and for credentials in ~/.netrc before each request.
That takes two threads, and three quarters of the CPU time of a small request. Credentials in ~/.netrc would even make
every request fail, because those of the kubeconfig are in its header already. kubectl does not read them either.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

READ_BUFFER_BYTES = 2 << 20
"""aiohttp accepts lines of twice this length: the objects of a watch."""


def use_one_proxy(rest: Any, server: str | None) -> None:
    """Let the library's HTTP client use the proxy of its kubeconfig, or else that of the environment, until it is
    closed."""
    before = rest.pool_manager
    rest.pool_manager = aiohttp.ClientSession(connector=before.connector, read_bufsize=READ_BUFFER_BYTES)
    before.detach()
    rest.proxy = rest.proxy or _proxy(server)


def _proxy(server: str | None) -> str | None:
    """The proxy of the environment for a server: HTTPS_PROXY or HTTP_PROXY, if NO_PROXY does not name the server."""
    address = urlsplit(server or "")
    if not address.hostname or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)
