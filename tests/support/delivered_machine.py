"""Rules shared by every state machine over a delivered log: late and repeated commands, replica crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from schemas.events import Event
from tests.support.sometimes import Sometimes

DELIVERIES = ("a copy was remembered", "a copy had expired", "an id was reused", "a crash lost unsaved records")
"""The goals of these rules."""


class DeliveredMachine(RuleBasedStateMachine):
    """A subclass provides `log`, with its `state`, `now_ms` and `delivered`; `counts`; and `another`, a command that
    its fold accepts.
    """

    log: Any
    sometimes: ClassVar[Sometimes]
    another: Callable[[], Event]

    @precondition(lambda self: self.log.delivered.commands)
    @rule(which=st.integers(0, 999), later_s=st.sampled_from([0, 0, 1, 60, 700]))
    def deliver_again(self, which: int, later_s: int) -> None:
        """Deliver a retry, or a copy that arrives late."""
        self.log.now_ms += 1_000 * later_s
        remembered = self.log.delivered.deliver_again(which, self.log.now_ms)
        self.sometimes.saw("a copy was remembered" if remembered else "a copy had expired")

    @precondition(lambda self: self.log.delivered.commands)
    @rule(which=st.integers(0, 999))
    def reuse_an_id(self, which: int) -> None:
        self.log.delivered.reuse_the_id(which, self.another(), self.log.now_ms)
        self.sometimes.saw("an id was reused")

    @rule()
    def save(self) -> None:
        self.log.delivered.save()

    @rule()
    def crash(self) -> None:
        self.sometimes.saw("a crash lost unsaved records", self.log.delivered.crash() > 0)
        self.log.state = self.log.delivered.folded.state
