"""Upstream's DRA driver in the source cluster of a run: compute domains, daemon pods, and the programs that run them.

People create and delete compute domains and daemon pods, restart daemons, change the readiness of pods, and delete
objects of cliques; these actions are drawn from the seed. Kubelets, upstream's controller and the garbage collector act
on the objects that exist, so that they also act after a restore of the API server. Each daemon runs upstream's
algorithm. In mode `assign`, the API server refuses its writes of cliques.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from projections.kubernetes.clique_objects import POSITION_ANNOTATION, Mode
from schemas.kubernetes.api import ApiError, PatchType
from schemas.kubernetes.objects import Metadata
from schemas.resources.compute_domain import (
    CLIQUE_LABEL,
    COMPUTE_DOMAIN,
    COMPUTE_DOMAIN_CLIQUE,
    DOMAIN_LABEL,
    UPSTREAM_KINDS,
)
from schemas.resources.crds import definition
from tests.simulation.history import CliqueCommitted, CliqueModeSet, FinalObject, History
from tests.simulation.network import Wire
from tests.simulation.script import Action, Director
from tests.simulation.wired_api import WRITER, WiredApi
from tests.support.kubernetes.requests import create, create_namespace, install
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.simulated.kinds import Object
from tests.support.kubernetes.upstream_daemon import UpstreamDaemon
from tests.support.virtual_loop import current_loop

DRIVER = "dra-driver"
"""The author of these actions."""
NAMESPACE = "driver"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DOMAINS = COMPUTE_DOMAIN.path(NAMESPACE)
CLIQUES = COMPUTE_DOMAIN_CLIQUE.path(NAMESPACE)
DOMAIN_NAMES = ("train-0", "train-1")
DAEMON_HOSTS = tuple(f"host-{number}" for number in range(9))
CLIQUE_NAMES = ("9f410827.32766", "9f410827.7")
NO_FABRIC = "host-8"
"""The node without a fabric: its pod has an empty clique and no daemon."""
FINALIZER = "resource.nvidia.com/computeDomain"
STOPS = "simulated/kubelet"
"""The finalizer of a daemon pod. It keeps the deleted pod until its daemon has stopped, as a grace period does."""
EVERY_S = 2.0
"""Interval of the controller, of kubelets and of the garbage collector."""
FAILS_FOR_S = 40.0
"""Time after which a kubelet restarts a daemon that reports an error: its liveness probe fails."""
ACTION_WEIGHTS: Mapping[str, int] = {
    "create_domain": 2,
    "delete_domain": 1,
    "start_daemon": 14,
    "stop_daemon": 4,
    "kill_daemon": 4,
    "replace_daemon": 5,
    "restart_daemon": 3,
    "change_readiness": 6,
    "delete_clique": 2,
    "switch_mode": 2,
}
"""The relative frequency of each action. An action names the method of `DraDriver` that performs it."""


class DraDriver:
    """Upstream's driver in one source cluster."""

    def __init__(
        self,
        api: SimulatedApi,
        source: str,
        history: History,
        rng: random.Random,
        *,
        pause_s: float,
        mode: Mode,
        has_switch: bool,
    ) -> None:
        self.modes: dict[str, Mode] = {}
        """The mode of each instance of a process with an edge, by the name of the instance."""
        self.restart_edges: Callable[[Mode], Awaitable[None]]
        """Restarts every edge in another mode, one after the other."""
        self._api = api
        self._source = source
        self._history = history
        self._rng = rng
        self._pause_s = pause_s
        self._mode = mode
        self._can_switch = has_switch
        self._running: dict[str, _Running] = {}
        """The daemons by the uid of their pod."""
        self._programs: asyncio.Task[None] | None = None

    def lets_write(self) -> bool:
        """Whether daemons and upstream's controller have the right to write cliques."""
        return self._mode == "beside"

    async def begin(self) -> None:
        """Install the definitions, create the first objects, and start the programs."""
        await create_namespace(self._api, NAMESPACE)
        await install(self._api, *map(definition, UPSTREAM_KINDS))
        self._history.add(CliqueModeSet(current_loop().time(), self._source, self._mode))
        await self._create_domain()
        for host in DAEMON_HOSTS[:3]:
            await self._create_pod(host)
        self._programs = current_loop().in_world(self._run_programs(), "driver")

    async def run(self, director: Director, seed: int) -> None:
        """Change objects until cancelled."""
        async for action in director.actions(DRIVER, self._draw):
            self._rng = action.rng(seed)
            await self._act(action)

    async def end(self) -> None:
        """Stop every program."""
        tasks = [*filter(None, [self._programs]), *(running.task for running in self._running.values())]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    def faults(self) -> Iterator[str]:
        """The failures of programs."""
        if self._programs is not None and self._programs.done() and not self._programs.cancelled():
            yield f"the driver ended: {self._programs.exception()}"

    def final_objects(self) -> list[FinalObject]:
        return [
            FinalObject(self._source, plural, body["metadata"]["name"], body)
            for plural, path in (
                ("pods", PODS),
                (COMPUTE_DOMAIN.plural, DOMAINS),
                (COMPUTE_DOMAIN_CLIQUE.plural, CLIQUES),
            )
            for _, body in sorted(self._api.objects(path).items())
        ]

    def record(self, before: Object | None, after: Object | None) -> None:
        """Record the commit of a clique's object."""
        about = (after or before or {})["metadata"]
        writer, domain = WRITER.get(), about["name"].partition(".")[0]
        live = {pod["spec"]["nodeName"]: _address(pod) for pod in self._pods(domain) if _can_claim(pod)}
        self._history.add(
            CliqueCommitted(
                current_loop().time(),
                self._source,
                about["name"],
                about["uid"],
                writer,
                self.modes.get(writer, ""),
                _content(before),
                _content(after),
                (about.get("annotations") or {}).get(POSITION_ANNOTATION, ""),
                live,
            )
        )
        rows = [f"{row['nodeName']}:{row.get('index')}" for row in (after or {}).get("daemons") or []]
        what = "rows written" if writer in self.modes else "rows written by another" if after else "rows deleted"
        self._history.note(current_loop().time(), what, about["name"], writer, *rows)

    # -- people

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), rng.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()))[0]

    async def _act(self, action: Action) -> None:
        try:
            action.description = await getattr(self, f"_{action.what}")() or ""
        except ApiError as error:
            action.description = f"refused: {error}"

    async def _create_domain(self) -> str:
        name = self._rng.choice(DOMAIN_NAMES)
        spec = {"numNodes": self._rng.choice((0, 2)), "channel": {"resourceClaimTemplate": {"name": name}}}
        await create(self._api, DOMAINS, {"metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": spec})
        return name

    async def _delete_domain(self) -> str:
        return await self._delete(DOMAINS, self._chosen(self._api.objects(DOMAINS).values()))

    async def _start_daemon(self) -> str:
        taken = {pod["spec"]["nodeName"] for pod in self._pods()}
        free = [host for host in DAEMON_HOSTS if host not in taken]
        return await self._create_pod(self._rng.choice(free)) if free else ""

    async def _create_pod(self, host: str) -> str:
        domain = self._chosen(self._api.objects(DOMAINS).values())
        if domain is None or domain["metadata"].get("deletionTimestamp"):
            return ""
        labels = {DOMAIN_LABEL: domain["metadata"]["uid"]} | ({CLIQUE_LABEL: ""} if host == NO_FABRIC else {})
        name = f"computedomain-daemon-{host}-{self._rng.getrandbits(25):05x}"
        about = {"name": name, "labels": labels, "finalizers": [STOPS]}
        await create(self._api, PODS, {"metadata": about, "spec": {"nodeName": host}})
        return name

    async def _stop_daemon(self) -> str:
        return await self._delete(PODS, self._chosen(self._pods()))

    async def _kill_daemon(self) -> str:
        return await self._kill(self._chosen(self._pods()))

    async def _replace_daemon(self) -> str:
        """Delete a pod at once, and create another one on its node."""
        pod = self._chosen(self._pods())
        killed = await self._kill(pod)
        return f"{killed} {await self._create_pod(pod['spec']['nodeName'])}" if pod is not None else ""

    async def _restart_daemon(self) -> str:
        uid = self._rng.choice([*self._running] or [""])
        if uid:
            self._running.pop(uid).task.cancel()
        return uid

    async def _change_readiness(self) -> str:
        pod = self._chosen(self._pods())
        if pod is None:
            return ""
        await self._set_status(pod, _address(pod), is_ready=self._rng.random() < 0.7)
        return str(pod["metadata"]["name"])

    async def _delete_clique(self) -> str:
        return await self._delete(CLIQUES, self._chosen(self._api.objects(CLIQUES).values()))

    async def _switch_mode(self) -> str:
        """Restart every edge in the other mode. Daemons have the right to write only while every edge expects rows of
        daemons."""
        if not self._can_switch:
            return ""
        self._can_switch = False
        mode: Mode = "assign" if self._mode == "beside" else "beside"
        self._history.note(current_loop().time(), "switched mode", mode)
        if mode == "assign":
            self._mode = mode
        self._history.add(CliqueModeSet(current_loop().time(), self._source, mode))
        await self.restart_edges(mode)
        self._mode = mode
        return mode

    def _chosen(self, found: Iterator[Object] | Sequence[Object] | Any) -> Any:
        objects = list(found)
        return self._rng.choice(objects) if objects else None

    async def _kill(self, pod: Object | None) -> str:
        if pod is None:
            return ""
        await self._let_go(PODS, pod)
        return await self._delete(PODS, pod)

    async def _delete(self, path: str, found: Object | None) -> str:
        if found is None:
            return ""
        name = str(found["metadata"]["name"])
        await self._api.delete(f"{path}/{name}", uid=found["metadata"]["uid"])
        return name

    async def _let_go(self, path: str, found: Object) -> None:
        """Remove the finalizers of an object."""
        about = found["metadata"]
        body = {"metadata": {"uid": about["uid"], "finalizers": None}}
        await self._api.patch(f"{path}/{about['name']}", body, "merge")

    # -- programs of the cluster

    async def _run_programs(self) -> None:
        rng = random.Random(self._rng.getrandbits(64))
        while True:
            for work in (self._run_kubelets, self._control, self._collect_garbage):
                with suppress(ApiError):
                    await work(rng)
            await asyncio.sleep(EVERY_S)

    async def _run_kubelets(self, rng: random.Random) -> None:
        """Run a daemon for each pod, and stop the daemons of deleted pods."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        for uid in [uid for uid in self._running if uid not in pods]:
            self._running.pop(uid).task.cancel()
        for uid, pod in pods.items():
            running = self._running.get(uid)
            if pod["metadata"].get("deletionTimestamp"):
                if running is not None:
                    if running.daemon is not None and rng.random() < 0.7:
                        await running.daemon.stop()
                    self._running.pop(uid).task.cancel()
                await self._let_go(PODS, pod)
            elif not _address(pod):
                taken = {_address(other) for other in self._pods()}
                free = [f"10.2.0.{number}" for number in range(1, 21) if f"10.2.0.{number}" not in taken]
                await self._set_status(pod, rng.choice(free), is_ready=False)
            elif running is not None and running.address == _address(pod):
                running.probe()
            elif pod["spec"]["nodeName"] != NO_FABRIC:
                if running is not None:  # a restore has lost the address of its pod
                    running.task.cancel()
                self._running[uid] = _Running(self, self._api, pod, rng.getrandbits(64))

    async def _set_status(self, pod: Object, address: str, *, is_ready: bool) -> None:
        conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
        status = {"phase": "Running", "podIP": address, "conditions": conditions}
        await self._api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status}, "merge")

    async def _control(self, rng: random.Random) -> None:
        """Upstream's controller: remove the pods of deleted domains, and the rows of nodes without a pod."""
        pods, domains = self._pods(), list(self._api.objects(DOMAINS).values())
        live = {domain["metadata"]["uid"] for domain in domains if not domain["metadata"].get("deletionTimestamp")}
        for pod in pods:
            if pod["metadata"]["labels"][DOMAIN_LABEL] not in live and not pod["metadata"].get("deletionTimestamp"):
                await self._delete(PODS, pod)
        with_pods = {pod["metadata"]["labels"][DOMAIN_LABEL] for pod in pods}
        for domain in domains:
            if domain["metadata"].get("deletionTimestamp") and domain["metadata"]["uid"] not in with_pods:
                await self._let_go(DOMAINS, domain)
        if self.lets_write():
            nodes = {pod["spec"]["nodeName"] for pod in pods}
            for clique in self._api.objects(CLIQUES).values():
                rows = clique.get("daemons") or []
                kept = [row for row in rows if row["nodeName"] in nodes]
                if len(kept) < len(rows):
                    await self._api.replace(f"{CLIQUES}/{clique['metadata']['name']}", {**clique, "daemons": kept})

    async def _collect_garbage(self, rng: random.Random) -> None:
        """Delete each object of which every owner is gone."""
        uids = {pod["metadata"]["uid"] for pod in self._pods()}
        for clique in list(self._api.objects(CLIQUES).values()):
            owners = clique["metadata"].get("ownerReferences") or []
            if owners and all(owner["uid"] not in uids for owner in owners):
                await self._delete(CLIQUES, clique)

    def _pods(self, domain: str = "") -> list[Object]:
        """The daemon pods, of one domain or of all."""
        found = self._api.objects(PODS).values()
        return [pod for pod in found if not domain or pod["metadata"]["labels"][DOMAIN_LABEL] == domain]


class _Running:
    """A daemon in its pod. If it ends, it is started again."""

    def __init__(self, driver: DraDriver, api: SimulatedApi, pod: Object, seed: int) -> None:
        self.daemon: UpstreamDaemon | None = None
        self.address = _address(pod)
        self._rng = random.Random(seed)
        self._node = str(pod["spec"]["nodeName"])
        wire = Wire(random.Random(self._rng.getrandbits(64)))
        self._new_daemon = partial(
            UpstreamDaemon,
            _DaemonApi(api, wire, f"daemon of {self._node}", driver),
            msgspec.convert(pod["metadata"], Metadata, strict=False),
            self._node,
            self.address,
            clique=CLIQUE_NAMES[DAEMON_HOSTS.index(self._node) % len(CLIQUE_NAMES)],
        )
        self._failed_s: float | None = None
        self.task = self._started()

    def probe(self) -> None:
        """Restart a daemon that has failed for a long time."""
        now_s = current_loop().time()
        if self.daemon is None or not self.daemon.failure:
            self._failed_s = None
        elif self._failed_s is None:
            self._failed_s = now_s
        elif now_s >= self._failed_s + FAILS_FOR_S:
            self._failed_s = None
            self.task.cancel()
            self.task = self._started()

    def _started(self) -> asyncio.Task[None]:
        return current_loop().in_world(self._run(), f"daemon of {self._node}")

    async def _run(self) -> None:
        while True:
            self.daemon = self._new_daemon(rng=random.Random(self._rng.getrandbits(64)))
            try:
                await self.daemon.run()
            except* ApiError:
                await asyncio.sleep(self._rng.uniform(2.0, 6.0))


class _DaemonApi(WiredApi):
    """The API server as a daemon reaches it, with the rights that it has."""

    def __init__(self, api: SimulatedApi, wire: Wire, writer: str, driver: DraDriver) -> None:
        super().__init__(api, wire, writer)
        self._driver = driver

    async def create(self, path: str, body: Any) -> bytes:
        self._check(path)
        return await super().create(path, body)

    async def replace(self, path: str, body: Any) -> bytes:
        self._check(path)
        return await super().replace(path, body)

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        self._check(path)
        return await super().patch(path, body, kind, query)

    def _check(self, path: str) -> None:
        if path.startswith(CLIQUES) and not self._driver.lets_write():
            raise ApiError(403, "Forbidden", "a daemon must not write cliques")


def _can_claim(pod: Object) -> bool:
    about = pod["metadata"]
    return bool(about["labels"].get(CLIQUE_LABEL) and _address(pod)) and not about.get("deletionTimestamp")


def _address(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP", ""))


def _content(found: Object | None) -> dict[str, Any] | None:
    """The parts of a clique's object that its writers change."""
    if found is None:
        return None
    about = found["metadata"]
    rows = {row["nodeName"]: row for row in found.get("daemons") or []}
    return {"rows": rows, "labels": about.get("labels") or {}, "owners": about.get("ownerReferences") or []}
