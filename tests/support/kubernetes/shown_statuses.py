"""What the API server shows of the plane's statuses, and the positions of the log from which each of them follows.

A status goes back if it follows only from positions before those of a status that was shown earlier. That is decided
after the fact: the log is folded again, record by record.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.log import EventLog, Record
from eventstore.recovery.replay import replay
from projections.kubernetes.resources.api_kinds import API_KINDS, STATED
from projections.kubernetes.resources.statuses import status_of
from projections.kubernetes.status_body import conditions_of
from projections.resources import views
from projections.resources.conditions.world import World
from projections.resources.fold import ResourcesFold
from projections.resources.live_derivation import live_derivation
from projections.resources.state import ObjectId
from schemas.kubernetes.api import KubernetesApi
from tests.support.kubernetes.requests import get

IDLE_S = 3_600.0

Facts: TypeAlias = tuple[Any, ...]
"""The phase and the conditions of a status, without times and generations."""


class Shown(NamedTuple):
    """A state of an object that the API server has shown."""

    key: str
    uid: str
    is_deleting: bool
    facts: Facts


class ShownStatuses:
    """Every state of DPF's objects in a namespace of a source cluster, in the order of their kind's watch."""

    def __init__(self, api: KubernetesApi, source: str, namespace: str) -> None:
        self.shown: list[Shown] = []
        self._api = api
        self._source, self._namespace = source, namespace

    async def run(self) -> None:
        """Watch until cancelled. An outage of the API server ends the test."""
        async with asyncio.TaskGroup() as tasks:
            for kind in STATED:
                tasks.create_task(self._follow(kind))

    async def _follow(self, kind: str) -> None:
        path = API_KINDS[kind].path(self._namespace)
        listed = await get(self._api, path)
        for item in listed["items"]:
            self._record(kind, item)
        query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        async with self._api.watch(path, query, idle_s=IDLE_S) as events:
            async for event in events:
                self._record(kind, json.loads(event.object))
        raise AssertionError(f"the watch of {kind} has ended")

    def _record(self, kind: str, item: Mapping[str, Any]) -> None:
        about = item["metadata"]
        key = ObjectId(self._source, kind, about["namespace"], about["name"]).key
        self.shown.append(Shown(key, about["uid"], "deletionTimestamp" in about, facts_of(item.get("status") or {})))

    def uids(self) -> dict[str, set[str]]:
        """The uids that each object has had."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for each in self.shown:
            found[each.key].add(each.uid)
        return dict(found)


def facts_of(status: Mapping[str, Any]) -> Facts:
    """The facts in a status; empty if the plane has not written it."""
    conditions = conditions_of(status)
    if not conditions:
        return ()
    facts = [tuple(each.get(name, "") for name in ("type", "status", "reason", "message")) for each in conditions]
    return (status.get("phase", ""), *sorted(facts))


async def derived_facts(log: EventLog, keys: Iterable[str]) -> dict[str, list[Facts]]:
    """The facts about some objects at each position of the log at which they changed, in order."""
    found: dict[str, list[Facts]] = {key: [] for key in keys}

    def observe(folded: FoldedPartition, record: Record, entry: LedgerEntry | None) -> None:
        live = live_derivation(folded.state)
        while not live.advance(folded.state):
            pass
        world = World.of(folded.state, live.derivation)
        for key, known in found.items():
            view = views.view(key, world)
            if view is None:
                continue
            facts = facts_of(status_of(key, replace(view.row, deleted_ms=0), world, (), 0))
            if facts and known[-1:] != [facts]:
                known.append(facts)

    await replay(log, [ResourcesFold()], observer=observe)
    return found


def went_back(shown: Sequence[Shown], derived: Mapping[str, Sequence[Facts]]) -> list[str]:
    """The shown states that follow only from earlier positions than a state that was shown before, and those that do
    not follow from any position. Deletions are left out: what an object waits for is not in the log."""
    problems: list[str] = []
    places: dict[tuple[str, str], int] = {}
    for each in shown:
        if each.is_deleting or not each.facts:
            continue
        known, place = derived.get(each.key, ()), places.get((each.key, each.uid), 0)
        later = next((i for i in range(place, len(known)) if known[i] == each.facts), None)
        if later is not None:
            places[each.key, each.uid] = later
        elif each.facts in known:
            problems.append(f"{each.key} went back from {known[place]} to {each.facts}")
        else:
            problems.append(f"{each.key} shows what never followed: {each.facts}")
    return problems
