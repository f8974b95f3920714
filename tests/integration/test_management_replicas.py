"""Two processes of role `kubernetes` on Kafka write one source cluster and its DPU cluster, and are stopped and killed.

A third process has the devices, which are simulated, and every other role. The API servers are real.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from commands.kubernetes.resource_edge import STATED_KINDS
from deploy.composition.topics import TOPICS
from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import HOST, serving
from deploy.demo.platform.manifests import FIRST_IMAGE, NAMESPACE, SECOND_IMAGE, Object, host_name
from eventstore.kafka.log import KafkaLog
from projections.resources import kinds
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED
from tests.support import planes
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.cluster_peers import ClusterPeers
from tests.support.kubernetes.faulting_proxy import repeated
from tests.support.kubernetes.peers import Peers, suppress_outage
from tests.support.kubernetes.requests import create
from tests.support.kubernetes.shown_statuses import ShownStatuses, derived_facts, went_back
from tests.support.kubernetes.two_clusters import (
    NODES,
    PATHS,
    SOURCE,
    Site,
    acting,
    connected_site,
    control_planes,
    is_installed,
)
from tests.support.planes import Process

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1_500)]

SITE = "dpuclusters,dpfoperatorconfigs"
OF_USERS = ",".join(kind.plural for kind in STATED_KINDS if kind.plural not in SITE)
IMAGES = {FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}
AMPLIFICATION_MAX = 1.1
PATIENCE_S = 400.0
MOVES = 10
"""Writes by the other replica while one is stopped."""
_prefixes = itertools.count()


class Reboots:
    """Reboots the hosts, as an operator's own program does: it removes the annotation that asks for a reboot."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def run(self) -> None:
        while True:
            with suppress_outage():
                for name, node in (await self._site.items("dpunodes")).items():
                    if EXTERNAL_REBOOT_REQUIRED in (node["metadata"].get("annotations") or {}):
                        patch = {"metadata": {"annotations": {EXTERNAL_REBOOT_REQUIRED: None}}}
                        await self._site.api.patch(f"{PATHS['dpunodes']}/{name}", patch, "merge")
            await asyncio.sleep(0.2)


@pytest.fixture
def servers(kubernetes_programs: None, tmp_path: Path) -> Iterator[list[ControlPlane]]:
    with control_planes(tmp_path) as found:
        yield found


@pytest.fixture
async def site(servers: list[ControlPlane]) -> AsyncIterator[Site]:
    """The clusters with a Node for each host, and actors that play their controllers."""
    async with connected_site(servers, "3x1") as found:
        found.patience_s = PATIENCE_S
        for host in sorted(map(host_name, found.dpus)):
            await create(found.api, NODES, {"metadata": {"name": host}})
        peers = Peers(found.api, NAMESPACE, found.dpu_kubeconfig, rng=Random(1), failure=0.0)
        in_cluster = ClusterPeers(found.api, found.dpu_api, NAMESPACE, rng=Random(2), failure=0.0)
        async with acting([peers, in_cluster, Reboots(found)]):
            yield found


class Replicas:
    """Two processes of role `kubernetes` by name."""

    def __init__(self, stack: AsyncExitStack, on: tuple[str, ...], logs: Path) -> None:
        self.running: dict[str, Process] = {}
        self._stack = stack
        self._on = on
        self._logs = logs

    async def start(self, name: str) -> None:
        process = planes.serving(*self._on, "--role", "kubernetes", "--name", name, stderr=self._logs / name)
        self.running[name] = await self._stack.enter_async_context(process)

    def send(self, name: str, number: signal.Signals) -> None:
        self.running[name].child.send_signal(number)


@asynccontextmanager
async def replicas(site: Site, bootstrap: str, prefix: str, folder: Path) -> AsyncIterator[Replicas]:
    on = ("--kafka", bootstrap, "--topic-prefix", prefix, "--partitions", "1")
    devices = ("--simulate-hosts", site.sizes_text, "--simulate-pace", "0.2")
    images = ("--images", f"{HOST}:0", "--images-dir", str(folder / "images"), "--image-hosts", HOST)
    kubeconfig = str(site.source.kubeconfig(server=site.proxies[0].url))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(planes.serving(*on, *devices, *images, stderr=folder / "devices"))
        cluster = ("--kubeconfig", kubeconfig, "--source", SOURCE, "--kubernetes-resources")
        made = Replicas(stack, (*on, *cluster), folder)
        for name in ("one", "two"):
            await made.start(name)
        yield made


def wanted(image: str) -> list[Object]:
    return [manifests.dpu_set(image), manifests.deployment(image, [2])]


def rebooted_by_others(objects: list[Object]) -> list[Object]:
    """These objects, with hosts that have no agent: only a process with the simulated hosts reaches their agents."""
    method: dict[str, object] = {"nodeRebootMethod": {"external": {}}}
    return [each._replace(spec={**each.spec, **method}) if each.kind == kinds.DPU_NODE else each for each in objects]


def commits(site: Site) -> int:
    return sum(len(proxy.committed) for proxy in site.proxies)


async def until_commits(site: Site, more: int) -> None:
    """Wait until the plane has written so many times more."""
    await until_commits_or_installed(site, more, "")


async def until_commits_or_installed(site: Site, more: int, image: str) -> None:
    """Wait until the plane has written so many times more, or every DPU is ready with an image: less is left to write
    then."""
    end = commits(site) + more

    async def is_reached() -> bool:
        dpus = await site.items("dpus")
        return commits(site) >= end or (bool(dpus) and all(is_installed(each, image) for each in dpus.values()))

    await site.until(is_reached)


def assert_few_writes(site: Site) -> None:
    committed = [each for proxy in site.proxies for each in proxy.committed if each.object.get("kind") != "Status"]
    extra = repeated(committed)
    needed = len(committed) - len(extra)
    print(f"\n{needed} writes needed, {len(committed)} committed, amplification {len(committed) / needed:.3f}")
    assert len(committed) <= AMPLIFICATION_MAX * needed, [(each.method, each.path) for each in extra]


def assert_made_once(shown: ShownStatuses) -> None:
    several = {key: uids for key, uids in shown.uids().items() if len(uids) > 1}
    assert not several, "nothing that is wanted was deleted and made again"


async def test_one_of_two_replicas_is_stopped_or_killed_at_any_time_and_no_object_goes_back(
    site: Site, kafka_cluster: str, tmp_path: Path
) -> None:
    prefix = f"management-{next(_prefixes)}"
    shown = ShownStatuses(site.api, SOURCE, NAMESPACE)
    async with (
        serving(IMAGES, Random(3)) as url,
        replicas(site, kafka_cluster, prefix, tmp_path) as made,
        acting([shown]),
    ):
        await site.apply([*wanted(FIRST_IMAGE), *rebooted_by_others(site.foundations(url))])
        await site.until_ready(FIRST_IMAGE)
        assert_few_writes(site)
        assert_made_once(shown)

        await site.apply(wanted(SECOND_IMAGE))
        wrote: Counter[str] = Counter()
        for name in ("one", "two", "one", "two"):
            made.send(name, signal.SIGSTOP)
            before = commits(site)
            await until_commits_or_installed(site, MOVES, SECOND_IMAGE)
            wrote[name] += commits(site) - before
            made.send(name, signal.SIGCONT)
        assert wrote["one"] and wrote["two"], f"a replica wrote nothing while the other one was stopped: {wrote}"
        made.send("one", signal.SIGKILL)
        await site.until_ready(SECOND_IMAGE)
        await made.start("three")
        made.send("two", signal.SIGKILL)
        await site.until_ready(SECOND_IMAGE)
        kept = {key: uids for key, uids in shown.uids().items() if f"/{kinds.DPU}/" in key}
        assert len(kept) == len(site.dpus) and all(len(uids) == 1 for uids in kept.values())

        derived = await _derived(kafka_cluster, prefix, shown)
        assert went_back(shown.shown, derived) == []
        print(f"{len(shown.shown)} states shown of {len(derived)} objects")

        await made.start("four")
        await site.kubectl("delete", OF_USERS, "--all", "--wait=false")
        await until_commits(site, 5)
        made.send("three", signal.SIGKILL)
        await site.until(lambda: site.is_empty(OF_USERS))
        await site.kubectl("delete", SITE, "--all", "--wait=false")
        await site.until(lambda: site.is_empty(f"{SITE},applications,tenantcontrolplanes"))


async def _derived(bootstrap: str, prefix: str, shown: ShownStatuses) -> dict[str, list[tuple[object, ...]]]:
    async with KafkaLog.open(
        TOPICS, bootstrap, topic_prefix=prefix, partition_count=1, rng=Random(7), create=False
    ) as log:
        return await derived_facts(log, {each.key for each in shown.shown})
