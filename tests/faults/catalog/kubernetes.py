"""Faults of the Kubernetes API."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

_READS = "tests/integration/test_kubernetes_faults.py::"
_WRITES = "tests/integration/test_kubernetes_write_faults.py::"
_MANY = "tests/integration/test_kubernetes_write_amplification.py::"
_RIGHTS = "tests/integration/test_kubernetes_rights_and_kinds.py::"
_NODES = "tests/integration/test_kubernetes_nodes.py::"
_OBJECTS = "tests/integration/test_kubernetes_objects.py::"
_CLIENT = "tests/integration/test_kubernetes_client.py::"
_LIST_WATCH = "tests/unit/test_list_watch.py::"
_WRITER = "tests/unit/test_status_writer.py::"
_STATUSES = "tests/unit/test_status_edge.py::"
_CLIQUES = "tests/unit/test_clique_edge.py::"
_FOLDS = "tests/unit/test_nodes.py::"

_ONCE = f"{_WRITES}test_a_status_is_written_once_whatever_becomes_of_the_first_attempt"
_AMPLIFICATION = (f"{_MANY}test_statuses_under_random_faults", f"{_MANY}test_cliques_under_random_faults")
_UID = f"{_FOLDS}test_a_newer_incarnation_replaces_the_node_and_an_older_one_is_refused"

KUBERNETES = (
    CatalogEntry(
        65,
        "a conflict on a write",
        (
            _ONCE,
            *_AMPLIFICATION,
            f"{_WRITER}test_a_conflict_and_an_object_of_another_writer_are_read_and_planned_again",
            f"{_WRITER}test_an_object_whose_attempts_are_used_up_waits_for_a_change_or_a_slow_retry",
            f"{_CLIQUES}test_a_failed_write_is_decided_anew_and_made_once",
        ),
    ),
    CatalogEntry(
        66,
        "a watch or a page has expired",
        (
            f"{_READS}test_a_list_whose_pages_fail_is_never_taken_for_complete",
            f"{_READS}test_nodes_that_come_and_go_under_broken_watches_end_as_the_server_has_them",
            f"{_LIST_WATCH}test_two_replicas_do_not_list_at_the_same_time_after_an_expiry",
        ),
    ),
    CatalogEntry(
        67,
        "too many requests, server errors, late commits",
        (_ONCE, *_AMPLIFICATION, f"{_READS}test_a_pause_that_the_server_asks_for_is_kept"),
    ),
    CatalogEntry(
        68,
        "a timeout after the server has applied it",
        (_ONCE, f"{_CLIQUES}test_a_write_that_took_effect_without_an_answer_is_not_repeated"),
    ),
    CatalogEntry(
        69,
        "a watch that stops sending events",
        (
            f"{_READS}test_a_watch_that_sends_nothing_is_opened_again",
            f"{_CLIENT}test_a_silent_watch_is_stalled_even_when_bytes_trickle",
        ),
    ),
    CatalogEntry(
        70,
        "a watch with gaps, duplicates, reordering",
        (
            f"{_READS}test_nodes_that_come_and_go_under_broken_watches_end_as_the_server_has_them",
            f"{_LIST_WATCH}test_events_that_repeat_or_change_places_lead_to_the_same_end",
            f"{_STATUSES}test_disordered_watches_and_lost_answers_cost_no_further_writes",
            f"{_FOLDS}test_a_snapshot_proves_nothing_about_later_changes",
        ),
    ),
    CatalogEntry(
        71,
        "an empty list",
        (
            f"{_READS}test_an_empty_list_withdraws_nothing_and_is_reported",
            f"{_CLIQUES}test_an_empty_list_releases_nothing_and_is_counted",
            f"{_FOLDS}test_an_empty_snapshot_is_refused",
        ),
    ),
    CatalogEntry(
        72,
        "an incomplete list",
        (
            f"{_READS}test_a_shrunken_list_is_held_and_released_by_two_people_only",
            f"{_CLIQUES}test_a_list_that_lacks_pods_releases_nothing_that_a_live_list_has",
        ),
    ),
    CatalogEntry(
        73,
        "all replicas list at once",
        (
            f"{_LIST_WATCH}test_two_replicas_do_not_list_at_the_same_time_after_an_expiry",
            f"{_LIST_WATCH}test_a_collection_is_listed_in_pages_and_then_watched",
        ),
        lacks="50,000 objects that several replicas list at one real server; lists do not count in the request budget",
    ),
    CatalogEntry(
        74,
        "a resource definition is deleted, or its webhook down",
        (f"{_RIGHTS}test_a_definition_that_is_deleted_and_made_again_stops_nothing",),
        lacks="a definition that lost fields of the status; there is no conversion webhook: each kind has one version",
    ),
    CatalogEntry(
        75,
        "an object is re-created under its name",
        (
            f"{_NODES}test_moves_deletions_and_what_happened_while_the_plane_was_away",
            f"{_WRITER}test_an_object_that_was_deleted_and_made_again_is_read_before_it_is_written",
            _UID,
        ),
    ),
    CatalogEntry(
        76,
        "a finalizer that never ends",
        (
            f"{_RIGHTS}test_an_object_that_a_finalizer_keeps_is_written_without_a_loop",
            f"{_RIGHTS}test_a_namespace_that_is_terminating_gets_few_attempts",
        ),
        lacks="an alarm that an object or a namespace cannot be deleted",
    ),
    CatalogEntry(
        77,
        "generations change faster than they are applied",
        (f"{_RIGHTS}test_a_spec_that_changes_ten_times_a_second_is_written_seldom_and_honestly",),
    ),
    CatalogEntry(
        78,
        "another controller writes our field",
        (f"{_STATUSES}test_another_controller_that_writes_our_conditions_is_not_answered_in_a_loop",),
        lacks="a metric of it: the log has a warning",
    ),
    CatalogEntry(
        79,
        "a token expires, permissions are revoked",
        (
            f"{_RIGHTS}test_rights_that_are_taken_away_delay_statuses_and_lose_none",
            f"{_CLIENT}test_expired_credentials_are_read_again",
        ),
    ),
    CatalogEntry(
        80,
        "the API server goes back in time",
        (
            f"{_NODES}test_an_etcd_restored_from_an_older_backup_withdraws_nothing",
            f"{_OBJECTS}test_an_api_server_restored_from_a_backup_changes_no_policy",
            f"{_STATUSES}test_an_api_server_that_goes_back_in_time_gets_the_present_statuses_again",
            f"{_CLIQUES}test_a_server_that_is_set_back_releases_nothing_and_gets_its_rows_again",
        ),
    ),
    CatalogEntry(
        81,
        "our webhook times out",
        (f"{_OBJECTS}test_nothing_is_read_while_an_admission_policy_is_missing",),
        lacks="a webhook: the API server evaluates the plane's admission policies itself",
    ),
)
