"""The objects of one collection, as a watch shows them one change after the other, for checks of every moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.kubernetes.api import KubernetesApi
from tests.support.kubernetes.requests import get

IDLE_S = 3_600.0


class Watched:
    """Calls `check` with all objects by name at first, and after each change. `run` ends when the watch does."""

    def __init__(
        self, api: KubernetesApi, path: str, check: Callable[[Mapping[str, Any]], None], selector: str = ""
    ) -> None:
        self.items: dict[str, Any] = {}
        self._api = api
        self._path = path
        self._check = check
        self._query = {"labelSelector": selector} if selector else {}

    async def run(self) -> None:
        while True:
            found = await get(self._api, self._path, self._query)
            self.items = {item["metadata"]["name"]: item for item in found["items"]}
            self._check(self.items)
            query = self._query | {"watch": "true", "resourceVersion": found["metadata"]["resourceVersion"]}
            async with self._api.watch(self._path, query, idle_s=IDLE_S) as events:
                async for event in events:
                    item = msgspec.json.decode(event.object)
                    name = item["metadata"]["name"]
                    if event.type == "DELETED":
                        self.items.pop(name, None)
                    else:
                        self.items[name] = item
                    self._check(self.items)
            await asyncio.sleep(0.1)
