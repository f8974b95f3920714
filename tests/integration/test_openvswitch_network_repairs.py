"""Repairs of chains in a real Open vSwitch: at once, and within the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from deploy.host.openvswitch import Switch
from drivers.backends import openvswitch_network, repairs
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.openflow.chain_flows import ChainDifference, compare_chains
from drivers.openflow.messages import Flow
from projections.resources.network_documents.document import Document
from tests.contract.network_device import chain, digest_of, physical, programmed, read_until
from tests.integration.test_openvswitch_network import flows, number, whole
from tests.support.eventually import until
from tests.support.openvswitch import LAYOUT, bridge_network


@pytest.fixture
def bridge(switch: Switch) -> Iterator[str]:
    """A bridge with ports 1 and 2 of another program."""
    switch.add_bridge("br0")
    yield "br0"
    switch.vsctl("del-br", "br0")


async def test_flows_and_ports_that_others_changed_are_repaired_within_the_budget(
    switch: Switch, bridge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvswitch_network, "CHECK_S", 0.05)
    monkeypatch.setattr(repairs, "REPAIRS_PER_HOUR", 2)
    near, far = physical("p0"), physical("p1", 9000)
    document = Document(interfaces=(near, far), switches=(chain("chain", near, far),))

    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
        expected = flows(switch, bridge)
        switch.ofctl("del-flows", bridge, "table=31,in_port=p0")
        await until(lambda: flows(switch, bridge) == expected)
        switch.ofctl("add-flow", bridge, f"table=31,priority=7,cookie={0xD9A6 << 48:#x},actions=drop")
        await until(lambda: flows(switch, bridge) == expected)
        assert device.counts.repairs == 2
        switch.vsctl("set", "interface", "p1", "mtu_request=1500")
        await until(lambda: switch.vsctl("get", "interface", "p1", "mtu_request").strip() == "9000")
        switch.vsctl("del-port", "p1")
        await until(lambda: "p1" in switch.vsctl("list-ports", bridge).split())
        await whole(device, document)
        switch.ofctl("del-flows", bridge, "table=31")
        await read_until(device, lambda found: device.counts.unrepaired > 0)
        assert (await device.read_back()).digest != digest_of(document), "what is not repaired is reported"
        assert device.counts.repairs == 2, "changes of ports need no budget"


async def test_chains_that_the_switch_flushes_are_restored_at_once_beyond_the_budget(
    switch: Switch, bridge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvswitch_network, "CHECK_S", 3.0)
    monkeypatch.setattr(repairs, "REPAIRS_PER_HOUR", 1)
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        expected = flows(switch, bridge)
        for count in range(1, 3):
            switch.ofctl("del-flows", bridge)
            await until(partial(_has_repaired, device, count))
            assert flows(switch, bridge) == expected


async def test_chains_beyond_the_budget_are_logged_once(
    switch: Switch, bridge: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openvswitch_network, "CHECK_S", 0.05)
    monkeypatch.setattr(repairs, "REPAIRS_PER_HOUR", 1)
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        switch.ofctl("del-flows", bridge, "table=31,in_port=p0")
        await until(partial(_has_repaired, device, 1))
        checks: list[ChainDifference] = []

        def counted(found: Sequence[Flow], expected: Sequence[Flow]) -> ChainDifference:
            checks.append(compare_chains(found, expected))
            return checks[-1]

        monkeypatch.setattr(openvswitch_network, "compare_chains", counted)
        for left, port in enumerate(("p0", "p1"), 1):
            switch.ofctl("del-flows", bridge, f"table=31,in_port={port}")
            await until(partial(_has_left, device, left))
            awaited = len(checks) + 3
            await until(lambda awaited=awaited: len(checks) > awaited)  # type: ignore[misc]
            assert caplog.text.count("is not repaired: repairs within the last hour: 1, its limit") == left


@pytest.mark.parametrize("change", ["deleted", "hook", "learning", "switching"])
async def test_chains_that_another_program_changes_are_restored_at_once(
    switch: Switch, bridge: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """A flow with the match and the priority of another one replaces it, with its own cookie."""
    monkeypatch.setattr(openvswitch_network, "CHECK_S", 3_600.0)
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        expected = flows(switch, bridge)
        port = number(switch, "p0")
        await asyncio.sleep(0.5)  # the check that the new ports caused
        if change == "deleted":
            switch.ofctl("del-flows", bridge, "table=31")
        elif change == "hook":
            stray = f"table=0,priority={LAYOUT.hook_priority - 1},in_port={port},actions=drop"
            switch.ofctl("add-flow", bridge, stray)
            await until(lambda: "hook-priority: another program" in caplog.text)
            return
        else:
            place = {"learning": "table=30,priority=1", "switching": "table=31,priority=0"}[change]
            switch.ofctl("add-flow", bridge, f"{place},in_port={port},actions=drop")
        await until(lambda: flows(switch, bridge) == expected)


def _has_repaired(device: OpenVSwitchNetwork, times: int) -> bool:
    return device.counts.repairs >= times


def _has_left(device: OpenVSwitchNetwork, times: int) -> bool:
    return device.counts.unrepaired == times
