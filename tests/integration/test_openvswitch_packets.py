"""Real packets through the rules of a bridge: what is allowed passes, what is removed is cut, and who is a member all
the time is never cut by a change.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.host.openvswitch import Switch
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import Rule
from tests.contract.device import changed, table
from tests.support.openvswitch import bridge_device, switch_folder
from tests.support.probes import LEAST
from tests.support.requirements import missing_requirement

ROOT = Path(__file__).parents[2]
RECEIVER, PORT = "10.77.1.1", 7_000
MEMBERS = [f"10.77.0.{number}" for number in range(1, 13)]
LASTING = MEMBERS[:4]
RECEIVER6, MEMBERS6 = "fd00:77::1:1", ["fd00:77::1", "fd00:77::2"]
CHANGES = 1_000
MEMBER = Rule(10, "allow", "any", ())
UDP = Rule(20, "allow", "udp", (PORT, PORT, 8_000, 8_100))


class Lab(NamedTuple):
    """A bridge between the namespace of the senders and that of the receiver."""

    switch: Switch
    bridge: str
    senders: str
    receiver: str

    def begin(self, namespace: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-m", "tests.support.probes", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


class Probing:
    """Datagrams from each source, while the block runs; afterwards `sent` from each, and the numbers `received`."""

    def __init__(self, lab: Lab, sources: list[str], receiver: str = RECEIVER) -> None:
        self.sent = 0
        self.received: dict[str, list[int]] = {}
        self._lab = lab
        self._sources = sources
        self._receiver = receiver

    def __enter__(self) -> Probing:
        self._receiving = self._lab.begin(self._lab.receiver, "receive", self._receiver, str(PORT))
        assert self._receiving.stdout is not None and self._receiving.stdout.readline() == "ready\n"
        self._sending = self._lab.begin(self._lab.senders, "send", self._receiver, str(PORT), *self._sources)
        return self

    def __exit__(self, *_: object) -> None:
        self.sent = int(self._sending.communicate("\n", timeout=60)[0])
        self.received = json.loads(self._receiving.communicate("\n", timeout=60)[0])


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        missing_requirement("network namespaces need root")
    tag = secrets.token_hex(3)
    found = (f"s{tag}", f"r{tag}")
    with switch_folder(has_packets=True) as switch:
        switch.add_bridge(bridge := f"b{tag}", ports=0)
        try:
            for name in found:
                _ip("netns", "add", name)
                _ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("link", "set", f"{name}o", "up")
                for device in ("lo", "eth0"):
                    _ip("-n", name, "link", "set", device, "up")
                switch.vsctl("add-port", bridge, f"{name}o")
            for member in MEMBERS:
                _ip("-n", found[0], "address", "add", f"{member}/16", "dev", "eth0")
            _ip("-n", found[1], "address", "add", f"{RECEIVER}/16", "dev", "eth0")
            for name, addresses in zip(found, (MEMBERS6, [RECEIVER6]), strict=True):
                for address in addresses:
                    _ip("-n", name, "address", "add", f"{address}/64", "dev", "eth0", "nodad")
            switch.ofctl("add-flow", bridge, "priority=0,actions=NORMAL")
            yield Lab(switch, bridge, *found)
        finally:
            for name in found:
                _ip("netns", "delete", name)


def prefix(address: str, length: int = 32) -> bytes:
    return ipaddress.ip_address(address).packed + bytes((length,))


def some_members(rng: random.Random, version: int) -> DeviceTable:
    """The lasting members, some of the others, and prefixes of nobody, in one rule or in both."""
    others = {prefix(member) for member in MEMBERS[len(LASTING) :] if rng.random() < 0.5}
    nobody = {prefix(f"10.{rng.randrange(80, 90)}.0.0", 16) for _ in range(rng.randrange(20))}
    lasting = {prefix(member) for member in LASTING}
    in_both = {UDP: frozenset(lasting)} if rng.random() < 0.5 else {}
    members = frozenset(others | nobody | (lasting if rng.random() < 0.5 or not in_both else set()))
    return table(version, {rule: found for rule, found in {MEMBER: members, **in_both}.items() if found})


async def test_a_member_is_never_cut_by_a_change_and_who_is_removed_is_cut(lab: Lab) -> None:
    async with bridge_device(lab.switch, lab.bridge) as device:
        rng = random.Random(1)
        held = some_members(rng, 1)
        await changed(device, EMPTY_TABLE, held)
        with Probing(lab, LASTING) as probing:
            for version in range(2, CHANGES):
                new = some_members(rng, version)
                await changed(device, held, new)
                held = new
        assert probing.received == {member: list(range(probing.sent)) for member in LASTING}

        await changed(device, held, only := table(CHANGES, {UDP: frozenset({prefix(MEMBERS[0])})}))
        with Probing(lab, MEMBERS) as probing:
            pass  # the least number of datagrams
        assert probing.received == {MEMBERS[0]: list(range(probing.sent))}
        await changed(device, only, table(CHANGES + 1, {}))
        with Probing(lab, MEMBERS) as probing:
            pass
        assert probing.sent >= LEAST and not probing.received


async def test_an_allowed_address_of_ipv6_reaches_a_neighbor_that_no_rule_allows(lab: Lab) -> None:
    """Neighbors find each other by packets of IPv6, and the answer comes from the receiver."""
    async with bridge_device(lab.switch, lab.bridge) as device:
        await changed(device, EMPTY_TABLE, table(1, {UDP: frozenset({prefix(MEMBERS6[0], 128)})}))
        async with asyncio.timeout(60):
            while True:  # on a busy machine, the first answer takes its time
                with Probing(lab, MEMBERS6, RECEIVER6) as probing:
                    await asyncio.sleep(1.0)
                if probing.received:
                    break
        assert set(probing.received) == {MEMBERS6[0]}
