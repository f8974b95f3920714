"""The delivery state of a DPU's table and the next frame that is due: one value per DPU, one pure transition per
message.

DPUs of a link with equal states share one value (see `DeliveryStates`), so a thousand simulated DPUs that change
together cost as much as one. The rules:

- At most WINDOW frames are in flight to a DPU. When the DPU has answered, it gets one frame with all changes since its
  previous frame. So a slow DPU adds no cost, delays no other DPU, and is at most one delta behind.
- A DPU's table is the one that it reports, not the one that was sent. Heartbeats repeat the report, so a lost answer or
  frame is repaired by the next one.
- If a reported digest differs from the known digest of the version, the DPU gets a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from drivers.wire.agent_messages import Refusal
from drivers.wire.protocol import TableStatus
from eventstore.backoff import backoff_ceiling
from projections.rules.device_table import RefusalCode

WINDOW = 2
"""Maximum number of frames in flight to a DPU: the frame that the DPU applies, and the next. A third would be outdated
on arrival."""

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0

Due = Literal["nothing", "delta", "snapshot"]


class Target(NamedTuple):
    """The table version that the DPUs of a zone should have. Version 0: none yet."""

    epoch: int
    version: int
    digest: bytes


class DeliveryState(NamedTuple):
    """The delivery state of one DPU, as of its last message. Versions are of `epoch`; times are of the loop's clock, in
    seconds.

    The fields up to the digest are the DPU's last report: a TableStatus without `dpus`.
    """

    epoch: int
    received: int
    applied: int
    in_hardware: int
    digest: bytes
    sent: int
    """The version after all frames in flight are applied."""
    in_flight: tuple[int, ...] = ()
    """Versions of the frames in flight."""
    sent_at: float = 0.0
    repair: bool = False
    """The table is wrong and needs a snapshot."""
    failures: int = 0
    not_before: float = 0.0
    since: int = 0
    """The zone's version when the link began. Latencies of older versions are not measured here, because another relay
    may have sent them."""
    stage: int = 0
    """The released stage of a staged change that the DPU belongs to; 0 for none."""


def arrived(status: TableStatus, target: Target, known: bytes | None, stage: int = 0) -> DeliveryState:
    """The state of a DPU that has just sent a Hello. `known` is the digest of its version, if that version is known."""
    wrong = known is not None and status.epoch == target.epoch and known != status.digest
    return DeliveryState(*status[1:], sent=status.applied, repair=wrong, since=target.version, stage=stage)


def due(state: DeliveryState, target: Target, now: float) -> Due:
    """The kind of frame that is due next."""
    if not target.version or now < state.not_before or len(state.in_flight) >= WINDOW:
        return "nothing"
    if state.repair or state.epoch != target.epoch or not state.sent:
        older = (target.epoch, target.version) < (state.epoch, state.applied)
        return "nothing" if state.in_flight or older else "snapshot"
    return "delta" if state.sent < target.version else "nothing"


def keeps_up(state: DeliveryState) -> bool:
    """Whether the relay has sent the DPU the version that its zone had when the link began. False for a DPU that always
    reconnects before it has received this version.
    """
    return state.sent >= state.since


def after_send(state: DeliveryState, version: int, now: float) -> DeliveryState:
    """The state after a frame that leads to `version` was sent."""
    return state._replace(sent=version, in_flight=(*state.in_flight, version), sent_at=now, repair=False)


def after_wait(state: DeliveryState, until: float) -> DeliveryState:
    """The state with the due frame delayed until a time."""
    return state._replace(not_before=max(state.not_before, until))


def after_ack(state: DeliveryState, status: TableStatus, epoch: int, known: bytes | None) -> DeliveryState:
    """The state after an answer of the DPU. `epoch` is the relay's epoch; `known` is defined as in `arrived`."""
    if status.epoch != epoch:
        return _holds(state, status)
    in_flight = tuple([version for version in state.in_flight if version > status.applied])
    wrong = not in_flight and known is not None and known != status.digest
    fine = status.applied > state.applied and not wrong
    return DeliveryState(
        *status[1:],
        sent=in_flight[-1] if in_flight else status.applied,
        in_flight=in_flight,
        sent_at=state.sent_at,
        repair=state.repair or wrong,
        failures=0 if fine else state.failures,
        not_before=0.0 if fine else state.not_before,
        since=state.since,
        stage=state.stage,
    )


def after_heartbeat(
    state: DeliveryState, status: TableStatus, epoch: int, known: bytes | None, *, lost_before: float
) -> DeliveryState:
    """The state after a heartbeat, which is handled like an ack.

    In addition, it reveals lost frames. The frames in flight are lost if two conditions hold: the newest of them was
    sent before `lost_before`, and according to the heartbeat the DPU has not received the oldest of them in this epoch.
    """
    after = after_ack(state, status, epoch, known)
    if not after.in_flight or after.sent_at >= lost_before:
        return after
    if status.epoch != epoch or status.received < after.in_flight[0]:
        return after._replace(in_flight=(), sent=status.applied)
    return after


def after_refusal(state: DeliveryState, refusal: Refusal, now: float, jitter: float) -> DeliveryState:
    """The state after a refused frame. `jitter`, from 0.5 to 1, spreads the retries of many DPUs."""
    kept = _holds(state, refusal.status)._replace(in_flight=(), sent=refusal.status.applied)
    if refusal.version not in state.in_flight or refusal.code is RefusalCode.OLDER:
        return kept
    failures = state.failures + 1
    first = failures == 1
    at_once = first and refusal.code in (RefusalCode.BASE, RefusalCode.DIGEST)
    wait_s = 0.0 if at_once else jitter * backoff_ceiling(failures, BACKOFF_FIRST_S, BACKOFF_LAST_S)
    repair = refusal.code not in (RefusalCode.FULL, RefusalCode.DEVICE) and not (
        first and refusal.code is RefusalCode.BASE
    )
    return kept._replace(repair=repair, failures=failures, not_before=now + wait_s)


def has_drifted(before: DeliveryState, after: DeliveryState) -> bool:
    """Whether a device no longer has the rules of a version that it had: its digest has changed to a wrong one, and its
    version has not. A wrong digest of a DPU that has just got another list, or sent a Hello, is no drift."""
    is_same_version = (after.epoch, after.applied) == (before.epoch, before.applied)
    return is_same_version and after.digest != before.digest and after.repair and not before.repair


def _holds(state: DeliveryState, status: TableStatus) -> DeliveryState:
    return state._replace(
        epoch=status.epoch,
        received=status.received,
        applied=status.applied,
        in_hardware=status.in_hardware,
        digest=status.digest,
    )


class Transition(NamedTuple):
    """A change of these DPUs from one delivery state to another."""

    before: DeliveryState
    after: DeliveryState
    dpus: int


class DeliveryStates:
    """The DPUs of one link by delivery state."""

    __slots__ = ("dpus",)

    def __init__(self) -> None:
        self.dpus: dict[DeliveryState, int] = {}

    def put(self, dpus: int, state: DeliveryState) -> None:
        """Set the state of these DPUs."""
        self.drop(dpus)
        if dpus:
            self.dpus[state] = self.dpus.get(state, 0) | dpus

    def drop(self, dpus: int) -> None:
        """Remove these DPUs."""
        for state, members in list(self.dpus.items()):
            if members & dpus:
                self._set(state, members & ~dpus)

    def change(self, dpus: int, step: Callable[[DeliveryState], DeliveryState]) -> list[Transition]:
        """Apply a transition to these DPUs. DPUs without a state are ignored."""
        if len(self.dpus) == 1:
            ((before, members),) = self.dpus.items()
            if not members & ~dpus:  # the common case of an agent's one DPU: no split and no merge of groups
                after = step(before)
                self.dpus = {after: members}
                return [Transition(before, after, members)]
        moves = []
        for state, members in list(self.dpus.items()):
            if moving := members & dpus:
                moves.append(Transition(state, step(state), moving))
        for before, after, moving in moves:
            self._set(before, self.dpus[before] & ~moving)
            self.dpus[after] = self.dpus.get(after, 0) | moving
        return moves

    def _set(self, state: DeliveryState, members: int) -> None:
        if members:
            self.dpus[state] = members
        else:
            del self.dpus[state]
