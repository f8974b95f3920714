"""Maintenances of hosts: DPUs of one host share one effect, which is lifted when the last of them no longer needs it.

    join -> wait for the other DPUs of the host -> wait for a place -> wait for the hold -> apply
    leave -> lift, if it was the last -> delete

The object counts the DPUs, and every edit names the version that it was made from. A maintenance without requestors is
being lifted: no DPU joins it, and any process that finds it lifts the effect and deletes the object. So an effect is
never lifted after another DPU has joined, and the next process finishes what a process that died has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from drivers.hosts.host import Host, Hosts, Progress
from drivers.hosts.objects import ObjectStore, StoredObject, Stores
from drivers.hosts.unmanaged_host import UnmanagedHost
from drivers.hosts.waiting import first_of
from drivers.provisioning.attempts import Attempt, Calls
from drivers.provisioning.object_facts import Finding, ObjectFacts
from projections.kubernetes.node_claims import NodeClaim
from projections.resources.host_effects import (
    NO_EFFECT,
    Maintenance,
    joined,
    left,
    maintenance_id,
    new_maintenance,
    read_maintenance,
)
from projections.resources.state import LOCAL, ObjectId
from projections.resources.step_facts import StepFacts
from projections.zones.dpus.phases import NODE_EFFECT, PENDING
from schemas.resources.dpf.names import WAIT_FOR_NODE_EFFECT

RECHECK_S = 10.0
"""Longest time between two checks of a host: an eviction that a budget refuses is tried again without an event."""
RECHECK_LOCAL_S = 1.0
"""The same in a plane without Kubernetes, where a check reads only folds."""
RECHECK_WATCHED_S = 300.0
"""The same for what is watched: a place among the hosts in maintenance, and the release of a hold. A thousand hosts may
wait so, and each check is two requests."""
LATE_MS = 10_000
"""Time after which it is reported that a maintenance is not in the log yet. Its edge may be down."""
REPEAT_S = 1.0
"""Pause before an edit is repeated that the store did not accept."""
_JOINING = (PENDING, NODE_EFFECT)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


class _Obstacle(NamedTuple):
    """Why an effect is not applied yet, and the wait for its end. The end may also be a change of the maintenance.
    An empty message is not reported."""

    message: str
    ended: Callable[[], Coroutine[Any, Any, None]] = _never
    recheck_s: float = RECHECK_WATCHED_S


Missing: TypeAlias = Callable[[Maintenance], list[str]]
"""The DPUs of a host that are about to join its maintenance."""


def _none_missing(found: Maintenance) -> list[str]:
    return []


class Maintenances:
    """The maintenances of all hosts."""

    def __init__(self, stores: Stores, hosts: Hosts, facts: ObjectFacts, now_ms: Callable[[], int]) -> None:
        self._stores = stores
        self._hosts = hosts
        self._facts = facts
        self._now_ms = now_ms

    async def ensure(self, attempt: Attempt, facts: StepFacts) -> None:
        """Join the maintenance of the host, and return when its effect is applied."""
        missing = partial(self._missing, attempt)
        await self.hold(attempt, attempt.name, facts, attempt.dpu.bmc_address, missing)

    async def hold(
        self, calls: Calls, requestor: str, facts: StepFacts, bmc_address: str, missing: Missing = _none_missing
    ) -> None:
        """Join the maintenance of a host as a requestor, and return when its effect is applied. `missing` are the DPUs
        that are about to join."""
        if facts.effect.kind == NO_EFFECT:
            return
        host = self._hosts(facts.host, bmc_address)
        if host is None:
            return
        at = maintenance_id(facts.host.at.source, facts.host.namespace, facts.host.name, facts.effect.kind)
        store = self._stores(at.source)
        reported = ""
        while True:
            found = await _get(calls, store, at)
            if found is None:
                await _put(calls, store, new_maintenance(at, facts.host.name, facts.effect, requestor))
            elif found.is_lifting:
                await self._end(calls, store, host, found)
            elif requestor not in found.requestors:
                await _put(calls, store, joined(found, requestor))
            elif obstacle := self._obstacle(facts, found, missing):
                if obstacle.message:
                    reported = await calls.report_wait(obstacle.message, reported)
                await first_of(store.changed(at, found.version), obstacle.ended(), timeout_s=obstacle.recheck_s)
            else:
                progress = await _apply(calls, host, found)
                if progress.is_done and await _is_member(calls, store, found, requestor):
                    return
                if not progress.is_done:
                    reported = await calls.report_wait(progress.message, reported)
                    await first_of(store.changed(at, found.version), host.changed(), timeout_s=_recheck_s(at))

    async def leave(self, attempt: Attempt, findings: Iterable[Finding]) -> None:
        """End the DPU's need for these maintenances, and that of DPUs whose own end of it was skipped. The last DPU
        lifts the effect."""
        for finding in findings:
            host = self._hosts(finding.host, attempt.dpu.bmc_address) or UnmanagedHost(finding.host)
            await self._end_needs(attempt, finding, host, attempt.name)

    async def release(self, calls: Calls, finding: Finding, bmc_address: str, requestor: str) -> None:
        """End the need of a requestor. If there is no other one, the effect is lifted."""
        host = self._hosts(finding.host, bmc_address) or UnmanagedHost(finding.host)
        await self._end_needs(calls, finding, host, requestor)

    async def sweep(self, calls: Calls, finding: Finding) -> None:
        """End the need of DPUs whose own end of it was skipped. If no other DPU needs the maintenance, its effect is
        lifted."""
        host = self._hosts(finding.host, "") or UnmanagedHost(finding.host)
        await self._end_needs(calls, finding, host)

    async def _end_needs(self, calls: Calls, finding: Finding, host: Host, *own: str) -> None:
        store = self._stores(finding.at.source)
        while (found := await _get(calls, store, finding.at)) is not None:
            gone = {*own, *self._facts.without_need(found)} & {*found.requestors}
            if gone:
                await _put(calls, store, left(found, gone))
            elif found.is_lifting:
                await self._end(calls, store, host, found)
            else:
                return
        await self._lift_without_maintenance(calls, store, host, finding)

    async def _lift_without_maintenance(self, calls: Calls, store: ObjectStore, host: Host, finding: Finding) -> None:
        """Lift an effect whose maintenance a user deleted. A DPU that makes a new maintenance takes the effect over,
        and the lift then finds another holder."""
        claim = NodeClaim(finding.at.name, finding.at.namespace, "", finding.effect)
        holder = await calls.call(lambda: host.holder(claim), alters=False)
        if holder:
            await asyncio.sleep(REPEAT_S)  # the store may not show a maintenance yet that was just made
            if await _get(calls, store, finding.at) is None:
                await _lift(calls, host, claim._replace(uid=holder))

    def _obstacle(self, facts: StepFacts, found: Maintenance, missing: Missing) -> _Obstacle | None:
        """The reason why the effect of a maintenance cannot be applied yet; None if it can."""
        sync_left_s = self._sync_left_s(facts, found)
        if sync_left_s and (names := missing(found)):
            message = f"waits for DPU {names[0]} of the same host"
            return _Obstacle(message, _never, min(_recheck_s(found.at), sync_left_s))
        if not self._facts.shows(found):
            is_late = self._now_ms() > found.created_ms + LATE_MS
            message = f"waits until the log has {found.at.name}" if is_late else ""
            return _Obstacle(message, lambda: self._facts.until_shown(found), LATE_MS / 1_000)
        if not self._facts.has_place(found):
            message = f"waits for one of {facts.limits.hosts_max} hosts in maintenance, the limit"
            return _Obstacle(message, lambda: self._facts.until_place(found))
        if found.is_held:
            return _Obstacle(f"waits for the removal of annotation {WAIT_FOR_NODE_EFFECT} from {found.at.name}")
        return None

    def _sync_left_s(self, facts: StepFacts, found: Maintenance) -> float:
        """The time that is left for other DPUs to join."""
        if found.effect.force:
            return 0.0
        return max(0, found.created_ms + facts.limits.sync_ms - self._now_ms()) / 1_000

    def _missing(self, attempt: Attempt, found: Maintenance) -> list[str]:
        """The other DPUs of the host that are about to join."""
        return [
            name
            for name, dpu in sorted(self._facts.neighbors(attempt.name, attempt.dpu).items())
            if name not in found.requestors and dpu.phase in _JOINING and not dpu.paused
        ]

    async def _end(self, calls: Calls, store: ObjectStore, host: Host, found: Maintenance) -> None:
        """Lift an effect that nobody needs, and delete its maintenance."""
        await _lift(calls, host, _claim(found))
        await calls.call(lambda: store.delete(_stored(found)))


def _recheck_s(at: ObjectId) -> float:
    return RECHECK_LOCAL_S if at.source == LOCAL else RECHECK_S


async def _is_member(calls: Calls, store: ObjectStore, known: Maintenance, requestor: str) -> bool:
    """Whether a requestor still has its place in the maintenance whose effect was applied."""
    found = await _get(calls, store, known.at)
    return found is not None and found.uid == known.uid and requestor in found.requestors


async def _apply(calls: Calls, host: Host, found: Maintenance) -> Progress:
    return await calls.call(lambda: host.apply(_claim(found)))


async def _lift(calls: Calls, host: Host, claim: NodeClaim) -> None:
    reported = ""
    while not (progress := await calls.call(lambda: host.lift(claim))).is_done:
        reported = await calls.report_wait(progress.message, reported)
        await first_of(host.changed(), timeout_s=RECHECK_S)


def _claim(found: Maintenance) -> NodeClaim:
    return NodeClaim(found.at.name, found.at.namespace, found.uid, found.effect)


async def _get(calls: Calls, store: ObjectStore, at: ObjectId) -> Maintenance | None:
    stored = await calls.call(lambda: store.get(at), alters=False)
    return None if stored is None else read_maintenance(at, stored.metadata(), stored.spec)


async def _put(calls: Calls, store: ObjectStore, wanted: Maintenance) -> None:
    """Write a maintenance, and wait for the change. An edit that was not accepted is repeated after a pause."""
    await calls.call(lambda: store.put(_stored(wanted)))
    await first_of(store.changed(wanted.at, wanted.version), timeout_s=REPEAT_S)


def _stored(found: Maintenance) -> StoredObject:
    return StoredObject(
        found.at, found.uid, found.version, found.labels, found.annotations, found.spec(), found.created_ms
    )
