"""Listing and watching a collection of a real API server that is restarted, or set back to an earlier etcd."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from commands.kubernetes.list_watch import ListWatch
from drivers.kubernetes.client import connect
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import Node
from tests.support.eventually import until
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.listed import Seen
from tests.support.kubernetes.requests import advance

NODES = "/api/v1/nodes"


@asynccontextmanager
async def watching(api: KubernetesApi, seen: Seen) -> AsyncIterator[ListWatch[Node]]:
    watch = ListWatch(api, NODES, Node, seen, rng=random.Random(7))
    task = asyncio.create_task(watch.run())
    try:
        await until(lambda: watch.is_current)
        yield watch
    finally:
        task.cancel()


async def create(api: KubernetesApi, *names: str) -> None:
    for name in names:
        await api.create(NODES, {"metadata": {"name": name}})


async def test_a_watch_survives_a_restart_of_the_api_server(own_control_plane: ControlPlane) -> None:
    seen = Seen()
    async with connect(str(own_control_plane.kubeconfig())) as api:
        await create(api, "node-1", "node-2")
        async with watching(api, seen) as watch:
            await create(api, "node-3")
            await until(lambda: "node-3" in seen.nodes)
            own_control_plane.kill("kube-apiserver")
            await until(lambda: not watch.is_current)
            await own_control_plane.start()
            await create(api, "node-4")
            found = json.loads(await api.get(f"{NODES}/node-2"))
            await api.delete(f"{NODES}/node-2", uid=found["metadata"]["uid"])
            await until(lambda: set(seen.nodes) == {"node-1", "node-3", "node-4"})
    assert not any(seen.went_back)


async def test_an_api_server_on_an_earlier_etcd_is_noticed_and_listed_again(own_control_plane: ControlPlane) -> None:
    seen, plane = Seen(), own_control_plane
    async with connect(str(plane.kubeconfig())) as api:
        await create(api, "node-1")
        saved = plane.save_etcd()
        await plane.start()
        async with watching(api, seen) as watch:
            await create(api, "node-2")
            await advance(api, f"{NODES}/node-1")
            await api.patch(f"{NODES}/node-1", {"metadata": {"labels": {"a": "2"}}}, "merge")
            await until(lambda: seen.nodes == {"node-1": "2", "node-2": ""})
            plane.kill("kube-apiserver")
            plane.kill("etcd")
            plane.restore_etcd(saved)
            await plane.start()
            await create(api, "node-3")
            await until(lambda: watch.counts.lists == 2)
            await until(lambda: seen.nodes == {"node-1": "", "node-3": ""})
            assert seen.went_back == [False, True]
            await api.patch(f"{NODES}/node-3", {"metadata": {"labels": {"a": "3"}}}, "merge")
            await until(lambda: seen.nodes["node-3"] == "3")
