"""The addresses of the BMCs of a simulator: each DPU keeps its own over a restart, unless another program took it."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from deploy.process.simulated_bmcs import simulated_bmc_options
from deploy.settings.addresses import Address
from drivers.redfish.certificates import BmcAuthority, judge, peer_certificate
from drivers.simulators.redfish.bmcs import BmcOptions, RedfishBmcs, port_of
from eventstore.errors import FatalError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)
HOST = "127.0.0.1"


async def addresses(options: BmcOptions, *registered: str) -> list[str]:
    """The addresses of DPUs with these registered ones."""
    async with RedfishBmcs.serving(options, now=lambda: NOW, rng=Random(1)) as bmcs:
        return [await bmcs.address(f"d{number}", f"s{number}", each) for number, each in enumerate(registered)]


async def test_a_bmc_returns_to_its_registered_address() -> None:
    first = await addresses(BmcOptions(), "", "")
    assert len(set(first)) == 2
    assert all(each.startswith(f"redfish://{HOST}:") for each in first)
    assert await addresses(BmcOptions(), *reversed(first)) == first[::-1]


async def test_a_bmc_whose_port_is_in_use_gets_another_one() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        (other,) = await addresses(BmcOptions(), f"redfish://{HOST}:{port}")
        following = await addresses(BmcOptions(first_port=port), "", "")
    assert port_of(other, HOST) not in (0, port)
    ports = [port_of(each, HOST) for each in following]
    assert port < ports[0] < ports[1]


async def test_all_bmcs_end_together_although_one_is_connected() -> None:
    async with RedfishBmcs.serving(BmcOptions(), now=lambda: NOW, rng=Random(1)) as bmcs:
        found = [await bmcs.address(name, name, "") for name in ("a", "b")]
        _, writer = await asyncio.open_connection(HOST, port_of(found[0], HOST))
    for each in found:
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(HOST, port_of(each, HOST))
    writer.close()


async def test_the_certificates_are_of_the_authority_in_the_folder_also_the_next_time(tmp_path: Path) -> None:
    for _ in range(2):
        options = simulated_bmc_options(Address(HOST, 0), tmp_path / "bmcs", None, 0.0, now_ms=NOW_MS)
        authority = BmcAuthority((tmp_path / "bmcs" / "ca.pem").read_bytes())
        async with RedfishBmcs.serving(options, now=lambda: NOW, rng=Random(1)) as bmcs:
            host = f"{HOST}:{port_of(await bmcs.address('d', 's', ''), HOST)}"
            verdict = judge(host, await peer_certificate(host), {}, authority, NOW)
        assert (verdict.fact, verdict.refusal) == ("of the authority", "")
        password = (tmp_path / "bmcs" / "password").read_text()
        (tmp_path / "bmcs" / "password").write_text("of an operator")
    assert password == "of an operator", "files that exist are kept"


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(FatalError, match=r"^bmc-folder: .*password|^bmc-folder: .*ca\.key"):
        simulated_bmc_options(Address(HOST, 0), tmp_path, None, 0.0, now_ms=NOW_MS)
    with pytest.raises(FatalError, match=r"^bmc-folder: .*/ca.pem/bmcs: cannot be created: Not a directory$"):
        simulated_bmc_options(Address(HOST, 0), tmp_path / "ca.pem" / "bmcs", None, 0.0, now_ms=NOW_MS)
    with pytest.raises(FatalError, match=r"^bmc: 192\.0\.2\.1:0 cannot be listened on: "):
        simulated_bmc_options(Address("192.0.2.1", 0), None, None, 0.0, now_ms=NOW_MS)
    with pytest.raises(FatalError, match=r"^image-ca: .* is not a readable PEM file of certificates"):
        simulated_bmc_options(Address(HOST, 0), None, tmp_path / "ca.pem", 0.0, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "registered", ["", "simulated:d", "redfish://10.0.0.1:1", "http://127.0.0.1:1/d", "redfish://[x"]
)
def test_another_address_has_no_port_here(registered: str) -> None:
    assert port_of(registered, HOST) == 0
