"""Reboots of hosts: one for all DPUs of a host that need it, by the host's agent, by a script, or by an operator.

An operator's reboot is a handshake over annotations of the DPUNode: the plane sets one to ask for it, and the operator
removes it after the reboot. A second annotation, written in the same edit, names the DPUs that the request is for. So
the absence of the first annotation tells "rebooted" from "not asked yet", for every process and after every restart.

A Node also states which boot its host is in. A third annotation has that of the request. Once the host is in another
one, it has rebooted, and the plane removes the first annotation itself.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from drivers.hosts.host import DONE, Host, Progress, RebootRequest
from drivers.hosts.objects import ObjectStore, StoredObject
from drivers.hosts.waiting import first_of
from drivers.provisioning.attempts import Attempt
from projections.resources.kinds import short_name
from projections.resources.state import LOCAL
from projections.resources.step_facts import EXTERNAL
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED

REQUESTED_FOR = "dpuplane.io/host-reboot-for"
"""Annotation of a DPUNode: the DPUs of the last requested reboot, each with the offset at which it began to need it."""
REQUESTED_IN = "dpuplane.io/host-reboot-boot-id"
"""Annotation of a Node: the boot id of its host when the last reboot was requested."""
RECHECK_S = 10.0
RECHECK_LOCAL_S = 1.0
"""The longest pause in a plane without Kubernetes, where a check reads only folds."""


class RebootMove(NamedTuple):
    """How far a reboot is. `version` is that of the host's object which this was read from; None if it was not read."""

    progress: Progress
    version: str | None = None


async def reboot(attempt: Attempt, store: ObjectStore, host: Host, request: RebootRequest) -> RebootMove:
    """One move towards the reboot of a host."""
    if request.how.method == EXTERNAL:
        return await _ask_operator(attempt, store, request)
    return RebootMove(await attempt.call(lambda: host.reboot(request)))


async def until_moved(store: ObjectStore, host: Host, request: RebootRequest, last: RebootMove) -> None:
    """Wait until the reboot may have got further since its last move."""
    waits = [host.changed()]
    if last.version is not None:
        waits.append(store.changed(request.host.at, last.version))
    await first_of(*waits, timeout_s=RECHECK_LOCAL_S if request.host.at.source == LOCAL else RECHECK_S)


async def withdraw(attempt: Attempt, store: ObjectStore, request: RebootRequest) -> None:
    """Ask an operator no longer for a reboot for this DPU. The request of other DPUs stays."""
    while (stored := await attempt.call(lambda: store.get(request.host.at), alters=False)) is not None:
        asked = stored.annotations.get(REQUESTED_FOR, "").split(",")
        if EXTERNAL_REBOOT_REQUIRED not in stored.annotations or request.own not in asked:
            return
        others = [each for each in asked if each != request.own]
        dropped = () if others else (EXTERNAL_REBOOT_REQUIRED, REQUESTED_FOR, REQUESTED_IN)
        changed = stored.annotations | {REQUESTED_FOR: ",".join(others)}
        wanted = stored._replace(annotations={key: changed[key] for key in changed if key not in dropped})
        await attempt.call(partial(store.put, wanted))  # without effect if another DPU has edited the object meanwhile


async def _ask_operator(attempt: Attempt, store: ObjectStore, request: RebootRequest) -> RebootMove:
    at = request.host.at
    stored = await attempt.call(lambda: store.get(at), alters=False)
    if stored is None:
        return RebootMove(Progress(False, f"waits for {short_name(at.key)}, which does not exist"), "")
    asked = stored.annotations.get(REQUESTED_FOR, "").split(",")
    is_pending = EXTERNAL_REBOOT_REQUIRED in stored.annotations
    if is_pending and _is_rebooted(stored):
        kept = {key: value for key, value in stored.annotations.items() if key != EXTERNAL_REBOOT_REQUIRED}
        await attempt.call(lambda: store.put(stored._replace(annotations=kept)))
    elif request.own not in asked:
        ids = sorted({*request.ids, *(asked if is_pending else ())} - {""})
        boot_id = stored.annotations.get(REQUESTED_IN, stored.boot_id) if is_pending else stored.boot_id
        kept = {key: value for key, value in stored.annotations.items() if key != REQUESTED_IN}
        kept |= {REQUESTED_FOR: ",".join(ids), EXTERNAL_REBOOT_REQUIRED: "true"}
        kept |= {REQUESTED_IN: boot_id} if boot_id else {}
        await attempt.call(lambda: store.put(stored._replace(annotations=kept)))
    elif not is_pending:
        return RebootMove(DONE)
    message = f"waits for the removal of annotation {EXTERNAL_REBOOT_REQUIRED} from {at.name}"
    return RebootMove(Progress(False, message), stored.version)


def _is_rebooted(node: StoredObject) -> bool:
    """Whether the host of a Node has rebooted since it was asked for."""
    return node.boot_id not in ("", node.annotations.get(REQUESTED_IN, node.boot_id))
