"""The verdict of an explanation is what a device does on each protocol and port."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.fleet.tables import snapshot
from projections.installs.rows import InstallsState
from projections.rules.device_table import EMPTY, DeviceTable, apply, pack
from projections.rules.prefixes import networks
from projections.rules.rule import Rule
from projections.views.explanations import ExplanationView, Subject, explain
from projections.views.verdicts import PROTOCOLS, Matching, Verdict, sentence, summary, verdicts
from projections.zones.rows import Dpu, Node
from tests.support.fleet import Device, Fleet, Item, Probe, is_allowed, probes

Said = dict[str, Any]
"""What a policy says, and its name."""

LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("01"), max_size=2)
ZONES = ("z0", "z1", "nowhere")
traffic = st.sampled_from(
    (("any", ()), ("icmp", ()), ("tcp", ()), ("tcp", (80, 90)), ("tcp", (85, 85, 443, 65_535)), ("udp", (0, 53)))
)
policies = st.lists(
    st.builds(
        lambda name, priority, action, said, sources, zones: {
            "name": name,
            "priority": priority,
            "action": action,
            "protocol": said[0],
            "ports": said[1],
            "sources": sources,
            "zones": zones,
        },
        st.sampled_from(("default", "p", "q", "r")),
        st.integers(-1, 1),
        st.sampled_from(("allow", "drop")),
        traffic,
        LABELS,
        st.sampled_from(({}, {}, {"t": "1"})),
    ),
    max_size=5,
)
nodes = st.lists(st.tuples(st.integers(1, 6), st.booleans(), LABELS), min_size=1, max_size=6)


def fleet_of(found: Sequence[tuple[int, bool, dict[str, str]]], rules: Sequence[Said], *, held: bool) -> Fleet:
    """Nodes that share addresses, and where `held`, leaves and changes that wait."""
    fleet = Fleet()
    fleet.unlimited()
    fleet.describe("z1", {"t": "1"})
    items = [
        Item(f"n{i}", "z0", f"10.0.0.{number}", f"fd00::{number}" if six else "", labels)
        for i, (number, six, labels) in enumerate(found)
    ]
    for item in items:
        fleet.change(item)
    for rule in rules:
        fleet.policy(**rule)
    if held:
        fleet.now_ms += 3_600_000
        for kind in ("denied-by-leave", "denied-by-change"):
            fleet.budget(kind, 0, 0)
        fleet.leave("n0")
        fleet.change(items[-1]._replace(address="10.0.0.9", labels={"a": "9"}, created_ms=2))
    return fleet


def device_of(fleet: Fleet, zone: str) -> Device:
    """What a device of the zone holds once it has taken the table."""
    frame = snapshot(fleet.state, zone)
    table = apply(EMPTY, 1, frame, capacity=1_000)
    assert isinstance(table, DeviceTable)
    return {rule: set(networks(*pack(prefixes))) for rule, prefixes in table.rules.items()}


def explained(fleet: Fleet, name: str, zone: str) -> ExplanationView:
    """What is said of a node as its zone has it: not at all, once it has left."""
    row = fleet.state.members.rows[name]
    stated = Node(row.zone, row.created_ms, row.uid, row.address4, row.address6, row.labels, 0, 0)
    dpu = Dpu(zone, 0, "", "", "", "Ready", 1, 1, 1, 1)
    about = Subject(name, None if row.held else stated, 0, "d", dpu, None, 1)
    return explain(about, fleet.state, InstallsState())


def speaks(verdict: Sequence[str], ports: Sequence[int], probe: Probe) -> bool:
    protocol, port = probe
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    return protocol in verdict and (not pairs or any(first <= port <= last for first, last in pairs))


@settings(max_examples=200)
@given(nodes, policies, st.booleans())
def test_a_verdict_is_what_the_device_does_on_every_class_of_traffic(
    found: list[tuple[int, bool, dict[str, str]]], rules: list[Said], held: bool
) -> None:
    fleet = fleet_of(found, rules, held=held)
    asked = probes(fleet.state.policies.rows.values())
    for zone in ZONES:
        device = device_of(fleet, zone)
        for name in fleet.state.members.rows:
            view = explained(fleet, name, zone)
            said = {(verdict.address, verdict.allowed) for verdict in view.verdicts}
            for address in sorted({verdict.address for verdict in view.verdicts}):
                for probe in asked:
                    (verdict,) = [
                        each
                        for each in view.verdicts
                        if each.address == address and speaks(each.protocols, each.ports, probe)
                    ]
                    assert verdict.allowed == is_allowed(device, ip_address(address), probe), (zone, name, probe)
                    assert not verdict.allowed or verdict.policy, "somebody allows it"
            assert {view.address for view in view.addresses} <= {address for address, _ in said}
            assert view.verdict == summary(Verdict(v.allowed, v.policy, v.protocols, v.ports) for v in view.verdicts)


def matching(priority: int, action: str, protocol: str = "any", ports: tuple[int, ...] = ()) -> Matching:
    return Matching(f"p{priority}", Rule(priority, action, protocol, ports))


def test_traffic_is_told_by_ports_where_they_matter_and_else_together() -> None:
    found = verdicts([matching(9, "drop", "tcp", (22, 22, 80, 90)), matching(1, "allow")])
    assert found == (
        Verdict(True, "p1", ("tcp",), (0, 21, 23, 79, 91, 65_535)),
        Verdict(False, "p9", ("tcp",), (22, 22, 80, 90)),
        Verdict(True, "p1", ("udp", "icmp", "other"), ()),
    )
    assert summary(found) == "partly"
    assert sentence({"10.0.0.1": found, "10.0.0.2": found}) == (
        "allowed on tcp 0-21,23-79,91-65535 by policy p1, denied on tcp 22,80-90 by policy p9,"
        " allowed on udp and icmp and other protocols by policy p1"
    )


def test_neighbouring_ports_of_one_verdict_are_one_range() -> None:
    found = verdicts(
        [matching(9, "drop", "udp", (1, 5)), matching(8, "allow", "udp", (3, 3)), matching(7, "drop", "udp", (6, 7))]
    )
    assert found[:3] == (
        Verdict(False, "", ("udp",), (0, 0, 8, 65_535)),
        Verdict(False, "p9", ("udp",), (1, 5)),
        Verdict(False, "p7", ("udp",), (6, 7)),
    )
    assert found[3:] == (Verdict(False, "", ("tcp", "icmp", "other"), ()),)


def test_without_a_rule_all_traffic_is_denied() -> None:
    assert verdicts([]) == (Verdict(False, "", PROTOCOLS, ()),)
    assert (summary(verdicts([])), summary([])) == ("denied", "denied")
    assert sentence({"10.0.0.1": verdicts([])}) == "denied on all traffic as no rule speaks of it"
