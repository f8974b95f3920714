"""State checkpoints for as-of queries: their number is limited, and gaps between them stay small."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eventstore.state_store.checkpoints import (
    CheckpointRetention,
    StateCheckpoint,
    checkpoint_name,
    checkpoints_in,
    most_redundant,
    prune,
    unshared_bytes,
)

KEPT = 24


def thinned(kept: list[int], records: int, most: int = KEPT) -> list[int]:
    """The retained checkpoints after one more is taken at this number of records."""
    kept = [*kept, records]
    while len(kept) > most:
        kept.pop(most_redundant(kept))
    return kept


def test_a_thousand_checkpoints_are_thinned_out_with_small_gaps() -> None:
    kept: list[int] = []
    for number in range(1, 1_001):
        kept = thinned(kept, number * 1_000_000)
        gaps = [(after - before) / (kept[-1] - before) for before, after in pairwise(kept[:-2])]
        assert max(gaps, default=0.0) < 0.5, (
            f"after {number} checkpoints a query folds half of the later records; retained: {kept}"
        )
    assert len(kept) == KEPT
    assert kept[0] == 1_000_000
    assert kept[-2:] == [999_000_000, 1_000_000_000]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 10))
def test_at_any_distances_the_newest_checkpoint_and_the_limit_are_kept(distances: list[int], most: int) -> None:
    kept: list[int] = []
    records = 0
    for distance in distances:
        records += distance
        kept = thinned(kept, records, most)
        assert len(kept) <= most
        assert kept[-1] == records
        assert kept == sorted(kept)


def made(folder: Path, records: int, **files: int) -> None:
    state = folder / checkpoint_name(1_000 + records, records)
    state.mkdir(parents=True)
    for name, size in files.items():
        (state / name).write_bytes(bytes(size))


async def test_checkpoints_over_the_byte_limit_are_deleted_and_shared_files_do_not_count(tmp_path: Path) -> None:
    folder, current = tmp_path / "checkpoints", tmp_path / "current"
    current.mkdir()
    (current / "shared").write_bytes(bytes(5_000))
    for records in range(1, 6):
        made(folder, records, own=1_000)
        (checkpoints_in(folder)[-1].path / "shared").hardlink_to(current / "shared")
    assert unshared_bytes(checkpoints_in(folder), current) == 5_000
    await prune(folder, current, CheckpointRetention(states=10, bytes_max=2_500))
    assert [state.records for state in checkpoints_in(folder)] == [4, 5]
    assert not list(folder.glob("*.tmp"))
    await prune(folder, current, CheckpointRetention(states=10, bytes_max=0))
    assert [state.records for state in checkpoints_in(folder)] == [5], "the newest checkpoint stays whatever its size"


async def test_an_incomplete_checkpoint_of_a_killed_process_is_deleted(tmp_path: Path) -> None:
    folder, current = tmp_path / "checkpoints", tmp_path / "current"
    current.mkdir()
    made(folder, 7, own=1)
    (folder / "000000000001008-000000000000008.tmp").mkdir()
    (folder / "notes").mkdir()
    await prune(folder, current, CheckpointRetention())
    assert sorted(path.name for path in folder.iterdir()) == [checkpoint_name(1_007, 7), "notes"]
    assert checkpoints_in(folder) == [StateCheckpoint(1_007, 7, folder / checkpoint_name(1_007, 7))]


async def test_a_file_deleted_while_sizes_are_read_is_ignored(tmp_path: Path) -> None:
    folder, current = tmp_path / "checkpoints", tmp_path / "current"
    current.mkdir()
    for records in (1, 2, 3):
        made(folder, records, data=1_000)
    (current / "replaced.sst").symlink_to(tmp_path / "gone")
    await prune(folder, current, CheckpointRetention(states=2))
    assert len(checkpoints_in(folder)) == 2
