"""The contract of a switch that speaks OpenFlow 1.4, as far as the plane relies on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import pytest

from drivers.openflow import messages as of
from drivers.openflow.messages import Flow
from drivers.openflow.rule_flows import (
    COOKIE,
    COOKIE_MASK,
    ETH_TYPE,
    ICMPV6_TYPE,
    IP_PROTO,
    IPV4_SRC,
    IPV6_SRC,
    TCP_DST,
)
from drivers.openflow.session import SwitchRefused, SwitchSession

Scenario = Callable[[SwitchSession], Awaitable[None]]
TABLE = 20
IP = of.field(ETH_TYPE, b"\x08\x00")
IP6 = of.field(ETH_TYPE, b"\x86\xdd")
TO_30 = of.goto_table(30)
FORBIDDEN = {
    "an address without its EtherType": Flow(TABLE, 5, COOKIE, of.field(IPV4_SRC, b"\x0a\x00\x00\x01"), b""),
    "an address with another EtherType": Flow(TABLE, 5, COOKIE, IP + of.field(IPV6_SRC, bytes(16)), b""),
    "a port without its protocol": Flow(TABLE, 5, COOKIE, IP + of.field(TCP_DST, b"\x00\x16"), b""),
    "a port of another protocol": Flow(
        TABLE, 5, COOKIE, IP + of.field(IP_PROTO, b"\x11") + of.field(TCP_DST, b"\x00\x16"), b""
    ),
    "a type of ICMPv6 of ICMP": Flow(
        TABLE, 5, COOKIE, IP + of.field(IP_PROTO, b"\x01") + of.field(ICMPV6_TYPE, b"\x87"), b""
    ),
    "bits outside of the mask": Flow(
        TABLE, 5, COOKIE, IP + of.field(IPV4_SRC, b"\x0a\x01\x00\x00", b"\xff\0\0\0"), b""
    ),
    "an earlier table": Flow(TABLE, 5, COOKIE, b"", of.goto_table(TABLE - 1)),
    "no table": Flow(255, 5, COOKIE, b"", b""),
}


def flow(number: int, *, cookie: int = COOKIE, instructions: bytes = TO_30) -> Flow:
    """A flow of one address."""
    address = (10 << 24 | number).to_bytes(4, "big")
    return Flow(TABLE, 100, cookie, IP + of.field(IPV4_SRC, address), instructions)


async def own_flows(session: SwitchSession) -> set[Flow]:
    found = await session.flows(COOKIE, COOKIE_MASK)
    assert len(found) == len(set(found))
    return set(found)


class SwitchContract(ABC):
    """Each scenario gets a session with a bridge that has no flow with a cookie of the plane."""

    @abstractmethod
    def with_session(self, scenario: Scenario) -> None:
        """Run a scenario with a session."""

    def test_flows_are_read_back_as_they_were_added(self) -> None:
        async def scenario(session: SwitchSession) -> None:
            flows = {flow(number) for number in range(3_000)}
            flows |= {
                Flow(
                    TABLE,
                    7,
                    COOKIE | 3,
                    IP6 + of.field(IPV6_SRC, b"\x20\x01" + bytes(14), b"\xff\xff" + bytes(14)),
                    b"",
                ),
                Flow(TABLE, 0, COOKIE, b"", b""),
                Flow(30, 0, COOKIE, b"", of.apply_actions(of.output(of.NORMAL))),
                Flow(TABLE, 9, COOKIE, IP + of.field(IP_PROTO, b"\x06"), of.apply_actions(of.conjunction(5, 1, 2))),
                Flow(TABLE, 9, COOKIE, of.conjunction_id(5) + IP, TO_30),
            }
            await session.install(flows, [])
            assert await own_flows(session) == flows
            assert set(await session.flows(COOKIE, COOKIE_MASK, table=30)) == {
                each for each in flows if each.table == 30
            }
            await session.install([], flows)
            assert await own_flows(session) == set()

        self.with_session(scenario)

    def test_only_flows_with_the_cookie_are_read(self) -> None:
        async def scenario(session: SwitchSession) -> None:
            other = flow(1, cookie=0x1234)
            await session.install([other, flow(2)], [])
            assert await own_flows(session) == {flow(2)}
            assert other in await session.flows(0, 0)

        self.with_session(scenario)

    def test_a_flow_replaces_the_one_with_its_table_priority_and_match(self) -> None:
        async def scenario(session: SwitchSession) -> None:
            await session.install([flow(1), flow(1)._replace(priority=101)], [])
            changed = flow(1, cookie=COOKIE | 9, instructions=b"")
            await session.install([changed], [])
            assert await own_flows(session) == {changed, flow(1)._replace(priority=101)}

        self.with_session(scenario)

    def test_a_deletion_spares_a_flow_with_another_cookie(self) -> None:
        async def scenario(session: SwitchSession) -> None:
            await session.install([flow(1, cookie=COOKIE | 1)], [])
            await session.install([], [flow(1, cookie=COOKIE | 2), flow(2)])
            assert await own_flows(session) == {flow(1, cookie=COOKIE | 1)}

        self.with_session(scenario)

    def test_a_bundle_is_in_its_order(self) -> None:
        async def scenario(session: SwitchSession) -> None:
            await session.install([flow(1)], [flow(1)])
            assert await own_flows(session) == set()

        self.with_session(scenario)

    @pytest.mark.parametrize("what", FORBIDDEN)
    def test_a_bundle_with_a_refused_flow_changes_nothing(self, what: str) -> None:
        async def scenario(session: SwitchSession) -> None:
            await session.install([flow(1)], [])
            with pytest.raises(SwitchRefused, match=r"(bad match|bad instruction|flow mod failed), code \d"):
                await session.install([flow(2), FORBIDDEN[what], flow(3)], [flow(1)])
            assert await own_flows(session) == {flow(1)}
            await session.install([flow(2)], [flow(1)])
            assert await own_flows(session) == {flow(2)}

        self.with_session(scenario)
