"""A process with many simulated BMCs that speak Redfish over HTTPS, and with the web server of their image.

They count what reaches them: requests, TLS handshakes, and requests in each slice of time, which shows whether a client
polls them in lock-step.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random
from ssl import create_default_context
from typing import Any, NamedTuple

import uvloop

from deploy.clock import utc_now
from deploy.demo.platform.image_server import serving as serving_images
from deploy.host.file_limits import raise_file_limit
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import Durations
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.messages import Answer, Request
from drivers.simulators.redfish.server import BmcServer
from tests.bench.apart import beside, counter, numbers
from tests.bench.figures import percentile

IMAGE, DOCA, BSP = "image", "3.0.0", "4.9.0"
OS_VERSION = f"DOCA_{DOCA}_BSP_{BSP}"
"""The version that a DPU has once the image is installed."""
DURATIONS = Durations(flash_s=30.0, boot_s=5.0)
"""Short for a card, and long enough for pauses between polls to reach their longest."""
SLICES_PER_S, SLICES_MAX = 2, 4_000
STARTED_S = 60.0


class Counts(NamedTuple):
    """What has reached the BMCs. `slices` are requests by the slice of time in which they arrived."""

    is_ready: Any
    requests: Any
    handshakes: Any
    slices: Any

    def busiest_per_s(self) -> float:
        """Requests a second in the busiest 1 % of the slices."""
        first, last = (next(at for at in order if self.slices[at]) for order in (range(SLICES_MAX), _BACKWARDS))
        return SLICES_PER_S * percentile([self.slices[at] for at in range(first, last + 1)], 0.99)


_BACKWARDS = range(SLICES_MAX - 1, -1, -1)


@contextmanager
def bmcs(folder: Path, count: int, password: str, image_ca: Path | None) -> Iterator[Counts]:
    """BMCs beside this process. With a password they have it already; else they have that of the factory. The file
    `addresses` gets their URLs, `image` that of the image, and `NUMBER.pem` their certificates."""
    found = Counts(counter(), counter(), counter(), numbers(SLICES_MAX))
    with beside(_run, folder, count, password, image_ca, found):
        ends_at = time.monotonic() + STARTED_S
        while not found.is_ready.value:
            assert time.monotonic() < ends_at, "the simulated BMCs did not start"
            time.sleep(0.05)
        yield found


def addresses(folder: Path) -> list[str]:
    """The URLs of the BMCs."""
    return (folder / "addresses").read_text().split()


def _run(folder: Path, count: int, password: str, image_ca: Path | None, counts: Counts) -> None:
    gc.disable()
    raise_file_limit()
    uvloop.run(_serve(folder, count, password, image_ca, counts))


def _inventory(doca: str) -> dict[str, str]:
    return {"DOCA": doca, "BSP": BSP}


async def _serve(folder: Path, count: int, password: str, image_ca: Path | None, counts: Counts) -> None:
    rng, began = Random(5), time.monotonic()
    trusts = create_default_context(cafile=image_ca) if image_ca is not None else None
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving_images({IMAGE: DOCA}, rng, inventory_of=_inventory))
        servers, urls = [], []
        for number in range(count):
            bmc = _CountedBmc(counts, began, Identity(f"B{number:04}"), now=utc_now, rng=rng, durations=DURATIONS)
            if password:
                bmc.accounts.set_password(bmc.accounts.users["root"], password)
            servers.append(BmcServer(bmc, trusts=trusts))
            urls.append(await stack.enter_async_context(servers[-1].listening()))
            (folder / f"{number}.pem").write_bytes(bmc.certificates.pem()[0])
        (folder / IMAGE).write_text(url.format(IMAGE))
        (folder / "addresses").write_text("\n".join(urls))
        counts.is_ready.value = 1
        while True:
            await asyncio.sleep(1 / SLICES_PER_S)
            counts.handshakes.value = sum(server.handshakes for server in servers)


class _CountedBmc(RedfishBmc):
    def __init__(self, counts: Counts, began: float, identity: Identity, **options: Any) -> None:
        super().__init__(identity, **options)
        self._counts = counts
        self._began = began

    def handle(self, request: Request) -> Answer:
        self._counts.requests.value += 1
        at = int((time.monotonic() - self._began) * SLICES_PER_S)
        self._counts.slices[min(at, SLICES_MAX - 1)] += 1
        return super().handle(request)
