"""`events export`: events of a log by position and time, as lines and as a table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from deploy.cli import cli
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER
from deploy.operations.export.events import EventFilter, lines, tail
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.folding.origin import wait_for_origin
from eventstore.log import ZONES
from tests.support.embedded import Clock
from tests.support.sample_log import ZONES_0, joined, write_sample_log

START_MS = Clock().ms
NODES = 300


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["events", "export", *map(str, arguments)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty single joins, one join of many nodes, and finally bytes that are not an event."""
    folder = tmp_path / "plane"

    async def fill() -> None:
        clock = await write_sample_log(folder, records=40)
        async with EmbeddedLog.open(TOPICS, folder / LOG_FOLDER, now_ms=clock) as log:
            await log.append(ZONES_0, b"zone-1", encode(joined(99, clock.ms, nodes=NODES)))
            await log.append(ZONES_0, b"zone-1", b"no event")

    asyncio.run(fill())
    return folder


def exported(data: Path, *arguments: str) -> list[dict[str, Any]]:
    result = run("--data", data, *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def table(data: Path, *arguments: str) -> list[dict[str, Any]]:
    path = data.parent / "table.parquet"
    result = run("--data", data, "--format", "parquet", "--out", path, "--output", "json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    assert json.loads(result.stdout)["rows"] == len(found)
    return found


def places(found: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((each["partition"], each["offset"]) for each in found)


def token(data: Path, offset: int) -> str:
    async def ask() -> str:
        async with EmbeddedLog.secondary(TOPICS, data / LOG_FOLDER) as log:
            return f"{(await wait_for_origin(log)).log_id}:zones/0={offset}"

    return asyncio.run(ask())


def test_a_position_or_time_divides_the_log_in_two(data: Path) -> None:
    whole = places(exported(data))
    middle = datetime.fromtimestamp(START_MS / 1_000 + 20, UTC).isoformat()
    for before, after in (
        (("--until", token(data, 15)), ("--from", token(data, 15))),
        (("--until", str(START_MS + 20_000)), ("--from", str(START_MS + 20_001))),
        (("--until", middle), ("--from", str(START_MS + 20_001))),
    ):
        first, second = places(exported(data, *before)), places(exported(data, *after))
        assert first
        assert second
        assert sorted(first + second) == whole
    assert [offset for part, offset in places(exported(data, "--until", token(data, 15))) if part == "zones/0"][
        -1
    ] == 14


def test_a_position_of_another_log_is_refused(data: Path) -> None:
    refused = run("--data", data, "--from", "018bcfe5:zones/0=1")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "must be that of this log" in refused.stderr


def test_a_table_has_one_row_per_event_with_other_fields_as_json(data: Path) -> None:
    found, told = table(data), exported(data)
    assert len(found) == len(told)
    by_place = {(line["partition"], line["offset"]): line for line in told}
    for row in found:
        line = by_place[f"{row['topic']}/{row['partition']}", row["offset"]]
        assert row["type"] == line["type"]
        assert row["appended_at"] == datetime.fromtimestamp(line["timestamp_ms"] / 1_000, UTC)
        rest = {
            name: value for name, value in line.items() if name not in {"partition", "offset", "timestamp_ms", "type"}
        }
        envelope = rest.pop("envelope", {})
        assert json.loads(row["event"]) == rest
        assert (row["subject"], row["actor"]) == (envelope.get("subject", ""), envelope.get("actor", ""))
    assert [row["type"] for row in found if row["topic"] == ZONES].count("undecodable") == 1


def test_an_exploded_table_has_one_row_per_node(data: Path) -> None:
    found = table(data, "--explode", "--type", "NodesJoined", "--topic", "zones")
    many = [row for row in found if row["offset"] == 41]
    assert [row["node"] for row in many] == [f"node-99-{place}" for place in range(NODES)]
    assert [row["item"] for row in many] == list(range(NODES))
    assert many[258]["address4"] == "10.1.2.99"
    assert {(row["zone"], row["event"], row["address6"]) for row in many} == {("zone-1", None, None)}
    assert many[0]["labels"] == [("gpu", "h100")]
    assert len(found) == NODES + 40 + 10


def test_filters_apply_to_tables_and_to_lines(data: Path) -> None:
    for some in (("--type", "WritesFrozen"), ("--actor", "relay-1"), ("--subject", "zone-9"), ("--topic", "installs")):
        lines = places(exported(data, *some))
        rows = sorted((f"{row['topic']}/{row['partition']}", row["offset"]) for row in table(data, *some))
        assert rows == lines
        assert 0 < len(rows) < 30


def test_a_file_is_complete_or_absent(data: Path) -> None:
    path = data.parent / "lines"
    assert run("--data", data, "--out", path).exit_code == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == exported(data)
    for bad in (("--data", data.parent / "nothing"), ("--data", data, "--from", "018bcfe5:zones/0=1")):
        again = data.parent / "again"
        assert run(*bad, "--out", again).exit_code in {1, 3}
    assert {entry.name for entry in data.parent.iterdir()} == {"plane", "lines"}


@pytest.mark.parametrize("wrong", [("--format", "parquet"), ("--explode", "--out", "x"), ("--from", "soon")])
def test_wrong_usage_is_refused_with_the_needed_option(data: Path, wrong: tuple[str, ...]) -> None:
    refused = run("--data", data, *wrong)
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_an_end_before_the_beginning_is_refused(data: Path) -> None:
    """An empty output would look like a log without events."""
    for option in ("--from", "--since"):
        ran = run("--data", data, option, START_MS + 20_000, "--until", START_MS + 10_000)
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert f"{option}: 2023-11-14T22:13:40.000Z is later than --until, 2023-11-14T22:13:30.000Z" in ran.stderr
    for until in (token(data, 14), str(START_MS + 1_000)):
        ran = run("--data", data, "--from", token(data, 15), "--until", until)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert ran.stderr == "Error: from: it must not be later than until\n"
    assert exported(data, "--from", token(data, 15), "--until", token(data, 15)) == []


def ended(data: Path, wanted: EventFilter, last: int | None) -> list[dict[str, Any]]:
    """The last `count` matching events of a log up to `until`, or all of them for None."""

    async def read() -> list[dict[str, Any]]:
        async with EmbeddedLog.secondary(TOPICS, data / LOG_FOLDER) as log:
            found = lines(log, wanted, follow=False) if last is None else tail(log, wanted, last=last)
            return [line async for line in found]

    return asyncio.run(read())


@pytest.mark.parametrize(
    "wanted",
    [
        EventFilter(),
        EventFilter(types=("WritesFrozen",)),
        EventFilter(topics=(ZONES,)),
        EventFilter(actor="relay-1"),
        EventFilter(until=START_MS + 20_000),
    ],
    ids=("everything", "a type", "a topic", "an actor", "before a time"),
)
@pytest.mark.parametrize("count", [0, 1, 3, 7, 10_000])
def test_a_tail_begins_with_the_last_matching_events(data: Path, wanted: EventFilter, count: int) -> None:
    if wanted.until is None:
        wanted = wanted._replace(until=START_MS + 3_600_000)
    all_of_them = sorted(ended(data, wanted, None), key=lambda line: int(line["timestamp_ms"]))
    found = ended(data, wanted, count)
    assert len(all_of_them) > 7
    times = [line["timestamp_ms"] for line in all_of_them]
    assert [line["timestamp_ms"] for line in found] == times[max(0, len(times) - count) :]
    assert set(places(found)) <= set(places(all_of_them))
    assert len(set(places(found))) == min(count, len(all_of_them)), "an event is printed twice"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-n", "3", "--since", "10m"), "--since and -n both set the start"),
        (("--from-beginning", "-n", "0"), "--from-beginning and -n both set the start"),
        (("--until", "2026-11-21T09:30:00Z"), "--until: give -n, --since, --from or --from-beginning too"),
    ],
)
def test_a_tail_accepts_only_one_beginning(data: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = CliRunner().invoke(cli, ["events", "tail", "--data", str(data), *arguments])
    assert (ran.exit_code, ran.stdout, says in ran.stderr) == (2, "", True)


async def test_a_tail_without_a_beginning_has_only_what_is_appended_from_then_on(tmp_path: Path) -> None:
    clock = await write_sample_log(tmp_path / "plane", records=4)
    wanted = EventFilter(topics=(ZONES,))
    async with EmbeddedLog.open(TOPICS, tmp_path / "plane" / LOG_FOLDER, now_ms=clock) as log:
        before = {partition: await log.end(partition) for partition in log.partitions(ZONES)}
        async with aclosing(tail(log, wanted, last=0)) as found, asyncio.timeout(60):
            first = asyncio.ensure_future(anext(found))
            number = 100
            while not first.done():  # the tail may not have read the end of the log yet
                await log.append(ZONES_0, b"zone-1", encode(joined(number, clock.ms, nodes=1)))
                number += 1
                await asyncio.sleep(0.01)
            line = await first
    assert int(str(line["offset"])) >= before[ZONES_0]
