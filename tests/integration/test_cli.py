"""The command line against a real plane, as scripts use it: JSON on stdout, sentences on stderr, four exit statuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import cli
from deploy.host.storage import LOG_FOLDER
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import Served, served


class Ran(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


Run = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


@pytest.fixture
def run(plane: Served) -> Run:
    """Run a command line against the plane, with JSON output unless the arguments choose another format."""

    async def invoke(*arguments: str, server: str = "") -> Ran:
        more = [] if "--output" in arguments else ["--output", "json"]
        full = [*arguments, "--server", server or plane.address, *more]
        result = await asyncio.to_thread(CliRunner().invoke, cli, full)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return invoke


async def become_member(run: Run, name: str, zone: str, address: str) -> None:
    """Join a node, and wait until fleet has it. A leave before that affects no rule table, and is never held."""
    joined = await run("nodes", "join", name, "--zone", zone, "--address", address)
    assert (await run("budgets", "list", "--min-position", joined.json["position"])).status == 0


async def test_a_limited_list_says_that_it_is_cut(run: Run) -> None:
    for number in range(3):
        await run("nodes", "join", f"n{number}", "--zone", "z1", "--address", f"10.0.0.{number + 1}")
    cut = await run("nodes", "list", "--limit", "2", "--output", "name")
    assert (cut.stdout, cut.stderr) == ("n0\nn1\n", "there are more than 2 nodes: --limit cut the list\n")
    whole = await run("nodes", "list", "--limit", "3", "--output", "name")
    assert (whole.stdout, whole.stderr) == ("n0\nn1\nn2\n", "")
    budgets = await run("budgets", "list", "--limit", "1", "--output", "name", "--no-headers")
    assert (len(budgets.stdout.split()), "more than 1 budgets" in budgets.stderr) == (1, True)


async def test_nodes_are_joined_listed_shown_and_removed(run: Run) -> None:
    joined = await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.1", "--label", "model=A10")
    assert (joined.status, joined.json["outcome"], joined.stderr) == (0, "done", "")
    await run("nodes", "join", "n2", "--zone", "z2", "--address", "10.0.0.2")
    listed = await run("nodes", "list", "--min-position", joined.json["position"])
    assert [(node["name"], node["zone"], node["addresses"]) for node in listed.json["nodes"]] == [
        ("n1", "z1", ["10.0.0.1"]),
        ("n2", "z2", ["10.0.0.2"]),
    ]
    shown = await run("nodes", "show", "n1")
    assert shown.json["labels"] == {"model": "A10"}
    assert datetime.fromisoformat(shown.json["create_time"]).year >= 2024
    table = await run("nodes", "list", "--output", "table")
    assert table.stdout.splitlines()[0].split() == ["NAME", "ZONE", "ADDRESSES", "HELD", "CONFLICTS", "LABELS"]
    left = await run("nodes", "leave", "n1", "n2")
    assert (left.status, left.json["outcome"]) == (0, "done")
    assert [(item["name"], item["outcome"]) for item in left.json["items"]] == [("n1", "done"), ("n2", "done")]
    assert (await run("nodes", "list", "--min-position", left.json["position"])).json["nodes"] == []


async def test_refusals_exit_with_1_and_one_sentence(run: Run) -> None:
    bad_address = await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.300")
    assert (bad_address.status, bad_address.stdout) == (1, "")
    assert "address: '10.0.0.300' must be an IPv4 or IPv6 address" in bad_address.stderr
    gone = await run("nodes", "leave", "nobody")
    assert (gone.status, gone.json["outcome"]) == (1, "refused")
    assert "'nobody'" in gone.json["reason"]
    missing = await run("nodes", "show", "nobody")
    assert (missing.status, missing.stdout) == (1, "")
    assert "'nobody'" in missing.stderr
    unknown_zone = await run("rules", "show", "nowhere")
    assert (unknown_zone.status, "'nowhere'" in unknown_zone.stderr) == (1, True)


async def test_the_same_command_id_twice_has_one_effect(run: Run, plane: Served) -> None:
    command_id = plane.command_id()
    first = await run("cliques", "claim", "d", "c", "n1", "--command-id", command_id)
    again = await run("cliques", "claim", "d", "c", "n1", "--command-id", command_id)
    assert (first.status, first.json) == (0, again.json)
    other = await run("cliques", "claim", "d", "c", "n2", "--command-id", command_id)
    assert (other.status, other.json["outcome"]) == (1, "refused")
    shown = await run("commands", "show", command_id)
    assert (shown.status, shown.json) == (0, first.json)
    never = await run("commands", "show", plane.command_id())
    assert (never.status, never.json["outcome"]) == (3, "unknown")


async def test_policies_are_read_from_a_file_of_several_documents(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "{name: web, action: allow, protocol: tcp, ports: [443]}\n---\n{name: x, action: drop, priority: 9}"
    )
    applied = await run("policies", "apply", str(file))
    assert (applied.status, applied.json["outcome"]) == (0, "done"), applied
    listed = (await run("policies", "list")).json["policies"]
    assert [policy["name"] for policy in listed] == ["x", "web", "default"]
    assert listed[1]["ports"] == [{"first": 443, "last": 443}]
    assert (await run("policies", "delete", "x")).status == 0
    file.write_text("{name: web, action: allow}\n---\n{name: y, action: forbid}")
    bad = await run("policies", "apply", str(file))
    assert (bad.status, bad.stdout) == (1, "")
    assert "'forbid'" in bad.stderr
    file.write_bytes(b"name: \xff\n")
    no_text = await run("policies", "apply", str(file))
    assert (no_text.status, "byte 7 is not UTF-8" in no_text.stderr) == (1, True)


async def test_a_command_under_a_given_id_names_its_zone(run: Run, plane: Served) -> None:
    """A second lookup may find another zone, and the id would then be used for two commands."""
    await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.1")
    command_id = plane.command_id()
    for command in (("nodes", "leave", "n1"), ("dpus", "pause", "d1")):
        bare = await run(*command, "--command-id", command_id)
        assert (bare.status, "--command-id needs --zone" in bare.stderr) == (2, True)
    first = await run("nodes", "leave", "n1", "--zone", "z1", "--command-id", command_id)
    assert (first.status, first.json["outcome"]) == (0, "done"), first
    await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.9")
    again = await run("nodes", "leave", "n1", "--zone", "z1", "--command-id", command_id)
    assert (again.status, again.json) == (0, first.json)
    assert (await run("nodes", "show", "n1")).json["addresses"] == ["10.0.0.9"]
    other = await run("nodes", "leave", "n1", "--zone", "z2", "--command-id", command_id)
    assert (other.status, "is in use for another command" in other.stderr) == (1, True)


async def test_a_leave_of_many_prints_the_outcome_of_each_name_first(run: Run) -> None:
    for name, zone in (("n1", "z1"), ("n2", "z2")):
        await run("nodes", "join", name, "--zone", zone)
    left = await run("nodes", "leave", "n1", "nobody", "n2", "--output", "table")
    lines = (left.stdout + left.stderr).splitlines()
    assert left.status == 1, "one name was refused"
    assert lines[0] == "looked up: zone z1, z2"
    assert [line.split(":")[:2] for line in lines[1:4]] == [
        ["  nobody", " refused"],
        ["  n1", " done"],
        ["  n2", " done"],
    ]
    assert lines[4] == "done: 1 refused, 2 done"
    again = await run("nodes", "leave", "n1", "n2", "--zone", "z1", "--output", "table")
    assert (again.status, again.stdout.splitlines()) == (
        0,
        [
            "  n1: unchanged: node: 'n1' is not in zone 'z1'",
            "  n2: unchanged: node: 'n2' is not in zone 'z1'",
            "unchanged: 2 unchanged",
        ],
    )


async def test_a_mistyped_zone_is_refused(run: Run) -> None:
    limited = await run("zones", "limit", "nowhere", "--parallel-installs", "5")
    unknown = "Error: zone: 'nowhere' is not known; a zone exists from its first node or DPU on"
    assert (limited.status, limited.stderr) == (1, f"{unknown}; --create creates it with these limits\n")
    labelled = await run("zones", "label", "nowhere", "a=b")
    assert (labelled.status, labelled.stderr) == (1, f"{unknown}\n"), "zones delete has no --create"
    mistyped = await run("freeze", "nowhere")
    assert (mistyped.status, mistyped.stdout) == (1, "")
    assert "zone: 'nowhere' is not known; --create" in mistyped.stderr
    assert (await run("status")).json["frozen"] == []
    frozen = await run("freeze", "nowhere", "--create")
    assert (frozen.status, frozen.json["outcome"]) == (0, "done")
    assert "'nowhere' has no node and no DPU" in frozen.stderr
    assert [(zone["zone"], zone["frozen"]) for zone in (await run("zones", "list")).json["zones"]] == [
        ("nowhere", True)
    ]
    assert (await run("zones", "show", "nowhere")).json["frozen_by"]
    assert (await run("thaw", "nowhere")).status == 0
    assert (await run("zones", "show", "nowhere")).status == 1
    await run("nodes", "join", "n1", "--zone", "z1")
    assert (await run("freeze", "z1")).stderr == ""


async def test_an_empty_zone_is_deleted_with_its_labels_and_limits(run: Run) -> None:
    await become_member(run, "n1", "z1", "10.0.0.1")
    await run("zones", "label", "z1", "tier=gpu")
    await run("zones", "limit", "z1", "--parallel-installs", "5")
    busy = await run("zones", "delete", "z1")
    assert (busy.status, "has 1 nodes and 0 DPUs" in busy.stderr) == (1, True)
    assert (await run("zones", "show", "z1")).json["labels"] == {"tier": "gpu"}
    await run("nodes", "leave", "n1")
    await run("freeze", "z1")
    assert "is frozen; thaw it first" in (await run("zones", "delete", "z1")).stderr
    await run("thaw", "z1")
    gone = await run("zones", "delete", "z1")
    assert (gone.status, gone.json["outcome"]) == (0, "done")
    assert (await run("zones", "list", "--min-position", gone.json["position"])).json["zones"] == []
    again = await run("zones", "delete", "z1")
    assert (again.status, "'z1' is not known" in again.stderr) == (1, True)


async def test_zones_are_labelled_limited_and_frozen(run: Run) -> None:
    await become_member(run, "n1", "z1", "10.0.0.1")
    assert (await run("zones", "label", "z1", "tier=gpu", "row=7")).status == 0
    assert (await run("zones", "label", "z1", "row-")).status == 0
    assert (await run("zones", "limit", "z1", "--parallel-installs", "5")).status == 0
    frozen = await run("freeze", "z1")
    shown = (await run("zones", "show", "z1", "--min-position", frozen.json["position"])).json
    assert (shown["labels"], shown["parallel_installs"], shown["frozen"]) == ({"tier": "gpu"}, 5, True)
    assert (await run("thaw", "z1")).status == 0
    assert (await run("thaw", "z1")).status == 1
    for command in ("freeze", "thaw"):
        nothing = await run(command)
        assert (nothing.status, "give a zone, or --all" in nothing.stderr) == (2, True)
    assert (await run("status")).json["frozen"] == []
    assert (await run("freeze", "--all")).status == 0
    assert (await run("status")).json["frozen"] == ["*"]
    assert [zone["zone"] for zone in (await run("zones", "list")).json["zones"]] == ["z1"]
    rules = (await run("rules", "show", "z1")).json
    assert (rules["zone"], [rule["prefix"] for rule in rules["rules"]]) == ("z1", ["10.0.0.1/32"])
    assert rules["version"] > 0
    assert len(rules["digest"]) == 32


async def test_dpus_are_selected_by_labels_of_zones_and_each_has_an_outcome(run: Run) -> None:
    for dpu, zone in (("d1", "z1"), ("d2", "z1"), ("d1", "z2")):
        await run("dpus", "register", dpu, "--zone", zone, "--bmc-address", f"simulated:{zone}-{dpu}")
    for zone in ("z1", "z2"):
        await run("zones", "label", zone, f"rack={zone[1:]}")
    selecting = ("--selector", "rack=1", "--image", "bundle")
    unasked = await run("dpus", "provision", *selecting)
    assert unasked.status == 2 and "give --yes" in unasked.stderr and "nothing was requested" in unasked.stderr
    assert unasked.stderr.splitlines()[:3] == ["provision 2 DPUs:", "  z1/d1 (Initializing)", "  z1/d2 (Initializing)"]
    done = await run("dpus", "provision", *selecting, "--yes", "--output", "table")
    assert done.status == 0
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[:2]] == ["z1/d1", "z1/d2"]
    assert (await run("dpus", "show", "d1", "--zone", "z2")).json["phase"] == "Initializing"
    named = await run("dpus", "pause", "d1", "d2", "--zone", "z1")
    assert (named.status, [item["name"] for item in named.json["items"]]) == (0, ["z1/d1", "z1/d2"])
    assert {dpu["paused"] for dpu in (await run("dpus", "list", "--zone", "z1")).json["dpus"]} == {True}
    mixed = await run("dpus", "retry", "--zone", "z2", "--yes")
    assert mixed.status == 1 and "retry: does not apply to dpu 'd1' in phase Initializing" in mixed.stderr


async def test_nodes_leave_by_selector_after_a_confirmation(run: Run) -> None:
    for name, tier in (("n1", "web"), ("n2", "db"), ("n3", "db")):
        await become_member(run, name, "z1", f"10.0.0.{name[1:]}")
        await run("nodes", "join", name, "--zone", "z1", "--address", f"10.0.0.{name[1:]}", "--label", f"tier={tier}")
    assert (await run("nodes", "list", "-l", "tier!=web", "--output", "name")).stdout == "n2\nn3\n"
    unasked = await run("nodes", "leave", "-l", "tier=db")
    assert unasked.status == 2 and "give --yes" in unasked.stderr
    assert unasked.stderr.splitlines()[:3] == ["leave 2 nodes:", "  z1/n2", "  z1/n3"]
    for given, words in (
        ((), "give nodes by name, or --selector"),
        (("n1", "-l", "tier=db"), "and not both"),
        (("-l", "tier=none", "--yes"), "no node matches; nothing was requested"),
        (("-l", "tier in"), "'tier in' must be KEY=VALUE"),
        (("-l", "tier", "--command-id", "018bcfe5-6800-7d8e-91b7-584a2265b1f5"), "--command-id needs names of nodes"),
    ):
        refused = await run("nodes", "leave", *given)
        assert refused.status > 0 and words in " ".join(refused.stderr.replace("│", "").split())
    left = await run("nodes", "leave", "-l", "tier=db", "--yes")
    assert [(item["name"], item["outcome"]) for item in left.json["items"]] == [("n2", "done"), ("n3", "done")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "give DPUs by name, or --zone, --selector"),
        (("d1", "--all"), "give either DPU names"),
        (("--selector", "rack=9", "--yes"), "no DPU matches; nothing was requested"),
        (("--all", "--command-id", "018bcfe5-6800-7d8e-91b7-584a2265b1f5"), "--command-id needs DPU names"),
    ],
)
async def test_an_incomplete_or_contradictory_selection_requests_nothing(
    run: Run, given: tuple[str, ...], words: str
) -> None:
    ran = await run("dpus", "pause", *given)
    assert ran.status > 0 and words in " ".join(ran.stderr.split())


async def test_the_limits_of_attempts_are_set_and_shown_per_zone(run: Run) -> None:
    await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.1")
    shown = (await run("zones", "show", "z1")).json
    assert [shown[f"{kind}_attempts"] for kind in ("transient", "device", "operator")] == [12, 3, 1]
    done = await run("zones", "limit", "z1", "--transient-attempts", "30", "--operator-attempts", "2")
    assert done.status == 0
    shown = (await run("zones", "show", "z1", "--min-position", done.json["position"])).json
    assert [shown[f"{kind}_attempts"] for kind in ("transient", "device", "operator")] == [30, 3, 2]
    assert (await run("zones", "limit", "z1", "--device-attempts", "101")).status == 1


async def test_dpus_are_registered_and_provisioned(run: Run) -> None:
    assert (
        await run("dpus", "register", "d1", "--zone", "z1", "--serial", "S1", "--bmc-address", "simulated:b1")
    ).status == 0
    assert (await run("dpus", "provision", "d1", "--image", "bundle")).status == 0
    assert (await run("dpus", "pause", "d1")).status == 0
    shown = (await run("dpus", "show", "d1")).json
    assert (shown["zone"], shown["ordinal"], shown["image"], shown["paused"]) == ("z1", 0, "bundle", True)
    assert [dpu["dpu"] for dpu in (await run("dpus", "list", "--zone", "z1")).json["dpus"]] == ["d1"]
    nowhere = await run("dpus", "retry", "d9")
    assert (nowhere.status, "'d9'" in nowhere.stderr) == (1, True)


async def test_an_inventory_is_joined_and_its_cliques_are_claimed(run: Run, tmp_path: Path, plane: Served) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("sn,gpu,model\n" + "\n".join(f"node-{i:03},{i % 2},A{i % 3}" for i in range(100)))
    options = ("--zone-size", "30", "--address-pool", "10.1.0.0/16", "--clique-size", "18", "--clique-when", "gpu=1")
    command_id = plane.command_id()
    done = await run("import", str(file), *options, "--command-id", command_id)
    assert done.status == 0, done.stderr
    summary = done.json
    assert (summary["nodes"], summary["joined"], summary["zones"], summary["cliques"], summary["claims"]) == (
        100,
        100,
        4,
        3,
        50,
    )
    again = await run("import", str(file), *options, "--command-id", command_id)
    compared = {"new": 0, "unchanged": 100, "addresses_added": 0}
    assert again.json == summary | compared, "an import repeated under one id sends the same commands"
    shown = (await run("nodes", "show", "node-007", "--min-position", summary["position"])).json
    assert (shown["labels"], shown["addresses"]) == ({"gpu": "1", "model": "A1"}, ["10.1.0.8"])
    cliques = (await run("cliques", "list", "--domain", "inventory")).json["cliques"]
    assert [len(clique["members"]) for clique in cliques] == [18, 18, 14]
    table = await run("import", str(file), *options, "--output", "table")
    assert re.search(r"claims +50 got an index, 0 wait", table.stdout), "a repeated claim has no effect"
    assert table.stdout.endswith("100 joined, 0 refused, 0 unknown, 0 held\n")


async def test_an_import_of_another_fleet_does_not_claim_indices_in_full_cliques(
    run: Run, tmp_path: Path, plane: Served
) -> None:
    options = ("--zone-size", "4", "--address-pool", "10.1.0.0/16", "--clique-size", "4")
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("name\n" + "\n".join(f"a{i}" for i in range(6)))
    other.write_text("name\n" + "\n".join(f"b{i}" for i in range(6)))
    assert (await run("import", str(one), *options)).status == 0
    stated = await plane.stated()
    refused = await run("import", str(other), *options)
    assert (refused.status, refused.stdout) == (1, "")
    assert "clique_domain: 'inventory' already has a clique clique-0000 with node 'a0'" in refused.stderr
    assert await plane.stated() == stated
    apart = ("--clique-domain", "other", "--address-pool", "10.2.0.0/16")
    assert (await run("import", str(other), *options, *apart)).json["claims"] == 6


async def test_a_leave_from_the_wrong_zone_is_unchanged_with_a_reason(run: Run, plane: Served) -> None:
    await run("nodes", "join", "n1", "--zone", "z1")
    await run("nodes", "join", "n2", "--zone", "z2")
    wrong = await run("nodes", "leave", "n1", "--zone", "z2")
    assert (wrong.status, wrong.json["outcome"]) == (0, "unchanged")
    assert wrong.json["reason"] == "node: 'n1' is not in zone 'z2'"
    unknown = await run("nodes", "leave", "n1", "--zone", "z9")
    assert (unknown.status, "zone: 'z9' is not known" in unknown.json["reason"]) == (1, True)
    first = ("nodes", "leave", "n1", "--zone", "z1", "--command-id", plane.command_id())
    assert (await run(*first)).json["outcome"] == "done"
    assert (await run("nodes", "leave", "n1", "--zone", "z1")).json["outcome"] == "unchanged"
    assert (await run("nodes", "join", "n1", "--zone", "z2")).status == 0
    assert (await run(*first)).json["outcome"] == "done", "a repeat has the first outcome"


async def test_a_list_of_an_unknown_object_is_not_just_empty(run: Run) -> None:
    await run("nodes", "join", "n1", "--zone", "z1")
    for arguments in (("nodes", "list", "--zone"), ("dpus", "list", "--zone"), ("cliques", "list", "--domain")):
        ran = await run(*arguments, "nowhere")
        assert (ran.status, ran.stdout, "'nowhere'" in ran.stderr) == (1, "", True)
    assert (await run("dpus", "list", "--zone", "z1")).json["dpus"] == []


async def test_an_invalid_bmc_address_is_refused_at_once(run: Run) -> None:
    for address in ("b1", "redfish://", "redfish://b 1", ":80", "10.0.0.1:443", "https://b1/redfish"):
        ran = await run("dpus", "register", "d1", "--zone", "z1", "--bmc-address", address)
        assert (ran.status, f"bmc_address: {address!r} must be gnoi://HOST:PORT" in ran.stderr) == (1, True)
    for name, address in enumerate(("redfish://10.0.0.1:443", "redfish://[fd00::1]:443", "simulated:z-dpu-1")):
        ran = await run("dpus", "register", f"d{name}", "--zone", "z1", "--bmc-address", address)
        assert ran.status == 0, ran.stderr


async def test_a_bad_inventory_applies_nothing(run: Run, tmp_path: Path, plane: Served) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("name,zone,address\nn1,z1,10.0.0.1\nn2,z1,10.0.0\nn3,z 1,10.0.0.3\n")
    stated = await plane.stated()
    refused = await run("import", str(file))
    assert (refused.status, refused.stdout) == (1, "")
    assert "line 3" in refused.stderr
    assert "line 4" in refused.stderr
    assert await plane.stated() == stated
    skipping = await run("import", str(file), "--skip-bad-rows")
    assert (skipping.status, skipping.json["joined"], skipping.json["skipped_rows"]) == (0, 1, 2)


async def test_the_next_server_is_tried(run: Run, plane: Served) -> None:
    joined = await run("nodes", "join", "n1", "--zone", "z1", server=f"127.0.0.1:1, {plane.address}")
    assert (joined.status, joined.json["outcome"]) == (0, "done")
    assert len((await run("nodes", "list", server=f"127.0.0.1:1,{plane.address}")).json["nodes"]) == 1


async def test_status_has_every_output_format(run: Run) -> None:
    as_json = (await run("status")).json
    as_yaml = yaml.safe_load((await run("status", "--output", "yaml")).stdout)
    assert as_yaml.keys() == as_json.keys()
    assert as_json["replicas"][0]["name"] == "replica-1"
    assert as_json["log"]["engine"] == "embedded"
    table = (await run("status", "--output", "table")).stdout
    assert table.startswith("verdict  ok: nothing is halted, held or frozen\n")
    assert re.search(r"^replica-1 +api .* api=127", table, re.MULTILINE)
    assert "fleet/0" not in table and "DIGEST" not in table
    for arguments in (("--output", "wide"), ("--output", "table", "--digests")):
        wide = (await run("status", *arguments)).stdout
        assert wide.startswith("verdict  ok: ")
        assert "replica-1: api; api=" in wide
        assert re.search(r"^fleet/0 .* [0-9a-f]{32}$", wide, re.MULTILINE)
    await run("freeze", "--all")
    assert (await run("status", "--output", "table")).stdout.startswith("verdict  look: every zone frozen; ")
    assert (await run("thaw", "--all")).status == 0
    assert (await run("status")).json["frozen"] == []


async def test_the_environment_names_the_server(plane: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPUPLANE_SERVER", plane.address)
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["zones", "list", "--output", "json"])
    assert (result.exit_code, json.loads(result.stdout)["zones"]) == (0, [])


async def test_a_log_is_not_verified_against_servers_of_another_log(run: Run, tmp_path: Path) -> None:
    async with served(tmp_path / "other" / LOG_FOLDER) as other:
        status = (await run("status", server=other.address)).json
        ran = await run("verify", "--data", str(tmp_path / "other"))
    own = (await run("status")).json["log_id"]
    assert (ran.status, ran.stdout) == (1, "")
    assert f"serves log {own}, and this is log {status['log_id']}" in ran.stderr
    assert "has state" not in ran.stderr


async def test_an_unknown_node_is_not_explained_and_one_that_left_is(run: Run, plane: Served) -> None:
    assert (await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))).outcome == pb.OUTCOME_DONE
    nope = await run("explain", "nope", "d1")
    assert (nope.status, nope.stdout, "name: 'nope' is not a node of any zone" in nope.stderr) == (1, "", True)
    await become_member(run, "n1", "z1", "10.0.0.1")
    assert (await run("explain", "n1", "d1")).json["summary"].startswith("allowed")
    left = await run("nodes", "leave", "n1")
    found = await run("explain", "n1", "d1", "--min-position", left.json["position"])
    assert (found.status, found.json["summary"][:27]) == (0, "denied: the node left at 20")
