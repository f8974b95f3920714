"""Requests that several tests make of an API server, real or simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.kubernetes.api import NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALREADY_EXISTS = "AlreadyExists"
ESTABLISHED_S = 30.0


async def get(api: KubernetesApi, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """An object or a list, decoded.

    A 429 response is no answer yet: for a moment after a definition was changed, its kind cannot be listed, even if an
    earlier list succeeded. As in client-go, the request is sent again.
    """
    async with asyncio.timeout(ESTABLISHED_S):
        while True:
            try:
                found: dict[str, Any] = msgspec.json.decode(await api.get(path, query))
                return found
            except ApiError as error:
                if error.status != TOO_MANY_REQUESTS:
                    raise
            await asyncio.sleep(0.05)


async def create(api: KubernetesApi, path: str, body: Any) -> dict[str, Any]:
    """The created object, decoded."""
    found: dict[str, Any] = msgspec.json.decode(await api.create(path, body))
    return found


async def create_namespace(api: KubernetesApi, name: str) -> None:
    """Create a namespace; an existing one is left unchanged."""
    await _create_new(api, "/api/v1/namespaces", {"metadata": {"name": name}})


async def install(api: KubernetesApi, *definitions: Mapping[str, Any]) -> None:
    """Install CustomResourceDefinitions. Returns when objects of their kinds can be listed."""
    for definition in definitions:
        await _create_new(api, DEFINITIONS, definition)
    async with asyncio.timeout(ESTABLISHED_S):
        for definition in definitions:
            spec = definition["spec"]
            for version in spec["versions"]:
                await _until_listed(api, f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")


async def _create_new(api: KubernetesApi, path: str, body: Mapping[str, Any]) -> None:
    try:
        await api.create(path, body)
    except ApiError as error:
        if error.reason != ALREADY_EXISTS:
            raise


async def _until_listed(api: KubernetesApi, path: str) -> None:
    while True:
        try:
            await api.get(path, {"limit": "1"})
            return
        except ApiError as error:
            if error.status not in (NOT_FOUND, TOO_MANY_REQUESTS, 503):
                raise
        await asyncio.sleep(0.05)
