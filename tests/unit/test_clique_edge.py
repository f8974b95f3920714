"""The edge of cliques when its API server or its log fails: it releases nothing on a guess, and writes once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from eventstore.errors import LogUnavailable
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, Partition
from schemas.events import DaemonReadinessReported, IndicesClaimed, IndicesReleased
from schemas.kubernetes.api import GONE, ApiError
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE
from tests.contract.clique_scenarios import address, fill, row
from tests.contract.test_clique_scenarios import simulated
from tests.support.kubernetes.clique_cluster import CLIQUE, CliqueCluster
from tests.support.kubernetes.simulated.api import SimulatedApi

pytestmark = pytest.mark.virtual_clock
CLIQUES_PLURAL = COMPUTE_DOMAIN_CLIQUE.plural


def server(east: CliqueCluster) -> SimulatedApi:
    assert isinstance(east.api, SimulatedApi)
    return east.api


def writes(east: CliqueCluster, status: int = 0) -> int:
    """Requests that write, by status; all statuses for 0."""
    verbs = ("create", "replace", "patch", "delete")
    return sum(count for (verb, code), count in server(east).requests.items() if verb in verbs and status in (0, code))


async def test_no_claim_is_stated_before_the_rows_are_listed() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        await east.write_rows(domain, row("n0", 9, address(0)))
        await east.create_pod("n0", domain, address(0))
        server(east).faults.refuse(503, "get", retry_after_s=5.0, within=CLIQUES_PLURAL)
        east.start_edge()
        await asyncio.sleep(3.0)
        assert not east.folded(domain)
        await east.until_indices(domain, {"n0": 9})


async def test_claims_of_a_burst_are_one_record_and_two_writes_at_most() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await asyncio.gather(*(east.create_pod(f"n{number}", domain, address(number)) for number in range(18)))
        before = writes(east)
        await asyncio.sleep(2.0)
        assert len(await east.rows(domain)) == 18
        partition = east.replica.partition_for(CLIQUES, domain)
        assert east.plane.count(partition, IndicesClaimed) <= 2
        assert east.writer.writes[CLIQUES_PLURAL] <= 2
        assert writes(east) - before <= 4, "with the status of the domain"


@pytest.mark.parametrize("status", [409, 429, 500, 503, 504])
async def test_a_failed_write_is_decided_anew_and_made_once(status: int) -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        server(east).faults.refuse(status, "replace", times=2, retry_after_s=1.0, within=CLIQUES_PLURAL)
        await east.create_pod("n1", domain, address(1))
        await east.until_indices(domain, {"n0": 0, "n1": 1})
        assert east.writer.writes[CLIQUES_PLURAL] == 2


async def test_a_write_that_took_effect_without_an_answer_is_not_repeated() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        found = await east.clique(domain)
        assert found is not None
        server(east).faults.refuse(504, "replace", is_committed=True, within=CLIQUES_PLURAL)
        await east.create_pod("n1", domain, address(1))
        await east.until_indices(domain, {"n0": 0, "n1": 1})
        await asyncio.sleep(2.0)
        assert east.requests.counts.unknown == 1
        assert east.writer.writes[CLIQUES_PLURAL] == 1, "only the first object was written with an answer"


async def test_a_server_that_is_down_for_an_hour_gets_one_write_per_object() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 3)
        server(east).go_down()
        said = envelope("s", "agent", uuid7(east.plane.now_ms(), east.rng))
        for number in range(3, 8):
            claim = IndicesClaimed(said, domain, CLIQUE, [f"n{number}"], [address(number)], [], [], [])
            await east.submit(domain, claim)
            said = envelope("s", "agent", uuid7(east.plane.now_ms(), east.rng))
        await asyncio.sleep(3_600)
        before = east.writer.writes[CLIQUES_PLURAL]
        server(east).faults.is_down = False
        await east.until_indices(domain, {f"n{number}": number for number in range(8)}, timeout_s=120.0)
        assert east.writer.writes[CLIQUES_PLURAL] == before + 1


async def test_pods_that_vanish_while_no_edge_runs_are_released_by_a_complete_list() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 3)
        await east.stop_edge()
        await east.delete_pod("n1")
        east.start_edge()
        await east.until_indices(domain, {"n0": 0, "n2": 2})


async def test_a_list_that_lacks_pods_releases_nothing_that_a_live_list_has() -> None:
    """21: the view of pods disagrees with the pods that exist."""
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 3)
        faults = server(east).faults
        faults.shown = lambda path, items: (
            [item for item in items if item["spec"]["nodeName"] != "n1"] if path.endswith("/pods") else items
        )
        faults.refuse(503, "get", times=1_000, within="labelSelector': 'resource.nvidia.com/computeDomain=")
        server(east).end_watches(ApiError(GONE, "Expired", "too old"))
        await asyncio.sleep(30.0)
        assert east.folded(domain) == {"n0": 0, "n1": 1, "n2": 2}, "the live list failed"


async def test_a_domain_whose_pods_cannot_be_listed_does_not_delay_another() -> None:
    async with simulated() as east:
        one, other = await east.create_domain("one"), await east.create_domain("other")
        east.start_edge()
        await fill(east, one, 3)
        faults = server(east).faults
        faults.shown = lambda path, items: (
            [item for item in items if item["spec"]["nodeName"] != "n1"] if path.endswith("/pods") else items
        )
        faults.refuse(503, "get", times=1_000, within="labelSelector': 'resource.nvidia.com/computeDomain=")
        server(east).end_watches(ApiError(GONE, "Expired", "too old"))
        await asyncio.sleep(10.0)
        for number in range(10):
            await east.create_pod(f"m{number}", other, address(100 + number))
            await asyncio.sleep(0.2)
            assert east.folded(other) == {f"m{each}": each for each in range(number + 1)}
        faults.shown, faults._refusals[:] = None, []
        await asyncio.sleep(10.0)
        assert east.folded(one) == {"n0": 0, "n1": 1, "n2": 2}


async def test_an_empty_list_releases_nothing_and_is_counted() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 3)
        server(east).faults.shown = lambda path, items: [] if path.endswith("/pods") else items
        server(east).end_watches(ApiError(GONE, "Expired", "too old"))
        await asyncio.sleep(60.0)
        assert len(await east.rows(domain)) == len(east.folded(domain)) == 3
        assert east.edge.retained == {domain: 3}
        (said,) = {(each.regarding.kind, each.regarding.uid, each.reason): each for each in east.reported}.values()
        assert (said.regarding.kind, said.regarding.uid, said.reason) == ("ComputeDomain", domain, "ClaimsRetained")
        assert said.message.startswith("3 claims of indices stay without a daemon pod in any list: no pod of their")


async def test_a_server_that_is_set_back_releases_nothing_and_gets_its_rows_again() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 2)
        saved = server(east).save()
        await east.create_pod("n2", domain, address(2))
        await east.until_indices(domain, {"n0": 0, "n1": 1, "n2": 2})
        server(east).restore(saved)
        await asyncio.sleep(60.0)
        wanted = {"n0": 0, "n1": 1, "n2": 2}
        assert (east.folded(domain), await east.indices(domain)) == (wanted, wanted)
        assert east.edge.retained == {domain: 1}
        said = east.reported[-1]
        assert (said.regarding.kind, said.regarding.uid, said.reason) == ("ComputeDomain", domain, "RestoredFromBackup")
        assert said.message.startswith("1 claim of an index stays without a daemon pod")


async def test_a_partition_of_the_log_that_is_slow_delays_only_its_own_domains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with simulated() as east:
        east.start_edge()
        domains = [await east.create_domain(name=f"cd{number}") for number in range(40)]
        slow = east.replica.partition_for(CLIQUES, domains[0])
        append = east.plane.log.append

        async def delayed(partition: Partition, *given: Any, **more: Any) -> None:
            await asyncio.sleep(8.0 if partition == slow else 0.0)
            await append(partition, *given, **more)

        monkeypatch.setattr(east.plane.log, "append", delayed)
        for number, domain in enumerate(domains):
            await east.create_pod(f"n{number}", domain, address(number))
        others = [domain for domain in domains if east.replica.partition_for(CLIQUES, domain) != slow]
        assert len(domains) - len(others) > 2
        await asyncio.sleep(1.0)
        assert all(east.folded(domain) for domain in others)
        assert not east.folded(domains[0])
        await east.create_pod("late", others[0], address(99))
        await asyncio.sleep(1.0)
        assert len(east.folded(others[0])) == 2, "while the records of the slow partition are on their way"
        await asyncio.sleep(20.0)
        assert all(east.folded(domain) for domain in domains)


async def test_failed_appends_are_stated_again() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        east.plane.log.failures.append_error = LogUnavailable("no leader")
        await east.create_pod("n0", domain, address(0))
        await asyncio.sleep(20.0)
        assert not east.folded(domain)
        east.plane.log.failures.append_error = None
        await east.until_indices(domain, {"n0": 0})


async def test_the_status_of_a_domain_keeps_its_rows_until_their_claims_are_folded() -> None:
    """A claim takes its index from the row: whoever writes the status earlier would lose the index."""
    async with simulated() as east:
        domain = await east.create_domain()
        rows: list[dict[str, Any]] = [
            {"name": node, "ipAddress": address(number), "cliqueID": CLIQUE, "index": index, "status": "Ready"}
            for number, (node, index) in enumerate((("a", 4), ("b", 17), ("gone", 2)))
        ]
        path = COMPUTE_DOMAIN.path(east.namespace, "cd", "status")
        await east.api.patch(path, {"status": {"status": "Ready", "nodes": rows}}, "merge")
        for row in rows[:2]:
            await east.create_pod(row["name"], domain, row["ipAddress"])
        east.plane.log.failures.append_error = LogUnavailable("no leader")
        east.start_edge()
        await asyncio.sleep(5.0)
        kept = (await east.domain_status())["nodes"]
        assert {row["name"]: row["index"] for row in kept} == {"a": 4, "b": 17}
        east.plane.log.failures.append_error = None
        await east.until_indices(domain, {"a": 4, "b": 17})


async def test_a_claim_without_a_pod_is_released_by_its_caller_only() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        said = envelope("s", "agent", uuid7(east.plane.now_ms(), east.rng))
        await east.submit(domain, IndicesClaimed(said, domain, CLIQUE, ["guest"], [address(9)], [], [], []))
        await east.stop_edge()
        east.start_edge()
        await asyncio.sleep(5.0)
        assert await east.indices(domain) == {"n0": 0, "guest": 1}
        said = envelope("s", "agent", uuid7(east.plane.now_ms(), east.rng))
        await east.submit(domain, IndicesReleased(said, domain, CLIQUE, ["guest"], []))
        await east.until_indices(domain, {"n0": 0})


async def test_an_index_released_under_a_running_pod_is_claimed_again() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 2)
        said = envelope("s", "operator", uuid7(east.plane.now_ms(), east.rng))
        await east.submit(domain, IndicesReleased(said, domain, CLIQUE, ["n1"], []))
        await asyncio.sleep(2.0)
        assert east.folded(domain) == {"n0": 0, "n1": 1}


async def test_two_edges_of_one_cluster_do_no_harm() -> None:
    async with simulated() as east, simulated_twin(east):
        domain = await east.create_domain()
        await fill(east, domain, 5)
        await east.set_status("n0", is_ready=True)
        await east.delete_pod("n3")
        await east.until_indices(domain, {"n0": 0, "n1": 1, "n2": 2, "n4": 4})
        partition = east.replica.partition_for(CLIQUES, domain)
        assert east.plane.count(partition, DaemonReadinessReported) <= 2


def simulated_twin(east: CliqueCluster) -> _Twin:
    return _Twin(east)


class _Twin:
    """A second edge of the same cluster and plane."""

    def __init__(self, east: CliqueCluster) -> None:
        self._other = CliqueCluster(east.api, east.namespace, east.plane, Random(8))
        east.start_edge()

    async def __aenter__(self) -> CliqueCluster:
        self._other.start_edge()
        return self._other

    async def __aexit__(self, *_: object) -> None:
        await self._other.stop_edge()


async def test_foreign_metadata_of_an_object_stays() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        path = COMPUTE_DOMAIN_CLIQUE.path(east.namespace, f"{domain}.{CLIQUE}")
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x-uid", "blockOwnerDeletion": True}
        found = await east.clique(domain)
        assert found is not None
        found["metadata"] |= {
            "ownerReferences": [*found["metadata"]["ownerReferences"], owner],
            "annotations": {**found["metadata"]["annotations"], "example.com/a": "b"},
            "finalizers": ["example.com/f"],
        }
        found["metadata"]["labels"]["team"] = "x"
        await east.api.replace(path, found)
        await east.create_pod("n1", domain, address(1))
        await east.until_indices(domain, {"n0": 0, "n1": 1})
        after = await east.clique(domain)
        assert after is not None
        metadata = after["metadata"]
        assert owner in metadata["ownerReferences"]
        assert len(metadata["ownerReferences"]) == 3
        assert metadata["annotations"]["example.com/a"] == "b"
        assert metadata["finalizers"] == ["example.com/f"]
        assert metadata["labels"]["team"] == "x"


async def test_an_object_of_a_later_position_is_left_alone() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        found = await east.clique(domain)
        assert found is not None
        found["metadata"]["annotations"]["dpuplane.io/position"] = "9/1"
        path = COMPUTE_DOMAIN_CLIQUE.path(east.namespace, f"{domain}.{CLIQUE}")
        await east.api.replace(path, {**found, "daemons": []})
        await asyncio.sleep(5.0)
        assert not await east.rows(domain), "a replica that is ahead has written it"
        assert east.writer.cliques.ahead.count == 0
        await asyncio.sleep(120.0)
        assert not await east.rows(domain)
        assert east.writer.cliques.ahead.count == 1, "it is from another log"
        await east.api.delete(path, uid=found["metadata"]["uid"])
        await asyncio.sleep(5.0)
        assert len(await east.rows(domain)) == 1 and not east.writer.cliques.ahead.count


@pytest.mark.parametrize("is_known", [False, True])
async def test_the_row_of_a_new_daemon_stays_although_its_node_has_left_and_its_pod_cannot_claim(
    is_known: bool,
) -> None:
    """A watch may report the pod, or its label, after the row. A new pod may have the address of the former one."""
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge("beside")
        await east.start_daemon("n0", domain, address(0))
        await east.until_indices(domain, {"n0": 0})
        await east.delete_pod("n0")
        await east.until_indices(domain, {})
        new = address(0 if is_known else 7)
        if is_known:
            await east.create_pod("n0", domain, new, clique=None)
            await asyncio.sleep(1.0)
        await east.write_rows(domain, row("n0", 2, new))
        await asyncio.sleep(2.0)
        assert await east.indices(domain) == {"n0": 2}
        if is_known:
            await east.delete_pod("n0")
        await east.create_pod("n0", domain, new)
        await east.until_indices(domain, {"n0": 2})


async def test_a_restored_older_pod_keeps_the_address_in_its_row_and_gets_no_claim() -> None:
    """The pod of the claim is lost with the restore. The daemon of the older pod would replace another address again
    and again."""
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge("beside")
        await east.start_daemon("n0", domain, address(0))
        await east.until_indices(domain, {"n0": 0})
        saved, older = server(east).save(), east.pods["n0"]
        await asyncio.sleep(2.0)
        await east.delete_pod("n0")
        await east.start_daemon("n0", domain, address(1))
        await east.until(lambda: _has_address(east, domain, address(1)))
        await east.crash("n0")
        server(east).restore(saved)
        east.run_daemon("n0", older)
        await asyncio.sleep(30.0)
        before = writes(east)
        await asyncio.sleep(30.0)
        assert writes(east) == before
        assert (await east.rows(domain))["n0"]["ipAddress"] == address(0)
        assert east.state(domain).member(f"{domain}/{CLIQUE}", "n0").address == address(1)  # type: ignore[union-attr]


async def test_a_row_without_a_pod_is_not_written_again_beside_the_controller_that_removed_it() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge("beside")
        await east.start_daemon("n0", domain, address(0))
        await east.until_indices(domain, {"n0": 0})
        saved = server(east).save()
        await east.start_daemon("n1", domain, address(1))
        await east.until_indices(domain, {"n0": 0, "n1": 1})
        await east.crash("n1")
        server(east).restore(saved)
        await asyncio.sleep(30.0)
        found = await east.clique(domain)
        assert found is not None
        rows = [shown for shown in found["daemons"] if shown["nodeName"] == "n0"]
        await server(east).replace(
            COMPUTE_DOMAIN_CLIQUE.path(east.namespace, f"{domain}.{CLIQUE}"), {**found, "daemons": rows}
        )
        await asyncio.sleep(30.0)
        assert await east.indices(domain) == {"n0": 0}
        assert east.folded(domain) == {"n0": 0, "n1": 1}


async def _has_address(east: CliqueCluster, domain: str, wanted: str) -> bool:
    member = east.state(domain).member(f"{domain}/{CLIQUE}", "n0")
    return member is not None and member.address == wanted


async def test_an_object_is_not_created_again_for_pods_that_are_deleted() -> None:
    """The garbage collector deletes the object before the claims of its pods have ended."""
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 2)
        found = await east.clique(domain)
        assert found is not None
        east.plane.log.failures.append_error = LogUnavailable("no leader")
        for node in ("n0", "n1"):
            await east.delete_pod(node)
        path = COMPUTE_DOMAIN_CLIQUE.path(east.namespace, f"{domain}.{CLIQUE}")
        await east.api.delete(path, uid=found["metadata"]["uid"])
        await asyncio.sleep(5.0)
        assert east.folded(domain) == {"n0": 0, "n1": 1}
        assert await east.clique(domain) is None
        east.plane.log.failures.append_error = None
        await asyncio.sleep(20.0)
        assert (east.folded(domain), await east.clique(domain)) == ({}, None)


async def test_an_object_whose_last_pod_is_deleted_keeps_an_owner() -> None:
    """A garbage collector deletes the object only if it has owners."""
    async with simulated() as east:
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 1)
        server(east).faults.refuse(503, "replace", times=1_000, within=CLIQUES_PLURAL)
        await east.delete_pod("n0")
        await east.create_pod("n0", domain, address(5))
        await asyncio.sleep(2.0)
        east.plane.log.failures.append_error = LogUnavailable("no leader")
        await east.delete_pod("n0")
        server(east).faults._refusals[:] = []
        await asyncio.sleep(120.0)
        east.plane.log.failures.append_error = None
        await east.until_indices(domain, {})
        found = await east.clique(domain)
        assert found is not None and found["metadata"]["ownerReferences"]
