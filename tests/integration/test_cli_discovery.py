"""DPUs that a search of addresses finds, on the command line of a plane with simulated devices."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path

from deploy.tls.self_signed import self_signed, server_context
from tests.integration.test_cli_derived import applied, manifest, written
from tests.integration.test_cli_resources import Plane
from tests.support.planes import serving

RACKS = {"ipRangeSpec": {"ipRange": {"startIP": "198.18.1.0", "endIP": "198.18.2.255"}}, "workers": 100}
DPUS = 60
WAIT_S = 90.0


async def test_found_dpus_are_devices_that_name_their_bmc(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "1") as process:
        dpuplane = Plane(process.address("api"))
        backwards = manifest(
            "DPUDiscovery", "racks", {"ipRangeSpec": {"ipRange": {"startIP": "10.0.0.2", "endIP": "::1"}}}
        )
        ran = await dpuplane("apply", "-f", written(tmp_path / "wrong.yaml", [backwards]))
        assert (
            ran.status == 1 and "spec.ipRangeSpec.ipRange.endIP: must be an IPv4 address, as startIP is" in ran.stderr
        )
        await applied(dpuplane, tmp_path / "search.yaml", manifest("DPUDiscovery", "racks", RACKS))
        async with asyncio.timeout(WAIT_S):
            while True:
                ran = await dpuplane("get", "dpudiscovery", "racks", "-n", "dpf")
                columns = ran.stdout.splitlines()[1].split()
                if columns[2:3] == [str(DPUS)]:
                    break
                await asyncio.sleep(0.2)
        assert columns[0] == "racks" and columns[1].endswith("s")
        ran = await dpuplane("get", "dpudevices", "-n", "dpf")
        assert len(ran.stdout.splitlines()) == DPUS + 1
        ran = await dpuplane("get", "dpudevice", "sim01005b", "-n", "dpf", "-o", "yaml")
        assert "dpuplane.io/bmc-address: simulated:sim01005b" in ran.stdout and "bmcIp: 198.18.1.105" in ran.stdout
        await process.stop()


async def test_a_process_ends_cleanly_in_the_middle_of_a_search(tmp_path: Path) -> None:
    """Every address of the range refuses at once, so requests begin all the time."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    addresses = {"startIP": "127.1.0.1", "endIP": "127.1.15.255", "port": port}
    spec = {"ipRangeSpec": {"ipRange": addresses}, "workers": 100}
    async with serving("--data", str(tmp_path / "plane")) as process:
        dpuplane = Plane(process.address("api"))
        await applied(dpuplane, tmp_path / "search.yaml", manifest("DPUDiscovery", "racks", spec))
        await asyncio.sleep(0.3)
        assert await process.stop() == 0


async def test_a_search_ends_before_the_connections_that_it_uses(tmp_path: Path) -> None:
    """Each address has a server that is no BMC, so requests begin all the time while the process ends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1_000):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    (tmp_path / "tls").mkdir()
    tls = server_context(*self_signed(tmp_path / "tls", ["127.0.0.1"], datetime.now(UTC)))
    async with await asyncio.start_server(answer, "0.0.0.0", ssl=tls) as server:
        addresses = {"startIP": "127.1.0.1", "endIP": "127.1.15.255", "port": server.sockets[0].getsockname()[1]}
        spec = {"ipRangeSpec": {"ipRange": addresses}, "workers": 20}
        async with serving("--data", str(tmp_path / "plane")) as process:
            dpuplane = Plane(process.address("api"))
            await applied(dpuplane, tmp_path / "search.yaml", manifest("DPUDiscovery", "racks", spec))
            await asyncio.sleep(0.3)
            assert await process.stop() == 0
