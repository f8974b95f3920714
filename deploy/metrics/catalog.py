"""Every metric that a process may show, in one place: its name, what it means, and what its labels are.

Names carry their units and labels have few values: partitions, methods, levels, phases, ranks, never nodes or DPUs.
Zones are labels of two metrics only, of so many zones and no more (ZONES_MAX): what goes beyond is in the totals.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

ZONES_MAX = 2_000
"""Zones that have series of their own; the total over all of them is there as well."""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric: its name as a query spells it, what it means, its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gauge(Described):
    """A value that goes up and down."""

    kind = "gauge"

    def family(self, value: float | None = None) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, value, self.labels or None)


@dataclass(frozen=True, slots=True)
class Counter(Described):
    """A count since the process started. Its name ends in `_total`."""

    kind = "counter"

    def family(self, value: float | None = None) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.help, value, self.labels or None)


@dataclass(frozen=True, slots=True)
class Histogram(Described):
    """Samples by size: `_bucket`, `_sum` and `_count`."""

    kind = "histogram"

    def family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.help, labels=self.labels)


# --- the process ------------------------------------------------------------------------------------------------------

INFO = Gauge("dpuplane_info", "1, with what this process is.", ("version", "replica", "roles", "engine"))
READY = Gauge("dpuplane_ready", "1 once the process has caught up and serves.")
FOLD_VERSION = Gauge("dpuplane_fold_version", "Lowest version of the rules by which a topic is folded.", ("topic",))
FOLD_VERSION_SUPPORTED = Gauge(
    "dpuplane_fold_version_supported", "Highest version of a topic's rules that this binary has.", ("topic",)
)
REPLICAS = Gauge("dpuplane_replicas", "Replicas whose beacons are heard, by role.", ("role",))
DIVERGENCES = Counter("dpuplane_divergences_total", "Beacons that showed another replica's hash or digest to differ.")
SUPPRESSED_LINES = Counter(
    "dpuplane_suppressed_log_lines_total", "Log lines caused by peers that had caused too many already."
)
CERTIFICATE_EXPIRY = Gauge(
    "dpuplane_certificate_expiry_timestamp_seconds", "When this process's certificate expires, since the epoch."
)

CONNECTIONS = Gauge("dpuplane_connections", "Connections open on a listener (http or agents).", ("listener",))
CONNECTIONS_MAX = Gauge("dpuplane_connections_max", "Connections that a listener takes at most.", ("listener",))
REFUSED_CONNECTIONS = Counter(
    "dpuplane_refused_connections_total",
    "Connections refused: by the limit of the listener or of an address, in the handshake, or as no file was free.",
    ("listener", "limit"),
)

REVOKED = Gauge("dpuplane_revoked_certificates", "Serial numbers in the list of revoked certificates that is in use.")
REVOCATIONS_UNREAD = Gauge(
    "dpuplane_revocations_unread", "1 if the list of revoked certificates cannot be read; the last good one is in use."
)

# --- the log and its folds --------------------------------------------------------------------------------------------

POSITION = Gauge("dpuplane_position_records", "Next offset to fold.", ("partition",))
LAG_RECORDS = Gauge("dpuplane_lag_records", "Records of the log that are not folded yet.", ("partition",))
LAG_SECONDS = Gauge(
    "dpuplane_lag_seconds", "Since the append of the last folded record, if others wait behind it.", ("partition",)
)
HALTED = Gauge("dpuplane_halted", "1 if this replica stopped folding the partition.", ("partition",))
QUARANTINED = Gauge("dpuplane_quarantined_records", "Records that no rule admits, since the log began.", ("partition",))
FOLDED = Counter("dpuplane_folded_records_total", "Records folded since the start.")
ENDS_AGE = Gauge("dpuplane_log_seen_age_seconds", "Since the log last answered where it ends.")
BATCHES = Counter("dpuplane_log_batches_total", "Batches of appends, by result: written or failed.", ("result",))
UNSAVED = Gauge("dpuplane_unsaved_records", "Records folded since the last save: what a restart folds again.")
SAVE_AGE = Gauge("dpuplane_save_age_seconds", "Since all that was folded was saved.")
SAVE_FAILURES = Counter("dpuplane_save_failures_total", "Saves that failed.")
CLOCK_OFFSET = Gauge(
    "dpuplane_clock_offset_seconds",
    "How far this host's clock is ahead: of the log's, and of the replica's that differs most.",
    ("of",),
)
CLOCK_STEP = Gauge(
    "dpuplane_clock_step_seconds", "The largest step by which this host's clock was set ahead in the last hour."
)
LOG_AHEAD = Gauge("dpuplane_log_ahead_seconds", "How far the record folded last lies ahead of this host's clock.")
STALLED = Gauge("dpuplane_stalled_partitions", "Partitions of zones whose changes cannot be forwarded any more.")

# --- the API ----------------------------------------------------------------------------------------------------------

CALLS = Counter("dpuplane_api_calls_total", "Calls that ended, by how.", ("method", "outcome"))
CALL_SECONDS = Histogram("dpuplane_api_call_seconds", "How long calls took, from request to answer.", ("method",))
CALLS_UNDER_WAY = Gauge("dpuplane_api_calls_under_way", "Calls that are not answered yet.")
REFUSALS = Counter("dpuplane_refusals_total", "Refused commands and calls, by the field that was wrong.", ("reason",))
UNKNOWN = Counter("dpuplane_unknown_outcomes_total", "Commands whose outcome could not be told in time.")
REFUSED_ADMISSIONS = Counter(
    "dpuplane_refused_admissions_total", "Calls (api), links (agents) and feeds (page) over a limit.", ("door",)
)
DENIALS = Counter("dpuplane_denials_total", "Calls by somebody unknown, or who may not make them.", ("kind",))

# --- the fleet --------------------------------------------------------------------------------------------------------

MEMBERS = Gauge("dpuplane_members", "Nodes whose addresses are in rule tables.")
NODES = Gauge("dpuplane_nodes", "Nodes that are there.")
ZONES = Gauge("dpuplane_zones", "Zones that have a node, or labels or limits of their own.")
POLICIES = Gauge("dpuplane_policies", "Rule policies.")
HOLDS = Gauge("dpuplane_holds", "Withdrawals that wait for two principals.")
FROZEN = Gauge("dpuplane_freezes", "Freezes in force; one may be of all zones.")
DPUS = Gauge("dpuplane_dpus", "Registered DPUs, by phase.", ("phase",))
STUCK = Gauge("dpuplane_stuck_dpus", "DPUs that go on only if somebody looks.")

# --- rules on their way to devices ------------------------------------------------------------------------------------

CHANGE_SECONDS = Histogram(
    "dpuplane_change_to_device_seconds", "From a change's append until a DPU said that it has it.", ("level",)
)
TABLE_AGE = Gauge(
    "dpuplane_table_age_seconds",
    f"Since the earliest change that a connected DPU of the zone lacks in hardware; of up to {ZONES_MAX} zones.",
    ("zone",),
)
TABLE_AGE_MAX = Gauge("dpuplane_table_age_max_seconds", "The largest table age of all zones that are not frozen.")
ZONES_BEHIND = Gauge("dpuplane_zones_behind", "Zones with a connected DPU that lacks a change in hardware.")
ZONE_FROZEN = Gauge("dpuplane_zone_frozen", "1 for a served zone that is frozen; none for others.", ("zone",))
ZONES_SERVED = Gauge("dpuplane_served_zones", "Zones of which this relay has DPUs.")
CONNECTED = Gauge("dpuplane_connected_dpus", "DPUs with a link to this relay.")
CURRENT = Gauge("dpuplane_current_dpus", "Connected DPUs that have their zone's table in hardware.")
DIFFERING = Gauge("dpuplane_differing_dpus", "Connected DPUs whose digest is not that of the version they name.")
LINKS = Gauge("dpuplane_links", "Agent links open.")
LINKS_CLOSED = Counter("dpuplane_links_closed_total", "Agent links closed by this relay.", ("reason",))
BACKLOG = Gauge("dpuplane_link_backlog_bytes", "Bytes handed over to links that their agents have not taken.")
BACKLOG_MAX = Gauge("dpuplane_link_backlog_max_bytes", "The same of the link that has most.")
FRAMES = Counter("dpuplane_frames_encoded_total", "Deltas and snapshots encoded; each goes to many links.")

# --- what the plane does by itself ------------------------------------------------------------------------------------

SIDE_EFFECTS = Counter(
    "dpuplane_side_effects_total", "Needs that still stood when our turn came, by our rank.", ("actor", "rank")
)
APPEND_FAILURES = Counter("dpuplane_append_failures_total", "Internal events that may not have landed.", ("actor",))
FORWARDS = Counter("dpuplane_forwards_total", "Forwards from zones to fleet.")
FORWARDED = Counter("dpuplane_forwarded_items_total", "Changes of nodes in those forwards.")
OUTBOX_DELIVERIES = Counter(
    "dpuplane_zone_outbox_deliveries_total",
    "Records that the forwarder delivered from the outboxes of fleet to zones partitions.",
)
DEADLINES = Counter("dpuplane_deadlines_stated_total", "Deadlines stated to have passed.")
DECISIONS = Counter("dpuplane_decisions_written_total", "Decisions spelled out in their topic.")
STEPS = Counter(
    "dpuplane_steps_total",
    "Attempts at provisioning steps that ended: done, given up, lost, or by kind of failure.",
    ("phase", "result"),
)
STEPS_UNDER_WAY = Gauge("dpuplane_steps_under_way", "DPUs that this provisioner is busy with.")

CATALOG = tuple(found for found in list(globals().values()) if isinstance(found, Described))
"""All of them, in the order above."""
