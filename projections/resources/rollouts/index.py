"""The DPUs of each DPUSet by wave and status, kept up to date with rows and observations.

The index is derived from the state. It makes a decision about a rollout cost as much as the DPUs that are under way,
not as much as the DPUs of the set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

from projections.resources.change_journal import ChangeJournal
from projections.resources.rollouts.rows import DIGEST_MODULUS, DpuRollout, member_digest
from projections.resources.rollouts.status import Status, read_installed, status_of

Keys = dict[str, None]
StepId = tuple[int, int]
"""A wave and a group of it."""


class Member(NamedTuple):
    """A DPU of a set. `failed_revision` is the revision whose failure budget it counts to, 0 for none."""

    step: StepId
    status: Status
    revision: int
    failed_revision: int
    digest: int


class WaveStep:
    """The DPUs of one group of a wave that are not up to date. `moving` are those under way, by revision."""

    __slots__ = ("broken", "moving", "outdated")

    def __init__(self) -> None:
        self.outdated: Keys = {}
        self.broken: Keys = {}
        self.moving: dict[int, Keys] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.outdated or self.broken or self.moving)


class SetIndex:
    """The DPUs of one DPUSet. `digest` is the sum of their digests."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.digest = 0
        self.counts: Counter[Status] = Counter()
        self.steps: MutableMapping[StepId, WaveStep] = {}
        self.failed: MutableMapping[int, Keys] = {}
        """The DPUs that count to the failure budget of each revision."""

    @property
    def unavailable(self) -> int:
        """The number of DPUs that are not ready with the image that they were released to."""
        return sum(count for status, count in self.counts.items() if not status.is_available)

    @property
    def outdated(self) -> int:
        """The number of DPUs that are not released to the wanted image."""
        return self.counts[Status.OUTDATED] + self.counts[Status.BROKEN]

    def open_steps(self, wave_max: int) -> Iterator[WaveStep]:
        """The steps with DPUs that are not up to date, up to a wave, in order."""
        for step in sorted(self.steps):
            if step[0] <= wave_max:
                yield self.steps[step]

    def put(self, key: str, member: Member | None) -> None:
        """Put, replace or remove a DPU."""
        earlier = self.members.pop(key, None)
        if earlier is not None:
            self._count(key, earlier, -1)
        if member is not None:
            self.members[key] = member
            self._count(key, member, 1)

    def _count(self, key: str, member: Member, number: int) -> None:
        self.digest = (self.digest + number * member.digest) % DIGEST_MODULUS
        self.counts[member.status] += number
        if member.failed_revision:
            _change(self.failed, member.failed_revision, key, number)
        if member.status == Status.DONE:
            return
        step = self.steps.setdefault(member.step, WaveStep())
        if member.status == Status.OUTDATED:
            _put(step.outdated, key, number)
        elif member.status == Status.BROKEN:
            _put(step.broken, key, number)
        elif member.status == Status.UPDATING and member.revision:
            _change(step.moving, member.revision, key, number)
        if step.is_empty:
            del self.steps[member.step]


class RolloutIndex:
    """The DPUs of all DPUSets. `journal` has the keys of the sets that changed last."""

    def __init__(self) -> None:
        self.sets: MutableMapping[str, SetIndex] = {}
        self.journal = ChangeJournal()
        self._set_of: dict[str, str] = {}

    def of(self, dpu_set: str) -> SetIndex:
        """The DPUs of a set; none if it has no plan."""
        return self.sets.get(dpu_set) or SetIndex()

    def clear(self) -> None:
        """Forget all DPUs, before they are put again."""
        self.sets.clear()
        self._set_of.clear()
        self.journal.restart()

    def put(self, key: str, row: DpuRollout | None, observation: str | None) -> None:
        """Put a DPU again, after a change of its row or of what is observed of it; None removes it."""
        earlier = self._set_of.pop(key, None)
        if earlier is not None and (row is None or row.dpu_set != earlier):
            self._put(earlier, key, None)
        if row is not None:
            self._set_of[key] = row.dpu_set
            self._put(row.dpu_set, key, _member(key, row, observation))

    def _put(self, dpu_set: str, key: str, member: Member | None) -> None:
        index = self.sets.setdefault(dpu_set, SetIndex())
        if index.members.get(key) == member:
            return
        index.put(key, member)
        if not index.members:
            del self.sets[dpu_set]
        self.journal.record((dpu_set,))


def _member(key: str, row: DpuRollout, observation: str | None) -> Member:
    status = status_of(row, read_installed(observation))
    name = key.rpartition("/")[2]
    counts = row.revision if status == Status.FAILED and not row.is_forgiven else 0
    digest = member_digest(name, row.wanted, row.wave, row.group)
    return Member((row.wave, row.group), status, row.revision, counts, digest)


def _put(keys: Keys, key: str, number: int) -> None:
    if number > 0:
        keys[key] = None
    else:
        keys.pop(key, None)


def _change(keys: MutableMapping[int, Keys], of: int, key: str, number: int) -> None:
    _put(keys.setdefault(of, {}), key, number)
    if not keys[of]:
        del keys[of]
