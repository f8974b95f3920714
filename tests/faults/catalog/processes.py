"""Faults of processes and of ownership."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

PROCESSES = (
    CatalogEntry(1, "kill after a command is received, before the append", ("simulated: crash", "real: role killed")),
    CatalogEntry(
        2,
        "kill after the append, before the response",
        ("simulated: crash", "real: api killed", "real: produce answers lost"),
    ),
    CatalogEntry(3, "kill after the response", ("simulated: crash", "real: api killed", "real: call answers lost")),
    CatalogEntry(
        4,
        "kill before, inside or after a save of the folds",
        (
            "simulated: crash",
            "simulated: older state",
            "real: state lost",
            "tests/unit/test_saver.py::test_any_saves_and_crashes_yield_the_same_state",
        ),
    ),
    CatalogEntry(
        5,
        "kill after a driver got a command, before it responded",
        (
            "simulated: crash",
            "tests/unit/test_steps.py::test_a_step_that_fails_at_any_call_is_finished_by_the_next_attempt",
        ),
    ),
    CatalogEntry(
        6,
        "kill after a driver responded, before the result is in the log",
        ("simulated: crash", "tests/unit/test_steps.py::test_a_step_run_twice_is_done_once"),
    ),
    CatalogEntry(
        7,
        "kill before or after a Kubernetes status patch",
        (
            "tests/integration/test_kubernetes_rights_and_kinds.py::"
            "test_a_process_killed_around_a_status_write_writes_it_once",
        ),
    ),
    CatalogEntry(
        8,
        "kill during a snapshot, during its rename, or before the sync of its folder",
        (
            "real: killed while starting",
            "tests/unit/test_state_checkpoints.py::test_an_incomplete_checkpoint_of_a_killed_process_is_deleted",
            "tests/unit/test_agent_store.py::test_a_failed_save_does_not_replace_the_file",
        ),
    ),
    CatalogEntry(
        9,
        "kill -9 at any instant, repeatedly",
        (
            "real: roles churned",
            "real: role killed",
            "simulated: crash",
            "tests/integration/test_embedded_crash.py::test_kill_9_loses_no_acknowledged_record_and_leaves_no_torn_one",
        ),
    ),
    CatalogEntry(
        10,
        "a zombie: stopped, replaced, resumed",
        (
            "real: role frozen",
            "tests/unit/test_steps.py::test_a_successor_ends_the_session_of_a_zombie_and_adopts_its_task",
        ),
    ),
    CatalogEntry(
        11,
        "two owners start at the same time",
        (
            "tests/unit/test_replica.py::test_two_starting_replicas_create_one_log",
            "tests/integration/test_kafka_topics.py::test_several_processes_may_open_a_new_log_at_once",
            "tests/integration/test_serve_embedded.py::test_two_processes_cannot_own_one_folder",
        ),
    ),
    CatalogEntry(12, "the event loop is blocked for seconds", ("real: role frozen", "real: all roles frozen")),
    CatalogEntry(
        13,
        "out-of-memory kill during a replay",
        ("real: killed while starting",),
        lacks="the test sends the signal itself, without a memory limit",
    ),
    CatalogEntry(
        14,
        "a crash loop: every start fails",
        (
            "real: killed while starting",
            "tests/unit/test_partition.py::test_a_fold_that_raises_halts_before_the_record",
        ),
    ),
    CatalogEntry(
        15,
        "rolling upgrade with traffic",
        ("tests/integration/test_upgrade.py::test_a_raise_is_refused_while_a_live_replica_lacks_the_rules",),
    ),
    CatalogEntry(
        16,
        "downgrade after a new event type was written",
        (
            "tests/unit/test_saver.py::test_state_of_a_later_fold_version_is_ignored_by_an_older_binary",
            "tests/unit/test_partition.py::test_an_unsupported_fold_version_halts_before_its_record",
        ),
    ),
    CatalogEntry(
        17,
        "python -O, another hash seed",
        (
            "tests/integration/test_kafka_topics.py::test_a_process_without_assertions_does_not_start",
            "tests/simulation/test_simulation.py::test_a_seed_is_the_same_run_in_any_process",
        ),
        lacks="changes of locale and time zone, which no fold reads",
    ),
    CatalogEntry(
        18,
        "cancellation at every await of the command path",
        (
            "simulated: crash",
            "tests/contract/event_log.py::test_a_cancelled_append_does_not_affect_others",
            "tests/unit/test_saver.py::test_a_cancelled_save_loses_no_change",
        ),
    ),
)
