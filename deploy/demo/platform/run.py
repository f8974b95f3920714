"""Runs the platform demo against a plane that it starts, and reads its summary from the log."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import uvloop
import yaml

from deploy.clock import now_ms
from deploy.composition.roles import folds_of
from deploy.demo.load import DemoClient
from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import HOST, serving
from deploy.demo.platform.manifests import FIRST_IMAGE, SECOND_IMAGE
from deploy.demo.platform.scenario import PlatformScenario
from deploy.demo.platform.summary import Folded, PlatformSummary, summarize
from deploy.demo.platform.timeline import Timeline
from deploy.demo.progress import Display
from deploy.demo.run import FREE_PORT
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.telemetry.logs import configure_logs
from drivers.simulators.bmc_network import BmcNetwork, NetworkSizes
from eventstore.recovery.replay import replay
from projections.resources.state import ResourcesState

PACE = 0.5
"""Factor on the time that simulated hosts and DPUs take, so that the demo takes less than a minute."""
VERSIONS = {FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}


def run_platform_demo(sizes: NetworkSizes, *, data: Path) -> PlatformSummary:
    """Run the whole demo, with its log in a folder. Raises PlaneError."""
    rng = random.Random()
    listeners = dict.fromkeys(("listen", "http", "agents", "images"), FREE_PORT)
    hosts = f"{sizes.racks}x{sizes.hosts_per_rack}"
    simulated = {"simulate_hosts": hosts, "simulate_pace": PACE, "image_hosts": HOST, "image_streams": 256}
    settings = load_settings({"data": data, **listeners, **simulated}, None, {})
    configure_logs("WARNING")

    async def run() -> PlatformSummary:
        async with (
            serving(VERSIONS, rng) as image_url,
            Plane.start(settings, now_ms=now_ms, rng=rng) as plane,
            DemoClient(plane.addresses["api"], now_ms=now_ms, rng=rng) as api,
        ):
            with Display() as display:
                scenario = PlatformScenario(plane, api, sizes, image_url, display)
                await scenario.run()
                return await _summary(plane, scenario)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def write_manifests(folder: Path, sizes: NetworkSizes) -> None:
    """Write the manifests of the demo as files, for users to read, and to apply to a plane of their own."""
    network = BmcNetwork(random.Random(), sizes)
    racks = range(2, sizes.racks + 1 - sizes.racks_without)
    parts = {
        "1-discovery": [manifests.discovery(sizes)],
        "2-hosts": manifests.hosts(network, sizes),
        "3-foundations": manifests.foundations("http://images.example.org/{}.bfb"),
        "4-services": manifests.services(),
        "5-dpuset": [manifests.dpu_set(FIRST_IMAGE)],
        "6-deployment": [manifests.deployment(FIRST_IMAGE, racks)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, objects in parts.items():
        # Documents may share parts, which YAML would write as anchors and aliases.
        documents = [json.loads(json.dumps(each.document)) for each in objects]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))


async def _summary(plane: Plane, scenario: PlatformScenario) -> PlatformSummary:
    """Fold the log again, compare the result with the replica, and tell what happened."""
    await scenario.until_saved()
    timeline, folded = await refold(plane)
    of_deployment = [manifests.dpu_name(dpu) for dpu in scenario.of_deployment]
    return summarize(timeline, scenario.names, of_deployment, folded)


async def refold(plane: Plane) -> tuple[Timeline, Folded]:
    """Fold the log of a plane again: what happened in it, and whether the result is the state of the replica."""
    replica, timeline = plane.replica, Timeline()
    status = {each.partition: each for each in replica.partitions_status()}
    until = {each: found.position for each, found in status.items()}
    digests = {each: (found.saved_position,) for each, found in status.items() if found.saved_position}
    replayed = await replay(
        plane.log, folds_of(plane.log.partition_count), until=until, digests_at=digests, observer=timeline.take
    )
    same = all(replayed.digests[each][status[each].saved_position] == status[each].digest for each in digests)
    remaining = sum(
        len(folded.state.objects.rows)
        for folded in replayed.partitions.values()
        if isinstance(folded.state, ResourcesState)
    )
    return timeline, Folded(replayed.records, replayed.bytes, remaining, same)
