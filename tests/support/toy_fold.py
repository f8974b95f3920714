"""A small fold over the fleet and zones topics: policies by name, and how often each zone's nodes were counted.

It covers what the eventstore must handle: refusals, rows that change and are deleted, a row shared by many events, a
derived value, and on demand an exception in decide or halfway through evolve.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from eventstore.folding.fold import DONE, Decision, RecordMetadata, refused
from eventstore.folding.state_table import StateTable
from eventstore.log import FLEET, Partition
from schemas.events import Event, PolicyDeleted, PolicySet

ACCEPTS = frozenset({"PolicySet", "PolicyDeleted", "BudgetSet"})


class Policy(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The current state of a policy, and how often it was set."""

    priority: int
    labels: dict[str, str]
    times: int
    set_ms: int


class Total(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of effective events, and the sum of all priorities."""

    effects: int
    priorities: int


class ToyState:
    """Two tables, and the number of policies, which is derived."""

    def __init__(self) -> None:
        self.policies: StateTable[Policy] = StateTable("policies", Policy)
        self.totals: StateTable[Total] = StateTable("totals", Total)
        self.count = 0

    @property
    def tables(self) -> tuple[StateTable[Policy], StateTable[Total]]:
        return (self.policies, self.totals)

    def rederive(self) -> None:
        self.count = len(self.policies.rows)

    @property
    def total(self) -> Total:
        return self.totals.rows.get("all", Total(0, 0))


class Change(NamedTuple):
    name: str
    policy: Policy | None
    total: Total


class ToyFold:
    """The rules of one topic. Version 2 refuses negative priorities; version 1 accepts them."""

    def __init__(self, topic: str = FLEET, version: int = 1) -> None:
        self.topic = topic
        self.version = version
        self.accepts = ACCEPTS

    def initial_state(self, partition: Partition) -> ToyState:
        return ToyState()

    def decide(self, state: ToyState, event: Event, at: RecordMetadata) -> Decision:
        total = state.total
        match event:
            case PolicySet(name="raise in decide"):
                raise RuntimeError("a bug in decide")
            case PolicySet(priority=priority) if priority < 0 and self.version > 1:
                return Decision(None, refused(f"priority: {priority} is negative"))
            case PolicySet(name=name, priority=priority, sources=labels):
                old = state.policies.rows.get(name)
                policy = Policy(priority, labels, old.times + 1 if old else 1, at.time_ms)
                return Decision(Change(name, policy, Total(total.effects + 1, total.priorities + priority)), DONE)
            case PolicyDeleted(name=name) if name in state.policies.rows:
                return Decision(Change(name, None, Total(total.effects + 1, total.priorities)), DONE)
            case PolicyDeleted(name=name):
                return Decision(None, refused(f"policy: {name} is not there"))
            case _:
                return Decision(None, DONE)

    def evolve(self, state: ToyState, change: Change, at: RecordMetadata) -> None:
        if change.policy is None:
            state.policies.remove(change.name)
        else:
            state.policies.put(change.name, change.policy)
        if change.name == "raise in evolve":
            raise RuntimeError("a bug in evolve")
        state.totals.put("all", change.total)
        state.rederive()


class ToyLaterState(ToyState):
    """The same, with another table for the totals."""

    def __init__(self) -> None:
        super().__init__()
        self.totals = StateTable("sums", Total)


class ToyLaterFold(ToyFold):
    """Version 3: raising to it deletes the policies that version 2 would refuse, and resets the count of effects."""

    def __init__(self, topic: str = FLEET, version: int = 3) -> None:
        super().__init__(topic, version)

    def initial_state(self, partition: Partition) -> ToyState:
        return ToyLaterState()

    def migrate(self, state: ToyState, at: RecordMetadata) -> ToyState:
        later = ToyLaterState()
        for name, row in state.policies.rows.items():
            if row.priority >= 0:
                later.policies.put(name, msgspec.structs.replace(row, set_ms=at.time_ms))
        later.totals.put("all", Total(0, state.total.priorities))
        later.rederive()
        return later
