"""Indices of cliques on the command line: of one node, and of many by one command."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_cli import Run, plane, run

__all__ = ["plane", "run"]


async def test_cliques_are_claimed_shown_and_released(run: Run, tmp_path: Path) -> None:
    assert (await run("cliques", "capacity", "d", "c", "2")).status == 0
    first = await run("cliques", "claim", "d", "c", "n1", "--address", "10.0.0.1")
    assert (first.json["outcome"], first.json["index"]) == ("done", 0)
    assert first.stderr == "warning: node 'n1' is not known in any zone; the claim was made all the same\n"
    assert (await run("nodes", "join", "n2", "--zone", "z1")).status == 0
    second = await run("cliques", "claim", "d", "c", "n2")
    assert (second.json["index"], second.stderr) == (1, ""), "a known node has no hint"
    third = await run("cliques", "claim", "d", "c", "n3")
    assert (third.status, third.json["outcome"], third.json["queue_position"]) == (0, "waiting", 1)
    assert (await run("cliques", "ready", "d", "c", "n1")).status == 0
    shown = (await run("cliques", "show", "d", "c")).json
    assert shown["capacity"] == 2
    assert [(member["index"], member["node"], member["ready"]) for member in shown["members"]] == [
        (0, "n1", True),
        (1, "n2", False),
    ]
    assert [waiting["node"] for waiting in shown["waiting"]] == ["n3"]
    assert shown["position"]
    released = await run("cliques", "release", "d", "c", "n1")
    assert released.status == 0
    after = (await run("cliques", "show", "d", "c", "--min-position", released.json["position"])).json
    assert [(member["index"], member["node"]) for member in after["members"]] == [(0, "n3"), (1, "n2")]
    config = await run("cliques", "config", "d", "c", "--file", "hosts", "--output", "table")
    assert len(config.stdout.splitlines()) == 2
    hosts = tmp_path / "hosts"
    hosts.write_text("10.9.9.9\tmine\n")
    for _ in range(2):
        merged = await run("cliques", "config", "d", "c", "--merge", str(hosts), "--output", "table")
        assert merged.stdout.startswith("10.9.9.9\tmine\n") and merged.stdout.endswith(config.stdout)
        assert len(merged.stdout.splitlines()) == 4, "a foreign line, a heading, and one line per slot"
        hosts.write_text(merged.stdout)
    assert (await run("cliques", "list")).json["cliques"][0]["clique"] == "c"


async def test_many_indices_are_claimed_and_released_by_one_command(run: Run) -> None:
    assert (await run("cliques", "capacity", "d", "c", "2")).status == 0
    claimed = await run("cliques", "claim", "d", "c", "n1", "n2", "n1", "n3")
    assert [(item["name"], item.get("index"), item.get("queue_position")) for item in claimed.json["items"]] == [
        ("n1", 0, None),
        ("n2", 1, None),
        ("n3", None, 1),
    ]
    assert claimed.stderr.splitlines() == [
        "warning: node 'n1' is not known in any zone; the claim was made all the same; the same of 2 more: 'n2', 'n3'"
    ]
    again = await run("cliques", "claim", "d", "c", "n2", "n3", "--output", "table")
    assert again.stdout.splitlines() == [
        "  n2: done, index 1",
        "  n3: waiting, queue position 1: no available indices within maxNodesPerIMEXDomain (2)",
        "done: 1 done, 1 waiting",
    ]
    released = await run("cliques", "release", "d", "c", "n1", "nobody")
    assert [(item["name"], item["outcome"]) for item in released.json["items"]] == [
        ("n1", "done"),
        ("nobody", "unchanged"),
    ]
    after = (await run("cliques", "show", "d", "c", "--min-position", released.json["position"])).json
    assert [(member["index"], member["node"]) for member in after["members"]] == [(0, "n3"), (1, "n2")]
    about_one = await run("cliques", "claim", "d", "c", "n1", "n2", "--uid", "u")
    assert (about_one.status, "--uid describes the pod of one node" in about_one.stderr) == (2, True)
