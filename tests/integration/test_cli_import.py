"""`dpuplane import` of a file whose nodes partly exist: its preview, its holds, and the nodes it leaves unchanged."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_cli import Run, plane, run
from tests.support.served import Served

__all__ = ["plane", "run"]

POOL = ("--zone-size", "1000", "--address-pool", "10.1.0.0/16")


def inventory(tmp_path: Path, *numbers: int, **columns: str) -> str:
    """A file of nodes, with these additional columns."""
    file = tmp_path / "nodes.csv"
    lines = [",".join([f"n{number:03}", *columns.values()]) for number in numbers]
    file.write_text("\n".join([",".join(["name", *columns]), *lines]))
    return str(file)


async def test_a_dry_run_of_an_import_counts_nodes_and_addresses_and_appends_nothing(
    run: Run, tmp_path: Path, plane: Served
) -> None:
    assert (await run("import", inventory(tmp_path, *range(10)), *POOL)).json["new"] == 10
    stated = await plane.stated()
    file = inventory(tmp_path, *range(1, 12), app="web")
    dry = await run("import", file, *POOL, "--dry-run")
    assert dry.status == 0
    kinds = ("new", "moved", "changed", "unchanged", "not_in_file", "addresses_added", "addresses_removed", "joined")
    assert [dry.json[kind] for kind in kinds] == [2, 0, 9, 0, 1, 2, 0, 0]
    table = (await run("import", file, *POOL, "--dry-run", "--output", "table")).stdout
    assert "2 new, 0 moved, 9 changed, 0 unchanged; 1 in these zones are not in the file and stay" in table
    assert table.endswith("11 would be sent; nothing was applied\n")
    assert await plane.stated() == stated


async def test_a_file_without_one_of_its_rows_changes_no_address(run: Run, tmp_path: Path) -> None:
    assert (await run("import", inventory(tmp_path, *range(10)), *POOL)).status == 0
    again = (await run("import", inventory(tmp_path, *range(1, 10)), *POOL)).json
    assert [again[kind] for kind in ("new", "changed", "unchanged", "not_in_file")] == [0, 0, 9, 1]


async def test_a_file_that_shifts_most_addresses_stops_unless_it_is_confirmed(
    run: Run, tmp_path: Path, plane: Served
) -> None:
    file = inventory(tmp_path, *range(10))
    assert (await run("import", file, *POOL)).status == 0
    stated = await plane.stated()
    other = ("--zone-size", "1000", "--address-pool", "10.2.0.0/16")
    stopped = await run("import", file, *other)
    assert (stopped.status, stopped.stdout, stopped.stderr.count("\n")) == (2, "", 1)
    assert "10 of the 10 known nodes of the file would get another address" in stopped.stderr
    assert "--yes" in stopped.stderr
    assert await plane.stated() == stated
    assert (await run("import", file, *other, "--yes")).json["changed"] == 10


async def test_the_last_line_of_an_import_has_the_held_nodes(run: Run, tmp_path: Path) -> None:
    file = inventory(tmp_path, *range(20))
    first = await run("import", file, *POOL)
    assert (first.json["joined"], first.json["held"]) == (20, 0)
    await run("budgets", "set", "denied-by-change", "--permille", "0", "--min-addresses", "1")
    other = ("--zone-size", "1000", "--address-pool", "10.2.0.0/16", "--yes")
    held = await run("import", file, *other)
    assert (held.status, held.json["joined"], held.json["held"], len(held.json["holds"])) == (0, 20, 20, 1)
    command_id = held.json["command_id"]
    again = (*other, "--command-id", command_id, "--output", "table")
    line = (await run("import", file, *again)).stdout.splitlines()[-1]
    told = (
        "20 joined, 0 refused, 0 unknown, 20 held in their previous state until two people approve (dpuplane "
        "holds list --command "
    )
    assert f"{told}{command_id}: " in line


async def test_a_dry_run_counts_the_nodes_that_are_held_already(run: Run, tmp_path: Path) -> None:
    await run("import", inventory(tmp_path, *range(20)), *POOL)
    await run("budgets", "set", "denied-by-change", "--permille", "0", "--min-addresses", "1")
    other = ("--zone-size", "1000", "--address-pool", "10.2.0.0/16", "--yes")
    held = await run("import", inventory(tmp_path, *range(5)), *other)
    assert (held.json["held"], held.json["held_before"]) == (5, 0)
    file = inventory(tmp_path, *range(3, 8))
    dry = await run("import", file, *other, "--dry-run")
    assert [dry.json[kind] for kind in ("unchanged", "changed", "held_before", "held")] == [2, 3, 2, 0]
    lines = (await run("import", file, *other, "--dry-run", "--output", "table")).stdout.splitlines()
    told = {name.strip(): value.strip() for name, _, value in (line.partition("  ") for line in lines)}
    assert told["held already"].startswith("2 of these nodes; the rule tables have their previous state")
    assert told["would be held"].startswith("unknown until the import is applied")


async def test_the_holds_of_an_import_are_selected_by_its_command_id(run: Run, tmp_path: Path) -> None:
    file, zones = inventory(tmp_path, *range(20)), ("--zone-size", "5", "--address-pool")
    await run("import", file, *zones, "10.0.0.0/16")
    await run("budgets", "set", "denied-by-change", "--permille", "0", "--min-addresses", "1")
    first = (await run("import", file, *zones, "10.2.0.0/16", "--yes")).json
    other = (await run("import", file, *zones, "10.2.0.0/16", "--yes")).json
    assert ((first["held"], len(first["holds"])), (other["held"], other.get("holds", []))) == ((20, 4), (0, []))
    listed = (await run("holds", "list", "--command", first["command_id"])).json["holds"]
    assert [hold["hold"] for hold in listed] == first["holds"]
    assert (await run("holds", "list", "--command", other["command_id"])).json["holds"] == []
    shown = await run("commands", "show", first["command_id"])
    assert "it is part of an import; 3 holds of other parts are open" in shown.stderr
    bad = await run("holds", "reject", "--command", "7")
    assert (bad.status, "'--command': command_id: '7' must be a UUIDv7" in bad.stderr) == (2, True)
    assert (await run("holds", "reject", "--command", first["command_id"], "--as", "alice")).status == 0
    assert (await run("holds", "list")).json["holds"] == []
