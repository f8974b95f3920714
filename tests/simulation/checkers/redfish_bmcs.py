"""BMCs that speak Redfish, compared with the log: an image is installed once, and the card runs the image of the log.

A real BMC knows no attempts, so these checks replace those of simulated devices, which refuse an outdated attempt.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from eventstore.log import ZONES
from projections.zones.dpus.phases import OS_INSTALLING
from projections.zones.rows import Dpu
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import BmcCalled, FinalBmc, UpdateCompleted

Found = Iterator[str]


def check_updates(run: Evidence) -> Found:
    """I34: after an update has completed, no later attempt at the same stay in the phase of installations begins
    another one, unless the log has a failure of the device in between."""
    stays = _stays(run)
    completed = {(update.device, update.attempt) for update in run.history.of(UpdateCompleted)}
    for dpu, attempts in _installs(run).items():
        for earlier, later in itertools.pairwise(attempts):
            before, after = stays.get((dpu, earlier)), stays.get((dpu, later))
            if before is None or after is None or before.entered != after.entered:
                continue
            if (dpu, earlier) in completed and after.disowned < earlier:
                yield f"{dpu} was told to install again by attempt {later}, but the update of {earlier} had completed"


def check_images(run: Evidence) -> Found:
    """I34, at rest: a card runs the image of the last installation that succeeded, if no update was begun since."""
    succeeded: dict[str, tuple[int, str]] = {}
    for partition, steps in run.steps.items():
        rows: dict[str, Dpu | None] = {}
        for step in steps if partition.topic == ZONES else ():
            event, changed = step.event, dict(step.rows.get("dpus", ()))
            if isinstance(event, e.StepSucceeded) and event.phase == OS_INSTALLING and event.dpu in changed:
                row = rows.get(event.dpu)
                succeeded[event.dpu] = event.attempt, row.image if row is not None else ""
            rows |= changed
    installs = _installs(run)
    for bmc in run.history.of(FinalBmc):
        attempt, image = succeeded.get(bmc.device, (-1, ""))
        if attempt < max(installs.get(bmc.device, [0])):
            continue
        if bmc.is_busy:
            yield f"{bmc.device} still runs an update, which attempt {attempt} reported as done"
        elif bmc.image != image:
            yield f"{bmc.device} runs {bmc.image or 'no image'}, and attempt {attempt} reported {image}"


def _stays(run: Evidence) -> dict[tuple[str, int], Dpu]:
    """The row of a DPU after the begin of each attempt at an installation."""
    found: dict[tuple[str, int], Dpu] = {}
    for steps in run.steps.values():
        for step in steps:
            if isinstance(step.event, e.StepStarted) and step.event.phase == OS_INSTALLING:
                row = dict(step.rows.get("dpus", ())).get(step.event.dpu)
                if row is not None:
                    found[step.event.dpu, step.event.attempt] = row
    return found


def _installs(run: Evidence) -> dict[str, list[int]]:
    """The attempts by which each BMC with a final state was told to install, in the order of the calls."""
    found: dict[str, list[int]] = defaultdict(list)
    known = {bmc.device for bmc in run.history.of(FinalBmc)} | {each.device for each in run.history.of(UpdateCompleted)}
    for call in run.history.of(BmcCalled):
        if call.device in known and call.action == "install":
            found[call.device].append(call.attempt)
    return found
