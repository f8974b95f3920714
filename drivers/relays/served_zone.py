"""A zone that a relay serves: the table for its DPUs, their reports, and the link of each DPU.

Two kinds of state outlive a link. The last version of each DPU shows whether a DPU returns with an older table. The
limiter of snapshots (flat arrays by ordinal) gives a DPU that keeps reconnecting a few snapshots at once, then one per
minute. It does not limit a DPU that keeps up, because a small table under many changes is repeatedly sent whole.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from drivers.relays.delivery_hooks import DeliveryHooks
from drivers.relays.delivery_state import Target, Transition
from drivers.relays.latency import LatencyHistogram
from drivers.relays.reports import ReportBuffer
from drivers.relays.rule_source import CurrentTable, RuleSource
from drivers.wire.agent_messages import NO_DIGEST
from projections.installs.rows import Level

S = TypeVar("S")

logger = logging.getLogger(__name__)

VERSIONS_MAX = 1_024
"""Maximum number of versions of a zone in memory, for the digests of DPUs' tables and for latencies."""

SNAPSHOTS_AT_ONCE = 3.0
SNAPSHOT_EVERY_S = 60.0

UNSENT_VERSIONS_AT_ONCE = 10.0
UNSENT_VERSION_EVERY_S = 10.0


class DpuRateLimiter:
    """A token bucket per DPU: a burst of `at_once`, then one token every `every_s` seconds."""

    def __init__(self, at_once: float, every_s: float) -> None:
        self._at_once = at_once
        self._every_s = every_s
        self._tokens: npt.NDArray[np.float64] = np.zeros(0)
        self._at_s: npt.NDArray[np.float64] = np.zeros(0)

    def wait_s(self, ordinals: Sequence[int], now: float) -> npt.NDArray[np.float64]:
        """Take a token for each of these DPUs that has one. Returns, for each DPU, the seconds until its next token; 0
        for a DPU whose token was taken."""
        index = np.asarray(ordinals)
        self._grow(int(index.max()) + 1)
        tokens = np.minimum(self._at_once, self._tokens[index] + (now - self._at_s[index]) / self._every_s)
        allowed = tokens >= 1.0
        self._tokens[index] = tokens - allowed
        self._at_s[index] = now
        waits: npt.NDArray[np.float64] = np.where(allowed, 0.0, (1.0 - tokens) * self._every_s)
        return waits

    def _grow(self, size: int) -> None:
        if missing := max(0, size - len(self._tokens)):
            self._tokens = np.append(self._tokens, np.full(missing, self._at_once))
            self._at_s = np.append(self._at_s, np.zeros(missing))


class DpuLink(Protocol):
    """A link that serves DPUs, each by its number on the link."""

    def detach(self, number: int) -> None:
        """Remove a DPU that another link has taken over."""

    def note_network(self, number: int) -> None:
        """The wanted network document of a DPU may have changed."""


class ServedZone(Generic[S]):
    """One served zone. Sessions (S) are stored here in order; only `sessions` knows their type."""

    def __init__(
        self,
        name: str,
        source: RuleSource,
        latency: dict[Level, LatencyHistogram],
        delivery: DeliveryHooks | None = None,
    ) -> None:
        self.name = name
        self.delivery = delivery
        self.pending = ReportBuffer()
        self.snapshot_limiter = DpuRateLimiter(SNAPSHOTS_AT_ONCE, SNAPSHOT_EVERY_S)
        self.unsent_version_limiter = DpuRateLimiter(UNSENT_VERSIONS_AT_ONCE, UNSENT_VERSION_EVERY_S)
        """Limits deltas from versions that this relay has not sent. To compute such a delta from the history is slow,
        and a DPU may claim any version."""
        self.sessions: dict[S, None] = {}
        """The sessions in order of arrival. A set is not used, because its order differs from run to run."""
        self.links: dict[str, tuple[DpuLink, int]] = {}
        """The link of each connected DPU, and the DPU's number on that link."""
        self.last_reported: dict[str, tuple[int, int]] = {}
        """The last reported (epoch, version) of each disconnected DPU."""
        self.ahead_of_log: dict[str, tuple[int, int]] = {}
        """The (epoch, version) of each DPU with a table newer than the restored log."""
        self.network_revision = -1
        """The revision of the zone's network documents that its links know."""
        self._source = source
        self._latency = latency
        self.cohorts = source.cohorts(name)
        """The DPUs with a released stage of a staged change, each with its stage."""
        self._has_new_stages = False
        self._tables = {stage: source.current(name, 0, stage) for stage in sorted({0, *self.cohorts.values()})}
        """The current table of each stage."""
        self._versions: dict[int, dict[int, CurrentTable]] = {stage: {} for stage in self._tables}
        """The last tables of this zone by stage and version. Zones with the same rule list share these objects, see
        `RuleSource.current`."""
        self.frozen = source.is_frozen(name)
        for stage, current in self._tables.items():
            self._remember(stage, current)

    @property
    def current(self) -> CurrentTable:
        """The current table of DPUs without a stage."""
        return self._tables[0]

    def current_of(self, stage: int) -> CurrentTable:
        """The current table of the DPUs of a stage; a stage that has ended has that of all others."""
        return self._tables.get(stage, self._tables[0])

    @property
    def target(self) -> Target:
        """The target of the zone's DPUs without a stage, as far as the log was read."""
        return self.target_of(0)

    def target_of(self, stage: int) -> Target:
        """The target of the DPUs of a stage."""
        current = self.current_of(stage)
        return Target(self._source.epoch, current.version, current.digest)

    def follow_stages(self) -> Mapping[str, int]:
        """The DPUs with a released stage, as far as the log was read; the tables of stages follow. It must precede
        every read of a table: a DPU of a stage that has just been released must get no further table of its zone."""
        cohorts = self._source.cohorts(self.name)
        if cohorts is self.cohorts:
            return cohorts
        self.cohorts, self._has_new_stages = cohorts, True
        stages = {0, *cohorts.values()}
        for stage in sorted(stages - self._tables.keys()):
            self._versions[stage] = dict(self._versions[0])  # until its release, a stage has the tables of the zone
            self._tables[stage] = self._source.current(self.name, self._tables[0].version, stage)
            self._remember(stage, self._tables[stage])
        for stage in self._tables.keys() - stages:
            del self._tables[stage], self._versions[stage]
        return cohorts

    @property
    def is_frozen_now(self) -> bool:
        """Whether a freeze forbade sending at the last `refresh`, or forbids it now. Frames are computed from the
        present folds. A freeze may have begun after `refresh`, and the folds may already contain changes from after its
        beginning."""
        return self.frozen or self._source.is_frozen(self.name)

    def refresh(self) -> bool:
        """Read the table and the freeze again. Returns whether either has changed."""
        self.follow_stages()
        before = dict(self._tables), self.frozen
        for stage, current in self._tables.items():
            found = self._source.current(self.name, current.version, stage)
            if found.version == current.version:
                found = found._replace(earliest_ms=current.earliest_ms)
            self._tables[stage] = found
            self._remember(stage, found)
        self.frozen = self._source.is_frozen(self.name)
        is_changed = self._has_new_stages or before != (self._tables, self.frozen)
        self._has_new_stages = False
        return is_changed

    def remember_latest(self) -> None:
        """Store the version that the folds have reached since `refresh`, before a frame that leads to it is sent: the
        answers of DPUs will name this version.
        """
        for stage, current in self._tables.items():
            self._remember(stage, self._source.current(self.name, current.version, stage))

    def _remember(self, stage: int, seen: CurrentTable) -> None:
        versions = self._versions[stage]
        if seen.version and seen.version not in versions:
            versions[seen.version] = seen
            while len(versions) > VERSIONS_MAX:
                del versions[next(iter(versions))]

    def digest(self, version: int, stage: int = 0) -> bytes | None:
        """The digest of a version of a stage's table, if it was seen here."""
        if not version:
            return NO_DIGEST
        seen = self._versions.get(stage, {}).get(version)
        return seen.digest if seen else None

    def lacking_since_ms(self, version: int) -> int:
        """Append time of the earliest seen change that a DPU with this version lacks; 0 if there is none."""
        later = (seen.earliest_ms for known, seen in self._versions[0].items() if known > version)
        return min(later, default=0)

    def record(self, move: Transition, ordinals: BitMap, now_ms: int) -> None:
        """Record a change of DPUs' tables for the next report, and its latency."""
        before, after = move.before, move.after
        if after.repair or after.epoch != self._source.epoch:
            return
        levels = (
            (Level.RECEIVED, before.received, after.received),
            (Level.APPLIED, before.applied, after.applied),
            (Level.IN_HARDWARE, before.in_hardware, after.in_hardware),
        )
        step, waited_ms = (0, 0), None
        versions = self._versions.get(after.stage, self._versions[0])
        for level, older, newer in levels:
            if newer == older or (seen := versions.get(newer)) is None:
                continue
            self.pending.reach(newer, level, ordinals, seen.earliest_ms, now_ms)
            if self.delivery is not None:
                self.delivery.reached(self.name, newer, level)
            if newer <= older:
                continue
            if step != (older, newer):  # the versions of most changes are the same at every level
                step, waited_ms = (older, newer), _waited_ms(versions, max(older, after.since), newer, now_ms)
            if waited_ms is not None:
                self._latency[level].add(waited_ms, len(ordinals))

    def report_levels(
        self, level_versions: tuple[int, int, int], ordinals: BitMap, now_ms: int, stage: int = 0
    ) -> None:
        """Report the versions of DPUs that have just connected: the relay that served them before may not have reported
        them.
        """
        for level, version in zip(Level, level_versions, strict=True):
            if (seen := self._versions.get(stage, {}).get(version)) is not None:
                self.pending.reach(version, level, ordinals, seen.earliest_ms, now_ms)


def _waited_ms(versions: dict[int, CurrentTable], older: int, newer: int, now_ms: int) -> int | None:
    """The latency of the oldest change among those that DPUs received with this step."""
    earliest_ms = None
    for version in reversed(versions):
        if version <= older:
            break
        if version <= newer:
            seen_ms = versions[version].earliest_ms
            earliest_ms = seen_ms if earliest_ms is None else min(earliest_ms, seen_ms)
    return None if earliest_ms is None else now_ms - earliest_ms


def log_freezes(changed: Sequence[ServedZone[S]], frozen_before: Collection[str]) -> None:
    """Log all zones that were frozen in one line, and all that were thawed in another: a freeze of all zones may
    concern thousands."""
    turned = [zone for zone in changed if zone.frozen is not (zone.name in frozen_before)]
    if frozen := [zone.name for zone in turned if zone.frozen]:
        logger.info("zones frozen", extra={"zones": len(frozen), "first": min(frozen)})
    if thawed := [zone.name for zone in turned if not zone.frozen]:
        logger.info("zones thawed", extra={"zones": len(thawed), "first": min(thawed)})
