"""What the dashboard shows: rows of panels, each a question and the queries that answer it.

The first row says whether anybody has to look at all; each row below is about one way on which things go wrong.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Query(NamedTuple):
    """A query, and what its series are called."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """`width` is in twenty-fourths of the page. `bad_from` is the value from which a stat is red."""

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
    rate = f'sum by (le) (rate(dpuplane_change_to_device_seconds_bucket{{level="{level}"}}[$__rate_interval]))'
    return tuple(Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}") for share in (0.5, 0.99, 0.999))


def _stat(title: str, description: str, expr: str, *, unit: str = "short", bad_from: float | None = 1) -> Panel:
    return Panel(title, description, (Query(expr),), unit, 4, "stat", bad_from)


ROWS = (
    Row(
        "At a glance",
        (
            _stat("Processes that do not serve", "Started, and not caught up.", "sum(1 - dpuplane_ready)"),
            _stat("Halted partitions", "No replica may stop folding.", "sum(dpuplane_halted)"),
            _stat(
                "Divergences", "Replicas that disagree, in an hour.", "sum(increase(dpuplane_divergences_total[1h]))"
            ),
            _stat("DPUs that differ", "Their digest is not their version's.", "sum(dpuplane_differing_dpus)"),
            _stat(
                "Oldest table",
                "Of zones that are not frozen.",
                "max(dpuplane_table_age_max_seconds)",
                unit="s",
                bad_from=60,
            ),
            _stat("Holds", "Withdrawals that wait for two principals.", "max(dpuplane_holds)"),
            _stat("Nodes", "That are there.", "max(dpuplane_nodes)", bad_from=None),
            _stat("Zones", "That fleet has heard of.", "max(dpuplane_zones)", bad_from=None),
            _stat("DPUs", "Registered.", "max(sum by (instance) (dpuplane_dpus))", bad_from=None),
            _stat("Connected", "With a link to a relay.", "sum(dpuplane_connected_dpus)", bad_from=None),
            _stat("Up to date", "With their zone's table in hardware.", "sum(dpuplane_current_dpus)", bad_from=None),
            _stat("Freezes", "In force.", "max(dpuplane_freezes)"),
        ),
    ),
    Row(
        "Rules on their way to devices",
        (
            Panel(
                "From change to hardware",
                "From a change's append until DPUs have it in hardware.",
                _quantiles("in_hardware"),
                "s",
                12,
            ),
            Panel(
                "DPUs by how long their changes took",
                "The same as a distribution, to the hardware.",
                (
                    Query(
                        "sum by (le) (increase(dpuplane_change_to_device_seconds_bucket"
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
                "Since the earliest change that one of their connected DPUs lacks.",
                (Query("topk(10, dpuplane_table_age_seconds)", "{{zone}}"),),
                "s",
            ),
            Panel(
                "Zones behind",
                "Zones with a DPU that lacks a change, of those served.",
                (
                    Query("sum(dpuplane_zones_behind)", "behind"),
                    Query("sum(dpuplane_served_zones)", "served"),
                    Query("count(dpuplane_zone_frozen) or vector(0)", "frozen"),
                ),
            ),
            Panel(
                "Links",
                "Open, and closed by a relay by reason.",
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
                "What agents have not taken: of all links, and of the worst.",
                (
                    Query("sum(dpuplane_link_backlog_bytes)", "all"),
                    Query("max(dpuplane_link_backlog_max_bytes)", "worst"),
                ),
                "bytes",
            ),
            Panel(
                "Frames encoded",
                "Each goes to every link that needs it.",
                (Query("sum by (instance) (rate(dpuplane_frames_encoded_total[$__rate_interval]))", "{{instance}}"),),
                "ops",
            ),
            Panel(
                "Links and calls turned away",
                "Over a limit, by door.",
                (Query("sum by (door) (rate(dpuplane_refused_admissions_total[$__rate_interval]))", "{{door}}"),),
                "ops",
            ),
        ),
    ),
    Row(
        "The log and its folds",
        (
            Panel(
                "Lag",
                "How old the next record is that a replica has not folded.",
                (Query("max by (instance) (dpuplane_lag_seconds)", "{{instance}}"),),
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
                "Records folded a second.",
                (Query("rate(dpuplane_folded_records_total[$__rate_interval])", "{{instance}}"),),
                "ops",
            ),
            Panel(
                "Appends",
                "Batches a second, written and failed.",
                (Query("sum by (result) (rate(dpuplane_log_batches_total[$__rate_interval]))", "{{result}}"),),
                "ops",
            ),
            Panel(
                "Saves",
                "How old the last save is, and how many failed.",
                (
                    Query("max by (instance) (dpuplane_save_age_seconds)", "{{instance}}"),
                    Query("sum(increase(dpuplane_save_failures_total[$__rate_interval]))", "failed"),
                ),
                "s",
            ),
            Panel(
                "What nobody should see",
                "Quarantined records, halted and stalled partitions.",
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
                "That ended, by method.",
                (Query("sum by (method) (rate(dpuplane_api_calls_total[$__rate_interval]))", "{{method}}"),),
                "ops",
            ),
            Panel(
                "Outcomes",
                "Of commands and queries.",
                (Query("sum by (outcome) (rate(dpuplane_api_calls_total[$__rate_interval]))", "{{outcome}}"),),
                "ops",
            ),
            Panel(
                "Time to the answer",
                "p99 by method.",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le, method) "
                        "(rate(dpuplane_api_call_seconds_bucket[$__rate_interval])))",
                        "{{method}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Refusals",
                "By the field that was wrong.",
                (Query("sum by (reason) (increase(dpuplane_refusals_total[$__rate_interval]))", "{{reason}}"),),
            ),
            Panel(
                "Unknown outcomes",
                "Commands of which callers could not be told what became of them.",
                (Query("sum(increase(dpuplane_unknown_outcomes_total[$__rate_interval]))", "unknown"),),
            ),
            Panel(
                "Calls under way",
                "By process.",
                (Query("dpuplane_api_calls_under_way", "{{instance}}"),),
            ),
        ),
    ),
    Row(
        "Lifecycle and what the plane does by itself",
        (
            Panel(
                "DPUs by phase",
                "As the log has them.",
                (
                    Query("max by (phase) (dpuplane_dpus) > 0", "{{phase}}"),
                    Query("max(dpuplane_stuck_dpus)", "stuck"),
                ),
            ),
            Panel(
                "Steps that ended",
                "By how: done, given up, lost, or the kind of failure.",
                (
                    Query("sum by (result) (increase(dpuplane_steps_total[$__rate_interval]))", "{{result}}"),
                    Query("sum(dpuplane_steps_under_way)", "under way"),
                ),
            ),
            Panel(
                "Side effects by rank",
                "Those of ranks above 0 were done in place of somebody slower.",
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
                "Forwards, the changes in them, and records delivered from fleet to zones.",
                (
                    Query("sum(rate(dpuplane_forwards_total[$__rate_interval]))", "forwards"),
                    Query("sum(rate(dpuplane_forwarded_items_total[$__rate_interval]))", "changes"),
                    Query("sum(rate(dpuplane_zone_outbox_deliveries_total[$__rate_interval]))", "fleet to zones"),
                ),
                "ops",
            ),
            Panel(
                "Internal events that may not have landed",
                "By actor. They are said again.",
                (Query("sum by (actor) (increase(dpuplane_append_failures_total[$__rate_interval]))", "{{actor}}"),),
            ),
            Panel(
                "Processes",
                "Memory and CPU.",
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
