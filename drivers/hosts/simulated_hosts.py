"""Simulated hosts: nodes whose workload leaves after some time when they are drained, and returns; and their reboots.

A host is data and a clock, as a simulated BMC is. It has the Node object of a real one, which the same patches change.
`reboots` lists each reboot and whether the workload had left, for the checks of tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.backends.simulated_bmc import NO_BMC_FAULTS, SCHEME, BmcFaults, SimulatedBmcs
from drivers.hosts.host import DONE, Host, NetworkRequest, Progress, RebootRequest
from projections.kubernetes.node_claims import ON_NODE, NodeClaim, holder_of, patch_to_claim, patch_to_lift
from projections.kubernetes.ready_taint import patch_of_taint
from projections.resources.host_effects import CUSTOM_ACTION, DRAIN
from projections.resources.step_facts import EXTERNAL, HostRef

EVICTION_S = 0.3
"""Duration of a drain, at pace 1."""
ACTION_S = 0.3
REBOOT_S = 1.0


class SimulatedReboot(NamedTuple):
    """A reboot of a host. `ids` are the DPUs that it was for, with the offsets at which they began to need it."""

    began_s: float
    ends_s: float
    method: str
    ids: frozenset[str]
    was_drained: bool


class SimulatedHost:
    """One host. `bmcs` are the names of the BMCs of its DPUs, which restart with it."""

    def __init__(
        self, name: str, bmcs: SimulatedBmcs, *, now_s: Callable[[], float], rng: Random, faults: BmcFaults
    ) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": name, "labels": {}, "annotations": {}}, "spec": {}}
        self.drains = 0
        self.reboots: list[SimulatedReboot] = []
        self.bmcs: dict[str, None] = {}
        self._devices = bmcs
        self._now_s = now_s
        self._rng = rng
        self._faults = faults
        self._empty_s = 0.0
        """When the workload of a cordoned node has left."""
        self._actions: dict[str, float] = {}
        """When the action of each maintenance ends."""

    @property
    def is_cordoned(self) -> bool:
        return bool(self.node["spec"].get("unschedulable"))

    @property
    def is_drained(self) -> bool:
        return self.is_cordoned and self._now_s() >= self._empty_s

    async def apply(self, claim: NodeClaim) -> Progress:
        await self._take()
        if claim.effect.kind in ON_NODE:
            was_cordoned = self.is_cordoned
            self._patch(patch_to_claim(self.node, claim))
            if self.is_cordoned and not was_cordoned:
                self.drains += 1
                self._empty_s = self._now_s() + EVICTION_S * self._faults.pace
        if claim.effect.kind == CUSTOM_ACTION:
            self._actions.setdefault(claim.uid, self._now_s() + ACTION_S * self._faults.pace)
        return self._answer(self._progress(claim))

    async def lift(self, claim: NodeClaim) -> Progress:
        await self._take()
        self._patch(patch_to_lift(self.node, claim))
        self._actions.pop(claim.uid, None)
        return self._answer(DONE)

    async def holder(self, claim: NodeClaim) -> str:
        await self._take()
        if claim.effect.kind == CUSTOM_ACTION:
            return next(iter(self._actions), "")
        return holder_of(self.node, claim)

    async def keep_taint(self, *, is_wanted: bool) -> None:
        await self._take()
        self._patch(patch_of_taint(self.node, is_wanted=is_wanted))

    async def reboot(self, request: RebootRequest) -> Progress:
        await self._take()
        now_s = self._now_s()
        last = self.reboots[-1] if self.reboots else None
        if last is not None and now_s < last.ends_s:
            return self._answer(Progress(False, "waits for the host to come up"))
        if not any(request.own in each.ids for each in self.reboots):
            ends_s = now_s + REBOOT_S * self._faults.pace
            self.reboots.append(SimulatedReboot(now_s, ends_s, request.method, request.ids, self.is_drained))
            for name in self.bmcs:
                self._devices.device(name).boots += 1
            return self._answer(Progress(False, "waits for the host to come up"))
        return self._answer(DONE)

    async def forget_reboot(self, request: RebootRequest) -> None:
        """A simulated reboot begins as soon as it is asked for."""

    async def configure_network(self, request: NetworkRequest) -> Progress:
        return DONE

    def heal(self) -> None:
        """End all faults."""
        self._faults = NO_BMC_FAULTS

    async def changed(self) -> None:
        ends = [self._empty_s, *self._actions.values(), *(each.ends_s for each in self.reboots[-1:])]
        left_s = [each - self._now_s() for each in ends if each > self._now_s()]
        if not left_s:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(min(left_s))

    def change(self, patch: Mapping[str, Any]) -> None:
        """Change the node as its operator does."""
        _merge(self.node, patch)

    def restart(self, ids: frozenset[str] = frozenset()) -> None:
        """Reboot the host as its operator does."""
        now_s = self._now_s()
        self.reboots.append(SimulatedReboot(now_s, now_s, EXTERNAL, ids, self.is_drained))
        for name in self.bmcs:
            self._devices.device(name).boots += 1

    def _progress(self, claim: NodeClaim) -> Progress:
        if claim.effect.kind == DRAIN and not self.is_drained:
            return Progress(False, "waits for the pods of the host to end")
        if claim.effect.kind == CUSTOM_ACTION and self._now_s() < self._actions[claim.uid]:
            return Progress(False, "waits for the pod of the custom action to end")
        return DONE

    def _patch(self, patch: Mapping[str, Any] | None) -> None:
        if patch is not None:
            _merge(self.node, patch)

    async def _take(self) -> None:
        """Simulate the call itself."""
        await asyncio.sleep(self._rng.expovariate(1 / self._faults.latency_s) if self._faults.latency_s else 0)
        if self._chance(self._faults.unreachable):
            raise Unreachable("host: no route")

    def _answer(self, answer: Progress) -> Progress:
        if self._chance(self._faults.mute):
            raise Unreachable("host: it closed the connection")
        return answer

    def _chance(self, share: float) -> bool:
        return share > 0 and self._rng.random() < share


class SimulatedHosts:
    """The simulated hosts of a plane, by source and name, created on first use."""

    def __init__(
        self, bmcs: SimulatedBmcs, *, now_s: Callable[[], float], rng: Random, faults: BmcFaults = NO_BMC_FAULTS
    ) -> None:
        self.hosts: dict[tuple[str, str], SimulatedHost] = {}
        self._bmcs = bmcs
        self._now_s = now_s
        self._rng = rng
        self._faults = faults

    def host(self, ref: HostRef, bmc_address: str) -> Host:
        """The host of a DPU with this address. Raises NeedsOperator if the device is not simulated."""
        name = bmc_address.removeprefix(SCHEME)
        if name == bmc_address:
            raise NeedsOperator(f"host: {ref.name} is simulated, but the BMC of its DPU is not")
        found = self.hosts.get((ref.at.source, ref.name))
        if found is None:
            rng = Random(self._rng.getrandbits(64))
            found = SimulatedHost(ref.name, self._bmcs, now_s=self._now_s, rng=rng, faults=self._faults)
            self.hosts[ref.at.source, ref.name] = found
        found.bmcs[name] = None
        return found

    def known(self, ref: HostRef) -> Host | None:
        """A host by its name; None if no DPU of it was used since the start of the process."""
        return self.hosts.get((ref.at.source, ref.name))

    def heal(self) -> None:
        """End all faults."""
        self._faults = NO_BMC_FAULTS
        for host in self.hosts.values():
            host.heal()


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
