"""The content of the dashboard: rows of panels, each with a description and its queries.

The first row shows faults of the whole plane; each row below shows one part of the plane. The dashboard limits every
query to the planes that its viewer selects.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Query(NamedTuple):
    """A query, and the legend of its series."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel. `width` is in twenty-fourths of the page. A stat is red from the value `bad_from` upwards."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    kind: Literal["graph", "stat", "heatmap"] = "graph"
    bad_from: float | None = None


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def _quantiles(level: str) -> tuple[Query, ...]:
    rate = f'sum by (le) (rate(dpuplane_change_to_device_duration_seconds_bucket{{level="{level}"}}[$__rate_interval]))'
    return tuple(Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}") for share in (0.5, 0.99, 0.999))


def _stat(title: str, description: str, expr: str, *, unit: str = "short", bad_from: float | None = 1) -> Panel:
    return Panel(title, description, (Query(expr),), unit, 4, "stat", bad_from)


ROWS = (
    Row(
        "At a glance",
        (
            _stat(
                "Processes that do not serve",
                "Processes that run but have not caught up with the log.",
                "sum(1 - dpuplane_ready)",
            ),
            _stat(
                "Halted partitions",
                "Partitions that a replica cannot fold any further. Must be 0.",
                "sum(dpuplane_halted)",
            ),
            _stat(
                "Divergences",
                "Disagreements between replicas in the last hour.",
                "sum(increase(dpuplane_divergences_total[1h]))",
            ),
            _stat(
                "DPUs that differ",
                "DPUs whose digest is not the digest of their version.",
                "sum(dpuplane_differing_dpus)",
            ),
            _stat(
                "Oldest table",
                "Largest table age of the zones that are not frozen.",
                "max(time() - dpuplane_oldest_missing_change_timestamp_seconds"
                " unless on (plane, instance, zone) dpuplane_zone_frozen == 1) or vector(0)",
                unit="s",
                bad_from=60,
            ),
            _stat("Holds", "Held changes that wait for two people.", "max(dpuplane_holds)"),
            _stat("Nodes", "Nodes in zones.", "max(dpuplane_nodes)", bad_from=None),
            _stat("Zones", "Zones with a node, labels or limits.", "max(dpuplane_zones)", bad_from=None),
            _stat("DPUs", "Registered DPUs.", "max(sum by (instance) (dpuplane_dpus))", bad_from=None),
            _stat("Connected", "DPUs with a link to a relay.", "sum(dpuplane_connected_dpus)", bad_from=None),
            _stat(
                "Up to date",
                "DPUs with the table of their zone in hardware.",
                "sum(dpuplane_current_dpus)",
                bad_from=None,
            ),
            _stat("Freezes", "Freezes in force.", "max(dpuplane_freezes)"),
        ),
    ),
    Row(
        "Rules on their way to devices",
        (
            Panel(
                "From change to hardware",
                "Time from the append of a change until DPUs have it in hardware.",
                _quantiles("in_hardware"),
                "s",
                12,
            ),
            Panel(
                "Distribution of the time to hardware",
                "DPUs by the time from the append of a change to their hardware.",
                (
                    Query(
                        "sum by (le) (increase(dpuplane_change_to_device_duration_seconds_bucket"
                        '{level="in_hardware"}[$__rate_interval]))',
                        "{{le}}",
                    ),
                ),
                "short",
                12,
                "heatmap",
            ),
            Panel(
                "Table age of the zones that lag most",
                "Age of the oldest change that a connected DPU of the zone lacks.",
                (
                    Query(
                        "topk(10, time() - dpuplane_oldest_missing_change_timestamp_seconds) or vector(0)",
                        "{{zone}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Zones behind",
                "Served zones with a connected DPU that lacks a change.",
                (
                    Query("sum(dpuplane_zones_behind)", "behind"),
                    Query("sum(dpuplane_served_zones)", "served"),
                    Query("count(dpuplane_zone_frozen) or vector(0)", "frozen"),
                ),
            ),
            Panel(
                "Links",
                "Open links, and links that relays closed, by reason.",
                (
                    Query("sum(dpuplane_links)", "open"),
                    Query(
                        "sum by (reason) (increase(dpuplane_links_closed_total[$__rate_interval]))",
                        "closed: {{reason}}",
                    ),
                ),
            ),
            Panel(
                "Link backlog",
                "Bytes that agents have not read: of all links, and of the worst link.",
                (
                    Query("sum(dpuplane_link_backlog_bytes)", "all"),
                    Query("max(dpuplane_link_backlog_max_bytes)", "worst"),
                ),
                "bytes",
            ),
            Panel(
                "Frames encoded",
                "Encoded deltas and snapshots; each is sent on every link that needs it.",
                (Query("sum by (instance) (rate(dpuplane_frames_encoded_total[$__rate_interval]))", "{{instance}}"),),
                "ops",
            ),
            Panel(
                "Refused links and calls",
                "Calls, links and feeds per second that were refused over a limit.",
                (Query("sum by (limiter) (rate(dpuplane_refused_admissions_total[$__rate_interval]))", "{{limiter}}"),),
                "ops",
            ),
        ),
    ),
    Row(
        "The log and its folds",
        (
            Panel(
                "Lag",
                "Age of the last folded record while later ones wait.",
                (
                    Query(
                        "max by (instance) "
                        "((time() - dpuplane_folded_timestamp_seconds) * (dpuplane_lag_records > bool 0))",
                        "{{instance}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Records behind",
                "By topic, of the replica that is furthest behind.",
                (
                    Query(
                        "max by (topic) (sum by (instance, topic) "
                        '(label_replace(dpuplane_lag_records, "topic", "$1", "partition", "(.*)/.*")))',
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Fold rate",
                "Records folded per second.",
                (Query("rate(dpuplane_folded_records_total[$__rate_interval])", "{{instance}}"),),
                "ops",
            ),
            Panel(
                "Appends",
                "Append batches per second, written and failed.",
                (Query("sum by (result) (rate(dpuplane_log_batches_total[$__rate_interval]))", "{{result}}"),),
                "ops",
            ),
            Panel(
                "Saves",
                "Time since the last save of folded state, and failed saves.",
                (
                    Query("max by (instance) (time() - dpuplane_saved_timestamp_seconds)", "{{instance}}"),
                    Query("sum(increase(dpuplane_save_failures_total[$__rate_interval]))", "failed"),
                ),
                "s",
            ),
            Panel(
                "Faults of partitions",
                "Quarantined records, halted partitions, and partitions that cannot be forwarded. Must be 0.",
                (
                    Query("max(sum by (instance) (dpuplane_quarantined_records))", "quarantined"),
                    Query("sum(dpuplane_halted)", "halted"),
                    Query("max(dpuplane_stalled_partitions)", "stalled"),
                ),
            ),
        ),
    ),
    Row(
        "Calls",
        (
            Panel(
                "Calls",
                "Calls per second, by method.",
                (
                    Query(
                        "sum by (grpc_method) "
                        "(rate(grpc_server_handled_total[$__rate_interval]) and grpc_server_handled_total > 0)",
                        "{{grpc_method}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Statuses and outcomes",
                "Failed calls per second by status, and commands by outcome.",
                (
                    Query(
                        'sum by (grpc_code) (rate(grpc_server_handled_total{grpc_code!="OK"}[$__rate_interval]))'
                        " or vector(0)",
                        "{{grpc_code}}",
                    ),
                    Query("sum by (outcome) (rate(dpuplane_commands_total[$__rate_interval]))", "{{outcome}}"),
                ),
                "ops",
            ),
            Panel(
                "Duration of unary calls",
                "p99 by method.",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le, grpc_method) "
                        '(rate(grpc_server_handling_seconds_bucket{grpc_type="unary"}[$__rate_interval])))',
                        "{{grpc_method}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Refusals",
                "Refused commands and calls, by the field at fault.",
                (Query("sum by (reason) (increase(dpuplane_refusals_total[$__rate_interval]))", "{{reason}}"),),
            ),
            Panel(
                "Unknown outcomes",
                "Commands that ended as unknown: the log did not answer in time.",
                (Query("sum(increase(dpuplane_unknown_outcomes_total[$__rate_interval]))", "unknown"),),
            ),
            Panel(
                "Calls in progress",
                "Calls in progress, by process.",
                (
                    Query(
                        "sum by (instance) (grpc_server_started_total) - sum by (instance) (grpc_server_handled_total)",
                        "{{instance}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Lifecycle and background work",
        (
            Panel(
                "DPUs by phase",
                "Registered DPUs by phase, and stuck DPUs.",
                (
                    Query("max by (phase) (dpuplane_dpus) > 0", "{{phase}}"),
                    Query("max(dpuplane_stuck_dpus)", "stuck"),
                ),
            ),
            Panel(
                "Finished steps",
                "Finished attempts: done, abandoned, lost, or the kind of failure.",
                (
                    Query("sum by (result) (increase(dpuplane_steps_total[$__rate_interval]))", "{{result}}"),
                    Query("sum(dpuplane_steps_under_way)", "under way"),
                ),
            ),
            Panel(
                "Side effects by rank",
                "Actions of ranks above 0 were taken because a replica of a lower rank was slow.",
                (
                    Query(
                        "sum by (actor, rank) (rate(dpuplane_side_effects_total[$__rate_interval]))",
                        "{{actor}} {{rank}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "From zones to fleet",
                "Forwards, the changes in them, and records delivered from fleet's outbox.",
                (
                    Query("sum(rate(dpuplane_forwards_total[$__rate_interval]))", "forwards"),
                    Query("sum(rate(dpuplane_forwarded_items_total[$__rate_interval]))", "changes"),
                    Query("sum(rate(dpuplane_zone_outbox_deliveries_total[$__rate_interval]))", "fleet to zones"),
                ),
                "ops",
            ),
            Panel(
                "Failed appends of internal events",
                "By actor. The append is retried.",
                (Query("sum by (actor) (increase(dpuplane_append_failures_total[$__rate_interval]))", "{{actor}}"),),
            ),
            Panel(
                "Processes",
                "Resident memory of each process.",
                (
                    Query(
                        'process_resident_memory_bytes{job="dpuplane"}',
                        "{{instance}} memory",
                    ),
                ),
                "bytes",
            ),
        ),
    ),
)
