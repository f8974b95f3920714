"""The edge that states Nodes: what the folds lack is stated, whatever fails between, and nothing leaves on a guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest

from commands.kubernetes.node_edge import LATE_CHECK_S, LATE_S, NodeEdge
from commands.kubernetes.node_facts import NodeRules
from eventstore.errors import LogUnavailable
from eventstore.log import ZONES
from schemas.events import NodesJoined, NodesLeft
from schemas.kubernetes.objects import RACK_LABEL, Metadata, Node, NodeAddress, NodeStatus
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

SOURCE = "east"
RULES = NodeRules(source=SOURCE, labels=["tier", "example.com/*"])


def node(
    name: str,
    zone: str = "z1",
    *addresses: str,
    uid: str = "u1",
    created_s: int = 1_600_000_000,
    labels: Mapping[str, str] = {},
) -> Node:
    metadata = Metadata(
        name=name,
        uid=uid,
        creation_timestamp=datetime.fromtimestamp(created_s, UTC),
        labels=({RACK_LABEL: zone} if zone else {}) | dict(labels),
    )
    return Node(metadata, status=NodeStatus([NodeAddress("InternalIP", address) for address in addresses]))


def edge(made: Plane, name: str = "r1", rules: NodeRules = RULES) -> NodeEdge:
    found = NodeEdge(made.replicas[name], rules, now_ms=made.now_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


def list_of(found: NodeEdge, *nodes: Node, went_back: bool = False, version: int = 0) -> None:
    """Give the edge a complete list."""
    found.list_began()
    for each in nodes:
        found.present(each)
    found.record_version(version)
    found.list_completed(went_back=went_back)


def zones_of(made: Plane) -> dict[str, str]:
    """The zone of each node in the folds of zones."""
    states = (made.replicas["r1"].state(partition) for partition in made.replicas["r1"].partitions(ZONES))
    return {name: row.zone for state in states for name, row in state.nodes.rows.items()}


def count(made: Plane, kind: type[NodesJoined] | type[NodesLeft]) -> int:
    return sum(made.count(partition, kind) for partition in made.replicas["r1"].partitions(ZONES))


async def test_a_listed_node_joins_its_zone_with_its_addresses_labels_and_incarnation() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        labels = {"tier": "gpu", "example.com/pool": "a", "kubernetes.io/hostname": "n1"}
        list_of(edge(made), node("n1", "z1", "10.0.0.1", "10.0.0.2", "fd00::1", labels=labels))
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"}, timeout_s=1)
        row = made.zone("z1").nodes.rows["east/n1"]
        assert (row.created_ms, row.uid) == (1_600_000_000_000, "u1")
        assert (row.address4, row.address6) == (int(ip_address("10.0.0.1")), ip_address("fd00::1").packed)
        assert row.labels == {"tier": "gpu", "example.com/pool": "a"}


async def test_nodes_with_one_address_join_and_refuse_no_other_join() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        shared = [node(f"n{number}", "z1", "10.0.0.1", "fd00::1") for number in range(3)]
        shared += [node("n3", "z1", "10.0.0.2", "fd00::1"), node("n4", "z1", "10.0.0.1"), node("n5", "z1")]
        list_of(edge(made), *shared, *(node(f"m{number}", "z1", f"10.0.1.{number}") for number in range(9)))
        await made.until(lambda: len(zones_of(made)) == 15, timeout_s=1)
        assert count(made, NodesJoined) == 4


async def test_a_burst_joins_in_few_records_and_a_repeated_list_states_nothing() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        nodes = [node(f"n{number}", f"z{number % 4}") for number in range(2_000)]
        found = edge(made)
        list_of(found, *nodes)
        await made.until(lambda: len(zones_of(made)) == 2_000)
        assert count(made, NodesJoined) == 4
        list_of(found, *nodes)
        await asyncio.sleep(5)
        assert (count(made, NodesJoined), count(made, NodesLeft)) == (4, 0)
        assert (found.joined, found.left) == (2_000, 0)


async def test_a_node_that_joined_by_a_late_record_of_an_earlier_process_leaves_after_another_list() -> None:
    async with plane(1) as made:
        await made.start("r1", "api")
        found = edge(made)
        asked = []

        def list_again() -> None:
            asked.append(zones_of(made))
            list_of(found, node("n0", "z1"))

        found.list_again = list_again
        list_of(found, node("n0", "z1"))
        await made.until(lambda: zones_of(made) == {"east/n0": "z1"})
        late = NodesJoined(found._envelope("z1"), "z1", ["east/n1"], [1_600_000_000_000], ["u9"], b"", b"", [], [])
        await made.replicas["r1"].submit(made.replicas["r1"].partition_for(ZONES, "z1"), b"z1", late, timeout_s=10.0)
        assert set(zones_of(made)) == {"east/n0", "east/n1"}
        await made.until(lambda: zones_of(made) == {"east/n0": "z1"}, timeout_s=LATE_S + 2 * LATE_CHECK_S)
        await asyncio.sleep(2 * LATE_S)
        assert len(asked) == 1, "one list is enough: later records cannot land"


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_join_that_lands_late_neither_revives_a_deleted_node_nor_moves_a_node_back(is_deleted: bool) -> None:
    async with plane(1) as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, node("n0", "z1"))
        await made.until(lambda: zones_of(made) == {"east/n0": "z1"})
        await asyncio.sleep(LATE_S + 2 * LATE_CHECK_S)  # the comparison after the start is over
        (partition,) = made.replicas["r1"].partitions(ZONES)
        made.log.failures.late_s = {partition: 60.0}
        found.present(node("n1", "z1"))
        await made.until(lambda: "east/n1" in zones_of(made))
        if is_deleted:
            found.deleted(node("n1", "z1"))
        else:
            found.present(node("n1", "z2"))
        wanted = {"east/n0": "z1"} | ({} if is_deleted else {"east/n1": "z2"})
        await made.until(lambda: zones_of(made) == wanted)
        await made.until(lambda: zones_of(made) == {"east/n0": "z1", "east/n1": "z1"}, timeout_s=70.0)
        await made.until(lambda: zones_of(made) == wanted, timeout_s=LATE_S + LATE_CHECK_S)


async def test_two_edges_of_one_source_state_the_same_at_no_harm() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        for found in (edge(made), edge(made)):
            list_of(found, node("n1"), node("n2"))
        await made.until(lambda: len(zones_of(made)) == 2)
        await asyncio.sleep(5)
        assert zones_of(made) == {"east/n1": "z1", "east/n2": "z1"}


async def test_a_new_label_moves_a_node_to_another_zone() -> None:
    async with plane(12) as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, node("n1", "z1"))
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"})
        found.present(node("n1", "z2"))
        await made.until(lambda: zones_of(made) == {"east/n1": "z2"})


async def test_a_deleted_node_leaves_and_comes_back_with_a_new_incarnation() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, node("n1"), node("n2"))
        await made.until(lambda: len(zones_of(made)) == 2)
        found.deleted(node("n1"))
        await made.until(lambda: zones_of(made) == {"east/n2": "z1"})
        found.present(node("n1", uid="u2", created_s=1_600_000_100))
        await made.until(lambda: len(zones_of(made)) == 2)
        found.deleted(node("n1", uid="u1"))
        await asyncio.sleep(5)
        assert made.zone("z1").nodes.rows["east/n1"].uid == "u2", "the deletion of the earlier object came late"


async def test_a_node_that_a_complete_list_lacks_leaves_by_inference() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, *(node(f"n{number}") for number in range(10)))
        await made.until(lambda: len(zones_of(made)) == 10)
        list_of(found, *(node(f"n{number}") for number in range(9)))
        await made.until(lambda: len(zones_of(made)) == 9)


async def test_a_list_says_nothing_about_a_node_that_another_edge_joined_after_the_list_began() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await made.start("r2", "api")
        slow, other = edge(made), edge(made, "r2")
        slow.list_began()
        slow.present(node("n1", "z1", "10.0.0.1"))
        list_of(other, node("n1", "z1", "10.0.0.1"), node("n2", "z1", "10.0.0.2"))
        await made.until(lambda: len(zones_of(made)) == 2, timeout_s=1)
        slow.list_completed(went_back=False)
        await asyncio.sleep(10)
        assert len(zones_of(made)) == 2 and slow.retained == 0
        list_of(slow, node("n1", "z1", "10.0.0.1"))
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"}, timeout_s=1)


async def test_nothing_leaves_without_a_complete_list_or_by_an_empty_one() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        list_of(edge(made), node("n1"), node("n2"))
        await made.until(lambda: len(zones_of(made)) == 2)
        again = edge(made)
        again.list_began()
        again.present(node("n1"))
        await asyncio.sleep(30)
        assert len(zones_of(made)) == 2, "the list is not complete yet"
        list_of(again)
        await asyncio.sleep(30)
        assert (len(zones_of(made)), again.retained) == (2, 2)


async def test_a_list_without_a_node_of_a_zone_empties_this_zone() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        list_of(edge(made), node("n1", "z1"), node("n2", "z2"), node("n3", "z2"))
        await made.until(lambda: len(zones_of(made)) == 3)
        list_of(edge(made), node("n2", "z2"))
        await made.until(lambda: zones_of(made) == {"east/n2": "z2"})


async def test_a_restarted_edge_knows_the_version_of_the_last_list_and_a_restore() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, *(node(f"n{number}") for number in range(5)), version=900)
        await made.until(lambda: found.last_version() == 900)
        list_of(edge(made), *(node(f"n{number}") for number in range(3)), version=100, went_back=True)
        await made.until(lambda: found.last_version() == 100)
        again = edge(made)
        list_of(again, *(node(f"n{number}") for number in range(4)), version=120)
        await made.until(lambda: again.last_version() == 120)
        assert (len(zones_of(made)), again.retained) == (5, 1)
        list_of(again, *(node(f"n{number}") for number in range(5)), version=130)
        await made.until(lambda: again.last_version() == 130)
        list_of(edge(made), *(node(f"n{number}") for number in range(4)), version=140)
        await made.until(lambda: len(zones_of(made)) == 4)


async def test_an_api_server_that_went_back_withdraws_nothing_until_all_nodes_are_back() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, *(node(f"n{number}") for number in range(5)))
        await made.until(lambda: len(zones_of(made)) == 5)
        list_of(found, *(node(f"n{number}") for number in range(3)), went_back=True)
        await asyncio.sleep(30)
        list_of(found, *(node(f"n{number}") for number in range(4)))
        await asyncio.sleep(30)
        assert (len(zones_of(made)), found.retained) == (5, 1)
        list_of(found, *(node(f"n{number}") for number in range(5)))
        await asyncio.sleep(30)
        list_of(found, *(node(f"n{number}") for number in range(4)))
        await made.until(lambda: len(zones_of(made)) == 4)


async def test_a_node_without_a_valid_zone_label_joins_the_fallback_zone_and_is_reported() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        list_of(found, node("n1", ""), node("n2", "no zone!"), node("n3", "z1", "127.0.0.1"))
        await made.until(lambda: len(zones_of(made)) == 3)
        assert zones_of(made) == {"east/n1": RULES.fallback_zone, "east/n2": RULES.fallback_zone, "east/n3": "z1"}
        assert set(found.faults) == {"east/n1", "east/n2", "east/n3"}
        found.present(node("n1", "z1"))
        await made.until(lambda: zones_of(made)["east/n1"] == "z1")
        assert set(found.faults) == {"east/n2", "east/n3"}


async def test_failed_appends_are_stated_again_until_the_folds_have_them() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        made.log.failures.append_error = LogUnavailable("no leader")
        list_of(found, node("n1"))
        await asyncio.sleep(20)
        assert not zones_of(made)
        made.log.failures.append_error = None
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"})


async def test_a_refused_node_is_reported_and_stated_again_after_a_change_only() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        found = edge(made)
        in_a_year_s = made.now_ms() // 1_000 + 365 * 86_400
        list_of(found, node("n1", created_s=in_a_year_s))
        await made.until(lambda: "east/n1" in found.refused)
        assert found.joined == 0
        records = count(made, NodesJoined)
        await asyncio.sleep(60)
        assert count(made, NodesJoined) == records
        found.present(node("n1", uid="u2"))
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"})
        assert not found.refused
        await asyncio.sleep(1)
        assert (found.joined, found.left) == (1, 0)
