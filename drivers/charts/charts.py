"""The charts of DPUServiceTemplates: each is read once, and what it says is appended to the log as an observation.

A chart that cannot be read is observed as that, and read again for ever, with growing pauses. A chart that several
templates name is read once for all of them. A version of a chart does not change, so what is in the log is not read
again. Only the replica with the lowest rank reads. Objects of a plane without Kubernetes are left alone: nothing would
install their charts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple, Protocol

from drivers.charts.chart_reader import RefusedChart, UnreadChart
from drivers.charts.repository_secrets import Credential, Found
from drivers.internal_events import InternalEvents
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import KUBERNETES
from projections.fold_states import FoldStates
from projections.resources.charts import Chart, chart_of, is_current, is_read, observation_of
from projections.resources.kinds import DPU_SERVICE_TEMPLATE
from projections.resources.operator_settings import settings_of
from projections.resources.state import LOCAL, ResourcesState, object_id
from schemas.events import ResourcesObserved

logger = logging.getLogger(__name__)

SUBJECT = "charts"
"""All charts have one rank, so that one replica reads all of them."""
RANK_S = 60.0
"""Time that a replica leaves a chart to each one before it, which may have no connection to the source cluster."""
RETRY_S, RETRY_MAX_S = 2.0, 300.0
"""First and longest pause after a failed read; each further one is twice as long."""
CHECK_S = 2.0
"""Longest time between two comparisons. A change of ranks wakes nobody."""
LANDING_S = 2.0
READS_AT_ONCE = 4
ITEMS_MAX = 500


class Reader(Protocol):
    """Reads charts from where they are."""

    async def annotations(self, chart: Chart, credential: Credential | None = None) -> Mapping[str, str]:
        """The annotations of a version of a chart. Raises UnreadChart."""


class Secrets(Protocol):
    """Looks up the credentials of repositories."""

    async def of(self, source: str, namespace: str, chart: Chart) -> Found:
        """The credential for a chart in the namespace of Argo CD in a source cluster."""


class _Named(NamedTuple):
    """A chart and the source cluster whose templates name it: its Secrets say who may read it."""

    source: str
    chart: Chart


class _Retry(NamedTuple):
    """The failed reads of a chart, and when it is read again."""

    failures: int
    due_s: float


class Charts:
    """Reads the charts of all templates until `run` is cancelled."""

    def __init__(
        self,
        reader: Reader,
        secrets: Secrets,
        replica: Replica,
        ranks: Ranks,
        *,
        accepts: Callable[[str], bool],
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        """`accepts` says whether the process has a connection to a source cluster."""
        self._reader = reader
        self._secrets = secrets
        self._accepts = accepts
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._retries: dict[Partition, dict[_Named, _Retry]] = {}
        self.internal_events = InternalEvents(replica, ranks, KUBERNETES)

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(RESOURCES):
                tasks.create_task(self._follow(partition))

    async def _follow(self, partition: Partition) -> None:
        while True:
            await self._read_all(partition)
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._replica.fold_waits.changed(partition)
            except TimeoutError:
                continue

    async def _read_all(self, partition: Partition) -> None:
        """Read the charts that are due, a few at a time, and report what was found."""
        now_s, state = asyncio.get_running_loop().time(), self._states.resources_at(partition)
        rank = self._ranks.rank(SUBJECT, KUBERNETES)
        if not rank and (gone := [key for key in _observed(state) if not _has_chart(key, state)]):
            await self._append(partition, dict.fromkeys(gone, ""))
        unread = [each for each in dict.fromkeys(_unread(state)) if self._accepts(each.source)]
        later = _Retry(0, now_s + rank * RANK_S)
        retries = self._retries[partition] = {
            each: self._retries.get(partition, {}).get(each, later) for each in unread
        }
        due = [each for each in unread if retries[each].due_s <= now_s]
        for start in range(0, len(due), READS_AT_ONCE):
            part = due[start : start + READS_AT_ONCE]
            texts = dict(zip(part, await asyncio.gather(*(self._read(each, retries) for each in part)), strict=True))
            await self._report(partition, texts)

    async def _read(self, named: _Named, retries: dict[_Named, _Retry]) -> str:
        """Read a chart. Returns its observation."""
        chart = named.chart
        found = await self._secrets.of(named.source, self._argo_cd_namespace(named.source), chart)
        try:
            annotations = await self._reader.annotations(chart, found.credential)
        except UnreadChart as error:
            failures = retries[named].failures + 1
            pause_s = min(RETRY_S * 2 ** min(failures - 1, 10), RETRY_MAX_S) * self._rng.uniform(0.5, 1.0)
            retries[named] = _Retry(failures, asyncio.get_running_loop().time() + pause_s)
            reason = f"{error}{_of_credential(found)}" if isinstance(error, RefusedChart) else str(error)
            if failures == 1:
                logger.warning("chart not read, retrying", extra={"chart": str(chart), "reason": reason})
            return observation_of(chart, None, reason)
        return observation_of(chart, annotations)

    def _argo_cd_namespace(self, source: str) -> str:
        return settings_of(self._states.resources(source), source).argo_cd_namespace

    async def _report(self, partition: Partition, texts: dict[_Named, str]) -> None:
        """Append the observations that the fold lacks, for every template of these charts."""
        state = self._states.resources_at(partition)
        found = {}
        for key in _templates(state):
            row = state.objects.rows[key]
            chart = chart_of(row) if is_read(row) else None
            text = texts.get(_Named(object_id(key).source, chart)) if chart is not None else None
            if text is not None and (key not in state.seen or state.seen[key].text != text):
                found[key] = text
        if found:
            await self._append(partition, found)

    async def _append(self, partition: Partition, texts: dict[str, str]) -> None:
        by_source: dict[str, list[str]] = {}
        for key in sorted(texts):
            by_source.setdefault(object_id(key).source, []).append(key)
        for source, keys in by_source.items():
            for start in range(0, len(keys), ITEMS_MAX):
                part = keys[start : start + ITEMS_MAX]
                ids = [object_id(key) for key in part]
                event = ResourcesObserved(
                    internal_envelope(source, f"charts/{self._replica.name}", self._now_ms()),
                    source,
                    [at.kind for at in ids],
                    [at.namespace for at in ids],
                    [at.name for at in ids],
                    [],
                    [texts[key] for key in part],
                )
                await self.internal_events.append(partition, source, event)

        def is_shown() -> bool:
            seen = self._states.resources_at(partition).seen
            return all((seen[key].text if key in seen else "") == text for key, text in texts.items())

        await self._replica.fold_waits.wait_for(is_shown, partition, timeout_s=LANDING_S)


def _templates(state: ResourcesState) -> Iterator[str]:
    """The keys of the templates of all source clusters."""
    return _of_source_clusters(state.by_kind)


def _observed(state: ResourcesState) -> Iterator[str]:
    """The keys of the templates of source clusters whose chart has an observation."""
    return _of_source_clusters(state.seen_by_kind)


def _of_source_clusters(by_kind: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for collection, keys in by_kind.items():
        source, _, kind = collection.partition("/")
        if kind == DPU_SERVICE_TEMPLATE and source != LOCAL:
            yield from keys


def _has_chart(key: str, state: ResourcesState) -> bool:
    row = state.objects.rows.get(key)
    return row is not None and is_read(row)


def _unread(state: ResourcesState) -> Iterator[_Named]:
    """The charts of templates of which the log has no good observation."""
    for key in _templates(state):
        row, seen = state.objects.rows[key], state.seen.get(key)
        if is_read(row) and not (seen is not None and seen.is_ready and is_current(row, seen)):
            chart = chart_of(row)
            if chart is not None:
                yield _Named(object_id(key).source, chart)


def _of_credential(found: Found) -> str:
    """The state of the credential for a chart that was refused, as the end of a sentence."""
    if found.credential is not None:
        return f" to the user in Secret {found.credential.secret}"
    return f"; {found.fault or 'Argo CD has no repository Secret with a password for it'}"
