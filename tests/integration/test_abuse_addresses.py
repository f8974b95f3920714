"""Abuse of addresses that a provisioner dials or a BMC fetches from: images are names; BMC addresses are limited."""

from __future__ import annotations

from typing import Any

import pytest

from commands.requests import dpus
from commands.requests.validation import InvalidRequest
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope

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
        "redfish://10.9.0.3:8443/d3",
        "redfish://bmc-3.example",
        "simulated:d",
        "redfish://[fd00::3]/d",
        "redfish://bmc7.example.org/",
        "redfish://bmc7.example.org./",
        "redfish://10.0.0.7/",
        "redfish://[64:ff9b::10.0.0.7]/",
        "redfish://[fe80::7%25eth0]/",
    ],
)
def test_a_bmc_address_may_be_any_host(address: str) -> None:
    assert register(address).event.bmc_address == address


@pytest.mark.parametrize(
    "address",
    [
        "ftp://x",
        "https://bmc-3.example",
        "10.0.0.1:443",
        "http://10.9.0.3:8443/d3",
        "REDFISH://10.0.0.1/d",
        "redfish:d",
        "redfish://",
        "d3",
    ],
)
def test_a_bmc_address_must_have_a_known_scheme(address: str) -> None:
    with pytest.raises(
        InvalidRequest,
        match=r"^bmc_address: .* must be gnoi://HOST:PORT or redfish://HOST:PORT or rshim:NAMESPACE/HOST or "
        r"simulated:NAME$",
    ):
        register(address)


@pytest.mark.parametrize(
    "address",
    [
        "redfish://169.254.169.254/latest/meta-data/",
        "redfish://169.254.170.2/v2/credentials",
        "redfish://[fd00:ec2::254]/latest",
        "redfish://[::ffff:169.254.169.254]/latest",
        "redfish://[64:ff9b::a9fe:a9fe]/",
        "redfish://2852039166/",
        "redfish://2852039166./",
        "redfish://0xA9FEA9FE/",
        "redfish://169.254.43518/",
        "redfish://0251.0376.0251.0376/",
        "redfish://169.254.169.254./",
        "redfish://\uff11\uff16\uff19.254.169.254/",
        "redfish://169\u3002254\u3002169\u3002254/",
        "redfish://root:calvin@10.9.0.3/d3",
        "redfish://token@10.9.0.3/d3",
        "redfish://[::1",
        "redfish://10.0.0.1/\nHost: x",
    ],
)
def test_a_bmc_address_can_be_neither_a_metadata_service_nor_contain_credentials(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^bmc_address: "):
        register(address)
