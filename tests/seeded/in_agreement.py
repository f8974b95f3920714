"""Bugs in the records between zones and fleet about a node that several zones stated."""

from __future__ import annotations

import projections.zones.nodes.decide
from eventstore.folding.fold import DONE, Decision
from projections.fleet.membership.tombstones import Tombstone, Tombstones
from tests.seeded.bugs import Bug, Stepped, does, patched

BUGS = (
    Bug(
        "leave-elsewhere-ignored",
        "a node that came to another partition and left it, unheard of, stays where an older incarnation of it is",
        "I25",
        lambda: patched((Tombstone, "ends_known", does(False))),
        Stepped(1),
    ),
    Bug(
        "tombstones-forgotten",
        "fleet forgets a leave as soon as it has heard of it, and a late forward of an older join undoes it",
        "I25",
        lambda: patched((Tombstones, "note", does())),
        Stepped(1),
    ),
    Bug(
        "supersede-skipped",
        "a zone takes what fleet hands down, and keeps the nodes that it names",
        "I25",
        lambda: patched((projections.zones.nodes.decide, "supersede", does(Decision(None, DONE)))),
        Stepped(1),
    ),
)
