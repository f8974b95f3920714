"""Install interfaces: the steps of a DPU and their executors are read from tables, by the scheme of its address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from deploy.composition.bmc_backends import BMC_BACKENDS, BmcContext, connect_of
from deploy.composition.executors import EXECUTORS
from drivers.backends.bmc import NeedsOperator
from drivers.backends.simulated_bmc import SimulatedBmcs
from drivers.provisioning.attempts import Attempt, Executor
from drivers.provisioning.provisioner import Provisioner
from eventstore.errors import FatalError
from projections.zones.dpus import install_interfaces
from projections.zones.dpus.install_interfaces import (
    INTERFACES,
    InstallInterface,
    check_bmc_address,
    phase_after,
    step_of,
)
from projections.zones.dpus.phases import (
    CLUSTER_CONFIG,
    DELETING,
    DEVICE,
    HOST_NETWORK,
    NODE,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    OS_INSTALLING,
    PREPARE_IMAGE,
    PROVISIONING,
    READY,
    REBOOTING,
    STEPS,
)
from tests.support.memory_plane import device_executors, plane

BRIEF = InstallInterface("NAME", {phase: step for phase, step in STEPS.items() if phase != PREPARE_IMAGE})
OWN = InstallInterface("NAME", {**STEPS, CLUSTER_CONFIG: STEPS[CLUSTER_CONFIG]._replace(executor="own")})


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, InstallInterface]:
    """The table with two more rows: `brief` has no step that prepares an image, `own` has an executor of its own."""
    table = {**INTERFACES, "brief": BRIEF, "own": OWN}
    monkeypatch.setattr(install_interfaces, "INTERFACES", table)
    return table


def test_the_tables_fit_together() -> None:
    assert BMC_BACKENDS.keys() == INTERFACES.keys()
    for interface in INTERFACES.values():
        assert {NODE_EFFECT, NODE_EFFECT_REMOVAL, DELETING} <= interface.steps.keys() <= STEPS.keys()
        assert {step.executor for step in interface.steps.values()} <= EXECUTORS.keys()


def test_the_steps_follow_from_the_address(interfaces: Mapping[str, InstallInterface]) -> None:
    courses = {}
    for scheme in interfaces:
        phases = [NODE_EFFECT]
        while phases[-1] != NODE_EFFECT_REMOVAL:
            phases.append(phase_after(f"{scheme}:d", phases[-1]))
        courses[scheme] = tuple(phases)
    assert courses["redfish"] == courses["simulated"] == courses["own"] == PROVISIONING
    assert courses["brief"] == tuple(phase for phase in PROVISIONING if phase != PREPARE_IMAGE)
    assert step_of("own:d", CLUSTER_CONFIG).executor == "own"
    assert step_of("own:d", REBOOTING) == step_of("", REBOOTING) == STEPS[REBOOTING]


def test_a_simulated_device_does_the_step_of_the_network_of_its_host() -> None:
    """A process that reaches the host in a cluster, but not the device, must not take it."""
    assert step_of("simulated:d", HOST_NETWORK).executor == DEVICE
    assert step_of("redfish://bmc:1", HOST_NETWORK).executor == NODE


def test_an_address_replaced_during_a_step_keeps_the_step(interfaces: Mapping[str, InstallInterface]) -> None:
    """The interface of the new address may not have the step that the DPU is in."""
    assert step_of("brief:d", PREPARE_IMAGE) == STEPS[PREPARE_IMAGE]
    assert phase_after("brief:d", PREPARE_IMAGE) == OS_INSTALLING


def test_an_address_has_the_form_of_an_interface(interfaces: Mapping[str, InstallInterface]) -> None:
    assert check_bmc_address("f", "") is None
    assert check_bmc_address("f", "brief:d") is None
    for address in ("brief", "brief:", "brief://d", "redfish:d", "http://bmc:1/d", "simulated:a b"):
        assert check_bmc_address("f", address) == (
            f"f: {address!r} must be gnoi://HOST:PORT or redfish://HOST:PORT or rshim:NAMESPACE/HOST or simulated:NAME"
            " or brief:NAME or own:NAME"
        )


async def test_a_process_reaches_the_schemes_of_its_table() -> None:
    bmcs = SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=Random(1))
    connect = connect_of(BmcContext(bmcs))
    assert connect("simulated:d") is bmcs.device("d")
    for address in ("ftp:d", "http://h/d", "simulated", ""):
        with pytest.raises(
            NeedsOperator, match=f"'{address}' must begin with one of gnoi:, redfish:, rshim:, simulated:"
        ):
            connect(address)
    with pytest.raises(NeedsOperator, match="'redfish://h' needs a provisioner with an installer for its scheme"):
        connect("redfish://h")
    with pytest.raises(NeedsOperator, match="'simulated:d' needs a provisioner with --simulate"):
        connect_of(BmcContext(None))("simulated:d")


class OwnExecutor:
    """An executor that notes its attempts."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        self.done.append(attempt.step.name)
        return {"own": "yes"}


@pytest.mark.virtual_clock
async def test_the_executor_of_a_step_is_looked_up(interfaces: Mapping[str, InstallInterface]) -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=made.rng())
        own = OwnExecutor()
        executors: dict[str, Executor] = device_executors(
            lambda address: bmcs.connect(f"simulated:{address.partition(':')[2]}")
        )
        with pytest.raises(FatalError, match="'own' of step 'DPU Cluster Config' of install interface 'own' must be"):
            Provisioner(made.replicas["p1"], made.ranks("p1"), executors, now_ms=made.now_ms, rng=made.rng())
        executors["own"] = own
        provisioner = Provisioner(made.replicas["p1"], made.ranks("p1"), executors, now_ms=made.now_ms, rng=made.rng())
        made.spawn("p1", provisioner.run())
        for name, scheme in (("brief", "brief"), ("own", "own")):
            await made.register(name, scheme=scheme)
            await made.request(name, "provision", "image-1")
            await made.until(lambda name=name: made.dpu(name).phase == READY)  # type: ignore[misc]
        tasks = {name: [task.action for task in bmcs.device(name).begun] for name in ("brief", "own")}
        names = [STEPS[phase].name for phase in PROVISIONING]
        assert tasks["brief"] == [name for name in names if name != "prepare"]
        assert tasks["own"] == [name for name in names if name != "join-cluster"]
        assert own.done == ["join-cluster"]
        assert made.dpu("own").facts["own"] == "yes"
