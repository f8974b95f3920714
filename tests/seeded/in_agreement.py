"""Bugs in the records between zones and fleet about a node that joined several zones."""

from __future__ import annotations

import projections.zones.nodes.decide
from eventstore.folding.fold import DONE, Decision
from projections.fleet.membership.tombstones import Tombstone, Tombstones
from tests.seeded.bugs import Bug, SteppedScenario, patched, returns

BUGS = (
    Bug(
        "leave-elsewhere-ignored",
        "an older incarnation of a node stays in its zone after a newer one joined and left another partition",
        "I25",
        lambda: patched((Tombstone, "ends_known", returns(False))),
        SteppedScenario(1),
    ),
    Bug(
        "tombstones-forgotten",
        "fleet keeps no tombstone of a leave, and a late forward of an older join undoes the leave",
        "I25",
        lambda: patched((Tombstones, "note", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "supersede-skipped",
        "a zone accepts the records of fleet about superseded nodes, and keeps these nodes",
        "I25",
        lambda: patched((projections.zones.nodes.decide, "supersede", returns(Decision(None, DONE)))),
        SteppedScenario(1),
    ),
)
