"""Faults of Kafka, and of records in the log."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

_FREEZES = "tests/integration/test_kafka_faults.py::test_the_leader_freezes_for_seconds"
_LOST_END = "tests/integration/test_kafka_faults.py::test_a_reader_detects_that_all_disks_lost_the_end"
_POISON = "tests/unit/test_partition.py::test_poison_is_skipped_counted_and_shown"

LOG = (
    CatalogEntry(19, "one broker restarts", ("real: brokers restarted",)),
    CatalogEntry(
        20,
        "rolling restart of all brokers under load",
        (
            "real: brokers restarted",
            "real: all brokers killed",
            "tests/integration/test_kafka_faults.py::test_all_brokers_restart_one_after_another",
        ),
    ),
    CatalogEntry(
        21,
        "a partition's leader is killed during an append",
        ("real: leader killed", "tests/integration/test_kafka_faults.py::test_the_leader_is_killed"),
    ),
    CatalogEntry(22, "fewer replicas in sync than needed", ("real: two brokers frozen", "real: broker isolated")),
    CatalogEntry(
        23,
        "two of three brokers frozen, resumed, frozen again",
        ("real: two brokers frozen", "real: brokers frozen briefly"),
    ),
    CatalogEntry(
        24, "delayed produce and metadata requests", ("real: log delayed", "simulated: records that landed late")
    ),
    CatalogEntry(25, "a lost response to a produce request", ("real: produce answers lost", "real: log answers lost")),
    CatalogEntry(
        26, "no leader for longer than a command waits", ("real: leader killed", "real: broker frozen", _FREEZES)
    ),
    CatalogEntry(
        27,
        "a record is refused: too large, access revoked",
        (
            "tests/contract/event_log.py::test_an_oversized_record_is_refused",
            "tests/integration/test_kafka_acls.py::test_an_error_without_a_grant_names_the_topic",
        ),
    ),
    CatalogEntry(
        28, "producer and transaction ids expire", lacks="the plane's producers are not idempotent: they have no ids"
    ),
    CatalogEntry(29, "the log's end is lost (unclean election, power cut)", (_LOST_END,)),
    CatalogEntry(
        30,
        "a topic is deleted and re-created",
        (
            "tests/contract/event_log.py::test_a_running_reader_notices_a_recreated_log",
            "tests/integration/test_kafka_topics.py::test_a_recreated_log_ends_a_reader_that_has_read_no_record",
            "tests/integration/test_kafka_topics.py::test_a_deleted_topic_ends_the_log",
        ),
    ),
    CatalogEntry(
        31,
        "retention deletes records before they are read",
        (
            "tests/contract/event_log.py::test_expired_records_move_the_beginning_permanently",
            "tests/unit/test_embedded.py::test_a_reader_of_expired_records_gets_an_error",
            "tests/unit/test_replica.py::test_a_display_topic_is_folded_from_its_first_unexpired_record",
        ),
    ),
    CatalogEntry(
        32,
        "a topic gets more partitions",
        ("tests/integration/test_kafka_topics.py::test_added_partitions_end_the_log_and_keep_it_from_opening",),
    ),
    CatalogEntry(
        33,
        "a command is in the log twice",
        (
            "simulated: duplicated records",
            "tests/unit/test_partition.py::test_a_command_takes_effect_once_however_often_it_lands",
        ),
    ),
    CatalogEntry(
        34,
        "an event of an old epoch after an event of a new one",
        (
            "simulated: records that landed late",
            "tests/unit/test_installs.py::test_a_new_epoch_resets_the_counts_and_an_older_one_is_refused",
            "tests/unit/test_fleet_membership.py::test_a_forward_is_accepted_only_at_the_mark_of_its_partition",
        ),
    ),
    CatalogEntry(
        35,
        "bytes that no schema can decode",
        (
            _POISON,
            "tests/unit/test_codec.py::test_any_bytes_end_in_an_event_or_in_undecodable",
            "tests/integration/test_kafka_poison.py::test_absent_keys_values_and_header_values_are_read_as_empty",
        ),
    ),
    CatalogEntry(
        36,
        "an event of an unknown type, or with values out of range",
        (
            "tests/unit/test_partition.py::test_an_event_that_the_fold_version_does_not_accept_is_quarantined",
            "tests/unit/test_partition.py::test_events_of_other_topics_are_quarantined_without_an_exception",
        ),
    ),
    CatalogEntry(
        37,
        "blank fields, an empty policy",
        (
            "tests/unit/test_policies.py::test_an_empty_selector_matches_everything_and_a_conjunction_needs_every_label",
            "tests/unit/test_partition.py::test_events_of_other_topics_are_quarantined_without_an_exception",
        ),
    ),
    CatalogEntry(
        38,
        "an oversized event, a table twice as large",
        (
            "tests/contract/event_log.py::test_an_oversized_record_is_refused",
            "tests/integration/test_api_bad_input.py::test_an_oversized_request_is_refused_and_the_server_continues",
        ),
    ),
    CatalogEntry(
        39,
        "a decompression bomb",
        (
            "tests/integration/test_kafka_topics.py::test_a_compression_bomb_is_rejected",
            "tests/integration/test_abuse_api.py::test_a_compressed_message_is_not_decompressed",
        ),
    ),
    CatalogEntry(
        40,
        "a flipped bit in a stored record",
        (
            "tests/unit/test_codec.py::test_flipped_bits_end_in_an_event_or_in_undecodable",
            "tests/unit/test_same_log.py::test_an_edited_log_is_detected_within_a_minute",
            "tests/integration/test_checkpoint.py::test_an_edited_record_is_named",
        ),
    ),
    CatalogEntry(
        41,
        "a reader far behind catches up",
        ("real: state lost", "simulated: lost state"),
        lacks="ten million events at once: `make bench` measures the rate of a replay",
    ),
    CatalogEntry(
        42,
        "expired certificate, new authority, wrong name, revoked access",
        (
            "tests/integration/test_kafka_access.py::test_a_broker_whose_certificate_is_for_another_host_is_refused",
            "tests/integration/test_kafka_access.py::test_a_replaced_password_is_used_by_the_next_client",
            "tests/integration/test_tls_agents.py::test_a_link_ends_when_its_certificate_expires",
            "tests/integration/test_tls_rotation.py::test_certificates_of_a_removed_authority_are_rejected",
        ),
    ),
)
