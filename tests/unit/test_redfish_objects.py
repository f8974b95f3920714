"""What objects say about a DPU and its BMC: which password, which settings, which versions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from drivers.backends.bmc import NeedsOperator
from drivers.redfish.object_wants import FACTORY_PASSWORD, ObjectWants
from drivers.redfish.sessions import Credentials
from drivers.redfish.settings import Wants
from drivers.resource_worlds import ResourceWorlds
from projections.resources.install_identity import install_identity
from projections.resources.kinds import BFB, DPF_OPERATOR_CONFIG, DPU_DEVICE, DPU_FLAVOR, DPU_NODE, DPU_SET
from projections.resources.state import Observed
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.memory_plane import plane
from tests.support.resource_planes import ResourcePlane, key

pytestmark = pytest.mark.virtual_clock

DPU = "worker-d1"
VERSIONS = '{"ready":true,"versions":{"bsp":"4.9.0","doca":"2.9.3"}}'


class Secrets:
    """Secrets by name, all of one namespace."""

    def __init__(self) -> None:
        self.kept: dict[str, Mapping[str, bytes]] = {}

    async def read(self, source: str, namespace: str, name: str) -> Mapping[str, bytes] | None:
        assert (source, namespace) == ("local", "dpf")
        return self.kept.get(name)


async def test_the_password_is_that_of_the_device_else_the_shared_one_else_that_of_a_file() -> None:
    secrets, file = Secrets(), [""]
    async with plane() as made:
        objects = ResourcePlane(made)
        wants = ObjectWants(ResourceWorlds(await objects.start("r1")), secrets.read, "root", lambda: file[0])
        for dpu in (DPU, "nobody"):
            with pytest.raises(NeedsOperator, match=r"^password: setting bmc_password_file is not set"):
                await wants.credentials(dpu)
        await objects.apply(BFB, "image", {"url": "http://h/a.bfb"})
        await objects.apply(DPU_FLAVOR, "flavor", {})
        await objects.apply(DPU_NODE, "worker", {})
        config = {"deploymentMode": "zero-trust", "provisioningController": {}}
        await objects.apply(DPF_OPERATOR_CONFIG, "config", config)
        device = {"serialNumber": "s", "bmcCredentialSecretName": "own"}
        await objects.apply(DPU_DEVICE, "d1", device, {DPU_NODE_NAME: "worker"})
        template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "secureBoot": True}
        await objects.apply(DPU_SET, "set", {"dpuTemplate": {"spec": template}})
        with pytest.raises(
            NeedsOperator, match=r"Secret dpf/own gives this process no password, and Secret dpf/bmc-sh"
        ):
            await wants.credentials(DPU)
        file[0] = "of the file"
        assert await wants.credentials(DPU) == Credentials("root", "of the file", FACTORY_PASSWORD)
        secrets.kept["bmc-shared-password"] = {"password": b"shared\n"}
        assert (await wants.credentials(DPU)).password == (await wants.shared_credentials()).password == "shared"
        assert (await wants.credentials("nobody")).password == "of the file"
        secrets.kept["own"] = {"password": b"own", "username": b"plane"}
        assert await wants.credentials(DPU) == Credentials("plane", "own", FACTORY_PASSWORD)
        assert "own" not in repr(await wants.credentials(DPU))
        secrets.kept["own"] = {"password": b"\xff"}
        with pytest.raises(NeedsOperator, match="not text in UTF-8"):
            await wants.credentials(DPU)


async def test_the_settings_and_the_versions_are_those_of_the_objects() -> None:
    async with plane() as made:
        objects = ResourcePlane(made)
        worlds = ResourceWorlds(await objects.start("r1"))
        wants = ObjectWants(worlds, Secrets().read, "", lambda: "")
        assert await wants.wanted(DPU, "image/1") == ((None, False), {})
        await objects.apply(BFB, "image", {"url": "http://h/a.bfb"})
        await objects.apply(DPU_FLAVOR, "flavor", {})
        await objects.apply(DPU_NODE, "worker", {})
        await objects.apply(DPF_OPERATOR_CONFIG, "config", {"deploymentMode": "zero-trust"})
        await objects.apply(DPU_DEVICE, "d1", {"serialNumber": "s"}, {DPU_NODE_NAME: "worker"})
        template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "secureBoot": True}
        await objects.apply(DPU_SET, "set", {"dpuTemplate": {"spec": template}})
        objects.state.observe({key(BFB, "image"): Observed("u", VERSIONS, "images", 1, 1)})
        found = await worlds.wanted_dpu(DPU)
        assert found is not None
        identity = install_identity(found[0].state, found[1]) or ""
        assert await wants.wanted(DPU, identity) == (Wants(secure_boot=True, is_zero_trust=True), {"DPU_BSP": "4.9.0"})
        assert (await wants.wanted(DPU, "image/earlier")).versions == {}
