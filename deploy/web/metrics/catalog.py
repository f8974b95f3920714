"""The catalog of metrics: name, help text and labels of each.

Names follow the conventions of Prometheus. They carry their units; a point in time is a `_timestamp_seconds` in Unix
time, because an age would stop growing if its process hangs. Labels have few values: partitions, methods, levels,
phases, ranks, never nodes or DPUs. Two metrics have zones as labels, for at most ZONES_MAX zones; the totals count all
zones.

The label `plane` is a target label, set where Prometheus finds its targets, and not a constant label that the process
gives to every series. Therefore `up` has the label too, even for a dead process, and no process can claim the name of
another plane.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

ZONES_MAX = 2_000
"""Maximum number of zones with a series of their own, so that one process has a bounded number of series."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric: its name as queries spell it, its help text, its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gauge(MetricSpec):
    """A value that goes up and down."""

    kind = "gauge"

    def family(self, value: float | None = None) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, value, self.labels or None)


@dataclass(frozen=True, slots=True)
class Counter(MetricSpec):
    """A count since the start of the process. Its name ends in `_total`."""

    kind = "counter"

    def family(self, value: float | None = None) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.help, value, self.labels or None)


@dataclass(frozen=True, slots=True)
class Histogram(MetricSpec):
    """Samples by size, as the series `_bucket`, `_sum` and `_count`."""

    kind = "histogram"

    def family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.help, labels=self.labels)


# --- the process ------------------------------------------------------------------------------------------------------

BUILD_INFO = Gauge("dpuplane_build_info", "1; the labels describe the program.", ("version", "python"))
REPLICA_INFO = Gauge("dpuplane_replica_info", "1; the labels describe the process.", ("replica", "roles", "engine"))
READY = Gauge("dpuplane_ready", "1 after the process has caught up with the log and serves.")
FOLD_VERSION = Gauge("dpuplane_fold_version", "Lowest fold version in force in a partition of the topic.", ("topic",))
FOLD_VERSION_SUPPORTED = Gauge(
    "dpuplane_fold_version_supported", "Highest fold version of the topic that this program supports.", ("topic",)
)
REPLICAS = Gauge("dpuplane_replicas", "Live replicas (by their beacons), by role.", ("role",))
DIVERGENCES = Counter(
    "dpuplane_divergences_total", "Beacons of other replicas with a different hash or digest of the same records."
)
SUPPRESSED_LINES = Counter(
    "dpuplane_suppressed_log_lines_total", "Log lines left out because their peer exceeded its limit of lines."
)
CERTIFICATE_EXPIRY = Gauge(
    "dpuplane_certificate_expiry_timestamp_seconds", "Expiry of this process's certificate, in Unix time."
)

CONNECTIONS = Gauge("dpuplane_connections", "Connections open on a listener (http or agents).", ("listener",))
CONNECTIONS_MAX = Gauge("dpuplane_connections_max", "Maximum of open connections of a listener.", ("listener",))
REFUSED_CONNECTIONS = Counter(
    "dpuplane_refused_connections_total",
    "Refused connections: over the limit of the listener or of an address, failed handshakes, or no free file.",
    ("listener", "limit"),
)

REVOKED = Gauge("dpuplane_revoked_certificates", "Serial numbers in the list of revoked certificates in use.")
REVOCATIONS_UNREAD = Gauge(
    "dpuplane_revocations_unread", "1 if the list of revoked certificates cannot be read; the last valid one is in use."
)

# --- the log and its folds --------------------------------------------------------------------------------------------

POSITION = Gauge("dpuplane_position_records", "Next offset to fold.", ("partition",))
LAG_RECORDS = Gauge("dpuplane_lag_records", "Records in the log that are not folded yet.", ("partition",))
FOLDED_TIME = Gauge(
    "dpuplane_folded_timestamp_seconds",
    "Append time of the last folded record; 0 before the first one.",
    ("partition",),
)
HALTED = Gauge("dpuplane_halted", "1 if this replica cannot fold the partition any further.", ("partition",))
QUARANTINED = Gauge(
    "dpuplane_quarantined_records", "Records that every replica skips as invalid, since the log began.", ("partition",)
)
FOLDED = Counter("dpuplane_folded_records_total", "Records folded since the start of the process.")
LOG_SEEN = Gauge("dpuplane_log_seen_timestamp_seconds", "When the log last reported its end; 0 if it never did.")
BATCHES = Counter("dpuplane_log_batches_total", "Append batches, by result: written or failed.", ("result",))
UNSAVED = Gauge("dpuplane_unsaved_records", "Records folded since the last save; a restart folds them again.")
SAVED = Gauge(
    "dpuplane_saved_timestamp_seconds", "When all folded state was last saved; before the first save, the start."
)
SAVE_FAILURES = Counter("dpuplane_save_failures_total", "Failed saves of folded state.")
CLOCK_OFFSET = Gauge(
    "dpuplane_clock_offset_seconds",
    "How far this host's clock is ahead of the log's, and of the replica's with the largest difference.",
    ("of",),
)
CLOCK_STEP = Gauge(
    "dpuplane_clock_step_seconds",
    "The largest step by which this host's clock was set in the last hour; positive is ahead.",
)
LOG_AHEAD = Gauge(
    "dpuplane_log_ahead_seconds", "How far the append time of the last folded record is ahead of this host's clock."
)
STALLED = Gauge("dpuplane_stalled_partitions", "Partitions of zones whose changes can no longer be forwarded to fleet.")

# --- the API ----------------------------------------------------------------------------------------------------------

_METHOD = ("grpc_type", "grpc_service", "grpc_method")
RPCS_STARTED = Counter("grpc_server_started_total", "Calls that reached a handler.", _METHOD)
RPCS_HANDLED = Counter("grpc_server_handled_total", "Ended calls, by status.", (*_METHOD, "grpc_code"))
RPC_DURATION = Histogram("grpc_server_handling_seconds", "Duration of calls, from request to response.", _METHOD)
RPC_RECEIVED = Counter("grpc_server_msg_received_total", "Messages received from clients.", _METHOD)
RPC_SENT = Counter("grpc_server_msg_sent_total", "Messages sent to clients.", _METHOD)
COMMANDS = Counter("dpuplane_commands_total", "Commands with a result, by outcome.", ("method", "outcome"))
REFUSALS = Counter("dpuplane_refusals_total", "Refused commands and failed calls, by reason code.", ("reason",))
UNKNOWN = Counter("dpuplane_unknown_outcomes_total", "Commands that ended as unknown: the log did not answer in time.")
REFUSED_ADMISSIONS = Counter(
    "dpuplane_refused_admissions_total",
    "Calls (api), links (agents) and feeds (page) refused over a limit.",
    ("limiter",),
)
DENIALS = Counter(
    "dpuplane_denials_total",
    "Calls without a trusted certificate (unauthenticated), or not allowed to their principal (denied).",
    ("kind",),
)

# --- the fleet --------------------------------------------------------------------------------------------------------

MEMBERS = Gauge("dpuplane_members", "Nodes whose addresses are in rule tables.")
NODES = Gauge("dpuplane_nodes", "Nodes in zones.")
ZONES = Gauge("dpuplane_zones", "Zones with a node, or with labels or limits of their own.")
POLICIES = Gauge("dpuplane_policies", "Rule policies.")
HOLDS = Gauge("dpuplane_holds", "Held changes that wait for two people to approve them.")
FROZEN = Gauge("dpuplane_freezes", "Freezes in force; one freeze may cover all zones.")
DPUS = Gauge("dpuplane_dpus", "Registered DPUs, by phase.", ("phase",))
ROLLOUTS = Gauge("dpuplane_rollouts", "Rollouts of DPUSets that have not ended: rolling, held or paused.", ("phase",))
STAGED = Gauge("dpuplane_staged_changes", "Staged changes of policies and of networks that have not ended.", ("phase",))
DPU_CLUSTERS = Gauge("dpuplane_dpu_clusters", "DPUClusters: Ready, or NotReady if they do not answer.", ("phase",))
STUCK = Gauge("dpuplane_stuck_dpus", "DPUs whose lifecycle needs an operator to continue.")
DEVICE_CERTIFICATE_EXPIRY = Gauge(
    "dpuplane_device_certificate_expiry_timestamp_seconds",
    "Earliest day on which a certificate of a DPU's BMC or management service ends, in Unix time; 0 if none is known.",
)

# --- rule delivery to devices -----------------------------------------------------------------------------------------

CHANGE_DURATION = Histogram(
    "dpuplane_change_to_device_duration_seconds",
    "Time from the append of a change until a DPU reported it at this level.",
    ("level",),
)
MISSING_CHANGE = Gauge(
    "dpuplane_oldest_missing_change_timestamp_seconds",
    "Append time of the oldest change that a connected DPU of the zone lacks in hardware, of up to "
    f"{ZONES_MAX} zones; a zone that lacks none has no series.",
    ("zone",),
)
ZONES_BEHIND = Gauge("dpuplane_zones_behind", "Zones with a connected DPU that lacks a change in hardware.")
ZONE_FROZEN = Gauge(
    "dpuplane_zone_frozen", "1 for a served zone that is frozen; other zones have no series.", ("zone",)
)
ZONES_SERVED = Gauge("dpuplane_served_zones", "Zones with a DPU on this relay.")
CONNECTED = Gauge("dpuplane_connected_dpus", "DPUs with a link to this relay.")
CURRENT = Gauge("dpuplane_current_dpus", "Connected DPUs with the newest rule table of their zone in hardware.")
DIFFERING = Gauge("dpuplane_differing_dpus", "Connected DPUs whose digest is not the digest of their version.")
LINKS = Gauge("dpuplane_links", "Open agent links.")
LINKS_CLOSED = Counter("dpuplane_links_closed_total", "Agent links closed by this relay.", ("reason",))
BACKLOG = Gauge("dpuplane_link_backlog_bytes", "Bytes sent on links that the agents have not read.")
BACKLOG_MAX = Gauge("dpuplane_link_backlog_max_bytes", "Unread bytes of the link with the most.")
FRAMES = Counter("dpuplane_frames_encoded_total", "Encoded frames (deltas and snapshots); each is sent on many links.")

# --- drivers ----------------------------------------------------------------------------------------------------------

SIDE_EFFECTS = Counter(
    "dpuplane_side_effects_total",
    "Actions that this replica took after the delay of its rank, by rank.",
    ("actor", "rank"),
)
APPEND_FAILURES = Counter(
    "dpuplane_append_failures_total", "Appends of internal events that failed or ended as unknown.", ("actor",)
)
FORWARDS = Counter("dpuplane_forwards_total", "Records forwarded from zones to fleet.")
FORWARDED = Counter("dpuplane_forwarded_items_total", "Changes of nodes in the records forwarded to fleet.")
OUTBOX_DELIVERIES = Counter(
    "dpuplane_zone_outbox_deliveries_total", "Records delivered from the outboxes of fleet to zones partitions."
)
DEADLINES = Counter("dpuplane_deadlines_stated_total", "Events appended for deadlines that passed.")
DECISIONS = Counter("dpuplane_decisions_written_total", "Decisions written to the topic decisions.")
DECISIONS_LAG = Gauge(
    "dpuplane_decisions_lag_records", "Records of zones, cliques and fleet whose decisions are not written yet."
)
STEPS = Counter(
    "dpuplane_steps_total",
    "Finished attempts at provisioning steps: done, abandoned, lost, or the kind of failure.",
    ("phase", "result"),
)
STEPS_UNDER_WAY = Gauge("dpuplane_steps_under_way", "DPUs with an attempt of this provisioner in progress.")

# --- Kubernetes -------------------------------------------------------------------------------------------------------

KUBERNETES_CURRENT = Gauge(
    "dpuplane_kubernetes_watch_current",
    "1 while a watch follows a complete list of the resource.",
    ("source", "resource"),
)
KUBERNETES_LISTS = Counter("dpuplane_kubernetes_lists_total", "Complete lists.", ("source", "resource"))
KUBERNETES_FAILURES = Counter(
    "dpuplane_kubernetes_watch_failures_total", "Failed lists and watches.", ("source", "resource")
)
KUBERNETES_STALLS = Counter(
    "dpuplane_kubernetes_watch_stalls_total", "Watches without a line for too long.", ("source", "resource")
)
KUBERNETES_NODES = Gauge("dpuplane_kubernetes_nodes", "Nodes of the source.", ("source",))
KUBERNETES_NODES_FAULTY = Gauge(
    "dpuplane_kubernetes_faulty_nodes", "Nodes with an invalid zone, address or label.", ("source",)
)
KUBERNETES_NODES_REFUSED = Gauge("dpuplane_kubernetes_refused_nodes", "Nodes that the folds refused.", ("source",))
KUBERNETES_NODES_RETAINED = Gauge(
    "dpuplane_kubernetes_retained_nodes",
    "Nodes of the plane that the source no longer lists, and that stay because the list proves too little.",
    ("source",),
)

KUBERNETES_AHEAD = Gauge(
    "dpuplane_kubernetes_objects_ahead_of_log",
    "Objects that have had a later position than the log for a minute; their status is not written.",
    ("source", "resource"),
)
KUBERNETES_WRITES = Counter(
    "dpuplane_kubernetes_writes_total",
    "Writes of statuses, by result: written, conflict, unknown, throttled, behind, refused, given_up.",
    ("source", "result"),
)
KUBERNETES_STATED = Counter(
    "dpuplane_kubernetes_stated_total",
    "Specs and verdicts of objects that fleet decided on, by result: accepted, refused.",
    ("source", "resource", "result"),
)
KUBERNETES_NOT_ACCEPTED = Gauge(
    "dpuplane_kubernetes_not_accepted_objects",
    "Objects whose spec or verdicts do not count; their condition Accepted says why.",
    ("source", "resource"),
)
KUBERNETES_EVENTS = Counter(
    "dpuplane_kubernetes_events_total",
    "Events about objects, by result: created, updated, found (written before), merged, limited, dropped, failed, "
    "given_up.",
    ("source", "result"),
)
KUBERNETES_EVENTS_PENDING = Gauge(
    "dpuplane_kubernetes_events_pending", "Events about objects that wait for a write.", ("source",)
)
KUBERNETES_CLIQUE_WRITES = Counter(
    "dpuplane_kubernetes_clique_writes_total", "Written objects of cliques and domains.", ("source", "resource")
)
KUBERNETES_CLAIMS_RETAINED = Gauge(
    "dpuplane_kubernetes_retained_claims",
    "Claims whose pods no list has, and that stay because the list proves too little.",
    ("source",),
)

IMAGES = Gauge("dpuplane_images", "Images that objects want, by phase at this process.", ("phase",))
IMAGES_STORED_BYTES = Gauge(
    "dpuplane_images_stored_bytes", "Size of the image store's files, as of its last collection."
)
IMAGE_DOWNLOADS = Counter(
    "dpuplane_image_downloads_total", "Ended downloads of images, by result: done, failed.", ("result",)
)
IMAGE_DOWNLOADED_BYTES = Counter("dpuplane_image_downloaded_bytes_total", "Bytes of images that were downloaded.")
IMAGE_RESPONSES = Counter(
    "dpuplane_image_responses_total", "Responses of the image server to installers, by HTTP status.", ("status",)
)
IMAGE_SENT_BYTES = Counter("dpuplane_image_sent_bytes_total", "Bytes that the image server sent to installers.")
IMAGE_STREAMS = Gauge("dpuplane_image_streams", "Responses that the image server sends now.")
CONFIGURATIONS_RENDERED = Counter(
    "dpuplane_configurations_rendered_total", "Configurations of DPUs that were rendered for installers."
)

CATALOG = tuple(found for found in list(globals().values()) if isinstance(found, MetricSpec))
"""All metrics, in the order above."""
