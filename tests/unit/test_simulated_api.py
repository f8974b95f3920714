"""The faults of the simulated API server. What it has in common with the real one is held by their contract."""

from __future__ import annotations

import asyncio
import random

import pytest

from schemas.kubernetes.api import ApiError
from tests.support.kubernetes.requests import create, get
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.virtual_loop import run_virtual

NODES = "/api/v1/nodes"


def node(name: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"name": name}}


@pytest.mark.virtual_clock
async def test_a_write_may_take_effect_and_time_out_all_the_same() -> None:
    api = SimulatedApi(random.Random(7))
    api.faults.refuse(504, "create", is_committed=True)
    with pytest.raises(ApiError) as caught:
        await api.create(NODES, node("a"))
    assert caught.value.may_have_taken_effect
    assert (await get(api, f"{NODES}/a"))["metadata"]["name"] == "a"
    with pytest.raises(ApiError) as caught:
        await api.create(NODES, node("a"))
    assert caught.value.reason == "AlreadyExists"
    assert api.requests == {("create", 504): 1, ("create", 409): 1, ("get", 200): 1}


@pytest.mark.virtual_clock
async def test_a_refusal_is_for_its_verbs_and_paths_and_used_up() -> None:
    api = SimulatedApi(random.Random(7))
    api.faults.refuse(429, "get", times=2, retry_after_s=9.0, within="nodes")
    await api.get("/api/v1/namespaces")
    await api.create(NODES, node("a"))
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            await api.get(NODES)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 9.0)
    await api.get(NODES)


@pytest.mark.virtual_clock
async def test_a_read_of_a_test_is_sent_again_after_429_responses_and_no_other() -> None:
    api = SimulatedApi(random.Random(7))
    api.faults.refuse(429, "get", times=3)
    assert (await get(api, NODES))["items"] == []
    assert api.requests == {("get", 429): 3, ("get", 200): 1}
    api.faults.refuse(503, "get")
    with pytest.raises(ApiError):
        await get(api, NODES)


@pytest.mark.virtual_clock
async def test_a_list_may_hide_objects_that_exist() -> None:
    api = SimulatedApi(random.Random(7))
    for number in range(10):
        await api.create(NODES, node(f"node-{number}"))
    api.faults.shown = lambda path, items: items[: len(items) * 6 // 10]
    assert len((await get(api, NODES))["items"]) == 6
    assert (await get(api, f"{NODES}/node-9"))["metadata"]["name"] == "node-9"


@pytest.mark.virtual_clock
async def test_a_server_that_is_down_ends_its_watches_and_answers_nothing() -> None:
    api = SimulatedApi(random.Random(7))
    with pytest.raises(ApiError) as caught:
        async with api.watch(NODES, {}, idle_s=5.0) as events:
            assert api.watch_count == 1
            api.go_down()
            await anext(events)
    assert caught.value.status == 0 and api.watch_count == 0
    with pytest.raises(ApiError):
        await api.get(NODES)


@pytest.mark.virtual_clock
async def test_an_earlier_state_has_its_objects_and_its_version_and_is_silent_about_later_ones() -> None:
    api = SimulatedApi(random.Random(7))
    before = await create(api, NODES, node("a"))
    saved = api.save()
    for name in ("b", "c", "d"):
        after = await create(api, NODES, node(name))
    api.restore(saved)
    found = await get(api, NODES)
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    assert found["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    query = {"resourceVersion": after["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
    with pytest.raises(ApiError) as caught:
        async with api.watch(NODES, query, idle_s=300.0) as events:
            await api.create(NODES, node("e"))
            await anext(events)
    assert caught.value.reason == "Stalled"


def test_two_runs_of_a_seed_are_the_same_byte_for_byte() -> None:
    async def scenario(api: SimulatedApi, seed: int) -> bytes:
        rng, lines = random.Random(seed), list[bytes]()

        async def watch() -> None:
            async with api.watch(NODES, {"timeoutSeconds": "100"}, idle_s=500.0) as events:
                lines.extend([event.object async for event in events])

        task = asyncio.create_task(watch())
        for number in range(50):
            await asyncio.sleep(rng.random())
            await api.create(NODES, {"metadata": {"generateName": f"node-{number}-"}})
        await task
        return b"".join([*lines, await api.get(NODES)])

    def run(seed: int) -> bytes:
        return run_virtual(scenario(SimulatedApi(random.Random(seed)), seed))

    assert run(1) == run(1) != run(2)
