"""Abuse of addresses that a provisioner dials or a BMC fetches from: images are names; BMC addresses are limited."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession, web

from commands.requests import dpus
from commands.requests.validation import InvalidRequest
from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.backends.http_bmc import http_connect
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope
from tests.integration.test_http_bmc import listening

PROVISION = pb.RequestLifecycleRequest.VERB_PROVISION


def envelope(subject: str) -> Envelope:
    return Envelope("0197b2a4-7c00-7000-8000-000000000001", subject, "?test", 1)


def provision(image: str) -> Any:
    request = pb.RequestLifecycleRequest(zone="z", dpu="d", verb=PROVISION, image=image)
    return dpus.request_lifecycle(request, envelope).event


def register(address: str) -> Any:
    return dpus.register(pb.RegisterDpuRequest(zone="z", dpu="d", bmc_address=address), envelope)


@pytest.mark.parametrize("image", ["", "bf-bundle-2.10", "image:4.9.0", "bundle@sha256:" + "0f" * 32, "a", "A_1+b.bfb"])
def test_an_image_is_a_name(image: str) -> None:
    assert provision(image).image == image


@pytest.mark.parametrize(
    "image",
    [
        "http://169.254.169.254/latest/meta-data/?x=.bfb",
        "https://kubernetes.default.svc/api?.bfb",
        "http://[::1]:2379/v2/keys#.bfb",
        "//evil/x.bfb",
        "file:///etc/shadow",
        "../x.bfb",
        "...bfb",
        "a/../../x",
        "-rf.bfb",
        ".hidden",
        "a b",
        "$(id)",
        "x" * 300,
        "\uff42f",
    ],
)
def test_an_image_cannot_be_an_address_a_path_or_an_option(image: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^image: "):
        provision(image)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://10.9.0.3:8443/d3",
        "http://bmc-3.example",
        "simulated:d",
        "http://[fd00::3]/d",
        "http://bmc7.example.org/",
        "http://bmc7.example.org./",
        "http://10.0.0.7/",
        "http://[64:ff9b::10.0.0.7]/",
        "http://[fe80::7%25eth0]/",
    ],
)
def test_a_bmc_address_may_be_any_host(address: str) -> None:
    assert register(address).event.bmc_address == address


@pytest.mark.parametrize(
    "address",
    ["ftp://x", "https://bmc-3.example", "10.0.0.1:443", "http:x", "HTTP://10.0.0.1/d", "redfish:d", "http://", "d3"],
)
def test_a_bmc_address_must_have_a_known_scheme(address: str) -> None:
    with pytest.raises(
        InvalidRequest,
        match=r"^bmc_address: .* must be http://HOST:PORT/NAME or redfish://HOST:PORT or simulated:NAME$",
    ):
        register(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://169.254.170.2/v2/credentials",
        "http://[fd00:ec2::254]/latest",
        "http://[::ffff:169.254.169.254]/latest",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://2852039166/",
        "http://2852039166./",
        "http://0xA9FEA9FE/",
        "http://169.254.43518/",
        "http://0251.0376.0251.0376/",
        "http://169.254.169.254./",
        "http://\uff11\uff16\uff19.254.169.254/",
        "http://169\u3002254\u3002169\u3002254/",
        "http://root:calvin@10.9.0.3/d3",
        "http://token@10.9.0.3/d3",
        "http://[::1",
        "http://10.0.0.1/\nHost: x",
    ],
)
def test_a_bmc_address_can_be_neither_a_metadata_service_nor_contain_credentials(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^bmc_address: "):
        register(address)


async def test_redirects_of_a_bmc_are_not_followed() -> None:
    asked = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="{}")

    target = web.Application()
    target.router.add_route("*", "/{path:.*}", elsewhere)

    async with listening(target) as secret:

        async def redirect(_request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"{secret}/latest/meta-data")

        bmc = web.Application()
        bmc.router.add_post("/{path:.*}", redirect)
        async with listening(bmc) as base, ClientSession() as session:
            with pytest.raises(TaskFailed):
                await http_connect(session)(f"{base}/d").open(1)
    assert asked == []


@pytest.mark.parametrize(
    "host", ["a..b", ".", pytest.param("a" * 64 + ".x", id="long"), "h:99999", "h:port", "[::1", ":-1"]
)
async def test_an_address_that_cannot_be_dialed_is_a_failure_for_the_operator(host: str) -> None:
    """An unexpected exception would end the provisioner, and again after each start."""
    async with ClientSession() as session:
        with pytest.raises(NeedsOperator, match=r"^bmc_address: .*not an address that can be dialed"):
            await http_connect(session)(f"http://{host}/d").open(1)
