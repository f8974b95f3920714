"""Requests that several tests make of an API server, real or simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from schemas.kubernetes.api import NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALREADY_EXISTS = "AlreadyExists"
ESTABLISHED_S = 120.0
AHEAD = 200


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


async def advance(api: KubernetesApi, path: str) -> None:
    """Change an object so often that an API server which is set back to an earlier etcd stays behind the version of its
    collection: it counts on from the backup, and its own leases and statuses alone reach the next few versions."""
    for number in range(AHEAD):
        await api.patch(path, {"metadata": {"labels": {"advanced": str(number)}}}, "merge")


async def create(api: KubernetesApi, path: str, body: Any) -> dict[str, Any]:
    """The created object, decoded."""
    found: dict[str, Any] = msgspec.json.decode(await api.create(path, body))
    return found


async def create_namespace(api: KubernetesApi, name: str) -> None:
    """Create a namespace; an existing one is left unchanged."""
    await _create_new(api, "/api/v1/namespaces", {"metadata": {"name": name}})


async def until_allowed(api: KubernetesApi, rules: Iterable[Mapping[str, Any]], *users: str) -> None:
    """Wait until the API server knows that users have the rights of these rules: it learns of a new binding by a watch,
    and refuses requests until then."""
    await _until_rights_are(True, api, rules, users)


async def until_denied(api: KubernetesApi, rules: Iterable[Mapping[str, Any]], *users: str) -> None:
    """Wait until the API server knows that users no longer have the rights of these rules."""
    await _until_rights_are(False, api, rules, users)


async def _until_rights_are(
    wanted: bool, api: KubernetesApi, rules: Iterable[Mapping[str, Any]], users: Iterable[str]
) -> None:
    rule = next(each for each in rules if each.get("resources") and not each.get("resourceNames"))
    resource, _, subresource = str(rule["resources"][0]).partition("/")
    verb = rule["verbs"][0].replace("*", "get")
    attributes = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "verb": verb}
    about = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    async with asyncio.timeout(ESTABLISHED_S):
        for user in users:
            body = {**about, "spec": {"user": user, "resourceAttributes": attributes}}
            while (await create(api, ACCESS_REVIEWS, body))["status"]["allowed"] != wanted:
                await asyncio.sleep(0.05)


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
