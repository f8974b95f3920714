"""A plane installs a DPU, and the agent of its host reboots it, over mutual TLS: from objects to Ready, and the agent
is killed meanwhile. The image reaches the DPU through its BMC, or through the agent and the rshim of the DPU."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
import yaml

from deploy.clock import utc_now
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.server import BmcServer
from tests.integration.test_cli_host_steps import manifest
from tests.integration.test_cli_resources import Plane
from tests.support.certs import CertFiles, CertIssuer
from tests.support.host_agents import HOST, REBOOTS
from tests.support.host_namespaces import HostNamespace, host_namespace
from tests.support.host_trees import HostTree, host_tree
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import Process, Ran, started
from tests.support.redfish_steps import BFB, FAST, PASSWORD
from tests.support.rshim_dpu import RshimDpu

SERIAL = "MT2310XZ03LR"
DEVICE = SERIAL.lower()
DPU = f"{HOST}-{DEVICE}"
PATIENCE_S = 400.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def namespace() -> Iterator[HostNamespace]:
    with host_namespace() as found:
        yield found


class Site:
    """A host with one card in a network namespace, and the certificates of everybody. `names` are further addresses at
    which the host knows the plane."""

    def __init__(self, folder: Path, namespace: HostNamespace, *names: str) -> None:
        self.folder = folder
        self.namespace = namespace
        self.names = (namespace.plane, *names)
        self.tree: HostTree = host_tree(folder / "host")
        self.tree.card("0000:03:00", SERIAL)
        self.notes, self.go = folder / "notes", folder / "go"
        self.certs = CertIssuer(folder / "certs")
        self.operator: CertFiles = self.certs.issue("operator/ann")
        self.server = ""

    def serving(self, *options: str) -> AbstractAsyncContextManager[Process]:
        """The plane, in which only the DPU cluster is simulated."""
        files = self.certs.issue("plane/local", *self.names, "127.0.0.1", "localhost")
        tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-client-ca", str(files.ca))
        ports = {
            "listen": self.namespace.plane,
            "images": self.namespace.plane,
            "http": "127.0.0.1",
            "agents": "127.0.0.1",
        }
        listens = tuple(word for name, host in ports.items() for word in (f"--{name}", f"{host}:0"))
        (self.folder / "password").write_text(PASSWORD)
        secret = ("--bmc-password-file", str(self.folder / "password"))
        data = ("--data", str(self.folder / "plane"), "--simulate-hosts", "1x1", "--image-hosts", "127.0.0.1")
        return started("serve", *listens, *tls, *secret, *data, *options, stderr=self.folder / "serve.log")

    def agent(self, certificate: CertFiles) -> AbstractAsyncContextManager[Process]:
        script = self.folder / "reboots.py"
        script.write_text(REBOOTS)
        command = f"{sys.executable} {script} {self.tree.proc} {self.notes} {self.go}"
        reboots = ("--reboot-command", f"SystemLevelReset={command}", "--reboot-command", f"PowerCycle={command}")
        of = ("--node", HOST, "--namespace", "dpf", "--interval", "0.2", *self.tree.options, *certificate.flags)
        return started(
            "host-agent",
            "--server",
            self.server,
            *of,
            *reboots,
            stderr=self.folder / "agent.log",
            program=self.namespace.program,
        )

    async def __call__(self, *words: str) -> Ran:
        """Run a command of an operator."""
        return await Plane(self.server)(*words, *self.operator.flags)

    async def until(self, *words: str, text: str) -> str:
        """Repeat a command until it prints this text."""
        while text not in (ran := await self(*words)).stdout:
            await asyncio.sleep(0.2)
        return ran.stdout

    @property
    def boots_asked(self) -> list[str]:
        """The boot in which each reboot command has begun."""
        return [line.split()[0] for line in self.notes.read_text().splitlines()] if self.notes.exists() else []


def objects(image_url: str) -> list[dict[str, Any]]:
    template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
    return [
        manifest("BFB", "image", {"url": image_url}),
        manifest("DPUFlavor", "flavor", {"bfcfgParameters": ["A=1"]}),
        manifest("DPUCluster", "dc", {"type": "kamaji", "maxNodes": 10}),
        manifest("DPUSet", "set", {"strategy": {"type": "RollingUpdate"}, "dpuTemplate": {"spec": template}}),
    ]


async def test_an_agent_installs_through_the_rshim_although_it_is_killed_while_the_dpu_installs(
    tmp_path: Path, namespace: HostNamespace
) -> None:
    site = Site(tmp_path, namespace)
    own = site.certs.issue(f"node-agent/{HOST}")
    device = RshimDpu(site.tree.dev / "rshim0")
    device.holds.clear()
    may_boot = Event()
    device.proceeds = lambda event: event != "boot" or may_boot.is_set()
    site.go.touch()
    async with asyncio.timeout(PATIENCE_S), image_server() as images, site.serving() as plane:
        images.files["a.bfb"] = ServedFile(BFB)
        site.server = plane.address("api")
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects(images.url("a.bfb"))))
        with device.running():
            async with site.agent(own) as agent:
                await site.until("get", "dpudevices", "-n", "dpf", text=DEVICE)
                address = f"dpuplane.io/bmc-address=rshim:dpf/{HOST}"
                assert (await site("annotate", "dpudevice", DEVICE, address, "-n", "dpf")).status == 0
                assert (await site("apply", "-f", str(tmp_path / "all.yaml"))).status == 0
                while not device.installs:
                    await asyncio.sleep(0.1)
                agent.kill()
                await agent.ended()
            async with site.agent(own):
                while (await site("dpus", "show", DPU, "--output", "json")).json()["percent"] < 75:
                    await asyncio.sleep(0.2)
                device.holds.set()
                await site.until("describe", "dpunode", HOST, "-n", "dpf", text='"percent":90')
                may_boot.set()
                ran = await site("wait", f"dpu/{DPU}", "-n", "dpf", "--for=condition=Ready", "--timeout", "380")
                assert ran.status == 0, ran
        shown = (await site("dpus", "show", DPU, "--output", "json")).json()
        await plane.stop()
    assert (shown["phase"], shown["bmc_address"]) == ("Ready", f"rshim:dpf/{HOST}")
    assert (device.installs, device.image.startswith(BFB)) == (1, True)
    configuration = device.image[len(BFB) :].decode()
    assert "A=1" in configuration
    assert site.tree.boot_id == "boot-2"
    token = re.search(r"kubeadm join \S+ --token (\S+)", configuration)
    assert token is not None
    for file in (tmp_path / "plane").rglob("*"):
        assert not file.is_file() or token[1].encode() not in file.read_bytes()


async def test_a_dpu_gets_ready_with_a_reboot_by_an_agent_that_is_killed_meanwhile(
    tmp_path: Path, namespace: HostNamespace
) -> None:
    site = Site(tmp_path, namespace)
    bmc = RedfishBmc(Identity(SERIAL), now=utc_now, rng=Random(1), durations=FAST)
    own = site.certs.issue(f"node-agent/{HOST}")
    trusts = ssl.create_default_context(cafile=str(site.certs.authority.cert))
    server = BmcServer(bmc, trusts=trusts)
    async with asyncio.timeout(PATIENCE_S), image_server() as images, server.listening(), site.serving() as plane:
        images.files["a.bfb"] = ServedFile(BFB)
        site.server = plane.address("api")
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects(images.url("a.bfb"))))
        async with site.agent(own) as agent:
            await site.until("get", "dpudevices", "-n", "dpf", text=DEVICE)
            address = server.url.replace("https:", "redfish:")
            ran = await site("annotate", "dpudevice", DEVICE, f"dpuplane.io/bmc-address={address}", "-n", "dpf")
            assert ran.status == 0, ran
            ran = await site("apply", "-f", str(tmp_path / "all.yaml"))
            assert ran.status == 0, ran
            while not site.boots_asked:
                await asyncio.sleep(0.1)
            agent.kill()
            await agent.ended()
        site.go.touch()
        async with site.agent(own):
            ran = await site("wait", f"dpu/{DPU}", "-n", "dpf", "--for=condition=Ready", "--timeout", "200")
            assert ran.status == 0, ran
            shown = (await site("dpus", "show", DPU, "--output", "json")).json()
        assert (shown["phase"], shown["facts"]["os_version"]) == ("Ready", "DOCA_2.9.3_BSP_4.9.0")
        node = yaml.safe_load((await site("get", "dpunode", HOST, "-n", "dpf", "-o", "yaml")).stdout)
        assert node["metadata"]["labels"]
        await plane.stop()
    assert site.tree.boot_id == "boot-2", "the host went down once"
    assert set(site.boots_asked) == {"boot-1"}
    updates = [path for method, path in bmc.requests if method == "POST" and "SimpleUpdate" in path]
    assert len(updates) == 1
    links = json.loads(namespace.run("ip", "-json", "link", "show", "br-dpu"))
    assert (links[0]["mtu"], "UP" in links[0]["flags"]) == (1_500, True)
