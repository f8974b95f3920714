"""The Hold objects: one for each open hold. A finished hold keeps its object for a while, for users who wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from drivers.kubernetes.observed import Observed
from eventstore.log import FLEET_0, Partition
from eventstore.replicas.replica import Replica
from projections.fleet.membership.effects import hold_key
from projections.fold_states import FoldStates
from projections.kubernetes.hold_status import FINISHED_CONDITION, hold_event, hold_status, open_numbers
from projections.kubernetes.object_events import Report
from projections.kubernetes.object_names import hold_name, hold_number
from projections.kubernetes.statements import StatementTable, acceptance
from projections.kubernetes.status_body import Position, StatusBody, transition_ms
from schemas.resources.hold import HOLD
from schemas.resources.kinds import Kind

OPEN_MAX = 500
"""Maximum open holds with an object. The oldest holds get the objects. A command has one hold, so more open holds than
this indicate a faulty script."""
FINISHED_MAX = 100
"""Maximum finished holds with an object. The newest holds keep their objects."""
FINISHED_MS = 3_600_000
"""The time after which the object of a finished hold is deleted."""


class HoldObjects:
    """Objects of holds."""

    kind: Kind = HOLD
    topics = (FLEET_0.topic,)

    def __init__(
        self, replica: Replica, statements: StatementTable, *, now_ms: Callable[[], int], report: Report
    ) -> None:
        self._replica = replica
        self._statements = statements
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._report = report
        self._reported: dict[str, tuple[str, str]] = {}
        """The uid and the last reported state of each object, by the object's name."""
        self._oldest_kept = 0

    async def begin_pass(self, changed: set[Partition] | None, found: Mapping[str, Observed]) -> Iterable[str]:
        finished = sorted((hold_number(name) or 0 for name, each in found.items() if _is_finished(each)), reverse=True)
        self._oldest_kept = finished[FINISHED_MAX - 1] if len(finished) >= FINISHED_MAX else 0
        self._reported = {name: known for name, known in self._reported.items() if name in found}
        missing = islice(map(hold_name, open_numbers(self._states.fleet)), OPEN_MAX)
        return {*missing, *(name for name in found if hold_number(name) is not None)}

    def new(self, name: str) -> Mapping[str, Any] | None:
        number = hold_number(name)
        is_open = number is not None and hold_key(number) in self._states.fleet.holds.rows
        return {} if is_open else None

    def status(self, name: str, found: Observed) -> StatusBody | None:
        number = hold_number(name)
        if number is None:
            return None
        body = hold_status(
            number,
            self._states.fleet,
            found.status,
            Position(self._replica.generation, self._replica.position(FLEET_0)),
            observed_generation=found.generation,
            time_ms=self._replica.folded(FLEET_0).time_ms,
            accepted=acceptance(self._statements.get(self.kind.plural, name), found.status),
        )
        if body is not None:
            self._report_state(name, found.uid, body)
        return body

    def _report_state(self, name: str, uid: str, body: StatusBody) -> None:
        state = (uid, body.content["state"])
        if self._reported.get(name) != state:
            self._reported[name] = state
            self._report(hold_event(name, uid, body.content))

    def is_over(self, name: str, found: Observed) -> bool:
        number = hold_number(name)
        if number is None or not _is_finished(found) or hold_key(number) in self._states.fleet.holds.rows:
            return False
        ended_ms = transition_ms(found.status, FINISHED_CONDITION)
        return number < self._oldest_kept or (0 < ended_ms < self._now_ms() - FINISHED_MS)


def _is_finished(found: Observed) -> bool:
    return str(found.status.get("state", "Open")) != "Open"
