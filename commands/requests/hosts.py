"""Requests of the agent of a host, as reports and objects."""

from __future__ import annotations

import re

import msgspec

from commands.requests.resources import CheckedObject, check_object
from commands.requests.validation import require, require_one_of
from projections.actors import is_node_agent
from projections.field_checks import check_name, check_text, quoted
from projections.resources.host_tasks import (
    DEVICES_MAX,
    DONE,
    NETWORK,
    STATES,
    TASKS_MAX,
    FoundDevice,
    HostReport,
    HostTasks,
    State,
    TaskState,
)
from projections.resources.items import check_object_name
from projections.resources.kinds import DPU_DEVICE, DPU_NODE
from projections.resources.state import ResourcesState
from schemas.api import dpuplane_pb2 as pb
from schemas.resources.dpf.names import (
    DEVICE_PCI_ADDRESS,
    DEVICE_PF0_NAME,
    DEVICE_PF_COUNT,
    DPU_ENABLED,
    DPU_NODE_NAME,
)

PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")

MESSAGE_MAX = 253


def check_host(node: str, namespace: str) -> None:
    """Raises InvalidRequest if a host has no valid name."""
    require(check_name("node", node) or check_object_name("node", node))
    require(check_object_name("namespace", namespace))


def namespace_fault(principal: str, node: str, namespace: str, state: ResourcesState) -> str | None:
    """Why a certificate that names its host without a namespace is refused, in one sentence; None while no other
    namespace has a host of this name. So the first report of a host never makes the name of another one ambiguous."""
    others = sorted(each for each in state.host_namespaces.get(node, ()) if each != namespace)
    if not others or not is_node_agent(principal):
        return None
    return (
        f"certificate: {principal} names no namespace, and {others[0]} has a host {node}, too; use one of "
        f"host-agent/{namespace}/{node}"
    )


def checked_report(request: pb.ReportHostRequest, now_ms: int) -> HostReport:
    """The report of a request. Raises InvalidRequest."""
    check_host(request.node, request.namespace)
    require(check_text("boot_id", request.boot_id) or check_text("run_id", request.run_id))
    require(None if request.boot_id else "boot_id: must be the id of the boot that the host is in")
    counts = (("devices", len(request.devices), DEVICES_MAX), ("tasks", len(request.tasks), TASKS_MAX))
    for field, count, most in counts:
        require(None if count <= most else f"{field}: {count} are more than the {most} allowed")
    devices = tuple(_device(number, each) for number, each in enumerate(request.devices))
    addresses = [each.pci_address for each in devices]
    require(None if len({*addresses}) == len(addresses) else "devices: a PCI address is given twice")
    states = tuple(_state(number, each) for number, each in enumerate(request.tasks))
    booted_ms = max(0, now_ms - request.uptime.ToMilliseconds())
    return HostReport(request.run_id, request.boot_id, booted_ms, devices, states)


def merged(report: HostReport, known: HostReport | None, tasks: HostTasks) -> HostReport:
    """A report with what the last one has beyond it: the states of tasks that still exist, and the time of the boot."""
    if known is None:
        return report
    actions, given = {each.id: each.action for each in tasks.tasks}, {each.id for each in report.tasks}
    kept = [each for each in known.tasks if each.id in actions and each.id not in given]
    new = [
        _of_network(each, report.boot_id, known) if actions[each.id] == NETWORK else each
        for each in report.tasks
        if each.id in actions
    ]
    states = sorted((*kept, *new), key=lambda each: each.id)
    is_same_boot = known.boot_id == report.boot_id
    return msgspec.structs.replace(
        report,
        run_id=report.run_id or known.run_id,
        boot_time_ms=known.boot_time_ms if is_same_boot else report.boot_time_ms,
        tasks=tuple(states),
    )


def _of_network(state: TaskState, boot_id: str, known: HostReport) -> TaskState:
    """The state of a task of the network with its boot, and whether it has been done."""
    before = known.state_of(state.id)
    was_done = state.state == DONE or (before is not None and before.was_done)
    return msgspec.structs.replace(state, boot_id=boot_id, was_done=was_done)


def node_object(node: str, namespace: str) -> CheckedObject:
    """The DPUNode of a host, as it is made."""
    return check_object(
        pb.ResourceSpec(kind=DPU_NODE, namespace=namespace, name=node, labels={DPU_ENABLED: "true"}), None
    )


def device_objects(node: str, namespace: str, report: HostReport) -> list[CheckedObject]:
    """The DPUDevices of a host, as they are made: of the DPUs whose serial number the host knows."""
    return [_device_object(node, namespace, each) for each in report.devices if each.serial]


def _device_object(node: str, namespace: str, device: FoundDevice) -> CheckedObject:
    labels = {
        DPU_NODE_NAME: node,
        DEVICE_PCI_ADDRESS: device.pci_address.rpartition(".")[0].replace(":", "-"),
        DEVICE_PF_COUNT: str(device.pf_count),
    }
    if device.pf0_name:
        labels[DEVICE_PF0_NAME] = device.pf0_name
    spec: dict[str, object] = {"serialNumber": device.serial, "numberOfPFs": device.pf_count}
    if device.psid:
        spec["psid"] = device.psid
    return check_object(
        pb.ResourceSpec(
            kind=DPU_DEVICE,
            namespace=namespace,
            name=_NOT_IN_NAMES.sub("-", device.serial.lower()).strip(".-"),
            labels=labels,
            spec=msgspec.json.encode(spec).decode(),
        ),
        None,
    )


def _device(number: int, given: pb.HostDevice) -> FoundDevice:
    at = f"devices[{number}]"
    if PCI_ADDRESS.fullmatch(given.pci_address) is None:
        require(f"{at}.pci_address: {quoted(given.pci_address)} must be a PCI address such as 0000:03:00.0")
    for field in ("device_id", "serial", "psid", "pf0_name", "rshim"):
        require(check_text(f"{at}.{field}", getattr(given, field)))
    return FoundDevice(
        given.pci_address,
        given.device_id,
        given.serial,
        given.psid,
        given.pf0_name,
        max(1, given.pf_count),
        given.rshim,
    )


def _state(number: int, given: pb.HostTaskState) -> TaskState:
    at = f"tasks[{number}]"
    require(check_text(f"{at}.id", given.id))
    require_one_of(f"{at}.state", given.state, STATES)
    require(None if 0 <= given.percent <= 100 else f"{at}.percent: {given.percent} must be from 0 to 100")
    state: State = given.state  # type: ignore[assignment]
    message = " ".join(given.message.split())[:MESSAGE_MAX]
    require(check_text(f"{at}.message", message))
    return TaskState(given.id, state, given.percent, message)
