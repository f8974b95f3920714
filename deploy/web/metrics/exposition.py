"""The response of /metrics in Prometheus' text format, rendered in slices that yield to the event loop.

A family with thousands of series takes tens of milliseconds to render, so it is rendered a few hundred series at a
time. prometheus_client renders a whole registry at once, and its server does so in a thread that holds the same lock of
the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
SAMPLES = 200
"""Maximum samples rendered at a time, which takes less than 2 ms."""


class Exposition:
    """The metrics of some collectors, and the standard ones of Python processes: CPU, memory, files, garbage
    collection.
    """

    def __init__(self, collectors: Sequence[Collector]) -> None:
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._collectors: Sequence[Collector | CollectorRegistry] = (*collectors, registry)

    async def text(self) -> bytes:
        """The whole text. Values may change while it is rendered."""
        parts = []
        for collector in self._collectors:
            for family in collector.collect():
                for part in _written(family):
                    parts.append(part)
                    await asyncio.sleep(0)
        return b"".join(parts)


class _One(CollectorRegistry):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        super().__init__(auto_describe=False)
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _written(family: Metric) -> Iterator[bytes]:
    """A family in pieces; its name and help text appear once."""
    samples = iter(family.samples)
    is_first = True
    while piece := list(islice(samples, SAMPLES)):
        part = Metric(family.name, family.documentation, family.type, family.unit)
        part.samples = piece
        text = generate_latest(_One(part))
        yield text if is_first else b"".join(line for line in text.splitlines(keepends=True) if line[:1] != b"#")
        is_first = False
