"""Zones of fleet: an edit costs by label sets of zones, and forgetting zones and retired sets changes no table."""

from __future__ import annotations

import random
from typing import Any

import pytest

from projections.fleet.tables import covers
from projections.fleet.tables.covers import MAX_RETIRED, SetCover, covers_of
from projections.fleet.tables.rulesets import INCREMENTAL_MAX
from projections.fleet.tables.zone_table import delta, table
from projections.rules.policies import selector
from tests.support.fleet import Device, Fleet, Item, actual_table, applied, saved_bytes

MANY = 300


def in_zones(count: int, state: int = 0) -> list[Item]:
    return [Item(f"n{i}", f"z{i}", f"10.0.{i >> 8}.{i & 255}", state=state) for i in range(1, count + 1)]


def test_an_edit_writes_rows_by_label_sets_and_not_by_zones() -> None:
    fleet = Fleet()
    fleet.change(*in_zones(MANY), partition=0)
    for number in range(1, 21):
        fleet.describe(f"z{number}", {"tier": str(number % 2)})
    for rows in fleet.state.tables:
        rows.drain()
    version = table(fleet.state, "z1").version
    assert fleet.policy("p", action="drop", sources={"app": "none"}).code == "done"
    assert table(fleet.state, "z1").version > version
    changed = {rows.name: rows.changes() for rows in fleet.state.tables if rows.changes()}
    assert changed.pop("list_changes") == 3, "one change for zones without labels, and one for each label set"
    assert "zones" not in changed
    assert sum(changed.values()) <= 6


@pytest.mark.parametrize("state", [1, 2])
def test_a_zone_without_nodes_is_forgotten_and_its_table_stays_the_same(state: int) -> None:
    fleet = Fleet()
    fleet.unlimited()
    fleet.change(Item("stays", "z0", "10.9.0.1"))
    fleet.change(*in_zones(MANY), partition=0)
    fleet.describe("z1", {"tier": "1"})
    fleet.limit("z2", 3, -1)
    fleet.change(*in_zones(MANY, state), partition=0)
    assert sorted(fleet.state.zones.rows) == ["z0", "z1", "z2"], "zones with labels or limits stay"
    assert table(fleet.state, "z9")[:2] == table(fleet.state, "z0")[:2] == table(fleet.state, "nowhere")[:2]
    fleet.limit("z2", 0, -1)
    assert sorted(fleet.state.zones.rows) == ["z0", "z1"]
    assert saved_bytes(fleet.reload()) == saved_bytes(fleet.state)


def test_a_zone_with_held_nodes_is_not_forgotten() -> None:
    fleet = Fleet()
    fleet.budget("denied-by-leave", 0, 0)
    fleet.change(Item("n", "z1", "10.0.0.1"))
    held = fleet.leave("n")
    assert held.code == "held"
    assert "z1" in fleet.state.zones.rows
    for actor in ("bob", "cid"):
        fleet.approve(held.result["hold"], actor)
    assert not fleet.state.zones.rows


def test_populations_of_zones_equal_the_counts_of_their_rows() -> None:
    """Covers members in columns and in rows, and zones that are forgotten, so that zone numbers are reused."""
    fleet, rng = Fleet(), random.Random(5)
    fleet.unlimited()
    for turn in range(60):
        first, size = rng.randrange(200), rng.choice([1, 3, 60])
        zone, state = f"z{turn // 10}-{rng.randrange(4)}", rng.choice([0, 0, 1])
        found = [Item(f"n{i}", zone, f"10.1.0.{i % 250 + 1}", state=state) for i in range(first, first + size)]
        fleet.change(*found, partition=0)
        if rng.random() < 0.1:
            fleet.state = fleet.reload()
        rows = dict(fleet.state.members.rows)
        zones = {row.zone for row in rows.values()}
        assert fleet.state.zones.rows.keys() == zones
        for name in sorted(zones):
            assert fleet.state.members.rows.population(name) == sum(row.zone == name for row in rows.values())


def test_zones_of_one_label_set_have_deltas_from_their_versions_before_it() -> None:
    """Zones get the same labels at different versions. Up to there each zone has a separate history."""
    fleet = Fleet()
    fleet.unlimited()
    fleet.policy("inner", sources={"side": "a"}, zones={"tier": "1"})
    fleet.policy("default", priority=-5, sources={"side": "b"})
    fleet.change(Item("a", "z1", "10.0.0.1", labels={"side": "a"}), Item("b", "z1", "10.0.0.2", labels={"side": "b"}))
    seen: dict[tuple[str, int], Device] = {}
    known = 0

    def look() -> None:
        nonlocal known
        for zone in ("z1", "z2", "z3"):
            now, device = table(fleet.state, zone), actual_table(fleet.state, zone)
            for (of, since), had in seen.items():
                found = delta(fleet.state, zone, since) if of == zone else None
                if found is not None:
                    assert applied(had, found) == device
                    known += since < now.version
            seen[zone, now.version] = device

    steps: list[Any] = [
        lambda: fleet.describe("z1", {"tier": "1"}),
        lambda: fleet.policy("inner", priority=3, sources={"side": "a"}, zones={"tier": "1"}),
        lambda: fleet.describe("z2", {"tier": "1"}),
        lambda: fleet.policy("inner", priority=4, sources={"side": "a"}, zones={"tier": "1"}),
        lambda: fleet.describe("z3", {"tier": "1"}),
        lambda: fleet.describe("z1", {"tier": "2"}),
        lambda: fleet.describe("z1", {"tier": "1"}),
        lambda: fleet.delete_policy("inner"),
        lambda: fleet.describe("z2", {}),
    ]
    look()
    for step in steps:
        assert step().code == "done"
        look()
    assert known > 20, "too few deltas were found in history"


def test_the_number_of_retired_sets_is_limited() -> None:
    fleet = Fleet()
    fleet.change(Item("n", "z1", "10.0.0.1"))
    for number in range(MAX_RETIRED + 200):
        fleet.policy("p", sources={"app": f"none{number}"})
        table(fleet.state, "z1")
    assert len(covers_of(fleet.state)) == MAX_RETIRED


def test_an_edit_does_not_count_the_retired_sets_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.change(Item("n", "z1", "10.0.0.1"))
    for number in range(200):
        fleet.policy("p", sources={"app": f"none{number}"})
        table(fleet.state, "z1")
    counted: list[SetCover] = []
    bytes_of = SetCover.bytes

    def counting(cover: SetCover) -> int:
        counted.append(cover)
        return bytes_of(cover)

    monkeypatch.setattr(SetCover, "bytes", counting)
    fleet.policy("p", sources={"app": "one more"})
    table(fleet.state, "z1")
    assert 0 < len(counted) < 10


def test_a_delta_from_a_former_list_needs_all_changes_of_its_sets() -> None:
    for count, is_known in ((INCREMENTAL_MAX // 2, True), (INCREMENTAL_MAX + 1, False)):
        fleet = Fleet()
        fleet.unlimited()
        fleet.policy("p", sources={"app": "web"})
        fleet.change(Item("n0", "z1", "10.1.0.1", labels={"app": "web"}))
        since = table(fleet.state, "z1").version
        fleet.change(*(Item(f"n{i}", "z1", f"10.0.{i >> 8}.{i & 255}", labels={"app": "web"}) for i in range(1, count)))
        fleet.change(Item("last", "z1", "10.1.0.2", labels={"app": "web"}))
        fleet.policy("p", sources={"app": "db"})
        assert (delta(fleet.state, "z1", since) is not None) == is_known


def test_retired_sets_take_at_most_the_bytes_of_present_lists() -> None:
    fleet = Fleet()
    fleet.unlimited()
    many = [Item(f"n{i}", "z1", f"10.0.{i >> 7}.{(i & 127) * 2}", labels={"app": "web"}) for i in range(1, 1_001)]
    fleet.change(*many)
    for priority in range(9):
        fleet.policy("p", priority=priority, sources={"app": "web"})
        assert [found.prefixes.bytes() for found in table(fleet.state, "z1").sets] == [5_000, 5_000]
    assert len(covers_of(fleet.state)) == 1


def test_the_history_has_a_limited_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covers, "MAX_STEPS", 20)
    fleet = Fleet()
    versions = []
    for number in range(1, 61):
        fleet.change(Item(f"n{number}", "z1", f"10.0.0.{number * 2}"))
        versions.append(table(fleet.state, "z1").version)
    assert delta(fleet.state, "z1", versions[-21]) is not None
    assert delta(fleet.state, "z1", versions[-22]) is None


def test_labels_without_zones_are_forgotten_with_their_list_changes() -> None:
    fleet = Fleet()
    fleet.describe("z1", {"tier": "1"})
    fleet.policy("p", sources={"app": "none"})
    assert len(fleet.state.list_changes.rows) == 2
    fleet.describe("z1", {"tier": "2"})
    assert len(fleet.state.list_changes.rows) == 1
    assert fleet.state.zones.by_labels.keys() == {(), selector({"tier": "2"})}
