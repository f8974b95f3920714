"""The contract of KubernetesApi. It runs unchanged against a real API server and the simulated one."""

from __future__ import annotations

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schemas.kubernetes.api import CONFLICT, GONE, NOT_FOUND, ApiError, KubernetesApi, WatchEvent
from schemas.resources.dpu_rack import DPU_RACK
from tests.support.kubernetes.requests import create, get

IDLE_S = 30.0
PATIENCE_S = 60.0


class ApiUnderTest(ABC):
    """An API server with the kind DPURack installed, and the namespace `namespace`."""

    api: KubernetesApi
    prefix: str
    """Begins the names of the test's cluster-wide objects, and is the value of their label `test`."""
    namespace: str

    @abstractmethod
    async def compact(self) -> None:
        """Forget earlier versions."""

    @property
    def selected(self) -> dict[str, str]:
        return {"labelSelector": f"test={self.prefix}"}

    def path(self, name: str = "", subresource: str = "") -> str:
        return DPU_RACK.path(name=f"{self.prefix}-{name}" if name else "", subresource=subresource)

    def body(self, name: str, spec: Mapping[str, Any] | None = None, **labels: str) -> dict[str, Any]:
        metadata = {"name": f"{self.prefix}-{name}", "labels": {"test": self.prefix, **labels}}
        return {"apiVersion": DPU_RACK.api_version, "kind": DPU_RACK.name, "metadata": metadata, "spec": spec or {}}

    async def create(self, name: str, spec: Mapping[str, Any] | None = None, **labels: str) -> dict[str, Any]:
        return await create(self.api, self.path(), self.body(name, spec, **labels))

    @asynccontextmanager
    async def watched(
        self, version: str, *, timeout_s: int = 60, labels: str = "", bookmarks: bool = False
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(timeout_s)}
        query["labelSelector"] = ",".join(part for part in (f"test={self.prefix}", labels) if part)
        query |= {"allowWatchBookmarks": "true"} if bookmarks else {}
        async with asyncio.timeout(PATIENCE_S), self.api.watch(self.path(), query, idle_s=IDLE_S) as events:
            yield events


async def next_event(events: AsyncIterator[WatchEvent]) -> tuple[str, dict[str, Any]]:
    event = await anext(events)
    return event.type, json.loads(event.object)


def about(item: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = item["metadata"]
    return found


def position(**offsets: int) -> dict[str, Any]:
    return {"logPosition": {"generation": 1, "fleet": 0, "zones": 0, "cliques": 0, "installs": 0, **offsets}}


class KubernetesApiContract:
    """The contract. A subclass provides the fixture `server`."""

    # -- single objects

    async def test_an_object_is_created_once_and_read(self, server: ApiUnderTest) -> None:
        made = await server.create("a", {"parallelInstalls": 3})
        assert about(made)["generation"] == 1 and about(made)["uid"] and about(made)["creationTimestamp"]
        found = await get(server.api, server.path("a"))
        assert about(found)["resourceVersion"] == about(made)["resourceVersion"]
        assert found["spec"]["parallelInstalls"] == 3
        with pytest.raises(ApiError) as caught:
            await server.create("a")
        assert (caught.value.status, caught.value.reason) == (CONFLICT, "AlreadyExists")
        assert f'"{server.prefix}-a" already exists' in str(caught.value)
        with pytest.raises(ApiError) as caught:
            await server.api.get(server.path("b"))
        assert (caught.value.status, caught.value.reason) == (NOT_FOUND, "NotFound")
        assert not caught.value.may_have_taken_effect

    async def test_the_version_and_the_served_kinds_are_told(self, server: ApiUnderTest) -> None:
        assert (await get(server.api, "/version"))["gitVersion"].startswith("v1.")
        found = {each["name"]: each["namespaced"] for each in (await get(server.api, "/api/v1"))["resources"]}
        assert (found["nodes"], found["secrets"]) == (False, True)
        assert DPU_RACK.plural in {
            each["name"] for each in (await get(server.api, f"/apis/{DPU_RACK.api_version}"))["resources"]
        }
        with pytest.raises(ApiError) as absent:
            await get(server.api, "/apis/example.org/v1")
        assert absent.value.status == NOT_FOUND

    async def test_a_kind_that_is_not_installed_is_not_found(self, server: ApiUnderTest) -> None:
        with pytest.raises(ApiError) as caught:
            await server.api.get("/apis/dpuplane.io/v1alpha1/absents")
        assert caught.value.status == NOT_FOUND

    async def test_fields_that_the_schema_lacks_are_dropped_and_wrong_ones_refused(self, server: ApiUnderTest) -> None:
        made = await server.create("a", {"parallelInstalls": 3, "unknown": 1})
        assert "unknown" not in made["spec"]
        with pytest.raises(ApiError) as caught:
            await server.create("b", {"parallelInstalls": -1})
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        with pytest.raises(ApiError) as caught:
            await server.create("Upper")
        assert caught.value.status == 422

    async def test_a_stale_version_is_refused(self, server: ApiUnderTest) -> None:
        made = await server.create("a", {"parallelInstalls": 1})
        made["spec"]["parallelInstalls"] = 2
        changed = json.loads(await server.api.replace(server.path("a"), made))
        assert about(changed)["resourceVersion"] != about(made)["resourceVersion"]
        made["spec"]["parallelInstalls"] = 3
        with pytest.raises(ApiError) as caught:
            await server.api.replace(server.path("a"), made)
        assert (caught.value.status, caught.value.reason) == (CONFLICT, "Conflict")
        del made["metadata"]["resourceVersion"]
        with pytest.raises(ApiError) as caught:
            await server.api.replace(server.path("a"), made)
        assert caught.value.status == 422, "the object of a custom resource is never replaced without its version"
        found = await get(server.api, server.path("a"))
        assert found["spec"]["parallelInstalls"] == 2

    async def test_the_same_object_again_is_no_new_version(self, server: ApiUnderTest) -> None:
        made = await server.create("a", {"parallelInstalls": 1})
        same = json.loads(await server.api.replace(server.path("a"), made))
        assert about(same)["resourceVersion"] == about(made)["resourceVersion"]

    async def test_generations_count_changes_of_the_spec_only(self, server: ApiUnderTest) -> None:
        await server.create("a")
        labelled = json.loads(await server.api.patch(server.path("a"), {"metadata": {"labels": {"x": "1"}}}, "merge"))
        assert about(labelled)["generation"] == 1 and about(labelled)["labels"]["x"] == "1"
        stated = json.loads(await server.api.patch(server.path("a", "status"), {"status": {"nodes": 4}}, "merge"))
        assert about(stated)["generation"] == 1 and stated["status"]["nodes"] == 4
        changed = json.loads(await server.api.patch(server.path("a"), {"spec": {"parallelInstalls": 2}}, "merge"))
        assert about(changed)["generation"] == 2

    async def test_status_and_spec_are_written_apart(self, server: ApiUnderTest) -> None:
        made = await create(server.api, server.path(), server.body("a") | {"status": {"nodes": 7}})
        assert "status" not in made
        made["status"] = {"nodes": 4}
        made["spec"] = {"parallelInstalls": 9}
        stated = json.loads(await server.api.replace(server.path("a", "status"), made))
        assert stated["status"]["nodes"] == 4 and "parallelInstalls" not in stated["spec"]
        stated["status"]["nodes"], stated["spec"] = 5, {"parallelInstalls": 9}
        changed = json.loads(await server.api.replace(server.path("a"), stated))
        assert changed["status"]["nodes"] == 4 and changed["spec"]["parallelInstalls"] == 9

    async def test_a_status_never_goes_back_in_the_log(self, server: ApiUnderTest) -> None:
        await server.create("a")
        at = server.path("a", "status")
        await server.api.patch(at, {"status": position(fleet=10, zones=5)}, "merge")
        await server.api.patch(at, {"status": position(fleet=10, zones=6)}, "merge")
        for back in (position(fleet=9, zones=6), position(fleet=11, zones=5), {"logPosition": None}):
            with pytest.raises(ApiError) as caught:
                await server.api.patch(at, {"status": back}, "merge")
            assert caught.value.status == 422 and "logPosition must not go back" in str(caught.value)
        later = position(fleet=0, zones=0)
        later["logPosition"]["generation"] = 2
        await server.api.patch(at, {"status": later}, "merge")

    async def test_an_immutable_field_stays(self, server: ApiUnderTest) -> None:
        await server.create("a", {"zone": "rack-1"})
        with pytest.raises(ApiError) as caught:
            await server.api.patch(server.path("a"), {"spec": {"zone": "rack-2"}}, "merge")
        assert caught.value.status == 422 and "zone is immutable" in str(caught.value)

    # -- patches

    async def test_a_merge_patch_changes_what_it_names_under_its_version(self, server: ApiUnderTest) -> None:
        made = await server.create("a", {"parallelInstalls": 1, "unavailableNodes": 2})
        patch: dict[str, Any] = {"spec": {"parallelInstalls": None, "unavailableNodes": 3}}
        found = json.loads(await server.api.patch(server.path("a"), patch, "merge"))
        assert "parallelInstalls" not in found["spec"] and found["spec"]["unavailableNodes"] == 3
        patch = {"metadata": {"resourceVersion": about(made)["resourceVersion"]}, "spec": {"unavailableNodes": 4}}
        with pytest.raises(ApiError) as caught:
            await server.api.patch(server.path("a"), patch, "merge")
        assert caught.value.status == CONFLICT

    async def test_a_json_patch_is_whole_or_nothing(self, server: ApiUnderTest) -> None:
        await server.create("a", {"parallelInstalls": 1})
        add = {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}
        expect = {"op": "test", "path": "/spec/parallelInstalls", "value": 1}
        found = json.loads(await server.api.patch(server.path("a"), [expect, add], "json"))
        assert about(found)["labels"]["a/b"] == "c"
        remove = {"op": "remove", "path": "/metadata/labels/a~1b"}
        with pytest.raises(ApiError) as caught:
            await server.api.patch(server.path("a"), [remove, {**expect, "value": 2}], "json")
        assert caught.value.status == 422
        found = await get(server.api, server.path("a"))
        assert about(found)["labels"]["a/b"] == "c"

    async def test_apply_creates_and_owns_its_fields(self, server: ApiUnderTest) -> None:
        async def apply(spec: dict[str, Any], manager: str, **query: str) -> dict[str, Any]:
            query = {"fieldManager": manager, **query}
            found: dict[str, Any] = json.loads(
                await server.api.patch(server.path("a"), server.body("a", spec), "apply", query)
            )
            return found

        made = await apply({"parallelInstalls": 1, "unavailableNodes": 2}, "first")
        assert about(made)["generation"] == 1
        same = await apply({"parallelInstalls": 1, "unavailableNodes": 2}, "first")
        assert about(same)["resourceVersion"] == about(made)["resourceVersion"]
        with pytest.raises(ApiError) as caught:
            await apply({"parallelInstalls": 5}, "second")
        assert caught.value.status == CONFLICT and '"first"' in str(caught.value)
        taken = await apply({"parallelInstalls": 5}, "second", force="true")
        assert taken["spec"] == {"parallelInstalls": 5, "unavailableNodes": 2}
        left = await apply({}, "first")
        assert left["spec"] == {"parallelInstalls": 5}, "a field that its only owner leaves out is removed"
        with pytest.raises(ApiError) as caught:
            await server.api.patch(server.path("a"), server.body("a"), "apply")
        assert caught.value.status in (400, 422), "apply needs a field manager"

    async def test_each_manager_of_a_status_owns_its_conditions(self, server: ApiUnderTest) -> None:
        await server.create("a")

        def condition(kind: str) -> dict[str, Any]:
            when = "2026-01-01T00:00:00Z"
            return {"type": kind, "status": "True", "lastTransitionTime": when, "reason": "Tested", "message": ""}

        async def apply(manager: str, status: dict[str, Any]) -> dict[str, Any]:
            body = {**server.body("a"), "status": status}
            del body["metadata"]["labels"], body["spec"]
            query = {"fieldManager": manager}
            found = json.loads(await server.api.patch(server.path("a", "status"), body, "apply", query))
            stated: dict[str, Any] = found["status"]
            return stated

        await apply("first", {"nodes": 4, "conditions": [condition("Ready")]})
        both = await apply("second", {"conditions": [condition("Tested")]})
        assert both["nodes"] == 4 and {each["type"] for each in both["conditions"]} == {"Ready", "Tested"}
        left = await apply("first", {"nodes": 5})
        assert left["nodes"] == 5 and [each["type"] for each in left["conditions"]] == ["Tested"]

    # -- deletes

    async def test_a_delete_meets_only_the_object_with_its_uid(self, server: ApiUnderTest) -> None:
        first = await server.create("a")
        await server.api.delete(server.path("a"), uid=about(first)["uid"])
        second = await server.create("a")
        assert about(second)["uid"] != about(first)["uid"]
        with pytest.raises(ApiError) as caught:
            await server.api.delete(server.path("a"), uid=about(first)["uid"])
        assert (caught.value.status, caught.value.reason) == (CONFLICT, "Conflict")
        await server.api.delete(server.path("a"), uid=about(second)["uid"])
        with pytest.raises(ApiError) as caught:
            await server.api.delete(server.path("a"), uid=about(second)["uid"])
        assert caught.value.status == NOT_FOUND

    async def test_an_object_with_a_finalizer_stays_until_it_is_removed(self, server: ApiUnderTest) -> None:
        body = server.body("a")
        body["metadata"]["finalizers"] = ["dpuplane.io/test"]
        made = await create(server.api, server.path(), body)
        await server.api.delete(server.path("a"), uid=about(made)["uid"])
        assert about(await get(server.api, server.path("a")))["deletionTimestamp"]
        await server.api.patch(server.path("a"), {"metadata": {"finalizers": None}}, "merge")
        with pytest.raises(ApiError) as caught:
            await server.api.get(server.path("a"))
        assert caught.value.status == NOT_FOUND

    # -- lists

    async def test_a_list_in_pages_is_of_one_version(self, server: ApiUnderTest) -> None:
        for number in range(5):
            await server.create(f"a{number}")
        query = server.selected | {"limit": "2"}
        pages = [await get(server.api, server.path(), query)]
        extra = await server.create("a00")
        removed = await get(server.api, server.path("a4"))
        await server.api.delete(server.path("a4"), uid=about(removed)["uid"])
        while token := about(pages[-1]).get("continue"):
            pages.append(await get(server.api, server.path(), query | {"continue": token}))
        names = [about(item)["name"].rpartition("-")[2] for page in pages for item in page["items"]]
        assert names == ["a0", "a1", "a2", "a3", "a4"]
        assert len({about(page)["resourceVersion"] for page in pages}) == 1
        assert int(about(pages[0])["resourceVersion"]) < int(about(extra)["resourceVersion"])

    async def test_a_list_that_is_too_old_to_continue_is_gone(self, server: ApiUnderTest) -> None:
        for number in range(3):
            await server.create(f"a{number}")
        query = server.selected | {"limit": "2"}
        token = about(await get(server.api, server.path(), query))["continue"]
        await server.compact()
        old = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))) | {"rv": 1}
        token = base64.urlsafe_b64encode(json.dumps(old).encode()).decode().rstrip("=")
        with pytest.raises(ApiError) as caught:
            await server.api.get(server.path(), query | {"continue": token})
        assert (caught.value.status, caught.value.reason) == (GONE, "Expired")

    @pytest.mark.parametrize(
        ("selector", "names"),
        [
            ("color=red", "a"),
            ("color!=red", "bc"),
            ("color in (red, blue)", "ab"),
            ("color notin (red)", "bc"),
            ("color", "ab"),
            ("!color", "c"),
            ("color,size=2", "b"),
        ],
    )
    async def test_labels_select(self, server: ApiUnderTest, selector: str, names: str) -> None:
        await server.create("a", color="red", size="1")
        await server.create("b", color="blue", size="2")
        await server.create("c")
        query = {"labelSelector": f"test={server.prefix},{selector}"}
        items = (await get(server.api, server.path(), query))["items"]
        assert "".join(about(item)["name"][-1] for item in items) == names

    async def test_a_namespace_lists_only_its_own(self, server: ApiUnderTest) -> None:
        path = f"/api/v1/namespaces/{server.namespace}/configmaps"
        await create(server.api, path, {"metadata": {"name": "a", "labels": {"test": server.prefix}}})
        other = "/api/v1/namespaces/default/configmaps"
        elsewhere = {"metadata": {"name": f"{server.prefix}-b", "labels": {"test": server.prefix}}}
        made = await create(server.api, other, elsewhere)
        everywhere = (await get(server.api, "/api/v1/configmaps", server.selected))["items"]
        assert [about(item)["namespace"] for item in everywhere] == sorted(["default", server.namespace])
        (own,) = (await get(server.api, path, server.selected))["items"]
        assert about(own)["name"] == "a"
        await server.api.delete(f"{other}/{server.prefix}-b", uid=about(made)["uid"])
        with pytest.raises(ApiError) as caught:
            await server.api.create("/api/v1/namespaces/absent-one/configmaps", {"metadata": {"name": "a"}})
        assert caught.value.status == NOT_FOUND

    # -- watches

    async def test_a_watch_continues_after_the_version_of_a_list(self, server: ApiUnderTest) -> None:
        made = await server.create("a")
        version = about(await get(server.api, server.path(), server.selected))["resourceVersion"]
        changed = json.loads(await server.api.patch(server.path("a"), {"spec": {"parallelInstalls": 2}}, "merge"))
        async with server.watched(version) as events:
            kind, item = await next_event(events)
            assert (kind, about(item)["resourceVersion"]) == ("MODIFIED", about(changed)["resourceVersion"])
            added = await server.create("b")
            kind, item = await next_event(events)
            assert (kind, about(item)["uid"]) == ("ADDED", about(added)["uid"])
            await server.api.delete(server.path("a"), uid=about(made)["uid"])
            kind, item = await next_event(events)
            assert (kind, about(item)["uid"]) == ("DELETED", about(made)["uid"])
            assert int(about(item)["resourceVersion"]) > int(about(added)["resourceVersion"])

    async def test_an_object_leaves_a_watch_with_its_label(self, server: ApiUnderTest) -> None:
        made = await server.create("a", color="red")
        async with server.watched(about(made)["resourceVersion"], labels="color=red") as events:
            await server.api.patch(server.path("a"), {"metadata": {"labels": {"color": "blue"}}}, "merge")
            assert (await next_event(events))[0] == "DELETED"
            await server.api.patch(server.path("a"), {"metadata": {"labels": {"color": "red"}}}, "merge")
            assert (await next_event(events))[0] == "ADDED"

    async def test_a_watch_ends_at_its_timeout_after_a_bookmark(self, server: ApiUnderTest) -> None:
        made = await server.create("a")
        version = about(made)["resourceVersion"]
        async with server.watched(version, timeout_s=6, labels="color=red", bookmarks=True) as events:
            other = await server.create("b")
            found = [event async for event in events]
        assert {event.type for event in found} == {"BOOKMARK"}
        assert int(about(json.loads(found[-1].object))["resourceVersion"]) >= int(about(other)["resourceVersion"])

    async def test_a_silent_watch_is_stalled(self, server: ApiUnderTest) -> None:
        made = await server.create("a")
        query = {"watch": "true", "resourceVersion": about(made)["resourceVersion"], "timeoutSeconds": "60"}
        with pytest.raises(ApiError) as caught:
            async with server.api.watch(server.path(), query | server.selected, idle_s=1.0) as events:
                await anext(events)
        assert (caught.value.status, caught.value.reason) == (0, "Stalled")

    async def test_a_watch_from_a_forgotten_version_is_gone(self, server: ApiUnderTest) -> None:
        await server.create("a")
        await server.compact()
        with pytest.raises(ApiError) as caught:
            async with server.watched("1") as events:
                await anext(events)
        assert (caught.value.status, caught.value.reason) == (GONE, "Expired")

    async def test_an_error_of_the_reader_passes_unchanged_through_a_watch(self, server: ApiUnderTest) -> None:
        made = await server.create("a")
        with pytest.raises(TimeoutError, match="the reader's own"):
            async with server.watched(about(made)["resourceVersion"]):
                raise TimeoutError("the reader's own")
