"""The RulePolicy objects: users create and delete them, and the plane writes their status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from drivers.kubernetes.observed import Observed
from eventstore.log import FLEET_0, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.kubernetes.policy_status import policy_status
from projections.kubernetes.statements import StatementTable, acceptance
from projections.kubernetes.status_body import Position, StatusBody
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY, RulePolicySpec


class PolicyObjects:
    """Objects of policies. The plane creates no object for a policy that was set in another way."""

    kind: Kind = RULE_POLICY
    topics = (FLEET_0.topic,)

    def __init__(self, replica: Replica, statements: StatementTable) -> None:
        self._replica = replica
        self._statements = statements
        self._states = FoldStates(replica)
        self._addresses: tuple[int, Mapping[tuple[int, ...], int]] = (-1, {})
        self._specs: dict[str, tuple[bytes, RulePolicySpec]] = {}

    async def begin_pass(self, changed: set[Partition] | None, found: Mapping[str, Observed]) -> Iterable[str]:
        self._specs = {name: known for name, known in self._specs.items() if name in found}
        return list(found)

    def new(self, name: str) -> Mapping[str, Any] | None:
        return None

    def status(self, name: str, found: Observed) -> StatusBody | None:
        spec = self._spec(name, found.spec)
        if spec is None:
            return None
        fleet, offset = self._states.fleet, self._replica.position(FLEET_0)
        if self._addresses[0] != offset:
            self._addresses = (offset, fleet.slot_table.count_by_labels())
        return policy_status(
            name,
            spec,
            fleet,
            self._addresses[1],
            Position(self._replica.generation, offset),
            observed_generation=found.generation,
            time_ms=self._replica.folded(FLEET_0).time_ms,
            accepted=acceptance(self._statements.get(self.kind.plural, name), found.status),
        )

    def is_over(self, name: str, found: Observed) -> bool:
        return False

    def _spec(self, name: str, given: bytes) -> RulePolicySpec | None:
        """The spec of an object; None for an invalid spec, which an earlier resource definition admitted."""
        known = self._specs.get(name)
        if known is None or known[0] != given:
            try:
                known = self._specs[name] = (given, RulePolicySpec.model_validate_json(given))
            except ValidationError:
                return None
        return known[1]
