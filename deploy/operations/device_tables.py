"""The tables of the connected DPUs, read from this process's relay or from all relays by HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import aiohttp
import msgspec
from aiohttp import web

from deploy.tls.certificates import Certificates
from drivers.relays.relay import Relay
from projections.rules.rule import Held, Holdings

DEVICES_PATH = "/devices"
ASK_TIMEOUT_S = 10.0
ZONE_LINE_BYTES_MAX = 4 << 20
"""Maximum number of bytes of a zone's line: enough for 10,000 DPUs with the longest names."""

ZONES_NAMED_MAX = 50
"""Maximum number of zones in a query of a relay. More zones do not fit into HTTP's request line; all zones are then
requested.
"""

logger = logging.getLogger(__name__)


class ZoneTables(msgspec.Struct, frozen=True):
    """One line of the response."""

    zone: str
    devices: dict[str, Held]


def devices_handler(relay: Relay) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """GET /devices[?zone=Z...]: the tables of this relay's DPUs, one line of JSON per zone."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for zone in _wanted(relay, frozenset(request.query.getall("zone", []))):
            line = ZoneTables(zone, relay.zone_devices(zone))
            await response.write(msgspec.json.encode(line) + b"\n")
        return response

    return answer


def local_device_source(relay: Relay) -> Callable[[frozenset[str]], Awaitable[Holdings]]:
    """A commands.queries.status.DeviceSource over the relay in this process. It yields between zones."""

    async def ask(zones: frozenset[str]) -> Holdings:
        found: dict[str, dict[str, Held]] = {}
        for zone in _wanted(relay, zones):
            found[zone] = relay.zone_devices(zone)
            await asyncio.sleep(0)
        return found

    return ask


def remote_device_source(
    addresses: Callable[[], Iterable[str]], certificates: Certificates | None = None
) -> Callable[[frozenset[str]], Awaitable[Holdings]]:
    """A commands.queries.status.DeviceSource over all relays with a beacon.

    A relay that does not respond is left out and logged.
    """

    async def ask(zones: frozenset[str]) -> Holdings:
        timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, read_bufsize=ZONE_LINE_BYTES_MAX) as session:
            asked = (_ask(session, address, zones, certificates) for address in sorted(addresses()))
            answers = await asyncio.gather(*asked)
        return _merged(answers)

    return ask


def _wanted(relay: Relay, zones: frozenset[str]) -> list[str]:
    return sorted(zones) if zones else sorted(relay.zones)


async def _ask(
    session: aiohttp.ClientSession, address: str, zones: frozenset[str], certificates: Certificates | None
) -> Holdings:
    found: dict[str, dict[str, Held]] = {}
    scheme, ssl = ("http", True) if certificates is None else ("https", certificates.client_context())
    try:
        query = [("zone", zone) for zone in sorted(zones)] if len(zones) <= ZONES_NAMED_MAX else []
        async with session.get(f"{scheme}://{address}{DEVICES_PATH}", params=query, ssl=ssl) as response:
            response.raise_for_status()
            async for line in response.content:
                zone = msgspec.json.decode(line, type=ZoneTables)
                if not zones or zone.zone in zones:
                    found[zone.zone] = zone.devices
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        logger.warning("device tables not reported by a relay", extra={"relay": address, "reason": repr(error)})
    return found


def _merged(answers: Iterable[Holdings]) -> Holdings:
    """Merge relays' responses. If two relays report a DPU, the report with the newer (epoch, version) is used."""
    merged: dict[str, dict[str, Held]] = {}
    for answer in answers:
        for zone, devices in answer.items():
            known = merged.setdefault(zone, {})
            for dpu, held in devices.items():
                known[dpu] = max(known.get(dpu, held), held)
    return merged
