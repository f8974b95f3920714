"""The flows of rules as ovs-ofctl reads them: those that it would make itself of the same rules, and no others."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import re
from collections.abc import Iterator
from pathlib import Path

from deploy.host.openvswitch import Switch
from drivers.openflow.rule_flows import port_masks, rule_cookie
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import Rule
from tests.contract.device import changed, restored, some_rules, table
from tests.support.openvswitch import bridge_device

FIXED = (
    *(f"table=0,priority=1000,{kind},actions=goto_table:20" for kind in ("ip", "ipv6")),
    *(f"table=20,priority=65001,icmp6,icmp_type={kind},actions=goto_table:30" for kind in range(133, 137)),
    "table=20,priority=0,actions=drop",
    "table=30,priority=0,actions=NORMAL",
)
VERSIONS = 12


def written(content: DeviceTable, priorities: dict[int, int]) -> Iterator[str]:
    """The flows of a table in the notation of ovs-ofctl, with the priorities that their cookies have."""
    for flow in FIXED:
        yield f"cookie=0xd9a5000000000000,{flow}"
    for rule, prefixes in content.rules.items():
        cookie = rule_cookie(rule)
        for is_6 in (False, True):
            networks = [ipaddress.ip_network((each[:-1], each[-1])) for each in prefixes if (len(each) == 17) == is_6]
            for flow in of_family(rule, networks, cookie & 0xFFFF_FFFF, is_6=is_6) if networks else ():
                yield f"cookie={cookie:#x},table=20,priority={priorities[cookie]},{flow}"


def of_family(
    rule: Rule, networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network], number: int, *, is_6: bool
) -> Iterator[str]:
    any_word, verdict = "ipv6" if is_6 else "ip", "goto_table:30" if rule.action == "allow" else "drop"
    parts = list(of_ports(rule, any_word, "6" if is_6 else ""))
    source = "ipv6_src" if is_6 else "nw_src"
    if len(parts) == 1:
        yield from (f"{parts[0]},{source}={network},actions={verdict}" for network in networks)
        return
    yield from (f"{any_word},{source}={network},actions=conjunction({number},1/2)" for network in networks)
    yield from (f"{part},actions=conjunction({number},2/2)" for part in parts)
    yield f"conj_id={number},{any_word},actions={verdict}"


def of_ports(rule: Rule, any_word: str, suffix: str) -> Iterator[str]:
    """The protocols and ports of a rule, one match each."""
    word = any_word if rule.protocol == "any" else f"{rule.protocol}{suffix}"
    if not rule.ports:
        yield word
    for first, last in zip(rule.ports[::2], rule.ports[1::2], strict=True):
        yield from (f"{word},tp_dst={value:#x}/{mask:#x}" for value, mask in port_masks(first, last))


async def test_the_flows_are_those_that_ovs_ofctl_makes_of_the_same_rules(switch: Switch, tmp_path: Path) -> None:
    for bridge in ("ours", "peer"):
        switch.add_bridge(bridge)
    rng, old, seen = random.Random(68), EMPTY_TABLE, set[tuple[str, bool, int]]()
    async with bridge_device(switch, "ours") as device:
        for version in range(1, VERSIONS):
            new = table(version, some_rules(rng))
            await changed(device, old, new)
            old, found = new, switch.flows("ours")
            shown = (re.match(r"cookie=(\w+), table=20, priority=(\d+),", line) for line in found)
            priorities = {int(each[1], 16): int(each[2]) for each in shown if each is not None}
            file = tmp_path / "flows"
            file.write_text("\n".join(written(new, priorities)))
            switch.ofctl("del-flows", "peer")
            switch.ofctl("add-flows", "peer", str(file))
            assert found == switch.flows("peer")
            seen |= {
                (rule.protocol, len(each) == 17, min(len(rule.ports), 4))
                for rule in new.rules
                for each in new.rules[rule]
            }
    assert len(seen) == 16, "each protocol in both families, those with ports also with one range and with two"


async def test_a_restarted_agent_writes_no_flow_again(switch: Switch) -> None:
    switch.add_bridge("kept")
    content = table(1, some_rules(random.Random(9)))
    async with bridge_device(switch, "kept") as device:
        await restored(device, content)
    await asyncio.sleep(1.1)
    async with bridge_device(switch, "kept") as device:
        await restored(device, content)
        assert await device.read_back() == content.digest
    ages = re.findall(r"cookie=0xd9a5\w+, duration=(\d+)\.", switch.ofctl("dump-flows", "kept"))
    assert len(ages) > len(FIXED) and all(int(age) >= 1 for age in ages)
