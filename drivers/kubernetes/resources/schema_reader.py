"""The schemas of the kinds that an API server has definitions of, read from its OpenAPI documents.

Every user may read these documents. The index names a hash of each document, so one small request tells whether any of
them has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from projections.kubernetes.resources.api_kinds import API_KINDS, BUILT_IN_GROUPS, ApiKind
from projections.kubernetes.resources.server_schemas import schemas_by_kind
from schemas.kubernetes.api import ApiError, KubernetesApi

_INDEX = "/openapi/v3"


class SchemaReader:
    """The schemas of an API server by kind."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._documents: dict[str, tuple[str, dict[str, Any]]] = {}
        """The address and the schemas of each group and version."""

    async def read(self, keys: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        """The schema of each of these kinds that the server has; None for kinds that every server has. Raises
        ApiError."""
        kinds = [API_KINDS[key] for key in keys]
        index = await self._index()
        found: dict[str, dict[str, Any] | None] = {}
        for kind in kinds:
            if kind.group in BUILT_IN_GROUPS:
                found[kind.key] = None
                continue
            schemas = await self._schemas(kind, index)
            if kind.name in schemas:
                found[kind.key] = schemas[kind.name]
        return found

    async def _index(self) -> dict[str, str]:
        data = _decoded(await self._api.get(_INDEX))
        return {name: each["serverRelativeURL"] for name, each in (data.get("paths") or {}).items()}

    async def _schemas(self, kind: ApiKind, index: dict[str, str]) -> dict[str, Any]:
        name = f"apis/{kind.api_version}"
        address = index.get(name)
        if address is None:
            return {}
        known = self._documents.get(name)
        if known is None or known[0] != address:
            path, _, query = address.partition("?")
            parameters = dict(each.split("=", 1) for each in query.split("&") if "=" in each)
            known = (address, schemas_by_kind(_decoded(await self._api.get(path, parameters))))
            self._documents[name] = known
        return known[1]


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise ApiError(0, "Malformed", f"the answer is no OpenAPI document: {error}") from error
    return found
