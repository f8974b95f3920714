"""The BMCs of a run that speak Redfish, and the client that the production installer has of them instead of HTTPS.

A BMC is the state machine that `drivers/simulators/redfish/server.py` serves over HTTPS. It passes the contract of
installers here as there. It loses requests and answers, hangs, is busy, lies about installations and fails them; other
faults make it restart, and lose its power.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import aiohttp

from drivers.backends.bmc import Unreachable
from drivers.backends.simulated_bmc import BmcFaults
from drivers.provisioning.device import TOKENS_PER_MS
from drivers.redfish.answers import error_of
from drivers.redfish.certificates import PresentedCertificates
from drivers.redfish.client import SCHEME, Answer, RedfishClient
from drivers.redfish.connection import Context
from drivers.redfish.installer import RedfishInstaller, Wanted
from drivers.redfish.object_wants import FACTORY_PASSWORD
from drivers.redfish.sessions import Credentials
from drivers.simulators.redfish import messages
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import BSP, Durations, Fetch, Image, Work
from drivers.simulators.redfish.faults import NO_SHARES, Shares, refusal
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.update_resources import SIMPLE_UPDATE
from projections.zones.dpus.phases import OS_INSTALLING, STEPS
from tests.simulation.history import BmcCalled, FinalBmc, HistoryEntry, UpdateCompleted
from tests.simulation.network import in_flight
from tests.support.virtual_loop import current_loop

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_IMAGES = "http://images/"
_CREDENTIALS = Credentials("", "a password of the plane", FACTORY_PASSWORD)
_CONTEXT = "dpuplane/"
FETCH_S = 2.0
"""The longest transfer of an image, at pace 1."""
FAILED_TRANSFERS = 0.02


class Update(NamedTuple):
    """An update that a BMC accepted from the attempt with this token."""

    token: int
    work: Work

    @property
    def is_completed(self) -> bool:
        """Whether the card has the image of the update since its end."""
        task = self.work.task
        return task is not None and task.state == "Completed" and self.work.outcome.kind != "lie"


class WatchedBmc(RedfishBmc):
    """A BMC that records the updates that it accepts."""

    def __init__(self, name: str, rng: random.Random, faults: BmcFaults) -> None:
        clock = current_loop().time
        super().__init__(
            Identity(f"SIM-{name}"),
            now=lambda: _EPOCH + timedelta(seconds=clock()),
            rng=rng,
            durations=Durations(flash_s=2.0 * faults.pace, boot_s=faults.pace, bmc_restart_s=2.0),
            shares=Shares(faults.hang, faults.unreachable, faults.mute, faults.unreachable, faults.lie, faults.fail),
        )
        self.name = name
        self.rng = rng
        self.updates: list[Update] = []
        self._fetch_s = FETCH_S * faults.pace
        self._is_healed = False

    def handle(self, request: messages.Request) -> messages.Answer:
        before = self.card.work
        answer = super().handle(request)
        if request.path == SIMPLE_UPDATE and answer.status == 202 and self.card.work not in (None, before):
            assert self.card.work is not None
            self.updates.append(Update(self._token(request), self.card.work))
        while self.card.fetches:
            current_loop().in_world(self._fetch(self.card.fetches.pop(0)), f"transfer to {self.name}")
        return answer

    def _token(self, request: messages.Request) -> int:
        """The token of the attempt that sent a request, which is the context of its session."""
        sent = request.headers["x-auth-token"]
        context = next(each.context for each in self.accounts.sessions.values() if each.token == sent)
        return int(context.removeprefix(_CONTEXT))

    async def _fetch(self, fetch: Fetch) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, self._fetch_s))
        if not self._is_healed and self.rng.random() < FAILED_TRANSFERS:
            self.card.fetched(fetch.number, None, "the transfer failed")
        else:
            self.card.fetched(fetch.number, image_at(fetch.url))

    def heal(self) -> None:
        """End all faults."""
        self._is_healed = True
        self.faults.shares = self.card.outcomes.shares = NO_SHARES
        self.faults.planned.clear()

    def at_rest(self) -> Iterator[HistoryEntry]:
        """What the BMC was told, and what its card runs."""
        self.card.settle()
        for update in self.updates:
            began_ms, attempt = divmod(update.token, TOKENS_PER_MS)
            yield BmcCalled(self.name, attempt, STEPS[OS_INSTALLING].name, began_ms)
            if update.is_completed:
                yield UpdateCompleted(self.name, attempt)
        yield FinalBmc(self.name, self.card.os.removeprefix(_OS), self.card.is_busy)


_OS = "OS of "


def url_of(dpu: str, image: str) -> str:
    """Where a DPU finds an image."""
    return f"{_IMAGES}{dpu}/{image}.bfb"


def image_at(url: str) -> Image:
    """The image at a URL."""
    name = url.removeprefix(_IMAGES).partition("/")[2].removesuffix(".bfb")
    return Image(_OS + name, {BSP: name})


class WiredRedfish(RedfishClient):
    """A BMC as one process reaches it. A request in flight takes effect even if its sender dies."""

    def __init__(self, bmc: WatchedBmc) -> None:
        super().__init__(aiohttp.ClientSession.__new__(aiohttp.ClientSession), f"http://{bmc.name}")
        self._bmc = bmc

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        headers = {"x-auth-token": self.token} if self.token else {}
        asked = messages.Request(method, path, headers, b"" if body is None else json.dumps(body).encode())
        return await in_flight(self._deliver(asked), "request to a BMC")

    async def _deliver(self, asked: messages.Request) -> Answer:
        bmc = self._bmc
        await asyncio.sleep(bmc.rng.uniform(0.001, 0.02))
        fault = bmc.faults.of(asked)
        if fault == "hang":
            await current_loop().create_future()
        if fault == "cut" or not bmc.is_up:
            raise self._unanswered()
        answer = (refusal(fault) if fault is not None else None) or bmc.handle(asked)
        await asyncio.sleep(bmc.rng.uniform(0.001, 0.02))
        if fault == "mute":
            raise self._unanswered()
        content = json.dumps(answer.body).encode() if answer.body is not None else b""
        if error := error_of(f"{bmc.name}{asked.path}", answer.status, content):
            raise error
        location, token = answer.headers.get("Location", ""), answer.headers.get("X-Auth-Token", "")
        return Answer(answer.status, content, location, token)

    def _unanswered(self) -> Unreachable:
        return Unreachable(f"device: {self._bmc.name} did not respond")


class RedfishBmcs:
    """The BMCs by the names of their DPUs, and their installers. A run without such BMCs has none."""

    def __init__(self, bmcs: Mapping[str, WatchedBmc]) -> None:
        self.bmcs = bmcs

    @property
    def has_card_without_system(self) -> bool:
        """Whether a card has no operating system that could boot."""
        return not all(bmc.card.os for bmc in self.bmcs.values())

    def address(self, dpu: str) -> str:
        """The address of the BMC of a DPU."""
        return f"{SCHEME}://{dpu}"

    def installer(self) -> RedfishInstaller:
        """The installer of a process."""
        pushes = asyncio.Semaphore(1)
        context = Context(self._connect, _credentials, None, lambda: 0, pushes, PresentedCertificates())
        return RedfishInstaller(context, _url_of, _wanted)

    def _connect(self, address: str) -> RedfishClient:
        return WiredRedfish(self.bmcs[address.removeprefix(f"{SCHEME}://")])

    def heal(self) -> None:
        """End all faults."""
        for bmc in self.bmcs.values():
            bmc.heal()

    def at_rest(self) -> Iterator[HistoryEntry]:
        for bmc in self.bmcs.values():
            yield from bmc.at_rest()

    def counts(self) -> Mapping[str, int]:
        """The numbers of updates, by how they went."""
        updates = [update for bmc in self.bmcs.values() for update in bmc.updates]
        return {
            "updates by Redfish": len(updates),
            "updates completed": sum(update.is_completed for update in updates),
            "updates that were lies": sum(update.work.outcome.kind == "lie" for update in updates),
        }


async def _credentials(dpu: str) -> Credentials:
    return _CREDENTIALS


async def _url_of(dpu: str, image: str) -> str:
    return url_of(dpu, image)


async def _wanted(dpu: str, image: str) -> Wanted:
    return Wanted(versions={BSP: image_at(url_of(dpu, image)).parts[BSP]})
