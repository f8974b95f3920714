"""A real reboot: the agent of a host runs in a guest with a card that has SR-IOV, and the plane outside installs a DPU.

The reboot step ends the guest's kernel, and closes when the agent of the next boot reports. The host network of that
boot, and of a later one that nobody's step asked for, is made by the kernel's own SR-IOV.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import yaml

from deploy.clock import utc_now
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.server import BmcServer
from tests.integration.test_host_agent_plane import DEVICE, DPU, SERIAL, Site, objects
from tests.support.certs import CertFiles
from tests.support.guest.card import ADDRESS, FUNCTION, VFS, Card
from tests.support.guest.machine import PLANE, Guest, guest
from tests.support.host_agents import HOST
from tests.support.host_namespaces import HostNamespace
from tests.support.host_trees import vpd
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import DPUPLANE
from tests.support.redfish_steps import BFB, FAST

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

PATIENCE_S = 1_500.0
TREE = "/run/host"
REBOOT = "sh -c 'echo b > /proc/sysrq-trigger; sleep 1000'"
MACHINE = f"""
set -e
cd {TREE} && mkdir -p sys/bus/pci/devices/{ADDRESS}
ln -s /sys/class sys/class
cd sys/bus/pci/devices/{ADDRESS}
echo 0x15b3 > vendor
echo 0xa2dc > device
for name in class net sriov_totalvfs sriov_numvfs virtfn0; do ln -s {FUNCTION}/$name $name; done
"""
"""A tree in which the card of the guest is a DPU by its vendor, device and serial number. All else is the kernel's."""


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with guest(tmp_path_factory.mktemp("guest")) as found:
        yield found


class Machine:
    """The host of a DPU, and its agent, which an init system would start at each boot."""

    def __init__(self, host: Guest, site: Site, certificate: CertFiles) -> None:
        self.host = host
        self.card = Card(host)
        self._site = site
        self._certificate = certificate

    def boot(self) -> None:
        """What follows a boot: the host's own addresses, and the start of the agent."""
        self.host.must("ip", "link", "set", "eth0", "up")
        self.host.must("ip", "address", "add", "10.0.2.15/24", "dev", "eth0")
        self.host.must("ip", "link", "set", self.card.interface, "up")
        self.host.must("mkdir", "-p", TREE)
        self.host.must("sh", "-c", MACHINE)
        self.host.must("cp", str(self._site.folder / "vpd"), f"{TREE}/sys/bus/pci/devices/{ADDRESS}/vpd")
        port = self._site.server.rpartition(":")[2]
        of = ("--server", f"{PLANE}:{port}", "--node", HOST, "--namespace", "dpf", "--sys-root", f"{TREE}/sys")
        reboots = [
            word for method in ("PowerCycle", "SystemLevelReset") for word in ("--reboot-command", f"{method}={REBOOT}")
        ]
        agent = (DPUPLANE, "host-agent", *of, "--interval", "0.5", *reboots, *self._certificate.flags)
        self.host.must("sh", "-c", '"$@" > /run/agent.log 2>&1 & echo $! > /run/agent.pid', "sh", *agent)

    def reboot(self) -> None:
        """An operator reboots the host."""
        self.host.run("sh", "-c", "kill $(cat /run/agent.pid)")
        self.host.run("sh", "-c", "sync; (sleep 1; echo b > /proc/sysrq-trigger) > /dev/null 2>&1 &")
        self.host.until_booted()

    def has_network(self) -> bool:
        """Whether the card has its VFs, and the first one is the port of the bridge, with the same MTU."""
        links = self.card.links()
        ports = [name for name, link in links.items() if link.get("master") == "br-dpu"]
        mtus = {links[name]["mtu"] for name in ("br-dpu", *ports) if name in links}
        return self.card.vfs == VFS and mtus == {1_500} and ports == [self.card.first_vf]

    @property
    def log(self) -> str:
        return self.host.run("cat", "/run/agent.log").stdout


async def test_a_host_really_reboots_for_its_dpu_and_later_boots_have_the_network(tmp_path: Path, host: Guest) -> None:
    site = Site(tmp_path, HostNamespace("", "127.0.0.1"), PLANE)
    (tmp_path / "vpd").write_bytes(vpd(SN=SERIAL))
    bmc = RedfishBmc(Identity(SERIAL), now=utc_now, rng=Random(1), durations=FAST)
    server = BmcServer(bmc, trusts=ssl.create_default_context(cafile=str(site.certs.authority.cert)))
    machine = Machine(host, site, site.certs.issue(f"node-agent/{HOST}"))
    async with asyncio.timeout(PATIENCE_S), image_server() as images, server.listening(), site.serving() as plane:
        images.files["a.bfb"] = ServedFile(BFB)
        site.server = plane.address("api")
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects(images.url("a.bfb"))))
        await asyncio.to_thread(machine.boot)
        await site.until("get", "dpudevices", "-n", "dpf", text=DEVICE)
        address = f"dpuplane.io/bmc-address={server.url.replace('https:', 'redfish:')}"
        assert (await site("annotate", "dpudevice", DEVICE, address, "-n", "dpf")).status == 0
        assert (await site("apply", "-f", str(tmp_path / "all.yaml"))).status == 0
        await asyncio.to_thread(host.until_booted)
        shown = (await site("dpus", "show", DPU, "--output", "json")).json()
        assert shown["phase"] == "Rebooting", "the step waits for the agent of the next boot"
        assert await asyncio.to_thread(lambda: machine.card.vfs) == 0
        await asyncio.to_thread(machine.boot)
        ran = await site("wait", f"dpu/{DPU}", "-n", "dpf", "--for=condition=Ready", "--timeout", "900")
        assert ran.status == 0, (ran, await asyncio.to_thread(lambda: machine.log))
        reported = (await site("describe", "dpunode", HOST, "-n", "dpf")).stdout
        assert host.boots[-1] in reported
        assert await asyncio.to_thread(machine.has_network)
        await asyncio.to_thread(machine.reboot)
        assert machine.card.vfs == 0
        await asyncio.to_thread(machine.boot)
        while not await asyncio.to_thread(machine.has_network):
            await asyncio.sleep(0.5)
        await plane.stop()
    assert len({*host.boots}) == len(host.boots) == 3
