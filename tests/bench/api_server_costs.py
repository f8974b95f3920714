"""What writes cost a Kubernetes control plane, from its own metrics and the processor time of its processes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import aiohttp

from tests.support.kubernetes.cluster import ControlPlane

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_NAMES = ("apiserver_request_total", "apiserver_watch_events_total", "etcd_disk_wal_write_bytes_total")
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


class Costs(NamedTuple):
    """Totals since the start of the processes, or the difference of two totals."""

    answers: Counter[tuple[str, str]]
    """Writes of the resource by verb and status."""
    watch_events: float
    """Events of the resource that were sent to watchers."""
    api_cpu_s: float
    etcd_cpu_s: float
    etcd_bytes: float
    """Bytes that etcd has written to its write-ahead log, for every resource."""

    def since(self, before: Costs) -> Costs:
        return Costs(
            Counter({each: count for each in self.answers if (count := self.answers[each] - before.answers[each])}),
            self.watch_events - before.watch_events,
            self.api_cpu_s - before.api_cpu_s,
            self.etcd_cpu_s - before.etcd_cpu_s,
            self.etcd_bytes - before.etcd_bytes,
        )

    def count(self, *codes: str) -> int:
        """Writes with one of these statuses; a status of one digit stands for its class."""
        return sum(count for (_, code), count in self.answers.items() if code in codes or code[0] in codes)


async def costs(cluster: ControlPlane, resource: str) -> Costs:
    """The totals up to now."""
    answers, watch_events, etcd_bytes = Counter[tuple[str, str]](), 0.0, 0.0
    async with cluster.session() as session:
        for name, labels, value in await _samples(session, f"{cluster.url}/metrics"):
            if labels.get("resource") != resource:
                continue
            if name == "apiserver_request_total" and labels["verb"] in WRITES:
                answers[labels["verb"], labels["code"]] += round(value)
            elif name == "apiserver_watch_events_total":
                watch_events += value
    async with aiohttp.ClientSession() as session:
        for name, _, value in await _samples(session, f"{cluster.etcd_url}/metrics"):
            if name == "etcd_disk_wal_write_bytes_total":
                etcd_bytes = value
    cpu_s = cluster.cpu_seconds
    return Costs(answers, watch_events, cpu_s("kube-apiserver"), cpu_s("etcd"), etcd_bytes)


async def _samples(session: aiohttp.ClientSession, url: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    async with session.get(url) as response:
        assert response.status == 200, await response.text()
        text = await response.text()
    named = (line for line in text.splitlines() if line.startswith(_NAMES))  # the API server has 30,000 lines
    matches = (_SAMPLE.match(line) for line in named)
    return ((m[1], dict(_LABEL.findall(m[2] or "")), float(m[3])) for m in matches if m)
