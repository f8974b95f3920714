"""Runs the device demo: a switch, BMCs, a plane that drives them, and a comparison of all with the log."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import uvloop

from deploy.clock import now_ms, utc_now
from deploy.composition.roles import folds_of
from deploy.demo.devices.agents import DeviceAgents
from deploy.demo.devices.manifests import FIRST_IMAGE, VERSIONS, DemoDpu, inventory_of
from deploy.demo.devices.scenario import DeviceScenario
from deploy.demo.devices.summary import DeviceSummary
from deploy.demo.devices.switches import DpuSwitches, dpu_switches
from deploy.demo.load import DemoClient
from deploy.demo.platform.image_server import HOST, serving
from deploy.demo.platform.run import refold
from deploy.demo.progress import Display
from deploy.demo.run import FREE_PORT
from deploy.operations.audit.verification import ReplicaDigest, compare_devices, refold_log
from deploy.process.plane import Plane
from deploy.settings.settings import Settings, load_settings
from deploy.telemetry.logs import configure_logs
from deploy.tls.authority import Authority
from deploy.tls.dialing import dialing
from drivers.simulators.redfish.bmcs import BmcOptions, RedfishBmcs, port_of
from drivers.simulators.redfish.card import Durations
from projections.fleet.tables.zone_table import table
from projections.zones.dpus.certificates import AUTHORITY, CERTIFICATE_FACT

DURATIONS = Durations(flash_s=1.5, boot_s=0.7, bmc_restart_s=1.0)
"""A BlueField-3 takes 10 minutes and 3 minutes."""
PASSWORD = "a password of the demo"
AUTHORITY_VALID = timedelta(days=30)
_SIMPLE_UPDATE = "UpdateService.SimpleUpdate"


def run_device_demo(count: int, *, data: Path) -> DeviceSummary:
    """Run the whole demo, with its log in a folder. Raises PlaneError."""
    rng = random.Random()
    settings = _settings(data)
    configure_logs("WARNING")
    dpus = [DemoDpu(number) for number in range(1, count + 1)]
    with (
        dpu_switches(dpus, f"{rng.getrandbits(16):04x}") as switches,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_run(settings, switches, rng))


async def _run(settings: Settings, switches: DpuSwitches, rng: random.Random) -> DeviceSummary:
    async with AsyncExitStack() as stack:
        image_url = await stack.enter_async_context(serving(VERSIONS, rng, inventory_of=inventory_of))
        plane = await stack.enter_async_context(Plane.start(settings, now_ms=now_ms, rng=rng))
        api = await stack.enter_async_context(DemoClient(plane.addresses["api"], now_ms=now_ms, rng=rng))
        assert settings.images_folder is not None, "the demo has a folder of data"
        trusts = ssl.create_default_context(cafile=str(settings.images_folder / "tls.pem"))
        options = BmcOptions(trusts=trusts, durations=DURATIONS)
        bmcs = await stack.enter_async_context(RedfishBmcs.serving(options, now=utc_now, rng=rng))
        ports = {each: port_of(await bmcs.address(each.name, each.serial, ""), HOST) for each in switches.dpus}
        agents = await stack.enter_async_context(_agents(plane, switches, rng))
        display = stack.enter_context(Display())
        scenario = DeviceScenario(
            plane,
            api,
            display,
            switches=switches,
            agents=agents,
            bmcs={dpu: (HOST, port) for dpu, port in ports.items()},
            image_url=image_url,
        )
        await scenario.run()
        return await _summary(plane, scenario, bmcs)


@asynccontextmanager
async def _agents(plane: Plane, switches: DpuSwitches, rng: random.Random) -> AsyncIterator[DeviceAgents]:
    async with dialing(None) as dialer, asyncio.TaskGroup() as tasks:
        agents = DeviceAgents(switches, plane.addresses["agents"], dial=dialer.dial, rng=rng, tasks=tasks)
        try:
            yield agents
        finally:
            agents.stop_all()


def _settings(data: Path) -> Settings:
    """The settings of the plane. Clusters are simulated: it has no Kubernetes. DPUs and their BMCs are not."""
    data.mkdir(parents=True, exist_ok=True)
    authority = Authority.make(data / "bmc-ca", "demo.local", now=utc_now(), valid=AUTHORITY_VALID)
    password = data / "bmc-password"
    password.write_text(PASSWORD)
    listeners = dict.fromkeys(("listen", "http", "agents", "images"), FREE_PORT)
    images = {"image_hosts": HOST, "image_streams": 256}
    bmcs = {"bmc_password_file": password, "bmc_ca": authority.cert, "bmc_ca_key": authority.folder / "ca.key"}
    return load_settings({"data": data / "log", **listeners, **images, **bmcs, "simulate_hosts": "1x1"}, None, {})


async def _summary(plane: Plane, scenario: DeviceScenario, bmcs: RedfishBmcs) -> DeviceSummary:
    """Fold the log again, compare the result with the replica and the switches, and tell what happened."""
    assert plane.relay is not None, "the demo's plane has every role"
    await scenario.until_saved()
    timeline, folded = await refold(plane)
    status = [each for each in plane.replica.partitions_status() if each.saved_position]
    digests = [ReplicaDigest(plane.replica.name, each.partition, each.saved_position, each.digest) for each in status]
    fresh = await refold_log(plane.log, folds_of(plane.log.partition_count), digests)
    compared = compare_devices(fresh, plane.replica.lineage, plane.relay.devices())
    installs = [step for step in timeline.steps if step.phase == "OS Installing"]
    names = {dpu.name for dpu in scenario.dpus}
    rows = [state.dpus.rows[name] for state in plane.states.all_zones() for name in names & state.dpus.rows.keys()]
    first_ms = min(step.began_ms for step in timeline.steps)
    return DeviceSummary(
        nodes=len(fresh.fleet.members.rows),
        zones=len(scenario.racks),
        dpus=len(rows),
        rules=max(sum(each.prefixes.size() for each in table(fresh.fleet, zone).sets) for zone in fresh.zones),
        installs=len(installs),
        updates=sum(
            method == "POST" and _SIMPLE_UPDATE in path for bmc in bmcs.bmcs.values() for method, path in bmc.requests
        ),
        image_bytes=bmcs.fetched_bytes,
        install_seconds=(timeline.last_ready_ms(names, first_ms, installed=f"{FIRST_IMAGE}/") - first_ms) / 1_000,
        os_versions=dict(Counter(row.facts.get("os_version", "unknown") for row in rows)),
        certified=sum(row.facts.get(CERTIFICATE_FACT) == AUTHORITY for row in rows),
        chained=timeline.chained,
        reflashed=scenario.reflashed.name,
        equal=compared.equal,
        differences=(*compared.differences, *compared.absent, *fresh.differences),
        passed_node=scenario.evaluated.of_node,
        passed_gone=scenario.evaluated.of_gone,
        passed_stranger=scenario.evaluated.of_stranger,
        arrived=scenario.arrived,
        log_records=folded.records,
        log_bytes=folded.bytes,
        digests_match=folded.digests_match,
    )
