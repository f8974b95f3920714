"""Scenarios of users of upstream's driver at the objects that its daemons read, one test per numbered scenario.

They run unchanged on a real API server and on the simulated one. tests/unit/test_clique_scenarios.py has the same
numbers at the fold. Upstream's daemons run where a scenario names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from drivers.kubernetes.clique_targets import INTERVAL_S
from eventstore.ids import envelope, uuid7
from projections.cliques.files import FREE_SLOT_ADDRESS
from schemas.events import SessionExpired, SessionOpened
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL
from tests.support.cliques import rows_of
from tests.support.kubernetes.api_server import MADE_BY_TESTS
from tests.support.kubernetes.clique_cluster import CLIQUE, REPLICA, CliqueCluster
from tests.support.kubernetes.requests import create

Opened: TypeAlias = Callable[[], AbstractAsyncContextManager[CliqueCluster]]
NODES = "/api/v1/nodes"
TEXT = "no available indices within maxNodesPerIMEXDomain (18)"
ALL = {f"n{number}": number for number in range(18)}


def address(number: int, network: int = 0) -> str:
    return f"10.0.{network}.{number + 1}"


def row(node: str, index: int, ip: str, status: str = "NotReady") -> dict[str, Any]:
    return {"nodeName": node, "ipAddress": ip, "cliqueID": CLIQUE, "index": index, "status": status}


async def fill(east: CliqueCluster, domain: str, count: int = 18, clique: str = CLIQUE) -> None:
    """Pods n0, n1, ... one after the other, so that node n<i> has index i."""
    for number in range(count):
        await east.create_pod(f"n{number}", domain, address(number), clique=clique)
        await east.until_indices(domain, {f"n{each}": each for each in range(number + 1)}, clique)


async def wait_s(seconds: float) -> None:
    """Time in which a wrong write would show."""
    await asyncio.sleep(seconds)


class AssignScenarios:
    """The plane alone writes rows. A subclass has the fixture `opened`."""

    soon_s = 2.0
    """Longest time of a change, on a machine that is not busy."""

    async def test_01_eighteen_claim_at_once_in_two_writes(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            now_s = asyncio.get_running_loop().time
            began_s = now_s()
            await asyncio.gather(*(east.create_pod(f"n{number}", domain, address(number)) for number in range(18)))

            async def is_complete() -> bool:
                return sorted((await east.indices(domain)).values()) == list(range(18))

            await east.until(is_complete)
            intervals = int((now_s() - began_s) / INTERVAL_S)  # a busy server makes the pods one after the other
            await wait_s(1.0)
            assert east.writer.writes[COMPUTE_DOMAIN_CLIQUE.plural] <= 2 + intervals
            found = await east.clique(domain)
            assert found is not None
            assert found["metadata"]["name"] == f"{domain}.{CLIQUE}"
            assert found["metadata"]["labels"] == {DOMAIN_LABEL: domain, CLIQUE_LABEL: CLIQUE}
            owners = found["metadata"]["ownerReferences"]
            pods = {pod.metadata.uid: pod.metadata.name for pod in east.pods.values()}
            assert {owner["uid"]: owner["name"] for owner in owners} == pods
            assert all(
                {**owner, "name": "", "uid": ""} == {"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}
                for owner in owners
            )
            for node, shown in (await east.rows(domain)).items():
                assert shown == row(node, shown["index"], east.pods[node].address)

    async def test_02_the_nineteenth_waits_and_03_gets_the_freed_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain)
            await east.create_pod("n18", domain, address(18))

            async def is_queued() -> bool:
                return [*east.state(domain).cliques[f"{domain}/{CLIQUE}"].queue] == ["n18"]

            await east.until(is_queued)
            await wait_s(1.0)
            assert await east.indices(domain) == ALL
            await east.delete_pod("n7")
            await east.until_indices(domain, {**{n: i for n, i in ALL.items() if n != "n7"}, "n18": 7})

    async def test_04_the_lowest_gap_is_filled_first(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 10)
            await east.delete_pod("n5")
            ten = {f"n{number}": number for number in range(10) if number != 5}
            await east.until_indices(domain, ten)
            await east.create_pod("new", domain, address(30))
            await east.until_indices(domain, {**ten, "new": 5})
            await east.create_pod("newer", domain, address(31))
            await east.until_indices(domain, {**ten, "new": 5, "newer": 10})

    async def test_05_three_gaps_are_filled_by_three_nodes(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 12)
            for number in (3, 7, 11):
                await east.delete_pod(f"n{number}")
            kept = {f"n{number}": number for number in range(12) if number not in (3, 7, 11)}
            await east.until_indices(domain, kept)
            await asyncio.gather(*(east.create_pod(f"m{number}", domain, address(30 + number)) for number in range(3)))

            async def is_filled() -> bool:
                shown = await east.indices(domain)
                return {shown.get(f"m{number}") for number in range(3)} == {3, 7, 11}

            await east.until(is_filled)

    async def test_06_repeated_events_of_a_pod_write_nothing(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 2)
            await wait_s(1.0)
            writes = east.writer.writes.copy()
            for _ in range(20):
                await east.set_status("n0", is_ready=False)
            await wait_s(1.0)
            assert (east.writer.writes, east.edge.claimed) == (writes, 2)

    async def test_07_a_new_pod_of_a_node_keeps_the_index_and_is_not_ready(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 3)
            await east.set_status("n1", is_ready=True)

            async def is_ready() -> bool:
                return (await east.rows(domain))["n1"] == row("n1", 1, address(1), "Ready")

            await east.until(is_ready)
            await east.delete_pod("n1")
            await east.create_pod("n1", domain, address(1, 9))

            async def is_replaced() -> bool:
                return (await east.rows(domain)).get("n1") == row("n1", 1, address(1, 9))

            await east.until(is_replaced)
            assert await east.indices(domain) == {"n0": 0, "n1": 1, "n2": 2}

    async def test_08_a_node_that_returns_gets_its_former_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 4)
            await east.delete_pod("n1")
            await east.delete_pod("n2")
            await east.until_indices(domain, {"n0": 0, "n3": 3})
            await east.create_pod("n2", domain, address(2))
            await east.until_indices(domain, {"n0": 0, "n2": 2, "n3": 3})

    async def test_09_another_machine_of_the_same_name_is_not_ready_until_its_own_daemon_is(
        self, opened: Opened
    ) -> None:
        """The kubelet of the lost machine cannot confirm the end of its pod, which a finalizer stands for."""
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            name = f"{east.namespace}-machine"
            body = {"metadata": {"name": name, "labels": {MADE_BY_TESTS: ""}}}
            machine = await create(east.api, NODES, body)
            await east.create_pod(name, domain, address(0), finalizers=["example.com/kubelet"])
            await east.until_indices(domain, {name: 0})
            await east.create_pod("n1", domain, address(1))
            await east.set_status(name, is_ready=True)

            async def shows(ip: str, status: str) -> bool:
                return (await east.rows(domain)).get(name) == row(name, 0, ip, status)

            await east.until(lambda: shows(address(0), "Ready"))
            lost = east.pods[name].metadata
            await east.api.delete(f"{NODES}/{name}", uid=machine["metadata"]["uid"])
            await east.delete_pod(name)
            other = await create(east.api, NODES, body)
            try:
                await east.create_pod(name, domain, address(0, 9))
                await east.until(lambda: shows(address(0, 9), "NotReady"))
                await east.set_status(name, is_ready=True)
                await east.until(lambda: shows(address(0, 9), "Ready"))
                await east.api.patch(f"{east.pods_path}/{lost.name}", {"metadata": {"finalizers": None}}, "merge")
                await wait_s(2.0)
                assert await shows(address(0, 9), "Ready"), "the end of the lost machine's pod changes nothing"
                assert await east.indices(domain) == {name: 0, "n1": 1} == east.folded(domain)
                assert east.edge.released == 0
            finally:
                await east.api.delete(f"{NODES}/{name}", uid=other["metadata"]["uid"])

    async def test_11_all_stop_and_no_row_is_left(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 6)
            await asyncio.gather(*(east.delete_pod(f"n{number}") for number in range(6)))
            await east.until_indices(domain, {})

    async def test_12_a_restart_storm_changes_addresses_only(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain)
            await asyncio.gather(*(east.delete_pod(node) for node in ALL))
            await asyncio.gather(*(east.create_pod(node, domain, address(index, 1)) for node, index in ALL.items()))

            async def is_back() -> bool:
                return await east.rows(domain) == {n: row(n, index, address(index, 1)) for n, index in ALL.items()}

            await east.until(is_back)

    async def test_13_a_daemon_that_finds_its_row_writes_nothing(self, opened: Opened) -> None:
        """Upstream's daemons beside an edge that assigns: each finds a row of its node and address."""
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 4)
            for _ in range(2):
                for number in range(4):
                    east.run_daemon(f"n{number}", east.pods[f"n{number}"])
                await east.until_daemons_know()
                await wait_s(1.0)
                assert not any(daemon.answers for daemon in east.daemons.values())
                assert [east.daemons[f"n{number}"].indices for number in range(4)] == [[0], [1], [2], [3]]
                for number in range(4):
                    await east.crash(f"n{number}")

    async def test_14_a_lost_daemon_is_not_ready_and_keeps_its_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 2)
            await east.set_status("n0", is_ready=True)

            async def status_is(wanted: str) -> bool:
                return (await east.rows(domain))["n0"] == row("n0", 0, address(0), wanted)

            await east.until(lambda: status_is("Ready"))
            uid = east.pods["n0"].metadata.uid
            said = envelope("s", "edge", uuid7(east.plane.now_ms(), east.rng))
            await east.submit(domain, SessionOpened(said, domain, CLIQUE, "n0", uid, "s1", "edge-1"))
            said = envelope("s", "edge", uuid7(east.plane.now_ms(), east.rng))
            await east.submit(domain, SessionExpired(said, domain, CLIQUE, "n0", "s1"))
            await east.until(lambda: status_is("NotReady"))
            await wait_s(1.0)
            assert await status_is("NotReady"), "the pod is still Ready for Kubernetes"

    async def test_15_a_deleted_pod_frees_its_index_within_two_seconds(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 3)
            await east.delete_pod("n1")

            async def is_gone() -> bool:
                return await east.indices(domain) == {"n0": 0, "n2": 2}

            await east.until(is_gone, timeout_s=self.soon_s)

    async def test_16_two_domains_of_one_clique_id_are_independent(self, opened: Opened) -> None:
        async with opened() as east:
            one, other = await east.create_domain("one"), await east.create_domain("other")
            east.start_edge()
            await east.create_pod("a", one, address(0))
            await east.create_pod("b", other, address(0))
            await east.until_indices(one, {"a": 0})
            await east.until_indices(other, {"b": 0})
            await east.delete_pod("a")
            await east.until_indices(one, {})
            assert await east.rows(other) == {"b": row("b", 0, address(0))}

    async def test_17_a_node_that_moves_to_another_clique_leaves_the_first(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 2)
            await east.delete_pod("n0")
            await east.create_pod("n0", domain, address(0), clique="other.1")
            await east.until_indices(domain, {"n1": 1})
            await east.until_indices(domain, {"n0": 0}, "other.1")

    async def test_18_one_domain_has_three_cliques(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain(num_nodes=54)
            east.start_edge()
            for clique in range(3):
                numbers = range(18)
                await asyncio.gather(
                    *(
                        east.create_pod(f"c{clique}-n{number}", domain, address(number, clique), clique=f"c.{clique}")
                        for number in numbers
                    )
                )

            async def is_complete() -> bool:
                return len((await east.domain_status()).get("nodes") or []) == 54

            await east.until(is_complete)
            nodes = (await east.domain_status())["nodes"]
            assert len({(node["cliqueID"], node["index"]) for node in nodes}) == 54
            assert {node["index"] for node in nodes} == set(range(18))

    async def test_19_a_node_without_a_fabric_has_index_minus_one_in_the_status(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain(num_nodes=1)
            east.start_edge()
            await east.create_pod("plain", domain, address(0), clique="", is_ready=True)
            await east.create_pod("early", domain, address(1), clique=None)
            wanted = {"name": "plain", "ipAddress": address(0), "cliqueID": "", "index": -1, "status": "Ready"}

            async def is_shown() -> bool:
                return await east.domain_status() == {"status": "Ready", "nodes": [wanted]}

            await east.until(is_shown)

    async def test_22_a_reused_address_goes_to_the_new_pod(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 1)
            await wait_s(1.1)  # creation times count seconds
            await east.create_pod("new", domain, address(0))
            wanted = {"n0": row("n0", 0, FREE_SLOT_ADDRESS), "new": row("new", 1, address(0))}

            async def is_fenced() -> bool:
                return await east.rows(domain) == wanted

            await east.until(is_fenced)
            await wait_s(1.0)
            assert (await east.rows(domain), east.edge.claimed) == (wanted, 2)

    async def test_25_a_deleted_clique_is_made_again_with_the_same_indices(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 5)
            await east.delete_pod("n2")
            await east.until_indices(domain, {"n0": 0, "n1": 1, "n3": 3, "n4": 4})
            before, found = await east.rows(domain), await east.clique(domain)
            assert found is not None
            path = COMPUTE_DOMAIN_CLIQUE.path(east.namespace, f"{domain}.{CLIQUE}")
            await east.api.delete(path, uid=found["metadata"]["uid"])

            async def is_back() -> bool:
                return await east.rows(domain) == before

            await east.until(is_back)

    async def test_27_an_injected_duplicate_is_removed_and_the_older_claim_keeps(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 3)
            await east.write_rows(domain, row("intruder", 1, "10.9.9.9"))
            await east.until_indices(domain, {"n0": 0, "n1": 1, "n2": 2})

    async def test_28_an_injected_index_out_of_range_is_removed(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 2)
            await east.write_rows(
                domain, row("low", -1, "10.9.9.8"), row("high", 18, "10.9.9.9"), row("n1", 5, address(1))
            )
            await east.until_indices(domain, {"n0": 0, "n1": 1})

    async def test_29_a_domain_is_ready_with_enough_nodes_that_are_all_ready(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain(num_nodes=2)
            empty = await east.create_domain("empty")
            east.start_edge()

            async def status_is(wanted: str, name: str = "cd") -> bool:
                return (await east.domain_status(name)).get("status") == wanted

            await east.until(lambda: status_is("Ready", "empty"))
            assert empty
            await fill(east, domain, 3)
            await east.until(lambda: status_is("NotReady"))
            for number in range(3):
                await east.set_status(f"n{number}", is_ready=True)
            await east.until(lambda: status_is("Ready"))
            await east.set_status("n1", is_ready=False)
            await east.until(lambda: status_is("NotReady"), timeout_s=self.soon_s)

    async def test_30_a_daemon_that_stops_answering_keeps_its_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 1)
            for is_ready in (True, False, True):
                await east.set_status("n0", is_ready=is_ready)
                wanted = row("n0", 0, address(0), "Ready" if is_ready else "NotReady")

                async def is_shown(wanted: dict[str, Any] = wanted) -> bool:
                    return await east.rows(domain) == {"n0": wanted}

                await east.until(is_shown)

    async def test_33_an_edge_that_starts_again_changes_no_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 6)
            await east.stop_edge()
            await east.delete_pod("n2")
            await east.create_pod("late", domain, address(20))
            east.start_edge()
            kept = {f"n{number}": number for number in range(6) if number != 2}

            async def has_kept() -> bool:
                shown = await east.indices(domain)
                return "n2" not in shown and "late" in shown and {n: shown.get(n) for n in kept} == kept

            await east.until(has_kept)

    async def test_34_indices_of_a_domain_status_and_of_rows_are_carried_over(self, opened: Opened) -> None:
        """Upstream loses them when it changes between the status of the domain and the objects of cliques."""
        async with opened() as east:
            domain = await east.create_domain()
            path = COMPUTE_DOMAIN.path(east.namespace, "cd", "status")
            nodes: list[dict[str, Any]] = [
                {"name": node, "ipAddress": address(number), "cliqueID": CLIQUE, "index": index, "status": "Ready"}
                for number, (node, index) in enumerate((("a", 4), ("b", 0), ("c", 17)))
            ]
            await east.api.patch(path, {"status": {"status": "Ready", "nodes": nodes}}, "merge")
            for node in nodes:
                await east.create_pod(node["name"], domain, node["ipAddress"])
            await east.create_pod("d", domain, address(9))
            east.start_edge()
            await east.until_indices(domain, {"a": 4, "b": 0, "c": 17, "d": 1})

    async def test_35_a_daemon_of_a_deleted_domain_gets_no_row(self, opened: Opened) -> None:
        async with opened() as east:
            domain, other = await east.create_domain(), await east.create_domain("other")
            east.start_edge()
            await fill(east, domain, 1)
            await east.delete_domain()

            async def is_seen() -> bool:
                return east.edge._is_domain_gone(domain)

            await east.until(is_seen)
            await east.create_pod("late", domain, address(5))
            await east.create_pod("a", other, address(6))
            await east.until_indices(other, {"a": 0})
            await wait_s(0.5)
            assert "late" not in await east.indices(domain)
            assert "late" not in east.folded(domain)

    async def test_36_a_replay_of_the_log_gives_the_same_rows(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 5)
            await east.delete_pod("n3")
            await east.until_indices(domain, {"n0": 0, "n1": 1, "n2": 2, "n4": 4})
            before = rows_of(east.state(domain))
            await east.stop_edge()
            east.plane.kill(REPLICA)
            east.plane.disks.clear()
            await east.plane.start(REPLICA, "api")
            assert rows_of(east.state(domain)) == before
