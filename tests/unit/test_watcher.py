"""A watcher that is cut anywhere and resumes from its last position has the whole list and gets no change twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.streams import watches
from commands.streams.change_feed import ChangeFeed, TableOf
from commands.streams.watched_lists import Item
from commands.streams.watches import Watcher
from deploy.composition.topics import TOPICS
from eventstore.folding.state_table import StateTable
from eventstore.log import ZONES, Partition
from eventstore.position import from_token
from eventstore.replicas.folded_log import FoldedLog
from schemas.api import dpuplane_pb2 as pb

PARTITIONS = [Partition(ZONES, number) for number in range(2)]


def table_of(state: StateTable[int]) -> StateTable[int]:
    return state


class Folds(FoldedLog):
    """Two partitions of one table each. Every record changes one row."""

    def __init__(self) -> None:
        super().__init__("r", TOPICS, 2)
        self.log_id = "log"
        self.states: dict[Partition, StateTable[int]] = {p: StateTable("rows", int) for p in PARTITIONS}
        self.positions = dict.fromkeys(PARTITIONS, 0)

    def state(self, partition: Partition) -> Any:
        return self.states[partition]

    def position(self, partition: Partition) -> int:
        return self.positions[partition]

    def change(self, partition: Partition, key: str, row: int | None) -> None:
        self.positions[partition] += 1
        if row is None:
            self.states[partition].remove(key)
        else:
            self.states[partition].put(key, row)


class Rows:
    """The list of all rows."""

    partitions = PARTITIONS
    tables: tuple[tuple[Partition, TableOf], ...] = tuple((partition, table_of) for partition in PARTITIONS)

    def __init__(self, folds: Folds) -> None:
        self._folds = folds

    def item_of(self, partition: Partition, key: str) -> Item:
        return partition, key

    def change(self, item: Item, removed: Any) -> pb.Change:
        partition, key = item
        row = self._folds.states[partition].rows.get(key)
        return pb.Change(deleted=row is None, node=pb.Node(name=f"{partition}/{key}", uid=str(row or 0)))


class Client:
    """Applies whole batches to its copy of the list."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.token = "log:zones/0=0,zones/1=0"
        self.pending: list[pb.Change] = []
        self.undelivered: Counter[str] = Counter()
        """Changes of rows since they were delivered last."""

    def take(self, response: pb.WatchResponse) -> None:
        self.pending += response.changes
        if not response.position:
            return
        for change in self.pending:
            name = change.node.name
            assert self.undelivered[name] > 0, f"{name} did not change since it was delivered"
            self.undelivered[name] -= 1
            self.rows.pop(name, None)
            if not change.deleted:
                self.rows[name] = int(change.node.uid)
        for change in self.pending:
            del self.undelivered[change.node.name]
        self.token, self.pending = response.position, []


CHANGE = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from("abcd"), st.none() | st.integers(1, 9))
STEPS = st.lists(CHANGE | st.sampled_from(["read", "cut"]), max_size=60)


@pytest.fixture(autouse=True)
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_CHANGES_PER_MESSAGE", 2)


@given(STEPS)
def test_a_watcher_that_is_cut_and_resumes_has_the_whole_list(steps: list[Any]) -> None:
    folds = Folds()
    feed = ChangeFeed(folds)
    feed.collect(Rows.tables)
    client = Client()
    watcher = Watcher(Rows(folds), feed, folds, dict(folds.positions))
    for number, step in enumerate([*steps, *["read"] * 20]):
        if step == "cut":
            client.pending.clear()
            watcher = Watcher(Rows(folds), feed, folds, dict(from_token(client.token, "log").offsets))
        elif step == "read":
            response = watcher.next_response(number * watches.BOOKMARK_S)
            if response is not None:
                client.take(response)
        else:
            partition, key, row = step
            if row is not None or key in folds.states[partition].rows:
                folds.change(partition, key, row)
                client.undelivered[f"{partition}/{key}"] += 1
    assert client.rows == {f"{p}/{key}": row for p, table in folds.states.items() for key, row in table.rows.items()}
    assert not client.undelivered, "the watcher missed a change"
