"""The tables of DPUs as relays report them, queried over HTTP by another process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

from deploy.operations.device_tables import DEVICES_PATH, devices_handler, local_device_source, remote_device_source
from drivers.relays.relay import Relay
from projections.rules.rule import Held


class FakeRelay:
    """A relay with fixed device tables."""

    def __init__(self, held: dict[str, dict[str, Held]]) -> None:
        self.zones = held

    def zone_devices(self, zone: str) -> dict[str, Held]:
        return self.zones.get(zone, {})


def relay(**held: dict[str, Held]) -> Relay:
    return cast(Relay, FakeRelay(held))


@asynccontextmanager
async def listening(answers: Relay) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get(DEVICES_PATH, devices_handler(answers))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


OLD, NEW = Held(1, 4, b"o" * 16), Held(1, 7, b"n" * 16)


async def test_two_relays_are_merged_and_the_newer_table_of_a_dpu_wins() -> None:
    first = relay(a={"d1": NEW, "d2": OLD}, b={"d9": OLD})
    second = relay(a={"d1": OLD, "d3": NEW})
    async with listening(first) as one, listening(second) as two:
        ask = remote_device_source(lambda: [one, two])
        everything: Any = {"a": {"d1": NEW, "d2": OLD, "d3": NEW}, "b": {"d9": OLD}}
        assert await ask(frozenset()) == everything
        assert await ask(frozenset({"b"})) == {"b": {"d9": OLD}}


async def test_more_zones_than_fit_one_request_are_all_returned() -> None:
    zones = {f"zone-with-a-long-name-{number:040}": {"d": OLD} for number in range(300)}
    async with listening(relay(**zones, other={"d": NEW})) as one:
        assert await remote_device_source(lambda: [one])(frozenset(zones)) == zones


async def test_a_relay_that_does_not_respond_is_omitted() -> None:
    async with listening(relay(a={"d1": NEW})) as one:
        assert await remote_device_source(lambda: [one, "127.0.0.1:9"])(frozenset()) == {"a": {"d1": NEW}}


async def test_a_zone_of_thousands_fits_a_line() -> None:
    many = {f"dpu-{'x' * 200}-{number}": NEW for number in range(5_000)}
    async with listening(relay(a=many)) as one:
        assert len((await remote_device_source(lambda: [one])(frozenset()))["a"]) == 5_000


async def test_the_relay_of_the_same_process_returns_the_same_tables() -> None:
    assert await local_device_source(relay(a={"d1": NEW}, b={}))(frozenset()) == {"a": {"d1": NEW}, "b": {}}
