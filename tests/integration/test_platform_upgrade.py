"""The upgrades of the guide, rehearsed: of the plane, which touches no DPU, and of DPUs, which a plan shows first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import yaml

from deploy.composition.roles import folds_of
from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import HOST, serving
from deploy.demo.platform.manifests import FIRST_IMAGE, NAMESPACE, SECOND_IMAGE, SET, Object
from deploy.demo.platform.timeline import READY, Timeline
from deploy.host.storage import open_log
from deploy.settings.settings import load_settings
from drivers.simulators.bmc_network import BmcNetwork, NetworkSizes
from eventstore.recovery.replay import replay
from projections.resources.discovery import BMC_ADDRESS
from projections.resources.kinds import DPU_DEVICE
from tests.integration.test_cli_resources import Plane
from tests.support import planes

SIZES = NetworkSizes(racks=1, hosts_per_rack=1, racks_without=0)
INSTALLING = "OS Installing"


def written(path: Path, objects: Sequence[Object]) -> str:
    path.write_text(yaml.safe_dump_all([each.document for each in objects]))
    return str(path)


def fleet(image_url: str) -> list[Object]:
    network = BmcNetwork(Random(1), SIZES)
    devices = [
        Object(DPU_DEVICE, dpu.serial.lower(), {"serialNumber": dpu.serial}, annotations={BMC_ADDRESS: dpu.bmc_address})
        for dpu in network.dpus()
    ]
    hosts = manifests.hosts(network, SIZES)
    return [*manifests.foundations(image_url), manifests.dpu_set(FIRST_IMAGE), *hosts, *devices]


async def installed(data: Path) -> list[str]:
    """The image that each successful installation of the DPU left on it, by the log."""
    timeline = Timeline()
    settings = load_settings({"data": data}, None, {})
    async with open_log(settings, now_ms=lambda: int(time.time() * 1_000), rng=Random(2)) as log:
        await replay(log, folds_of(log.partition_count), observer=timeline.take)
    seen = [each.installed.partition("/")[0] for each in timeline.dpus if each.phase == READY]
    assert sum(step.phase == INSTALLING for step in timeline.steps) == len(dict.fromkeys(seen))
    return [*dict.fromkeys(seen)]


async def ready(dpuplane: Plane) -> None:
    ran = await dpuplane("wait", f"dpuset/{SET}", "-n", NAMESPACE, "--for=condition=Ready", "--timeout", "120s")
    assert ran.status == 0, ran.stderr


async def test_a_new_process_touches_no_dpu_and_a_new_image_only_those_that_the_plan_named(tmp_path: Path) -> None:
    data, file = tmp_path / "plane", tmp_path / "objects.yaml"
    simulated = ("--simulate-hosts", "1x1", "--simulate-pace", "0.2", "--image-hosts", HOST, "--images", f"{HOST}:0")
    async with serving({FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}, Random(3)) as url:
        async with planes.serving("--data", str(data), *simulated) as process:
            dpuplane = Plane(process.address("api"))
            ran = await dpuplane("apply", "-f", written(file, fleet(url)))
            assert ran.status == 0, ran.stderr
            await ready(dpuplane)
            await process.stop()
        assert await installed(data) == [FIRST_IMAGE]
        async with planes.serving("--data", str(data), *simulated) as process:
            dpuplane = Plane(process.address("api"))
            await ready(dpuplane)
            newer = written(tmp_path / "newer.yaml", [manifests.dpu_set(SECOND_IMAGE)])
            ran = await dpuplane("diff", "-f", newer)
            assert ran.status == 1 and "reflash DPU dpf/rack-1-host-01-sim01001a" in ran.stdout, ran
            ran = await dpuplane("apply", "-f", newer)
            assert ran.status == 0, ran.stderr
            await ready(dpuplane)
            await process.stop()
        assert await installed(data) == [FIRST_IMAGE, SECOND_IMAGE], "the restart installed nothing"
