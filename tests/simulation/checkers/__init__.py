"""What must hold of every run, by the names of the invariants that it is judged by.

    judge_history(history, records) -> list of Fault

takes a recorded history (`tests.simulation.history`, from whichever lane) and all records of every topic that is folded
(those of `replicas` and `decisions` too, if there are any), as one reader saw them at rest. Nothing here asks the plane
how it came to something. The folds, run afresh, are the reference for answers, digests and decisions; what could share
a mistake with them (cliques, membership, transitions, marks, budgets, verdicts, agreement) is told once more, from rows
and raw events.

`again` is the same log by a second reader. `appended_s(partition, offset)` is when a record was appended, by the clock
of the history: checks of "not yet there" need it. `saved` is what processes have on disk, by name. `end_s` is when the
history ends: checks of silence need it. With `at_rest=False` only what holds at every moment is checked.

`invalid(history)` says why a run proves nothing, whatever the verdict: no fault hit, or too little worked between them.

| invariant | applies here to | not to |
|---|---|---|
| I9 | positions in beacons, answers and queries; versions in reports and of tables | status of Kubernetes objects |
| I15, I19 | nothing: one tenant, and the log itself is the audit trail | |
| I17 | tasks, links, frames, copies of commands, idle statements; files and memory where a recorder samples them | |
| I18 | beacons and reports in the log | requests to a Kubernetes API |
| I20 | quarantine, halts, zones whose changes nobody hears of | DPUs that lag: their alarms are metrics |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from eventstore.errors import LogMismatch
from eventstore.state_store.store import StateReader
from tests.simulation.checkers import (
    agreement,
    budgets,
    cliques,
    commands,
    decisions,
    devices,
    folds,
    lifecycle,
    liveness,
    owners,
    stated,
)
from tests.simulation.checkers.evidence import Appended, Evidence, Records
from tests.simulation.checkers.hygiene import invalid
from tests.simulation.checkers.stated import BOUNDS
from tests.simulation.fresh import Halted
from tests.simulation.history import History

__all__ = ["BOUNDS", "INVARIANTS", "Evidence", "Fault", "Invariant", "faults_of", "invalid", "judge_history"]

Check = Callable[[Evidence], Iterator[str]]

SHOWN_PER_CHECK = 5


class Fault(NamedTuple):
    """What was wrong, and with which invariant."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Invariant(NamedTuple):
    """One of the invariants, and what checks it: always, and once everything has come to rest."""

    id: str
    statement: str
    always: tuple[Check, ...] = ()
    at_rest: tuple[Check, ...] = ()


INVARIANTS = (
    Invariant(
        "I1",
        "what was acknowledged is in the log, what certainly failed is not, and no node is lost",
        (commands.check_acknowledged,),
        (commands.check_members,),
    ),
    Invariant(
        "I2",
        "a command takes effect at most once, and is not refused for its id if that is new and of its time",
        (commands.check_effects, commands.check_taken),
    ),
    Invariant("I3", "outcome and position of an answer are those of the log", (commands.check_answers,)),
    Invariant("I4", "indices of a clique are unique, dense, stable and within its capacity", (cliques.check_cliques,)),
    Invariant("I5", "only legal transitions", (lifecycle.check_transitions,)),
    Invariant("I6", "answered before sent is earlier in the log", (commands.check_order,)),
    Invariant(
        "I7",
        "what is old has no effect: attempts, marks, sessions on a BMC, versions on a device",
        (lifecycle.check_attempts, lifecycle.check_marks, lifecycle.check_calls, devices.check_forward),
    ),
    Invariant("I8", "a device has what the log says", (devices.check_tables,), (devices.check_equality,)),
    Invariant(
        "I9",
        "positions and versions that are stated never go back, and were in the log",
        (stated.check_positions, stated.check_versions),
    ),
    Invariant(
        "I10",
        "the state at a position is the same on every replica, after every restart, in any portions",
        (folds.check_claims, folds.check_portions, stated.check_digests),
    ),
    Invariant("I11", "what is saved, and the records after it, come to the whole", (folds.check_saved,)),
    Invariant("I12", "a reader sees what it saw before, and what it wrote", (commands.check_reads,)),
    Invariant(
        "I13",
        "no more is withdrawn, installed or written than budgets, limits and freezes let",
        (budgets.check_budgets, lifecycle.check_rollout, devices.check_freezes),
    ),
    Invariant("I14", "without a control plane, devices stay as they are", (devices.check_static,)),
    Invariant(
        "I16",
        "once nothing goes wrong, everything that was acknowledged is applied, and nothing lags",
        (),
        (
            liveness.check_forwarded,
            liveness.check_union,
            liveness.check_limits,
            liveness.check_idle,
            liveness.check_replicas,
        ),
    ),
    Invariant(
        "I17",
        "queues, memory, retries and idle statements are bounded",
        (stated.check_bounds, stated.check_retries, stated.check_waste),
    ),
    Invariant("I18", "nothing is stated more often than it may be", (stated.check_politeness,)),
    Invariant(
        "I20",
        "nothing stops silently: no quarantine of our own records, no halt, no zone that nobody hears of",
        (folds.check_quarantine, liveness.check_alarms),
    ),
    Invariant(
        "I21", "at every step to a new table, a packet is judged by the old one or by it", (devices.check_safe_order,)
    ),
    Invariant("I22", "all readers see the same records", (folds.check_agreement,)),
    Invariant(
        "I23",
        "an id has one outcome, whichever replica is asked; done means changed",
        (commands.check_one_outcome, commands.check_done),
    ),
    Invariant(
        "I24",
        "a node agent alters nothing that an operator owns, and takes no address of another node",
        (owners.check_owners, owners.check_addresses, owners.check_contested),
    ),
    Invariant(
        "I25",
        "zones and fleet agree on every node: where it is, as what, and that it is nowhere once it left",
        (),
        (agreement.check_ended, agreement.check_verified),
    ),
    Invariant(
        "I26",
        "the decisions topic has what a fold of the log decides, each decision in its turn",
        (decisions.check_decided, decisions.check_turns),
        (decisions.check_complete,),
    ),
)
"""I15 and I19 have no part here: there is one tenant, and the audit trail is the log itself."""


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
    """What was wrong, some of each check at most."""
    try:
        run = Evidence(history, records, again=again, appended_s=appended_s, saved=saved, end_s=end_s)
    except Halted as halted:
        return [Fault("I20", str(halted))]
    except LogMismatch as mismatch:
        return [Fault("I22", str(mismatch))]
    except AssertionError as broken:
        return [Fault("I20", f"what follows from the log cannot be computed: {broken}")]
    return list(faults_of(run, at_rest=at_rest))


def faults_of(run: Evidence, *, at_rest: bool = True) -> Iterator[Fault]:
    """What was wrong with a run, invariant by invariant."""
    for invariant in INVARIANTS:
        for check in (*invariant.always, *(invariant.at_rest if at_rest else ())):
            for what in islice(check(run), SHOWN_PER_CHECK):
                yield Fault(invariant.id, what)
