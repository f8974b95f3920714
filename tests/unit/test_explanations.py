"""Explanations of why a DPU allows or denies a node: the verdict, the first missing step, and the reason it waits."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from pyroaring import BitMap

from projections.fleet.membership.tombstones import Tombstone
from projections.fleet.tables.zone_table import table
from projections.installs.rows import DpuException, InstallsState, VersionInstalls, ZoneInstalls, version_key
from projections.rules.rule import Held
from projections.views.explanations import AddressView, ExplainQuery, ExplanationView, StepView, explain, is_remembered
from projections.zones.rows import Dpu, Node
from schemas.events import WritesFrozen
from tests.support.fleet import Fleet, Item, actual_table, envelope

NODE = Node("z0", 1, "u", 0, b"", {}, 3, 77)
DPU = Dpu("z0", 4, "", "", "", "Ready", 1, 1, 1, 1)
EPOCH = 2
PARTITION = 1
"""The partition of the node's zone."""


def ask(
    fleet: Fleet, installs: InstallsState | None = None, *, node: Node | None = NODE, held: Held | None = None
) -> ExplanationView:
    about = ExplainQuery("n", node, PARTITION, "d", DPU, held, EPOCH)
    return explain(about, fleet.state, installs or InstallsState())


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    for number in range(4):
        made.change(Item(f"x{number}", address=f"10.9.0.{number}"), partition=PARTITION)
    actual_table(made.state, "z0")
    made.change(Item("n", address="10.0.0.1", address6="fd00::1"), partition=PARTITION)
    actual_table(made.state, "z0")
    return made


def version_of(fleet: Fleet) -> int:
    return table(fleet.state, "z0").version


def reported(
    number: int, *levels: dict[int, set[int]], epoch: int = EPOCH, odd: tuple[DpuException, ...] = ()
) -> InstallsState:
    """Relay reports of one version: the DPUs that reached each level, by time in ms."""
    state = InstallsState()
    state.zones.put("z0", ZoneInstalls(epoch, 5, 10, odd))
    packed = [tuple((at, BitMap(dpus).serialize()) for at, dpus in level.items()) for level in levels]
    state.versions.put(version_key("z0", number), VersionInstalls(5, *packed))
    state.rederive()
    return state


def test_an_unknown_node_is_denied(fleet: Fleet) -> None:
    found = ask(Fleet(), node=None)
    assert (found.missing_step, found.reason) == ("stated", "node: 'n' is in no zone; it never joined, or has left")
    assert [(step.name, step.reached) for step in found.steps] == [("stated", False)]
    assert (found.verdict, found.summary, found.verdicts) == ("denied", "denied: the node is in no zone", ())


def test_a_node_is_allowed_until_its_leave_is_forwarded(fleet: Fleet) -> None:
    found = ask(fleet, node=None)
    assert (found.missing_step, found.reason) == ("accepted", "its leave is not forwarded to fleet yet")
    assert (found.verdict, found.summary) == ("allowed", "allowed on all traffic by policy default")


def test_a_node_whose_leave_is_held_stays_allowed_and_has_all_steps(fleet: Fleet) -> None:
    fleet.budget("denied-by-leave", 0, 0)
    hold = fleet.leave("n").result["hold"]
    found = ask(fleet, node=None)
    assert [step.note for step in found.steps[:2]] == [
        "it has left zone z0",
        f"hold {hold} keeps its addresses in the tables",
    ]
    assert (found.missing_step, found.reason) == ("sent", "dpu 'd' is not connected to any relay")
    assert (found.verdict, found.summary) == ("allowed", "allowed on all traffic by policy default")
    for actor in ("bob", "cid"):
        fleet.approve(hold, actor)
    assert (ask(fleet, node=None).missing_step, ask(fleet, node=None).verdict) == ("stated", "denied")


def test_a_node_that_left_is_distinguished_from_an_unknown_node() -> None:
    made = Fleet()
    assert not is_remembered("n", made.state, ())
    made.state.tombstones.note({"n": Tombstone(PARTITION, 5, 5, 1_700_000_000_000)}, 9)
    assert is_remembered("n", made.state, ())
    found = ask(made, node=None)
    assert (found.verdict, found.summary) == ("denied", "denied: the node left at 2023-11-14T22:13:20.000Z")


def test_an_address_in_the_tables_of_another_node_only_is_reported(fleet: Fleet) -> None:
    theirs = Node("z0", 1, "u", int(IPv4Address("10.9.0.0")), b"", {}, 3, 77)
    policy = "allowed on all traffic by policy default"
    found = ask(fleet, node=theirs)
    assert found.summary == f"{policy}; 10.9.0.0 counts as an address of other nodes only"
    assert ask(fleet).summary == policy


def test_a_node_dropped_by_a_policy_is_denied_although_every_step_is_reached(fleet: Fleet) -> None:
    fleet.unlimited()
    fleet.policy("quarantine", priority=3, action="drop", sources={})
    found = ask(fleet, reported(version_of(fleet), {}, {}, {70: {4}}))
    assert found.missing_step == ""
    assert (found.verdict, found.summary) == ("denied", "denied on all traffic by policy quarantine")


def test_a_conflict_names_the_other_nodes_whose_rules_apply(fleet: Fleet) -> None:
    fleet.unlimited()
    fleet.change(Item("other", address="10.0.0.1", labels={"side": "evil"}), partition=PARTITION)
    fleet.policy("no", priority=3, action="drop", sources={"side": "evil"})
    found = ask(fleet)
    assert found.notes == ("conflict: 10.0.0.1 is also an address of other, so their rules apply to it too",)
    assert found.verdict == "partly"
    four, six = "denied on all traffic by policy no", "allowed on all traffic by policy default"
    assert found.summary == f"10.0.0.1 {four}; fd00::1 {six}"


def test_a_conflict_names_five_nodes_and_counts_the_others(fleet: Fleet) -> None:
    others = [Item(f"o{number}", address="10.0.0.1") for number in range(7)]
    fleet.change(*others[:5], partition=PARTITION)
    said = "conflict: 10.0.0.1 is also an address of o0, o1, o2, o3, o4"
    assert ask(fleet).notes == (f"{said}, so their rules apply to it too",)
    fleet.change(*others[5:], partition=PARTITION)
    assert ask(fleet).notes == (f"{said} and 2 more, so their rules apply to it too",)


def test_a_policy_is_named_only_if_it_selects_the_node(fleet: Fleet) -> None:
    """Policies with one rule form one set on a device, and the set carries the names of all of them."""
    fleet.unlimited()
    fleet.policy("left", priority=3, sources={"side": "left"})
    fleet.policy("right", priority=3, sources={"side": "right"})
    fleet.change(Item("n", address="10.0.0.1", labels={"side": "right"}), partition=PARTITION)
    assert [view.policy for view in ask(fleet).addresses] == ["right", "default"]
    assert ask(fleet).summary == "allowed on all traffic by policy right"


def test_an_explanation_of_the_past_does_not_know_every_version_of_the_dpu(fleet: Fleet) -> None:
    wanted = version_of(fleet)
    about = ExplainQuery("n", NODE, PARTITION, "d", DPU, None, EPOCH, is_past=True)
    before = explain(about, fleet.state, InstallsState())
    unknown = f"no relay had reported version {wanted} of the DPU by then; other versions that it held are not kept"
    assert (before.missing_step, before.reason) == ("sent", unknown)
    applied = explain(about, fleet.state, reported(wanted, {}, {60: {4}}, {}))
    assert (applied.missing_step, applied.reason) == ("in_hardware", unknown)
    assert before.verdict == applied.verdict == "allowed"


def test_a_change_that_is_not_forwarded_yet_is_the_missing_step(fleet: Fleet) -> None:
    mark = fleet.state.marks[PARTITION]
    found = ask(fleet, node=Node("z0", 1, "u", 0, b"", {}, mark, 88))
    assert found.steps[0] == StepView("stated", True, 88, f"zones/{PARTITION}/{mark}", 0, "its last change in zone z0")
    assert found.missing_step == "accepted"
    assert found.reason == f"its change at zones/{PARTITION}/{mark} is not forwarded to fleet yet"
    assert ask(fleet, node=Node("z0", 1, "u", 0, b"", {}, mark - 1, 88)).missing_step == "sent"
    assert ask(Fleet()).missing_step == "accepted"


def test_a_node_without_an_address_has_no_rule(fleet: Fleet) -> None:
    fleet.change(Item("n"), partition=PARTITION)
    assert ask(fleet).reason == "the node has no address"
    for address, address6 in (("10.0.0.1", ""), ("", "fd00::1")):
        fleet.change(Item("n", address=address, address6=address6), partition=PARTITION)
        assert ask(fleet).missing_step == "sent"


def test_a_held_change_leaves_the_verdict_of_the_former_state(fleet: Fleet) -> None:
    fleet.policy("no", action="drop", sources={"side": "evil"})
    fleet.budget("denied-by-change", 0, 0)
    outcome = fleet.change(
        Item("n", address="10.0.0.1", address6="fd00::1", labels={"side": "evil"}), partition=PARTITION
    )
    assert outcome.code == "held"
    found = ask(fleet)
    assert found.missing_step == "accepted"
    assert found.reason == f"hold {outcome.result['hold']} withholds its newest state until two principals approve it"
    assert found.verdict == "allowed", "the former state of the node decides"


def test_a_node_that_no_policy_of_the_zone_selects_is_denied(fleet: Fleet) -> None:
    fleet.budget("denied-by-change", 1_000, 0)
    fleet.policy("default", priority=-1_000_000, sources={"side": "left"})
    found = ask(fleet)
    assert (found.addresses, found.missing_step) == ((), "intended")
    assert found.summary == "denied on all traffic because no rule matches"
    reason = "no policy for zone z0 selects the node by its labels (policies there: default)"
    assert found.reason == reason
    assert fleet.policy("default", priority=-1_000_000, zones={"tier": "gold"}).code == "done"
    assert ask(fleet).reason.endswith("(policies there: none)")


def test_each_address_is_listed_with_the_rules_that_contain_it(fleet: Fleet) -> None:
    fleet.policy("ssh", priority=7, action="drop", protocol="tcp", ports=(22, 22), sources={"a": "b"})
    fleet.budget("denied-by-change", 1_000, 0)
    actual_table(fleet.state, "z0")
    fleet.now_ms += 5
    fleet.change(Item("n", address="10.0.0.1", labels={"a": "b"}), partition=PARTITION)
    found = ask(fleet)
    version = version_of(fleet)
    assert found.addresses[0] == AddressView("10.0.0.1", "10.0.0.1/32", "ssh", "drop", 7, "tcp", (22, 22), version)
    assert [view.policy for view in found.addresses] == ["ssh", "default"]
    intended = found.steps[2]
    assert (intended.reach_time_ms, intended.position) == (fleet.now_ms, f"fleet/0/{version - 1}")
    assert intended.note == f"policy ssh: drop 10.0.0.1/32; the table is at version {version}"


def test_the_version_is_known_if_one_change_came_before_the_first_read() -> None:
    made = Fleet()
    made.change(Item("n", address="10.0.0.1"), Item("other", address="10.0.0.2"), partition=PARTITION)
    at_ms, first = made.now_ms, made.offset
    found = ask(made, node=Node("z0", 1, "u", 0, b"", {}, 0, 77))
    assert [view.version for view in found.addresses] == [first]
    assert (found.steps[2].version, found.steps[2].reach_time_ms) == (first, at_ms)
    made.now_ms += 5
    made.change(Item("late", address="10.0.0.9"), partition=PARTITION)
    assert [view.version for view in ask(made).addresses] == [first], "the version of the first change is kept"


def test_the_version_is_unknown_if_more_changes_came_before_the_first_read() -> None:
    made = Fleet()
    for name, address in (("n", "10.0.0.1"), ("other", "10.0.0.2")):
        made.change(Item(name, address=address), partition=PARTITION)
    assert [view.version for view in ask(made).addresses] == [0]


def test_the_version_is_unknown_for_addresses_from_before_a_restart() -> None:
    made = Fleet()
    made.change(Item("n", address="10.0.0.1"), partition=PARTITION)
    made.state = made.reload()
    made.change(Item("other", address="10.0.0.2"), partition=PARTITION)
    assert [view.version for view in ask(made).addresses] == [0]


def test_ipv6_addresses_are_spelled_in_ipv6_form(fleet: Fleet) -> None:
    assert [(view.address, view.prefix) for view in ask(fleet).addresses] == [
        ("10.0.0.1", "10.0.0.1/32"),
        ("fd00::1", "fd00::1/128"),
    ]


def test_a_freeze_of_a_zone_or_of_all_is_the_missing_step(fleet: Fleet) -> None:
    fleet.apply(WritesFrozen(envelope("eve"), ""))
    found = ask(fleet, held=Held(EPOCH, 1, b""))
    assert found.missing_step == "sent"
    assert found.reason == "zone z0 is frozen by eve since 1970-01-01T00:16:40.000Z: its devices are not written to"
    fleet.apply(WritesFrozen(envelope("ann"), "z0"))
    assert "frozen by ann" in ask(fleet).reason


def test_a_dpu_without_a_relay_is_the_missing_step(fleet: Fleet) -> None:
    found = ask(fleet)
    assert (found.missing_step, found.reason) == ("sent", "dpu 'd' is not connected to any relay")
    assert [step.reached for step in found.steps] == [True, True, True, False]


def test_a_dpu_with_an_older_version_is_the_missing_step(fleet: Fleet) -> None:
    wanted = version_of(fleet)
    found = ask(fleet, held=Held(EPOCH, wanted - 1, b""))
    assert found.missing_step == "received"
    assert found.reason == f"the DPU has version {wanted - 1} of epoch 2, and needs {wanted} of 2"
    assert found.steps[3].note == "its relay is sending the missing changes"
    other = ask(fleet, held=Held(EPOCH - 1, wanted, b""))
    assert other.reason == f"the DPU has version {wanted} of epoch 1, and needs {wanted} of 2"


def test_a_version_reported_by_the_dpu_alone_has_no_times(fleet: Fleet) -> None:
    wanted = version_of(fleet)
    found = ask(fleet, held=Held(EPOCH, wanted, b""))
    assert [(step.name, step.reached, step.reach_time_ms) for step in found.steps[4:]] == [
        ("received", True, 0),
        ("applied", True, 0),
        ("in_hardware", False, 0),
    ]
    reason = f"the DPU has applied version {wanted}, and has not confirmed it in hardware"
    assert (found.missing_step, found.reason) == ("in_hardware", reason)


def test_each_level_has_the_earliest_time_that_relays_reported(fleet: Fleet) -> None:
    """A version in hardware was also received and applied, and a later version implies this one."""
    wanted = version_of(fleet)
    found = ask(fleet, reported(wanted, {50: {4}}, {60: {3, 4}}, {70: {4}}))
    assert [step.reach_time_ms for step in found.steps[4:]] == [50, 60, 70]
    assert (found.missing_step, found.reason) == ("", "")
    implied = ask(fleet, reported(wanted + 5, {50: {3}}, {}, {70: {4}}))
    assert [step.reach_time_ms for step in implied.steps[4:]] == [70, 70, 70]
    earlier = ask(fleet, reported(wanted, {90: {4}}, {60: {4}}, {}))
    assert [step.reach_time_ms for step in earlier.steps[4:]] == [60, 60, 0]


def test_reports_of_other_dpus_older_versions_or_another_epoch_do_not_count(fleet: Fleet) -> None:
    wanted = version_of(fleet)
    for installs in (
        reported(wanted, {50: {3}}, {}, {}),
        reported(wanted - 1, {}, {}, {50: {4}}),
        reported(wanted, {}, {}, {50: {4}}, epoch=EPOCH - 1),
    ):
        assert ask(fleet, installs).reason == "dpu 'd' is not connected to any relay"


@pytest.mark.parametrize(
    ("exception", "reason"),
    [
        (DpuException(99, "d", -1, "no room"), "the DPU refused its table: no room (at 1970-01-01T00:00:00.099Z)"),
        (DpuException(99, "d", -1, "DRIFT: x"), "the DPU lost its table: DRIFT: x (at 1970-01-01T00:00:00.099Z)"),
        (DpuException(99, "d", 0, ""), "the DPU went back to version 0 (at 1970-01-01T00:00:00.099Z)"),
        (DpuException(99, "d", 5, ""), "the DPU went back to version 5 (at 1970-01-01T00:00:00.099Z)"),
    ],
)
def test_a_refusal_or_a_regression_is_the_reason(fleet: Fleet, exception: DpuException, reason: str) -> None:
    other = DpuException(100, "e", -1, "another's")
    installs = reported(1, {}, {}, {}, odd=(other, exception))
    assert ask(fleet, installs, held=Held(EPOCH, 1, b"")).reason == reason


def test_a_freeze_does_not_matter_for_a_version_that_the_dpu_already_has(fleet: Fleet) -> None:
    fleet.apply(WritesFrozen(envelope("ann"), "z0"))
    found = ask(fleet, reported(version_of(fleet), {50: {4}}, {60: {4}}, {70: {4}}))
    assert (found.missing_step, found.steps[3].reached) == ("", True)


def test_an_address_from_before_the_history_has_no_version() -> None:
    fleet = Fleet()
    fleet.change(Item("other", address="10.0.0.2"), partition=PARTITION)
    for _ in range(3):
        fleet.change(Item("n", address="10.0.0.1"), partition=PARTITION)
    intended = ask(fleet).steps[2]
    assert (intended.version, intended.reach_time_ms, intended.position) == (0, 0, "")
    assert intended.note == (
        f"policy default: allow 10.0.0.1/32; the table is at version {version_of(fleet)}; "
        "the history does not reach back to when the address was added"
    )


def test_a_new_policy_has_the_version_that_added_it(fleet: Fleet) -> None:
    fleet.now_ms += 5
    fleet.policy("web", protocol="tcp", ports=(443, 443), sources={})
    version = version_of(fleet)
    first, *others = ask(fleet).addresses
    assert (first.policy, first.version) == ("web", version)
    assert {view.policy: view.version for view in others}["default"] < version, "the default policy is older"
    intended = ask(fleet).steps[2]
    assert (intended.version, intended.reach_time_ms, intended.position) == (
        version,
        fleet.now_ms,
        f"fleet/0/{version - 1}",
    )


def test_a_set_has_the_version_since_when_the_zone_has_it(fleet: Fleet) -> None:
    """Tables of other zones may have had the address before. A DPU of this zone with an older table lacks it."""
    fleet.budget("denied-by-change", 1_000, 0)
    fleet.budget("allowed-by-change", 1_000, 0)
    fleet.describe("z1", {"tier": "gold"})
    fleet.policy("default", priority=-1_000_000, zones={"tier": "gold"})
    actual_table(fleet.state, "z1")
    fleet.change(Item("n", address="10.0.0.7"), partition=PARTITION)
    old = version_of(fleet)
    fleet.now_ms += 5
    fleet.describe("z0", {"tier": "gold"})
    wanted = version_of(fleet)
    found = ask(fleet, held=Held(EPOCH, wanted - 1, b""))
    assert old < wanted
    assert [view.version for view in found.addresses] == [wanted]
    assert found.reason == f"the DPU has version {wanted - 1} of epoch 2, and needs {wanted} of 2"
    fleet.describe("z0", {"tier": "gold", "side": "left"})
    assert [view.version for view in ask(fleet).addresses] == [wanted], "the zone keeps its list"


def test_a_set_that_a_zone_regained_has_the_version_of_its_return(fleet: Fleet) -> None:
    fleet.budget("denied-by-change", 1_000, 0)
    fleet.budget("allowed-by-change", 1_000, 0)
    for zones in ({"tier": "gold"}, {}):
        fleet.policy("default", priority=-1_000_000, zones=zones)
        actual_table(fleet.state, "z0")
    fleet.policy("ssh", protocol="tcp", ports=(22, 22), sources={"a": "b"})
    assert [view.version for view in ask(fleet).addresses] == [version_of(fleet) - 1] * 2


def test_after_a_restart_a_dpu_with_an_older_version_is_not_assumed_to_have_the_rule(fleet: Fleet) -> None:
    """Without history the version that added the address is unknown, so only the newest version surely contains it."""
    wanted = version_of(fleet)
    fleet.state = fleet.reload()
    found = ask(fleet, reported(wanted - 1, {50: {4}}, {60: {4}}, {70: {4}}), held=Held(EPOCH, wanted - 1, b""))
    assert found.steps[2].version == 0
    assert found.missing_step == "received"
    assert found.reason == f"the DPU has version {wanted - 1} of epoch 2, and needs {wanted} of 2"
    assert ask(fleet, reported(wanted, {50: {4}}, {60: {4}}, {70: {4}})).missing_step == ""


def test_while_a_change_is_staged_the_list_of_the_dpus_stage_counts(fleet: Fleet) -> None:
    fleet.unlimited()
    fleet.stage("no", action="drop")
    fleet.name_dpus(1, "z0/other")
    fleet.observe(0, named=1)
    said = ask(fleet)
    assert said.verdict == "allowed"
    assert said.notes == (
        "'d' is in no released stage of the staged change of policy 'no' (1 of 3), and has the list before it",
    )
    fleet.name_dpus(2, "z0/d")
    fleet.observe(1, named=1)
    said = ask(fleet)
    assert said.verdict == "denied" and {view.policy for view in said.addresses} == {"no", "default"}
    assert said.notes == ("'d' is in stage 2 of 3 of the staged change of policy 'no', and has the list with it",)
    fleet.request_stages("undo", "no", "eve")
    said = ask(fleet)
    assert said.verdict == "allowed"
    assert said.notes == ("the staged change of policy 'no' is rolled back by eve",)
