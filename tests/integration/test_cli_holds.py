"""Holds on the command line: listed and closed by an operator, against a real plane."""

from __future__ import annotations

import pytest

from eventstore.log import partition_of
from schemas.api import dpuplane_pb2 as pb
from tests.integration.test_cli import Run, become_member, plane, run
from tests.support.served import PARTITIONS, Served

__all__ = ["plane", "run"]


async def test_a_held_leave_waits_for_two_principals(run: Run) -> None:
    assert (await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "1")).status == 0
    budgets = (await run("budgets", "list")).json["budgets"]
    assert {budget["kind"]: budget["min_addresses"] for budget in budgets}["denied-by-leave"] == 1
    names = [f"n{i}" for i in range(1, 6)]
    for number, name in enumerate(names, 1):
        await become_member(run, name, "z1", f"10.0.0.{number}")
    left = await run("nodes", "leave", *names)
    assert (left.status, left.json["outcome"]) == (0, "held")
    hold = str(left.json["hold"])
    (shown,) = (await run("holds", "list")).json["holds"]
    assert (str(shown["hold"]), shown["nodes"]) == (hold, names)
    assert (await run("holds", "approve", hold, "--as", "alice")).status == 0
    twice = await run("holds", "approve", hold, "--as", "alice")
    assert (await run("holds", "list")).json["holds"], twice
    assert (await run("holds", "approve", hold, "--as", "bob", "--hash", shown["hash"])).status == 0
    assert (await run("holds", "list")).json["holds"] == []
    over = await run("holds", "approve", hold, "--as", "carol")
    assert (over.status, f"{hold} is not open" in over.stderr) == (1, True)


async def test_an_unlimited_budget_is_printed_as_the_options_that_set_it(run: Run) -> None:
    limited = await run("budgets", "set", "allowed-by-join", "--permille", "10", "--min-addresses", "50")
    assert (limited.status, limited.json["outcome"]) == (0, "done")
    assert {"allowed-by-join": ["10", "50"]}.items() <= (await budgets_of(run)).items()
    raised = await run("budgets", "set", "allowed-by-join", "--no-limit")
    assert (raised.status, raised.json["outcome"]) == (0, "held"), "the budget is looser"
    for name in ("alice", "bob"):
        assert (await run("holds", "approve", str(raised.json["hold"]), "--as", name)).status == 0
    assert {"allowed-by-join": ["no", "limit", "-"]}.items() <= (await budgets_of(run)).items()
    for wrong in ([], ["--permille", "10"], ["--no-limit", "--min-addresses", "5"]):
        ran = await run("budgets", "set", "allowed-by-join", *wrong)
        assert (ran.status, "--no-limit" in ran.stderr) == (2, True)


async def budgets_of(run: Run) -> dict[str, list[str]]:
    """The columns of each row of `budgets list`, by kind."""
    rows = (await run("budgets", "list", "--output", "table")).stdout.splitlines()[1:]
    return {kind: words for kind, *words in map(str.split, rows)}


async def test_a_repeated_leave_names_the_hold_that_keeps_or_kept_its_nodes(run: Run) -> None:
    await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "0")
    for number in (1, 2, 3):
        await become_member(run, f"n{number}", "z1", f"10.0.0.{number}")
    hold = (await run("nodes", "leave", "n1", "n2")).json["hold"]
    for where in ([], ["--zone", "z1"]):
        again = await run("nodes", "leave", "n1", *where)
        assert (again.status, again.json["outcome"], "hold" in again.json) == (0, "unchanged", False)
        (item,) = again.json["items"]
        assert item["reason"] == again.json["reason"] == "node: 'n1' is not in zone 'z1'"
        assert item["note"] == f"it left zone 'z1' earlier, and hold {hold} keeps it in the rule tables"
        assert (await run("commands", "show", again.json["command_id"])).json == again.json
    assert (await run("holds", "reject", str(hold), "--as", "alice")).status == 0
    for where in ([], ["--zone", "z1"]):
        again = await run("nodes", "leave", "n1", *where)
        assert (again.status, again.json["outcome"], "hold" in again.json) == (0, "unchanged", False)
        note = again.json["items"][0]["note"]
        assert f"its leave of zone 'z1' was rejected with hold {hold}, so the rule tables keep it" in note
        assert (await run("commands", "show", again.json["command_id"])).json == again.json
    both = await run("nodes", "leave", "n2", "n3")
    said = {item["name"]: (item["outcome"], item.get("note", "")) for item in both.json["items"]}
    assert (both.json["outcome"], both.json["hold"] > hold, said["n3"][0]) == ("held", True, "held")
    assert (said["n2"][0], f"rejected with hold {hold}" in said["n2"][1]) == ("unchanged", True)
    table = (await run("nodes", "leave", "n2", "--output", "table")).stdout
    lines = [line.strip() for line in table.splitlines()]
    assert lines[0] == "unchanged: node: 'n2' is not in zone 'z1'"
    assert lines[1].startswith(f"n2: its leave of zone 'z1' was rejected with hold {hold}, so the rule tables keep it")


async def test_a_move_of_one_node_is_held_and_its_author_cannot_approve_it(run: Run) -> None:
    assert partition_of(b"z1", PARTITIONS) != partition_of(b"z3", PARTITIONS)
    await run("budgets", "set", "denied-by-change", "--permille", "0", "--min-addresses", "0")
    await become_member(run, "n1", "z1", "10.0.0.1")
    moved = await run("nodes", "join", "n1", "--zone", "z3", "--address", "10.0.0.9", "--as", "joe")
    assert (moved.status, moved.json["outcome"]) == (0, "held"), moved
    (hold,) = (await run("holds", "list")).json["holds"]
    assert (hold["hold"], hold["requested_by"]) == (moved.json["hold"], "?joe")
    command = ("--command", moved.json["command_id"])
    own = await run("holds", "approve", *command, "--as", "joe")
    assert (own.status, "other principals must approve it" in own.stderr) == (1, True)
    assert [(await run("holds", "approve", *command, "--as", name)).status for name in ("ann", "bob")] == [0, 0]
    changed = await run("nodes", "join", "n1", "--zone", "z3", "--address", "10.0.0.8")
    assert (changed.status, changed.json["outcome"]) == (0, "held"), changed


async def test_a_leave_from_several_zones_names_each_of_its_holds(run: Run) -> None:
    await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "0")
    for number, zone in enumerate(("z1", "z2"), 1):
        await become_member(run, f"n{number}", zone, f"10.0.0.{number}")
    left = (await run("nodes", "leave", "n1", "n2")).json
    holds = [hold["hold"] for hold in (await run("holds", "list")).json["holds"]]
    assert left["hold"] == holds[0]
    assert [(item["name"], item["outcome"]) for item in left["items"]] == [("n1", "held"), ("n2", "held")]
    assert f"hold {holds[1]}" in left["items"][1]["reason"]


async def test_the_last_approval_of_a_hold_can_be_repeated_safely(run: Run, plane: Served) -> None:
    await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "0")
    await become_member(run, "n1", "z1", "10.0.0.1")
    hold = str((await run("nodes", "leave", "n1")).json["hold"])
    await run("holds", "approve", hold, "--as", "alice")
    command_id = plane.command_id()
    first = await run("holds", "approve", hold, "--as", "bob", "--command-id", command_id)
    again = await run("holds", "approve", hold, "--as", "bob", "--command-id", command_id)
    assert (first.status, first.json["outcome"]) == (0, "done")
    assert (again.status, again.json) == (0, first.json)


async def test_a_hold_is_shown_with_all_its_nodes_while_it_keeps_any(
    run: Run, plane: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "deploy.cli.changes.holds.MAX_PAGE", 50
    )  # a small page size yields several pages without thousands of nodes
    await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "0")
    names = [f"n{number:03}" for number in range(120)]
    specs = [pb.NodeSpec(name=name, addresses=[f"10.0.0.{number}"]) for number, name in enumerate(names)]
    joined = await plane.join("z1", *specs)
    assert (await run("budgets", "list", "--min-position", joined.position)).status == 0
    hold = str((await run("nodes", "leave", *names, "--zone", "z1")).json["hold"])
    found = (await run("holds", "show", hold)).json
    assert (found["nodes"], found["node_count"], found["rejected_by"]) == (names, 120, "")
    listed = (await run("holds", "list")).json["holds"][0]
    assert (listed["hash"], listed["nodes"]) == (found["hash"], names[:100])
    table = (await run("holds", "show", hold, "--output", "table")).stdout
    assert [line.split() for line in table.splitlines()[-120:]] == [[name, "z1"] for name in names]
    await run("holds", "reject", hold, "--as", "alice")
    await run("nodes", "join", names[0], "--zone", "z1", "--address", "10.0.0.0")
    after = await run("holds", "show", hold)
    assert (after.json["nodes"], after.json["rejected_by"]) == (names[1:], "?alice")
    none = await run("holds", "show", "77")
    assert (none.status, "hold: 77 is not open and keeps no node" in none.stderr) == (1, True)


async def test_holds_are_approved_and_rejected_by_selector(run: Run, plane: Served) -> None:
    await run("budgets", "set", "denied-by-leave", "--permille", "0", "--min-addresses", "0")
    for number in range(1, 5):
        await become_member(run, f"n{number}", "z1", f"10.0.0.{number}")
    command_id = plane.command_id()
    assert (await run("nodes", "leave", "n1", "n2", "--zone", "z1", "--command-id", command_id)).json[
        "outcome"
    ] == "held"
    for name in ("n3", "n4"):
        await run("nodes", "leave", name, "--zone", "z1")
    found = (await run("holds", "list")).json["holds"]
    assert [hold["node_count"] for hold in found] == [2, 1, 1]
    assert found[0]["command_id"] == command_id
    wrong = await run("holds", "approve", str(found[0]["hold"]), "--all")
    assert (wrong.status, "give one of HOLD, --command ID and --all" in wrong.stderr) == (2, True)
    own = await run("holds", "approve", "--command", command_id, "--as", found[0]["requested_by"].lstrip("?"))
    assert (own.status, "other principals must approve it" in own.stderr) == (1, True)
    for approver in ("alice", "bob"):
        said = await run("holds", "approve", "--command", command_id, "--as", approver)
        assert (said.status, said.json["outcome"]) == (0, "done"), said
    assert [hold["node_count"] for hold in (await run("holds", "list")).json["holds"]] == [1, 1]
    assert (await run("holds", "reject", "--all", "--as", "alice")).status == 0
    assert (await run("holds", "list")).json["holds"] == []
    shown = {node["name"]: node["hold_state"] for node in (await run("nodes", "list")).json["nodes"]}
    assert shown == {"n3": "leave rejected", "n4": "leave rejected"}
    none = await run("holds", "reject", "--all", "--as", "alice")
    assert (none.status, "no hold is open" in none.stderr) == (1, True)
    none = await run("holds", "reject", "--command", command_id, "--as", "alice")
    assert (none.status, f"command {command_id} has no open hold" in none.stderr) == (1, True)
