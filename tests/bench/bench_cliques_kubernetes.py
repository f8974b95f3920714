"""Daemons of one ComputeDomain claim their indices at once on one kube-apiserver: the plane beside upstream's ways.

- `upstream`: upstream's algorithm, every daemon a writer of the clique's object, without a client limit. Up to 72
  daemons: each success makes all others of a clique retry at once, so with 144 daemons one formation already
  occupies two cores for two minutes, with 10,000 conflicts.
- `upstream, limited`: the same with client-go's default limit of 5 writes per second and daemon. Only up to 72 daemons:
  its time is set by the limit and the size of a clique, and does not change with the number of cliques.
- `apply`: each daemon applies its row (server-side apply), and one of two with the same index moves. Up to 72 daemons:
  what it costs is a matter of one clique too.
- `plane`: upstream's daemons without the right to write cliques; they find the rows that the plane has written. The
  log is embedded, or on three Kafka brokers on this machine, up to 72 daemons: beyond, brokers and daemons compete
  for two cores.

Daemons are coroutines of this process, one connection per watch, so at large numbers this process is the limit.
Times of the same number of daemons compare; times of different numbers also show what this process costs. All costs are
of the API server's resource, but for processor time and bytes of etcd, which contain the labels and the readiness of
the pods: the same in every way. The first formation in each way is a warm-up, which is not counted. Everything that
was measured goes to stderr, line by line; the table has the times, and the costs of one clique.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import uvloop

from schemas.kubernetes.api import KubernetesApi
from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from tests.bench.apart import serving
from tests.bench.brokers import cluster as kafka_cluster
from tests.bench.brokers import new_prefix
from tests.bench.clique_forming import Formed, MakeDaemon, connect_many, form
from tests.bench.figures import Figure, percentile
from tests.support.kubernetes.api_server import ADMIN
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.daemon_role import let_read
from tests.support.kubernetes.other_daemons import ApplyDaemon, LimitedApi
from tests.support.kubernetes.requests import create_namespace, install
from tests.support.kubernetes.upstream_daemon import UpstreamDaemon

READER = "daemon"
UPSTREAM, LIMITED, APPLY, PLANE, KAFKA = "upstream", "upstream, limited", "apply", "plane", "plane on Kafka"
RUNS = {18: 20, 36: 5, 72: 3, 144: 2, 288: 1, 1_008: 1}
"""Repetitions by number of daemons."""
LARGEST = {UPSTREAM: 72, LIMITED: 72, APPLY: 72, PLANE: 1_008, KAFKA: 72}
LIMITED_RUNS = {18: 20, 36: 2, 72: 2}
MANY = 20
"""Repetitions from which on a 95th percentile is shown."""
CLAIM_WRITES, CONFLICTS = "writes until all are claimed", "writes refused with 409"
DUPLICATES, MOVES = "duplicate indices", "changes of an index"
COSTS: dict[str, tuple[str, Callable[[Formed], float]]] = {
    CLAIM_WRITES: ("a run", lambda run: run.claim_writes),
    "writes with an effect": ("a run", lambda run: run.costs.count("2")),
    CONFLICTS: ("a run", lambda run: run.costs.count("409")),
    "writes refused with 403": ("a run", lambda run: run.denied),
    "watch events": ("a run", lambda run: run.costs.watch_events),
    "CPU of the API server": ("s", lambda run: run.costs.api_cpu_s),
    "CPU of etcd": ("s", lambda run: run.costs.etcd_cpu_s),
    "bytes that etcd wrote": ("bytes", lambda run: run.costs.etcd_bytes),
    DUPLICATES: ("a run", lambda run: run.duplicates),
    MOVES: ("a run", lambda run: run.moves),
}
"""Costs of one formation, with their units."""
AIMS = {CLAIM_WRITES: 2.0, CONFLICTS: 0.0, DUPLICATES: 0.0, MOVES: 0.0}

Results = dict[tuple[str, int], list[Formed]]


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, kubernetes(Path(folder) / "kubernetes") as cluster:
        results = uvloop.run(_free(cluster))
        results |= _served(cluster, PLANE, ["--data", str(Path(folder) / "plane")])
        with kafka_cluster(Path(folder) / "kafka") as brokers:
            results |= _served(cluster, KAFKA, ["--kafka", brokers, "--topic-prefix", new_prefix()])
    return [*_figures(results)]


@contextmanager
def kubernetes(folder: Path) -> Iterator[ControlPlane]:
    """A control plane with upstream's kinds, and a user that may not write cliques."""
    cluster = ControlPlane(folder)
    cluster.add_user(READER)
    try:
        asyncio.run(_prepare(cluster))
        yield cluster
    finally:
        cluster.stop()


async def _prepare(cluster: ControlPlane) -> None:
    await cluster.start()
    async with connect_many(cluster, ADMIN) as api:
        await install(api, *map(definition, UPSTREAM_KINDS))
        await let_read(api, READER)


@asynccontextmanager
async def _namespace(cluster: ControlPlane, name: str) -> AsyncIterator[KubernetesApi]:
    async with connect_many(cluster, ADMIN) as api:
        await create_namespace(api, name)
        yield api


async def _free(cluster: ControlPlane) -> Results:
    """Daemons that write by themselves."""
    async with _namespace(cluster, "free") as api:
        makes: dict[str, MakeDaemon] = {
            UPSTREAM: partial(UpstreamDaemon, api),
            LIMITED: lambda *about, **more: UpstreamDaemon(LimitedApi(api), *about, **more),
            APPLY: partial(ApplyDaemon, api),
        }
        found: Results = {}
        for way, make in makes.items():
            found |= await _form_all(cluster, api, make, "free", way)
        return found


def _served(cluster: ControlPlane, way: str, log: Sequence[str]) -> Results:
    """Daemons that only read, beside a plane with this log, in a process of its own."""
    namespace = way.lower().replace(" ", "-")
    edge = ("--kubeconfig", str(cluster.kubeconfig()), "--source", "east", "--kubernetes-cliques", "assign")
    with serving(*log, *edge, "--driver-namespace", namespace):
        return uvloop.run(_read_only(cluster, namespace, way))


async def _read_only(cluster: ControlPlane, namespace: str, way: str) -> Results:
    async with _namespace(cluster, namespace) as api, connect_many(cluster, READER) as reader:
        return await _form_all(cluster, api, partial(UpstreamDaemon, reader), namespace, way)


async def _form_all(cluster: ControlPlane, api: KubernetesApi, make: MakeDaemon, namespace: str, way: str) -> Results:
    found: Results = {}
    rng = random.Random(5)
    await form(cluster, api, make, namespace, min(RUNS), rng=rng)
    for nodes, runs in RUNS.items():
        if nodes > LARGEST[way]:
            break
        began_s, cpu_s = time.perf_counter(), time.process_time()
        count = LIMITED_RUNS[nodes] if way == LIMITED else runs
        found[way, nodes] = [await form(cluster, api, make, namespace, nodes, rng=rng) for _ in range(count)]
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        print(_line(way, nodes, found[way, nodes], took_s, cpu_s), file=sys.stderr, flush=True)
    return found


def _line(way: str, nodes: int, runs: list[Formed], took_s: float, cpu_s: float) -> str:
    """Everything that was measured of one way and number."""
    answers: Counter[Any] = sum((run.costs.answers for run in runs), Counter())
    written = ", ".join(f"{verb} {code}: {count / len(runs):.3g}" for (verb, code), count in sorted(answers.items()))
    return (
        f"{way}, {nodes} daemons, {len(runs)} runs: claimed {_both([run.claimed_s for run in runs])}, "
        f"after the last label {_both([run.after_labels_s for run in runs])}, "
        f"ready {_both([run.ready_s for run in runs])}; {written}, denied {_mean([run.denied for run in runs]):.3g}, "
        f"{_mean([run.claim_writes for run in runs]) / (nodes / 18):.2f} a clique until claimed; "
        f"{_mean([run.costs.watch_events for run in runs]):.0f} watch events; "
        f"CPU apiserver {_mean([run.costs.api_cpu_s for run in runs]):.2f} s, "
        f"etcd {_mean([run.costs.etcd_cpu_s for run in runs]):.2f} s, daemons {cpu_s / len(runs):.2f} s of all; "
        f"etcd wrote {_mean([run.costs.etcd_bytes for run in runs]) / 1_000:.0f} kB; "
        f"duplicates {sum(run.duplicates for run in runs)}, moves {sum(run.moves for run in runs)}; {took_s:.0f} s"
    )


def _both(values: list[float]) -> str:
    return f"{percentile(values, 0.5):.3f}/{percentile(values, 0.95):.3f} s"


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values)


def _figures(results: Results) -> Iterator[Figure]:
    for (way, nodes), runs in results.items():
        peer = None if way == UPSTREAM else results.get((UPSTREAM, nodes))
        about = f"{way}: {nodes:,} daemons ({len(runs)} runs)"
        shares = (0.5, 0.95) if len(runs) >= MANY else (0.5,)
        for what, share in product(("claimed_s", "ready_s"), shares):
            value = percentile([getattr(run, what) for run in runs], share)
            other = percentile([getattr(run, what) for run in peer], share) if peer else None
            aim = other / 5 if other and (way, nodes, what, share) == (PLANE, min(RUNS), "claimed_s", 0.5) else None
            name = f"{about}, all {what[:-2]}, p{share * 100:.0f}"
            yield Figure(name, value, "s", other, UPSTREAM if peer else "", aim, "lower")
        if nodes == min(RUNS):
            yield from _costs(about, way, runs, peer)
    for way, nodes in ((UPSTREAM, LARGEST[UPSTREAM]), (PLANE, LARGEST[UPSTREAM]), (PLANE, LARGEST[PLANE])):
        one, many = (percentile([run.after_labels_s for run in results[way, n]], 0.5) for n in (min(RUNS), nodes))
        name = f"{way}: from the last label to the last index, {nodes:,} daemons"
        yield Figure(name, many, "s", one, f"{min(RUNS)} daemons", better="lower")


def _costs(about: str, way: str, runs: list[Formed], peer: list[Formed] | None) -> Iterator[Figure]:
    aims = AIMS if way in (PLANE, KAFKA) else {}
    for what, (unit, measure) in COSTS.items():
        other = _mean([measure(run) for run in peer]) if peer else None
        value = _mean([measure(run) for run in runs])
        yield Figure(f"{about}, {what}", value, unit, other, UPSTREAM if peer else "", aims.get(what), "lower")
