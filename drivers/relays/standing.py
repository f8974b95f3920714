"""What a relay knows of a DPU, and what it does next: pure, one value per DPU, one transition per message.

DPUs of a link that stand alike share one value (see `Standings`), so a thousand simulated DPUs that move together cost
what one costs. A few rules hold it together:

- At most WINDOW frames are on their way to a DPU. It gets the next one when it has answered, and that one holds all
  that happened meanwhile: a slow DPU costs nothing, holds up nobody and is never more than one delta behind.
- What a DPU holds is what it says, never what was sent to it; its heartbeats repeat it, so a lost answer or a lost
  frame heals with the next one.
- A digest that is not the version's own, if we know that one, is answered with a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from drivers.wire.protocol import Holding
from drivers.wire.up import Refusal
from eventstore.backoff import ceiling
from projections.rules.device_table import Code

WINDOW = 2
"""Frames on their way to a DPU at most: one that it applies, and the next. More would be older than need be."""

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0

Due = Literal["nothing", "delta", "snapshot"]


class Target(NamedTuple):
    """What the DPUs of a zone should have. Version 0: nothing yet."""

    epoch: int
    version: int
    digest: bytes


class Standing(NamedTuple):
    """One DPU, as it was last heard of. Versions are of `epoch`, times are of the loop's clock, in seconds.

    Up to the digest it is what it said that it has: a Holding without `dpus`.
    """

    epoch: int
    received: int
    applied: int
    in_hardware: int
    digest: bytes
    sent: int
    """Version that it will have when all that is on its way has been applied."""
    flying: tuple[int, ...] = ()
    """Versions of the frames on their way to it."""
    sent_at: float = 0.0
    repair: bool = False
    """What it has is wrong: only a snapshot helps."""
    failures: int = 0
    not_before: float = 0.0
    since: int = 0
    """The zone's version when it came: how long it took for older ones says nothing about us."""


def arrived(holding: Holding, target: Target, known: bytes | None) -> Standing:
    """A DPU that has just said hello. `known` is the digest that its version has, if we know that version."""
    wrong = known is not None and holding.epoch == target.epoch and known != holding.digest
    return Standing(*holding[1:], sent=holding.applied, repair=wrong, since=target.version)


def due(standing: Standing, target: Target, now: float) -> Due:
    """What to send next."""
    if not target.version or now < standing.not_before or len(standing.flying) >= WINDOW:
        return "nothing"
    if standing.repair or standing.epoch != target.epoch or not standing.sent:
        older = (target.epoch, target.version) < (standing.epoch, standing.applied)
        return "nothing" if standing.flying or older else "snapshot"
    return "delta" if standing.sent < target.version else "nothing"


def keeps_up(standing: Standing) -> bool:
    """Whether it was sent here what its zone had when it came, and so does not come over and over with less."""
    return standing.sent >= standing.since


def after_send(standing: Standing, version: int, now: float) -> Standing:
    """A frame to `version` is on its way."""
    return standing._replace(sent=version, flying=(*standing.flying, version), sent_at=now, repair=False)


def after_wait(standing: Standing, until: float) -> Standing:
    """It has to wait for what is due to it."""
    return standing._replace(not_before=max(standing.not_before, until))


def after_ack(standing: Standing, holding: Holding, epoch: int, known: bytes | None) -> Standing:
    """It says what it has now. `epoch` is ours; `known` as in `arrived`."""
    if holding.epoch != epoch:
        return _holds(standing, holding)
    flying = tuple([version for version in standing.flying if version > holding.applied])
    wrong = not flying and known is not None and known != holding.digest
    fine = holding.applied > standing.applied and not wrong
    return Standing(
        *holding[1:],
        sent=flying[-1] if flying else holding.applied,
        flying=flying,
        sent_at=standing.sent_at,
        repair=standing.repair or wrong,
        failures=0 if fine else standing.failures,
        not_before=0.0 if fine else standing.not_before,
        since=standing.since,
    )


def after_heartbeat(
    standing: Standing, holding: Holding, epoch: int, known: bytes | None, *, lost_before: float
) -> Standing:
    """As an ack; and a frame sent before `lost_before` that it has not received is lost. What it received of another
    epoch is no frame of ours, whatever its number."""
    after = after_ack(standing, holding, epoch, known)
    if not after.flying or after.sent_at >= lost_before:
        return after
    if holding.epoch != epoch or holding.received < after.flying[0]:
        return after._replace(flying=(), sent=holding.applied)
    return after


def after_refusal(standing: Standing, refusal: Refusal, now: float, jitter: float) -> Standing:
    """It refused a frame. `jitter`, from 0.5 to 1, keeps many from trying again together."""
    kept = _holds(standing, refusal.holding)._replace(flying=(), sent=refusal.holding.applied)
    if refusal.version not in standing.flying or refusal.code is Code.OLDER:
        return kept
    failures = standing.failures + 1
    first = failures == 1
    at_once = first and refusal.code in (Code.BASE, Code.DIGEST)
    wait_s = 0.0 if at_once else jitter * ceiling(failures, BACKOFF_FIRST_S, BACKOFF_LAST_S)
    repair = refusal.code not in (Code.FULL, Code.DEVICE) and not (first and refusal.code is Code.BASE)
    return kept._replace(repair=repair, failures=failures, not_before=now + wait_s)


def _holds(standing: Standing, holding: Holding) -> Standing:
    return standing._replace(
        epoch=holding.epoch,
        received=holding.received,
        applied=holding.applied,
        in_hardware=holding.in_hardware,
        digest=holding.digest,
    )


class Transition(NamedTuple):
    """These DPUs went from one standing to another."""

    before: Standing
    after: Standing
    dpus: int


class Standings:
    """The DPUs of one link by how they stand."""

    __slots__ = ("dpus",)

    def __init__(self) -> None:
        self.dpus: dict[Standing, int] = {}

    def put(self, dpus: int, standing: Standing) -> None:
        """These DPUs stand like this now, whatever they did before."""
        self.drop(dpus)
        if dpus:
            self.dpus[standing] = self.dpus.get(standing, 0) | dpus

    def drop(self, dpus: int) -> None:
        """Forget these DPUs."""
        for standing, members in list(self.dpus.items()):
            if members & dpus:
                self._set(standing, members & ~dpus)

    def change(self, dpus: int, step: Callable[[Standing], Standing]) -> list[Transition]:
        """Takes these DPUs one transition on; who is not here is left out."""
        if len(self.dpus) == 1:
            ((before, members),) = self.dpus.items()
            if not members & ~dpus:  # as it is for the one DPU of an agent: nobody stays behind, and nobody is met
                after = step(before)
                self.dpus = {after: members}
                return [Transition(before, after, members)]
        moves = []
        for standing, members in list(self.dpus.items()):
            if moving := members & dpus:
                moves.append(Transition(standing, step(standing), moving))
        for before, after, moving in moves:
            self._set(before, self.dpus[before] & ~moving)
            self.dpus[after] = self.dpus.get(after, 0) | moving
        return moves

    def _set(self, standing: Standing, members: int) -> None:
        if members:
            self.dpus[standing] = members
        else:
            del self.dpus[standing]
