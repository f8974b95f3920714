"""What the connected DPUs hold, asked of this process's relay, or of the relays that say where they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import aiohttp
import msgspec
from aiohttp import web

from drivers.relay import Relay

Holdings = dict[str, dict[str, tuple[int, int, bytes]]]
"""By zone and DPU: epoch, version and digest."""

DEVICES_PATH = "/devices"
ASK_TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


def page(relay: Relay) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """GET /devices[?zone=Z...]: what this relay's DPUs hold, as JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        zones = frozenset(request.query.getall("zone", []))
        return web.Response(body=msgspec.json.encode(_held(relay, zones)), content_type="application/json")

    return answer


def of_relay(relay: Relay) -> Callable[[frozenset[str]], Awaitable[Holdings]]:
    """A commands.status.DeviceSource over the relay in this process."""

    async def ask(zones: frozenset[str]) -> Holdings:
        return _held(relay, zones)

    return ask


def of_relays(addresses: Callable[[], Iterable[str]]) -> Callable[[frozenset[str]], Awaitable[Holdings]]:
    """A commands.status.DeviceSource over the relays there are. One that does not answer is left out, and logged."""

    async def ask(zones: frozenset[str]) -> Holdings:
        timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            answers = await asyncio.gather(*(_ask(session, address, zones) for address in sorted(addresses())))
        return _merged(answers)

    return ask


def _held(relay: Relay, zones: frozenset[str]) -> Holdings:
    wanted = sorted(zones) if zones else sorted(relay.zones)
    return {
        zone: {dpu: (held.epoch, held.version, held.digest) for dpu, held in relay.zone_devices(zone).items()}
        for zone in wanted
    }


async def _ask(session: aiohttp.ClientSession, address: str, zones: frozenset[str]) -> Holdings:
    try:
        query = [("zone", zone) for zone in sorted(zones)]
        async with session.get(f"http://{address}{DEVICES_PATH}", params=query) as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=Holdings)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        log.warning("a relay does not say what its DPUs hold", extra={"relay": address, "reason": repr(error)})
        return {}


def _merged(answers: Iterable[Mapping[str, Mapping[str, tuple[int, int, bytes]]]]) -> Holdings:
    """A DPU that two relays know of is as the one says that saw it last: with the newer (epoch, version)."""
    merged: Holdings = {}
    for answer in answers:
        for zone, devices in answer.items():
            known = merged.setdefault(zone, {})
            for dpu, held in devices.items():
                known[dpu] = max(known.get(dpu, held), held)
    return merged
