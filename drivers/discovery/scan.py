"""One search of a range of addresses: a bounded number of probes at a time, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple

from drivers.discovery.prober import NotUsable, Prober
from projections.resources.discovery import Probed, Search, endpoint

PROBE_S = 3.0
"""Deadline of a probe. An address without a host answers nothing, so most probes of a sparse range take this long."""
IDENTIFY_S = 30.0
"""Deadline of the identification of a DPU once its BMC has answered: it takes ten requests, and BMCs are slow."""


class Found(NamedTuple):
    """A DPU at an address."""

    address: str
    probed: Probed


class Scan:
    """A search under way. `found` and `faults` grow while it runs; `tried` counts addresses, and `skipped` those of
    known BMCs."""

    def __init__(self, search: Search, known: Collection[str]) -> None:
        self.found: list[Found] = []
        self.faults: list[str] = []
        self.tried = 0
        self.skipped = 0
        self._search = search
        self._known = known

    async def run(self, prober: Prober) -> None:
        """Probe every address that is not known yet."""
        addresses = self._search.addresses()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._search.workers):
                tasks.create_task(self._work(prober, addresses))

    async def _work(self, prober: Prober, addresses: Iterator[str]) -> None:
        port = self._search.port
        for address in addresses:
            if endpoint(address, port) in self._known:
                self.skipped += 1
                continue
            has_answered: list[bool] = []
            try:
                async with asyncio.timeout(PROBE_S) as deadline:
                    probed = await prober.probe(address, port, partial(_extend, deadline, has_answered))
                if probed is not None:
                    self.found.append(Found(address, probed))
            except TimeoutError:
                if has_answered:  # most addresses of a range have no host
                    self.faults.append(f"{endpoint(address, port)}: it did not identify itself in {IDENTIFY_S:g} s")
            except NotUsable as error:
                self.faults.append(f"{endpoint(address, port)}: {error}")
            self.tried += 1
            await asyncio.sleep(0)


def _extend(deadline: asyncio.Timeout, has_answered: list[bool]) -> None:
    """Give a BMC that has answered more time."""
    has_answered.append(True)
    deadline.reschedule(asyncio.get_running_loop().time() + IDENTIFY_S)
