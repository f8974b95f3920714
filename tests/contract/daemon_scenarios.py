"""Scenarios of cliques in which upstream's daemons write rows beside the plane, one test per numbered scenario."""

from __future__ import annotations

import asyncio

from schemas.resources.compute_domain import COMPUTE_DOMAIN
from tests.contract.clique_scenarios import TEXT, Opened, address, fill, row, wait_s
from tests.support.kubernetes.clique_cluster import CLIQUE, CliqueCluster
from tests.support.kubernetes.requests import get


class BesideScenarios:
    """Upstream's daemons write their rows, which are claims. A subclass has the fixture `opened`."""

    async def start(self, east: CliqueCluster, domain: str, count: int) -> None:
        """Daemons n0, n1, ... at once. Returns when the fold and the object agree on an index of each."""
        nodes = [f"n{number}" for number in range(count)]
        await asyncio.gather(*(east.start_daemon(node, domain, address(n)) for n, node in enumerate(nodes)))
        await self.agreed(east, domain, count)

    async def agreed(self, east: CliqueCluster, domain: str, count: int) -> None:
        async def holds() -> bool:
            shown = await east.indices(domain)
            return len(shown) == count and shown == east.folded(domain)

        await east.until(holds, timeout_s=60.0)

    async def test_01_eighteen_daemons_choose_and_the_log_has_their_indices(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 18)
            assert sorted((await east.indices(domain)).values()) == list(range(18))
            await east.until_daemons_know()
            assert all(len(daemon.indices) == 1 for daemon in east.daemons.values()), "24: none was moved"
            assert not east.edge.conflicts

    async def test_02_the_nineteenth_daemon_finds_no_index_and_03_gets_a_freed_one(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 18)
            late = await east.start_daemon("n18", domain, address(18))

            async def finds_no_index() -> bool:
                return late.failure == TEXT

            await east.until(finds_no_index)
            await wait_s(2.0)
            assert late.failure == TEXT
            freed = (await east.indices(domain))["n7"]
            await east.delete_pod("n7")

            async def has_freed() -> bool:
                return (await east.indices(domain)).get("n18") == freed == east.folded(domain).get("n18")

            await east.until(has_freed)

    async def test_07_12_new_pods_keep_their_indices_and_readiness_is_reset(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 4)
            before = await east.indices(domain)
            for node in before:
                await east.set_status(node, is_ready=True)

            async def are(status: str) -> bool:
                return {shown["status"] for shown in (await east.rows(domain)).values()} == {status}

            await east.until(lambda: are("Ready"))
            for number, node in enumerate(sorted(before)):
                await east.crash(node)
                await east.start_daemon(node, domain, address(number, 5))

            async def is_new() -> bool:
                rows = await east.rows(domain)
                addresses = {shown["ipAddress"] for shown in rows.values()}
                return addresses == {address(number, 5) for number in range(4)} and await are("NotReady")

            await east.until(is_new)
            assert await east.indices(domain) == before == east.folded(domain)

    async def test_10_a_daemon_that_stops_gracefully_removes_its_row_only(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 5)
            before = await east.indices(domain)
            await wait_s(1.0)
            await east.daemons["n3"].stop()
            await east.delete_pod("n3")
            await east.until_indices(domain, {node: index for node, index in before.items() if node != "n3"})

    async def test_20_a_row_whose_pod_is_not_known_yet_stays(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 2)
            free = len(await east.indices(domain))
            await east.write_rows(domain, row("early", free, address(7)))

            async def is_unclaimed() -> bool:
                return east.writer.cliques.unclaimed.get(f"{domain}.{CLIQUE}") == frozenset({"early"})

            await east.until(is_unclaimed)
            await wait_s(1.0)
            assert (await east.indices(domain))["early"] == free
            assert await is_unclaimed()
            await east.create_pod("early", domain, address(7))
            await self.agreed(east, domain, 3)
            assert east.folded(domain)["early"] == free

    async def test_26_rows_of_the_plane_and_of_daemons_are_all_present(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge()
            await fill(east, domain, 3)
            east.edge.mode = "beside"
            east.writer.set_mode("beside")
            await asyncio.gather(*(east.start_daemon(f"m{n}", domain, address(n, 1)) for n in range(6)))
            await self.agreed(east, domain, 9)
            shown = await east.indices(domain)
            assert {node: shown[node] for node in ("n0", "n1", "n2")} == {"n0": 0, "n1": 1, "n2": 2}

    async def test_27_a_second_row_of_an_index_gets_another_one(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 3)
            before = await east.indices(domain)
            await east.create_pod("twin", domain, address(8))
            await east.write_rows(domain, row("twin", before["n1"], address(8)))
            await self.agreed(east, domain, 4)
            assert await east.indices(domain) == {**before, "twin": 3}

    async def test_34_a_switch_of_the_mode_keeps_every_index(self, opened: Opened) -> None:
        async with opened() as east:
            domain = await east.create_domain()
            east.start_edge("beside")
            await self.start(east, domain, 6)
            before = await east.indices(domain)
            for mode in ("assign", "beside", "assign"):
                await east.stop_edge()
                east.start_edge("assign" if mode == "assign" else "beside")
                await wait_s(1.0)
                assert await east.indices(domain) == before == east.folded(domain)
            await east.until_daemons_know()
            assert all(len(daemon.indices) == 1 for daemon in east.daemons.values())

    async def test_34_rows_that_no_log_has_are_taken_over(self, opened: Opened) -> None:
        """A plane is put beside cliques that run already."""
        async with opened() as east:
            domain = await east.create_domain()
            await asyncio.gather(*(east.start_daemon(f"n{n}", domain, address(n)) for n in range(6)))

            async def is_formed() -> bool:
                return len(await east.indices(domain)) == 6

            await east.until(is_formed)
            before = await east.indices(domain)
            east.start_edge("assign")
            await east.until_indices(domain, before)
            assert (await get(east.api, COMPUTE_DOMAIN.path(east.namespace, "cd")))["metadata"]["uid"] == domain
