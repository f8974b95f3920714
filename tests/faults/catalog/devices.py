"""Faults of devices and drivers, and combined faults."""

from __future__ import annotations

from tests.faults.catalog.entry import CatalogEntry

_HOLD = "tests/unit/test_withdrawals.py::test_a_withdrawal_over_budget_changes_no_verdict_until_two_principals_approve"
_BURST = "tests/unit/test_simulated_zones.py::test_a_burst_of_versions_is_merged_for_slow_devices"
_LINKS = "tests/integration/test_agent_websocket.py"
_SLOW = f"{_LINKS}::test_a_device_that_does_not_read_delays_no_other_and_gets_one_merged_delta"
_DOOR = f"{_LINKS}::test_agents_beyond_the_rate_get_retry_times_and_all_are_admitted"

DEVICES = (
    CatalogEntry(82, "one slow device of many", (_BURST, _SLOW)),
    CatalogEntry(
        83,
        "a driver that hangs, or never ends a session",
        (
            "simulated: steps started on devices",
            "tests/unit/test_provisioner.py::test_an_attempt_at_a_hanging_device_ends_at_the_deadline_and_is_retried",
        ),
    ),
    CatalogEntry(
        84,
        "responses late, twice, out of order, or for something else",
        (
            "real: device answers lost",
            "tests/unit/test_delivery_state.py::test_a_refusal_of_a_frame_not_in_flight_causes_no_wait",
            "tests/integration/test_tls_agents.py::test_acknowledgements_for_other_dpus_have_no_effect",
        ),
    ),
    CatalogEntry(
        85,
        "a device that reports success without effect, or an effect without success",
        (
            "tests/unit/test_agent.py::test_a_device_with_a_false_acknowledgement_is_found_by_its_digest_and_reconciled",
            "tests/unit/test_steps.py::test_a_false_success_of_a_device_is_detected",
        ),
    ),
    CatalogEntry(
        86,
        "a change is applied in part, then the device resets",
        (
            "simulated: device reboots",
            "tests/unit/test_agent.py::test_a_failed_device_is_named_in_the_report_and_reconciled_later",
        ),
    ),
    CatalogEntry(87, "a device restarts empty", ("simulated: device reboots", "simulated: agent crash")),
    CatalogEntry(
        88,
        "a device restarts with an older state",
        (
            "simulated: device reboots",
            "tests/unit/test_delivery_state.py::test_a_dpu_that_returned_to_an_older_version_gets_a_delta_from_it",
        ),
    ),
    CatalogEntry(
        89,
        "a device that connects and disconnects repeatedly",
        ("tests/unit/test_relay.py::test_a_dpu_that_reconnects_often_gets_one_snapshot_per_minute",),
    ),
    CatalogEntry(
        90,
        "another device under the same address",
        (
            "tests/unit/test_lifecycle.py::test_a_different_serial_of_the_device_is_a_swapped_card",
            "tests/integration/test_tls_agents.py::test_an_agent_that_names_another_dpu_is_rejected_and_the_other_keeps_its_link",
        ),
    ),
    CatalogEntry(
        91,
        "no index is free, a table is full",
        (
            "simulated: waiting",
            "tests/integration/test_serve_embedded.py::test_eighteen_claims_get_dense_indices_and_the_nineteenth_waits",
        ),
        lacks="a device whose own table is full: simulated devices have no limit",
    ),
    CatalogEntry(
        92,
        "another program flushes the rules",
        ("tests/unit/test_agent.py::test_flushed_rules_are_restored_after_the_next_heartbeat",),
    ),
    CatalogEntry(93, "all devices connect at once", (_DOOR, "real: cut from devices")),
    CatalogEntry(94, "a large part of the nodes vanishes", ("simulated: held", _HOLD)),
    CatalogEntry(
        95,
        "a wrong command for the whole fleet",
        (
            "simulated: held",
            "tests/integration/test_abuse_api.py::test_one_stolen_operator_certificate_cannot_withdraw_the_fleet",
        ),
    ),
    CatalogEntry(
        96,
        "the plane is down for long, and then has all changes at once",
        ("real: all roles killed", "simulated: isolation"),
        lacks="seven days of it",
    ),
)
