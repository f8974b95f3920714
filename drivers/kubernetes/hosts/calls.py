"""Calls to an API server whose errors are those of a step: what a retry may mend, and what needs an operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import msgspec

from drivers.backends.bmc import NeedsOperator, Unreachable
from schemas.kubernetes.api import CONFLICT, GONE, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

JSON = dict[str, Any]
PAGE = 500
IDLE_S = 60.0
_SERVER_ERROR = 500
WATCH_S = "300"
"""Seconds after which the API server ends a watch."""
PAUSE_S = 1.0
"""Pause before a watch that failed is opened again."""

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"


@contextmanager
def step_errors(what: str) -> Iterator[None]:
    """Turn errors of the API server into those of steps."""
    try:
        yield
    except ApiError as error:
        raise step_error(what, error) from error


def step_error(what: str, error: ApiError) -> Unreachable | NeedsOperator:
    """The error of a step for an error of the API server."""
    message = f"{what}: {error}"
    is_passing = error.status in (0, CONFLICT, TOO_MANY_REQUESTS) or error.status >= _SERVER_ERROR
    return Unreachable(message) if is_passing else NeedsOperator(message)


async def read(api: KubernetesApi, path: str, query: Mapping[str, str] | None = None) -> JSON | None:
    """An object; None if it does not exist."""
    with step_errors(path):
        try:
            found: JSON = msgspec.json.decode(await api.get(path, query))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None
    return found


async def read_list(api: KubernetesApi, path: str, query: Mapping[str, str] | None = None) -> tuple[list[JSON], str]:
    """All objects of a list, and its version."""
    items: list[JSON] = []
    page: dict[str, str] = {**(query or {}), "limit": str(PAGE)}
    while True:
        found = await read(api, path, page)
        if found is None:
            return [], ""
        items += found.get("items") or []
        more = found["metadata"].get("continue")
        if not more:
            return items, str(found["metadata"].get("resourceVersion", ""))
        page = {**page, "continue": more}


async def create(api: KubernetesApi, path: str, body: JSON) -> bool:
    """Create an object. Returns False if one of this name exists."""
    with step_errors(path):
        try:
            await api.create(path, body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return False
    return True


async def replace(api: KubernetesApi, path: str, body: JSON) -> bool:
    """Replace the version of an object that `body` was made from. Returns False if it has changed since."""
    return await _changed(path, api.replace(path, body))


async def merge(api: KubernetesApi, path: str, patch: JSON) -> bool:
    """Patch an object. Returns False if it has another version than the patch names, or does not exist."""
    return await _changed(path, api.patch(path, patch, "merge"))


async def remove(api: KubernetesApi, path: str, uid: str) -> None:
    """Delete an object, and no later one of its name."""
    await _changed(path, api.delete(path, uid=uid))


async def until_event(api: KubernetesApi, path: str, fields: str, version: str) -> None:
    """Return when an object that these fields select has changed after a version of the list."""
    query = {"watch": "true", "fieldSelector": fields, "resourceVersion": version, "timeoutSeconds": WATCH_S}
    while True:
        with suppress(_WatchEnded):
            async for _ in _events(api, path, query):
                return
            return
        await asyncio.sleep(PAUSE_S)


def named(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


class _WatchEnded(Exception):
    """The server has no watch now."""


async def _events(api: KubernetesApi, path: str, query: Mapping[str, str]) -> AsyncIterator[None]:
    try:
        async with api.watch(path, query, idle_s=IDLE_S) as events:
            async for event in events:
                if event.type != "BOOKMARK":
                    yield None
    except ApiError as error:
        if error.status in (GONE, NOT_FOUND):
            return
        raise _WatchEnded from error


async def _changed(path: str, call: Any) -> bool:
    with step_errors(path):
        try:
            await call
        except ApiError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
            return False
    return True
