"""The invariants of every run, and their checkers.

    judge_history(history, records) -> list of Fault

`history` is a recorded history (`tests.simulation.history`) of a simulation or of real processes. `records` are all
records of every folded topic, and of `replicas` and `decisions` if they exist, as one reader saw them at rest. No
checker queries the plane. A fresh run of the folds is the reference for answers, digests and decisions. Cliques,
membership, transitions, marks, budgets, verdicts and agreement are also checked from rows and raw events, because a
mistake in a fold would be in the fresh run too.

`again` has the records as a second reader saw them. `appended_s(partition, offset)` is the append time of a record by
the clock of the history; checks of "did not exist yet" need it. `saved` has the saved state of each process, by name.
`end_s` is the end of the history; checks of missing alarms need it. With `at_rest=False`, only the checks run that hold
at every moment.

`invalid(history)` gives the reasons why a run proves nothing, whatever its verdict: no fault took effect, or too few
commands succeeded in fault-free time.

| invariant | applies to | does not apply to |
|---|---|---|
| I9 | positions in beacons, answers and queries; versions in reports and of tables | statuses of objects: I28 |
| I15, I19 | nothing: one tenant, and the log itself is the audit trail | |
| I17 | tasks, links, frames, copies of commands, records without effect; files, memory if a recorder samples them | |
| I18 | beacons and reports in the log | requests to a Kubernetes API: I28 counts writes |
| I20 | quarantine, halts, zones whose changes do not reach fleet | DPUs that lag: their alarms are metrics |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from eventstore.errors import LogMismatch
from eventstore.state_store.store import StateReader
from tests.simulation.checkers import (
    agreement,
    applications,
    budgets,
    clique_objects,
    cliques,
    commands,
    decisions,
    devices,
    dpu_clusters,
    folds,
    lifecycle,
    liveness,
    network_documents,
    network_stages,
    owners,
    plane_records,
    redfish_bmcs,
    rollouts,
    source_nodes,
    specs,
    staging,
    statuses,
    wanted_dpus,
)
from tests.simulation.checkers.evidence import Appended, Evidence, Records
from tests.simulation.checkers.plane_records import BOUNDS
from tests.simulation.checkers.validity import invalid
from tests.simulation.fresh import Halted
from tests.simulation.history import History

__all__ = ["BOUNDS", "INVARIANTS", "Evidence", "Fault", "Invariant", "faults_of", "invalid", "judge_history"]

Check = Callable[[Evidence], Iterator[str]]

SHOWN_PER_CHECK = 5


class Fault(NamedTuple):
    """A violation of an invariant."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Invariant(NamedTuple):
    """An invariant with its checkers: those that hold always, and those that hold once the plane is at rest."""

    id: str
    statement: str
    always: tuple[Check, ...] = ()
    at_rest: tuple[Check, ...] = ()


INVARIANTS = (
    Invariant(
        "I1",
        "an acknowledged command is in the log, a failed one is not, and no node is lost",
        (commands.check_acknowledged,),
        (commands.check_members,),
    ),
    Invariant(
        "I2",
        "a command takes effect at most once, and a new id in its time window is not refused",
        (commands.check_effects, commands.check_new_ids),
    ),
    Invariant("I3", "the outcome and position of an answer equal those of the log", (commands.check_answers,)),
    Invariant("I4", "indices of a clique are unique, dense, stable and within its capacity", (cliques.check_cliques,)),
    Invariant("I5", "DPUs make only legal transitions", (lifecycle.check_transitions,)),
    Invariant(
        "I6", "a command that was answered before another was sent comes first in the log", (commands.check_order,)
    ),
    Invariant(
        "I7",
        "outdated attempts, marks, BMC sessions, tables and network documents have no effect",
        (
            lifecycle.check_attempts,
            lifecycle.check_marks,
            lifecycle.check_calls,
            devices.check_device_versions,
            network_documents.check_versions,
            wanted_dpus.check_ranges,
        ),
    ),
    Invariant(
        "I8",
        "a device has the table and the network document of the log",
        (devices.check_tables, network_documents.check_documents),
        (devices.check_equality, network_documents.check_applied),
    ),
    Invariant(
        "I9",
        "reported positions and versions never go back, and never exceed the log",
        (plane_records.check_positions, plane_records.check_versions),
    ),
    Invariant(
        "I10",
        "the state at a position is the same on every replica, after every restart, with any batch sizes",
        (folds.check_saved_digests, folds.check_batches, plane_records.check_digests),
    ),
    Invariant("I11", "a saved state plus the later records equals a fold of the whole log", (folds.check_saved,)),
    Invariant("I12", "a client reads its own writes, and never an older state than before", (commands.check_reads,)),
    Invariant(
        "I13",
        "withdrawals, installs, rollouts and writes stay within budgets, limits and freezes",
        (
            budgets.check_budgets,
            lifecycle.check_rollout,
            devices.check_freezes,
            rollouts.check_limits,
            rollouts.check_releases,
        ),
    ),
    Invariant("I14", "without a relay, devices keep their tables", (devices.check_without_relay,)),
    Invariant(
        "I16",
        "after the last fault, every acknowledged change is applied, and nothing lags",
        (),
        (
            liveness.check_forwarded,
            liveness.check_membership,
            liveness.check_limits,
            liveness.check_idle,
            liveness.check_replicas,
            rollouts.check_advanced,
            applications.check_observed,
            network_documents.check_shown,
        ),
    ),
    Invariant(
        "I17",
        "queues, memory, retries and records without effect are bounded",
        (plane_records.check_bounds, plane_records.check_retries, plane_records.check_idle_records),
    ),
    Invariant("I18", "beacons and reports keep their rate limits", (plane_records.check_rates,)),
    Invariant(
        "I20",
        "no silent failure: no quarantine of the plane's own records, no halt, no unforwarded change without an alarm",
        (folds.check_quarantine, liveness.check_alarms),
    ),
    Invariant(
        "I21",
        "between two tables, every packet gets the verdict of the old or of the new table",
        (devices.check_safe_order,),
    ),
    Invariant("I22", "all readers see the same records", (folds.check_agreement,)),
    Invariant(
        "I23",
        "a command id has one outcome on every replica; `done` means that a row changed",
        (commands.check_one_outcome, commands.check_done),
    ),
    Invariant(
        "I24",
        "a node agent alters no data of an operator, and takes no address of another node",
        (owners.check_owners, owners.check_addresses, owners.check_contested),
    ),
    Invariant(
        "I25",
        "zones and fleet agree on the zone and incarnation of every node, and on its leave",
        (),
        (agreement.check_ended, agreement.check_verified),
    ),
    Invariant(
        "I26",
        "the decisions topic has exactly the decisions of a fold of the log, in order",
        (decisions.check_decided, decisions.check_decision_order),
        (decisions.check_complete,),
    ),
    Invariant(
        "I27",
        "the folds have the Nodes of each source cluster; a Node leaves when it is deleted, or a list lacks it",
        (source_nodes.check_leaves,),
        (source_nodes.check_present,),
    ),
    Invariant(
        "I28",
        "statuses of objects equal the folds, never go back, have at most 2 kB, and are written only when they change",
        (statuses.check_forward, statuses.check_amplification),
        (statuses.check_shown, statuses.check_return),
    ),
    Invariant(
        "I29",
        "objects of cliques have the rows of the folds, are written when these change, and keep rows of live daemons",
        (clique_objects.check_rows, clique_objects.check_amplification),
        (clique_objects.check_claims, clique_objects.check_shown),
    ),
    Invariant(
        "I30",
        "the log has specs as users of source clusters wrote them, under their names, and the last one of each object",
        (specs.check_authors,),
        (specs.check_last,),
    ),
    Invariant(
        "I31",
        "a wanted DPU is in one zone, is installed once per wanted image on a drained host, and leaves nothing behind",
        (wanted_dpus.check_owners, wanted_dpus.check_installs, wanted_dpus.check_reboots),
        (wanted_dpus.check_handed_over,),
    ),
    Invariant(
        "I32",
        "a staged change reaches DPUs in the order of its stages, and goes on unless it is held or paused",
        (staging.check_stages, staging.check_order, network_stages.check_documents, network_stages.check_order),
        (staging.check_ended, network_stages.check_ended),
    ),
    Invariant(
        "I33",
        "a DPU joins its DPU cluster as a ready node, and leaves none behind; a used control plane is never deleted",
        (dpu_clusters.check_joins, dpu_clusters.check_control_planes),
        (dpu_clusters.check_nodes, dpu_clusters.check_clusters),
    ),
    Invariant(
        "I34",
        "a BMC that speaks Redfish installs an image once, and its card runs the image that the log says",
        (redfish_bmcs.check_updates,),
        (redfish_bmcs.check_images,),
    ),
)
"""I15 and I19 do not apply: there is one tenant, and the audit trail is the log itself."""


def judge_history(
    history: History,
    records: Records,
    *,
    again: Records | None = None,
    appended_s: Appended | None = None,
    saved: Mapping[str, StateReader] | None = None,
    end_s: float | None = None,
    at_rest: bool = True,
) -> list[Fault]:
    """The violations of all invariants, at most SHOWN_PER_CHECK of each checker."""
    try:
        run = Evidence(history, records, again=again, appended_s=appended_s, saved=saved, end_s=end_s)
    except Halted as halted:
        return [Fault("I20", str(halted))]
    except LogMismatch as mismatch:
        return [Fault("I22", str(mismatch))]
    except AssertionError as broken:
        return [Fault("I20", f"the log cannot be evaluated: {broken}")]
    return list(faults_of(run, at_rest=at_rest))


def faults_of(run: Evidence, *, at_rest: bool = True) -> Iterator[Fault]:
    """The violations in a run, invariant by invariant."""
    for invariant in INVARIANTS:
        for check in (*invariant.always, *(invariant.at_rest if at_rest else ())):
            for what in islice(check(run), SHOWN_PER_CHECK):
                yield Fault(invariant.id, what)
