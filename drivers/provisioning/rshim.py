"""The installer `rshim`: the agent of a trusted host writes the image to the rshim of a DPU.

Each step adds one task for the agent to the DPUNode of the host, and follows it. A task has the DPU and the phase that
it was added for. So an attempt adopts the task of an earlier attempt, and no task is added twice. A failed task ends
the attempt and is removed, and the next attempt adds another one. Attempts need no other fence: only the agent touches
the device, and one agent of a host runs at a time (deploy/host_agent/only_one.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.hosts.agent_host import AgentHost, device_of
from drivers.hosts.host import DeviceRequest
from drivers.hosts.waiting import first_of
from drivers.provisioning.attempts import Attempt, checked_facts
from projections.field_checks import quoted
from projections.resources.host_tasks import INSTALL, RESTART, FoundDevice
from projections.zones.dpus import phases
from projections.zones.dpus.host_installs import RSHIM
from projections.zones.dpus.phases import ON_DEVICE, OS_INSTALLING

AgentOf: TypeAlias = Callable[[str, str], AgentHost]
"""The agent of a host, by the namespace and the name of its DPUNode."""
HostUrlOf: TypeAlias = Callable[[str, str], Awaitable[str]]
"""The URL at which the agent of its host downloads the image of a DPU; empty if no object wants the DPU. The URL has no
token, because the agent authenticates with its certificate. May raise the errors of a device."""


async def no_host_url(dpu: str, image: str) -> str:
    """Refuses: the image store of this process cannot tell the agents of hosts from others."""
    raise NeedsOperator(
        "image: the agent of a host fetches images with its certificate; give the provisioner --images-dir and "
        "--tls-cert, --tls-key and --tls-client-ca"
    )


class RshimInstaller:
    """Executes steps on DPUs through the agents of their hosts, at addresses `rshim:NAMESPACE/HOST`."""

    def __init__(self, agent_of: AgentOf, url_of: HostUrlOf) -> None:
        self._agent_of = agent_of
        self._url_of = url_of

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        """Execute the step. Returns the facts that the host knows of the device."""
        if attempt.dpu.phase not in ON_DEVICE:
            return {}
        agent = self._agent_of(*host_at(attempt.dpu.bmc_address))
        device = await _device(attempt, agent)
        match attempt.dpu.phase:
            case phases.INITIALIZE_INTERFACE:
                _check_rshim(agent, device)
            case phases.PREPARE_IMAGE:
                await self._url(attempt)
            case phases.OS_INSTALLING:
                _check_rshim(agent, device)
                await _follow(attempt, agent, INSTALL, device, await self._url(attempt))
            case phases.REBOOTING:
                _check_rshim(agent, device)
                await _follow(attempt, agent, RESTART, device, "")
        return _facts(attempt, device)

    async def _url(self, attempt: Attempt) -> str:
        if url := await self._url_of(attempt.name, attempt.dpu.image):
            return url
        raise NeedsOperator(
            f"image: there is no file for {quoted(attempt.dpu.image)}, because no object wants this DPU; apply a BFB, "
            "and a DPUDeployment or DPUSet that selects its DPUDevice"
        )


def host_at(address: str) -> tuple[str, str]:
    """The namespace and the name of the host in an address. Raises NeedsOperator."""
    namespace, slash, name = address.partition(":")[2].partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise NeedsOperator(f"bmc_address: {quoted(address)} must be {RSHIM}:NAMESPACE/HOST")
    return namespace, name


async def _device(attempt: Attempt, agent: AgentHost) -> FoundDevice:
    """The device of a DPU on its host. Another card is refused before anything of it is changed."""
    found = await attempt.call(agent.devices, alters=False)
    if found is None:
        raise NeedsOperator(
            f"bmc_address: no `dpuplane host-agent` has reported from host {agent.name}; run one, or use another "
            "address"
        )
    serial = attempt.dpu.serial
    device = device_of(found, serial)
    if device is not None:
        return device
    if not found:
        raise Unreachable(f"device: host {agent.name} has no DPU on its PCI bus now")
    shown = " and ".join(quoted(each.serial) for each in found)
    raise NeedsOperator(f"serial: the device has {shown}, but {quoted(serial)} is registered")


def _check_rshim(agent: AgentHost, device: FoundDevice) -> None:
    if not device.rshim:
        raise Unreachable(
            f"rshim: host {agent.name} has no rshim of the DPU at {device.pci_address}; its driver must run there, and "
            "not in the BMC"
        )


async def _follow(attempt: Attempt, agent: AgentHost, action: str, device: FoundDevice, url: str) -> None:
    """Add the task, unless an earlier attempt has added it, and follow it to its end. Each quarter is reported once."""
    dpu, reported = attempt.dpu, ""
    own = f"{attempt.name}@{dpu.since}"
    request = DeviceRequest(action, own, dpu.zone, device.pci_address, url)
    stated = dpu.percent // 25 if dpu.task else -1
    while not (progress := await attempt.call(partial(agent.do_on_device, request))).is_done:
        if progress.percent // 25 > stated and progress.percent:
            stated = progress.percent // 25
            await attempt.report_progress(f"{action} by the agent of host {agent.name}", min(100, progress.percent))
        elif not progress.percent:
            reported = await attempt.report_wait(progress.message, reported)
        await first_of(agent.changed(), timeout_s=attempt.timing.poll_max_s)


def _facts(attempt: Attempt, device: FoundDevice) -> dict[str, str]:
    facts = {"serial": device.serial or attempt.dpu.serial}
    if attempt.dpu.phase == OS_INSTALLING:
        facts["image"] = attempt.dpu.image
    return checked_facts(facts, "host")
