"""The contract of ObjectStore. It runs unchanged against the log and a real API server."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import pytest

from drivers.hosts.objects import ObjectStore, StoredObject
from projections.resources.kinds import DPU_NODE_MAINTENANCE
from projections.resources.state import ObjectId

SEEN_S = 60.0


class StoreUnderTest(ABC):
    """A store, and a namespace in it."""

    store: ObjectStore
    source: str
    namespace: str

    @abstractmethod
    async def annotate(self, name: str, key: str) -> None:
        """Set an annotation as a user does, beside the store."""

    def new(self, name: str = "h1-hold", *requestors: str) -> StoredObject:
        at = ObjectId(self.source, DPU_NODE_MAINTENANCE, self.namespace, name)
        spec = {"dpuNodeName": "h1", "nodeEffect": {"hold": True}, "requestor": list(requestors)}
        return StoredObject(at, "", "", {}, {}, spec)

    async def made(self, name: str = "h1-hold", *requestors: str) -> StoredObject:
        wanted = self.new(name, *requestors)
        await self.store.put(wanted)
        return await self.known(wanted)

    async def known(self, like: StoredObject) -> StoredObject:
        found = await self.store.get(like.at)
        assert found is not None
        return found


def requestors(found: StoredObject) -> list[str]:
    return list(found.spec["requestor"])


class ObjectStoreContract(ABC):
    @pytest.fixture
    @abstractmethod
    def tested(self) -> StoreUnderTest: ...

    async def test_an_object_is_made_once(self, tested: StoreUnderTest) -> None:
        first = await tested.made("h1-hold", "a")
        assert first.uid and first.version and first.created_ms and requestors(first) == ["a"]
        await tested.store.put(tested.new("h1-hold", "b"))
        assert await tested.known(first) == first, "a second one is not made, and does not replace it"

    async def test_an_edit_of_an_older_version_changes_nothing(self, tested: StoreUnderTest) -> None:
        first = await tested.made("h1-hold", "a")
        await tested.annotate("h1-hold", "example.org/a")
        await tested.store.put(first._replace(spec=first.spec | {"requestor": ["b"]}))
        second = await tested.known(first)
        assert requestors(second) == ["a"] and second.annotations == {"example.org/a": "yes"}
        await tested.store.put(second._replace(spec=second.spec | {"requestor": ["b"]}))
        third = await tested.known(first)
        assert requestors(third) == ["b"] and third.annotations == second.annotations and third.uid == first.uid
        await tested.store.put(third._replace(annotations={}))
        assert not (await tested.known(first)).annotations

    async def test_only_the_known_object_is_deleted(self, tested: StoreUnderTest) -> None:
        first = await tested.made()
        await tested.store.delete(first)
        await tested.store.delete(first)
        assert await tested.store.get(first.at) is None
        second = await tested.made()
        await tested.store.delete(first)
        assert await tested.known(first) == second

    async def test_a_change_is_seen_by_everyone_who_waits_for_it(self, tested: StoreUnderTest) -> None:
        at = tested.new().at
        made = asyncio.create_task(tested.store.changed(at, ""))
        await asyncio.sleep(0.3)
        assert not made.done()
        first = await tested.made()
        await asyncio.wait_for(made, SEEN_S)
        changed = asyncio.create_task(tested.store.changed(at, first.version))
        await asyncio.sleep(0.3)
        assert not changed.done()
        await tested.annotate("h1-hold", "example.org/a")
        await asyncio.wait_for(changed, SEEN_S)
        await asyncio.wait_for(tested.store.changed(at, first.version), SEEN_S)
        gone = asyncio.create_task(tested.store.changed(at, (await tested.known(first)).version))
        await asyncio.sleep(0.3)
        await tested.store.delete(first)
        await asyncio.wait_for(gone, SEEN_S)
