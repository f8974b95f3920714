"""The executor of steps on the host of a DPU: the node effect, one reboot for all DPUs, and the end of the effect.

The objects that want the DPU determine the effect and the reboot. For a DPU that no object wants, nothing is known of a
host, and the device stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from drivers.hosts.host import DONE, Host, Hosts, NetworkRequest, RebootRequest
from drivers.hosts.objects import Stores
from drivers.hosts.waiting import first_of
from drivers.provisioning.attempts import Attempt, Executor
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.object_facts import Finding, ObjectFacts
from drivers.provisioning.reboots import reboot, until_moved, withdraw
from projections.resources.host_effects import NO_EFFECT, maintenance_id
from projections.resources.step_facts import EXTERNAL, HOST_AGENT, NONE, SKIP, StepFacts
from projections.zones.dpus.phases import (
    HOST_NETWORK,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    PROVISIONING,
    REBOOTING,
)
from schemas.resources.dpf.node import REBOOT_ORDER

_BEFORE_REBOOT = PROVISIONING[: PROVISIONING.index(REBOOTING)]
_WITHOUT_HOST = frozenset(("FirmwareReset", "DPUWarmReboot", "NoAction"))
"""Reboots that the DPU does itself."""
_DEFAULT_METHOD = "SystemLevelReset"
"""The reboot of a DPU that has not reported which one it needs."""
METHOD_FACT = "reboot_method"
RECHECK_S = 1.0
"""Longest time between two checks of the other DPUs of a host, which read only folds."""


class NodeExecutor:
    """Executes the steps of hosts. `device` executes those of a DPU without a host."""

    def __init__(
        self, facts: ObjectFacts, maintenances: Maintenances, hosts: Hosts, stores: Stores, device: Executor
    ) -> None:
        self._facts = facts
        self._maintenances = maintenances
        self._hosts = hosts
        self._stores = stores
        self._device = device

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        facts = await self._facts.of(attempt.name)
        if attempt.dpu.phase == NODE_EFFECT_REMOVAL:
            return await self._remove_effect(attempt, facts)
        host = None if facts is None else self._hosts(facts.host, attempt.dpu.bmc_address)
        if facts is None or host is None:
            return await self._device.run(attempt)
        match attempt.dpu.phase:
            case phase if phase == NODE_EFFECT:
                await self._maintenances.ensure(attempt, facts)
            case phase if phase == REBOOTING:
                return await self._reboot(attempt, facts, host)
            case phase if phase == HOST_NETWORK:
                await self._configure_network(attempt, facts, host)
        return {}

    async def _remove_effect(self, attempt: Attempt, facts: StepFacts | None) -> Mapping[str, str]:
        findings = findings_of(attempt, self._facts, facts)
        await self._maintenances.leave(attempt, findings)
        if facts is None and not findings:
            return await self._device.run(attempt)
        return {}

    async def _reboot(self, attempt: Attempt, facts: StepFacts, host: Host) -> Mapping[str, str]:
        if facts.reboot.method != NONE and facts.reboot.command != SKIP:
            await self._until_neighbors_are_ready(attempt)
            await self._maintenances.ensure(attempt, facts)
        store, reported, asks, by_agent = self._stores(facts.host.at.source), "", True, True
        while True:
            request = self._request(attempt, facts)
            asked, asks = asks, facts.reboot.method == EXTERNAL and facts.reboot.command != SKIP
            if asked and not asks:
                await withdraw(attempt, store, request)
            was_by_agent, by_agent = by_agent, facts.reboot.method == HOST_AGENT and facts.reboot.command != SKIP
            if was_by_agent and not by_agent:
                await attempt.call(partial(host.forget_reboot, request))
            if facts.reboot.method == NONE:
                return await self._device.run(attempt)
            if facts.reboot.command == SKIP or request.method in _WITHOUT_HOST:
                return {}
            move = await reboot(attempt, store, host, request)
            if move.progress == DONE:
                return {}
            reported = await attempt.report_wait(move.progress.message, reported)
            await until_moved(store, host, request, move)
            facts = await self._facts.of(attempt.name) or facts  # people may skip the reboot, or change its method

    async def _configure_network(self, attempt: Attempt, facts: StepFacts, host: Host) -> None:
        own = f"{attempt.name}@{attempt.dpu.since}"
        request = NetworkRequest(facts.host, own, attempt.dpu.zone, attempt.dpu.serial, facts.mtu)
        reported = ""
        while not (progress := await attempt.call(lambda: host.configure_network(request))).is_done:
            reported = await attempt.report_wait(progress.message, reported)
            await first_of(host.changed(), timeout_s=RECHECK_S)

    async def _until_neighbors_are_ready(self, attempt: Attempt) -> None:
        """Wait until no other DPU of the host is on its way to the reboot: the host is rebooted once for all."""
        reported = ""
        while waiting := sorted(
            name
            for name, dpu in self._facts.neighbors(attempt.name, attempt.dpu).items()
            if dpu.phase in _BEFORE_REBOOT and not dpu.paused
        ):
            message = f"waits for DPU {waiting[0]} of the same host before the reboot"
            if message != reported:
                reported = await attempt.report_wait(message, reported)
            else:
                await first_of(self._facts.zone_changed(attempt.dpu), timeout_s=RECHECK_S)

    def _request(self, attempt: Attempt, facts: StepFacts) -> RebootRequest:
        dpus = self._facts.neighbors(attempt.name, attempt.dpu) | {attempt.name: attempt.dpu}
        needing = {name: dpu for name, dpu in dpus.items() if dpu.phase == REBOOTING}
        methods = {name: dpu.facts.get(METHOD_FACT, "") for name, dpu in needing.items()}
        if facts.needs_power_cycle:
            methods[attempt.name] = REBOOT_ORDER[0]
        known = {name: method if method in REBOOT_ORDER[:-1] else _DEFAULT_METHOD for name, method in methods.items()}
        return RebootRequest(
            facts.host,
            facts.reboot,
            f"{attempt.name}@{attempt.dpu.since}",
            frozenset(f"{name}@{dpu.since}" for name, dpu in needing.items()),
            min(known.values(), key=REBOOT_ORDER.index),
            known,
            attempt.dpu.zone,
        )


def findings_of(attempt: Attempt, known: ObjectFacts, facts: StepFacts | None) -> list[Finding]:
    """The maintenances that a DPU may have joined: those of the folds, and the one of its objects, which the folds may
    not show yet."""
    found = {each.at: each for each in known.maintenances_of(attempt.name, attempt.dpu)}
    if facts is not None and facts.effect.kind != NO_EFFECT:
        at = maintenance_id(facts.host.at.source, facts.host.namespace, facts.host.name, facts.effect.kind)
        found.setdefault(at, Finding(at, facts.host, facts.effect))
    return list(found.values())
