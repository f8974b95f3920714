"""ApplyResources and DeleteResources.

An object is validated against the present one before anything is appended, and the event names the generation that it
was compared with. If the object has changed meanwhile, the fold refuses it, and it is compared again with the newer
one, a bounded number of times. Each comparison has an id of its own, derived from the command's id, so that a repeated
command follows the same path through the ledger to the same result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from commands import results
from commands.handlers import resource_results
from commands.handlers.command_handler import CommandHandler
from commands.object_comparisons import COMPARISONS_MAX, changed_objects, with_later_comparison
from commands.requests.resources import CheckedObject, applied, check_object, delete_resources, object_id
from commands.requests.validation import InvalidRequest, require_count
from commands.rpc.middleware import Call
from eventstore.folding.fold import Outcome, refused
from eventstore.ids import comparison_id, envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.replica import Answer, Replica
from projections.field_checks import quoted
from projections.fold_states import FoldStates
from projections.resources import image_files
from projections.resources.forecast import Forecast
from projections.resources.state import LOCAL, ResourcesChange, ResourcesState, Rows
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope

_STEPS_PER_SLICE = 200
"""Number of steps that become messages at once: about two milliseconds."""


class ResourceHandler:
    """Serves ApplyResources and DeleteResources."""

    def __init__(self, command_handler: CommandHandler, replica: Replica, now_ms: Callable[[], int]) -> None:
        self._handler = command_handler
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms

    async def delete(self, request: pb.DeleteResourcesRequest, call: Call) -> pb.CommandResult:
        answer = await self._handler.handle(delete_resources, request, call)
        if answer.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED):
            waiting = resource_results.waiting_notes(self._states.resources(LOCAL), map(object_id, request.resources))
            resource_results.add_notes(answer, waiting)
        return answer

    async def apply(self, request: pb.ApplyResourcesRequest, call: Call) -> pb.CommandResult:
        _check_names(request.resources)
        if request.dry_run:
            return await self._dry_run(request, call)
        command_id, partition = self._handler.command_id(request.command_id), self._partition()
        if request.command_id:
            self._handler.bindings.bind(command_id, (partition,))
        answer = await self._apply(command_id, request.resources, call)
        if request.command_id and answer.outcome != pb.OUTCOME_UNKNOWN:
            self._handler.bindings.settle(command_id)
        return answer

    async def _apply(self, command_id: str, wanted: Sequence[pb.ResourceSpec], call: Call) -> pb.CommandResult:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        so_far: pb.CommandResult | None = None
        pending = list(wanted)
        for number in range(COMPARISONS_MAX):
            own_id = comparison_id(command_id, number)
            objects = await self._checked(pending, is_repeated=bool(self._replica.outcomes(own_id)))
            if any(each.faults for each in objects):
                if so_far is None:
                    raise resource_results.error_of(objects)
                return with_later_comparison(so_far, resource_results.refusal_of(objects, so_far))
            event = applied(objects, partial(envelope, actor=call.principal, command_id=own_id)).event
            answer = await self._handler.submit(self._partition(), LOCAL, event, max(0.0, deadline_s - loop.time()))
            if not isinstance(answer, Answer):
                answer.command_id = command_id
                return answer
            message = results.to_result(command_id, answer, self._handler.log_id)
            so_far = message if so_far is None else with_later_comparison(so_far, message)
            changed = changed_objects(so_far, (each.at.key for each in objects))
            pending = [each for each in pending if object_id(each).key in changed]
            if not pending:
                break
        assert so_far is not None, "at least one comparison"
        return so_far

    async def _dry_run(self, request: pb.ApplyResourcesRequest, call: Call) -> pb.CommandResult:
        objects = await self._checked(request.resources)
        partition, now_ms = self._partition(), self._now_ms()
        outcome: Outcome = refused(resource_results.summary_of(objects))
        change: Rows = {}
        if not any(each.faults for each in objects):
            event = applied(objects, lambda subject: Envelope("", subject, call.principal, now_ms)).event
            decision = self._replica.dry_run(partition, event)
            change, outcome = decision.change.objects if decision.change else {}, decision.outcome
        rows = {**self._states.resources(LOCAL).objects.rows} if request.plan else {}
        offset = self._replica.position(partition)
        answer = results.to_result("", Answer(outcome, partition, offset - 1), self._replica.log_id)
        changes = [resource_results.change_of(each, offset, now_ms, call.principal) for each in objects]
        answer.dry_run.CopyFrom(pb.DryRun(resources=changes))
        if request.plan:
            decided = self._states.resources(LOCAL)
            known = ResourcesChange(
                rollouts=dict(decided.rollouts.rows),
                allocations=dict(decided.allocations.rows),
                observed={key: row for key in _images(decided) if (row := decided.observed.rows.get(key))},
            )
            await _add_steps(answer.dry_run, Forecast(rows, change, known))
        return answer

    def _partition(self) -> Partition:
        return self._replica.partition_for(RESOURCES, LOCAL)

    async def _checked(self, given: Sequence[pb.ResourceSpec], *, is_repeated: bool = False) -> list[CheckedObject]:
        """The objects, compared with the present ones. A repeated command gets the outcome of the first from the
        ledger, so the present objects, which it may have changed itself, cannot refuse it."""
        rows, found = self._states.resources(LOCAL).objects.rows, []
        for each in given:
            checked = check_object(each, rows.get(object_id(each).key))
            found.append(check_object(each, None) if is_repeated and checked.is_refused_by_known else checked)
            await asyncio.sleep(0)  # the rules of one object may take milliseconds
        return found


def _images(state: ResourcesState) -> Iterator[str]:
    """The keys of the images of this plane."""
    for kind in image_files.KINDS:
        yield from state.of_kind(LOCAL, kind)


async def _add_steps(dry_run: pb.DryRun, forecast: Forecast) -> None:
    """Add the steps, computed in slices between which other calls run."""
    while True:
        if forecast.advance():
            break
        await asyncio.sleep(0)
    steps = forecast.steps()
    for start in range(0, len(steps), _STEPS_PER_SLICE):
        dry_run.steps.extend(map(resource_results.step_of, steps[start : start + _STEPS_PER_SLICE]))
        await asyncio.sleep(0)


def _check_names(resources: Sequence[pb.ResourceSpec]) -> None:
    """Raises InvalidRequest for a wrong number of objects, or for an object that occurs twice."""
    require_count("resources", len(resources))
    seen: dict[str, int] = {}
    for number, each in enumerate(resources):
        key = object_id(each).key
        if key in seen:
            raise InvalidRequest(f"resources[{number}]: {quoted(each.name)} is given at {seen[key]} already")
        seen[key] = number
