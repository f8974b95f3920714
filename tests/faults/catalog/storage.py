"""Faults of disks and of the files on them."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

_DAMAGED = "tests/unit/test_saver.py::test_a_damaged_file_is_detected_or_harmless"

STORAGE = (
    CatalogEntry(
        43,
        "the disk is full",
        (
            "real: disk full",
            "simulated: full disk",
            "tests/unit/test_full_disk.py::test_a_replica_starts_on_a_full_disk_and_saves_when_there_is_room",
            "tests/integration/test_embedded_crash.py::test_a_full_disk_fails_appends_only_and_only_while_it_is_full",
        ),
    ),
    CatalogEntry(
        44,
        "errors on read, write and sync",
        (
            "simulated: full disk",
            "tests/unit/test_saver.py::test_a_failed_save_loses_no_change_and_stops_nothing",
            "tests/unit/test_embedded.py::test_appends_to_a_removed_directory_are_not_acknowledged",
        ),
        lacks="errors of a real device: the test machines have no device that fails on demand",
    ),
    CatalogEntry(
        45,
        "writes that were not synced are lost",
        ("simulated: older state", "simulated: lost state"),
        lacks="a power cut of the embedded log: no test loses data that a process wrote and did not sync",
    ),
    CatalogEntry(46, "a damaged file of the store", (_DAMAGED,)),
    CatalogEntry(47, "a damaged or missing index of the store", (_DAMAGED, "real: state lost")),
    CatalogEntry(
        48,
        "a torn snapshot",
        (
            "tests/unit/test_agent_store.py::test_a_torn_or_damaged_file_is_not_loaded",
            "tests/integration/test_backup.py::test_a_damaged_backup_creates_no_log",
        ),
    ),
    CatalogEntry(
        49,
        "a snapshot older than the log's beginning",
        ("tests/unit/test_same_log.py::test_a_restart_refuses_another_log",),
        lacks="deciding topics are kept for ever, so only display topics lose their beginning",
    ),
    CatalogEntry(
        50,
        "two processes open one store",
        (
            "tests/integration/test_serve_embedded.py::test_two_processes_cannot_own_one_folder",
            "tests/unit/test_saver.py::test_a_state_folder_has_one_process_and_one_owner",
        ),
    ),
    CatalogEntry(
        51,
        "a disk that hangs for seconds",
        (
            "tests/unit/test_slow_disks.py::test_a_hanging_disk_delays_appends_only",
            "tests/unit/test_slow_disks.py::test_closing_the_log_waits_for_a_running_sync",
        ),
    ),
    CatalogEntry(
        52,
        "the volume of another node or of another log",
        ("tests/unit/test_saver.py::test_the_state_of_another_log_is_refused",),
    ),
    CatalogEntry(53, "out of file descriptors", ("real: out of files",)),
)
