"""What conditions are computed from: the objects, what follows from them, and what is observed of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from projections.resources import kinds
from projections.resources.blame import Blame, absent, deleting
from projections.resources.derivation import Derivation
from projections.resources.kinds import short_name
from projections.resources.observation import Observation
from projections.resources.specs import Read, read
from projections.resources.state import Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted


class World(NamedTuple):
    """The input of all conditions."""

    state: ResourcesState
    derivation: Derivation
    observed: Mapping[str, Observation]

    @classmethod
    def of(cls, state: ResourcesState, derivation: Derivation) -> World:
        """The world of a state, with what the state knows as observed."""
        return cls(state, derivation, state.seen)

    def stated(self, key: str) -> Resource | None:
        return self.state.objects.rows.get(key)

    def wanted(self, key: str) -> Wanted | None:
        return self.derivation.children.winners.get(key) or self.derivation.dpus.winners.get(key)

    def exists(self, key: str) -> bool:
        return self.stated(key) is not None or self.wanted(key) is not None

    def read(self, key: str, kind: type[Read]) -> Read | str | None:
        """The spec of an object as it is wanted, else as it is stated; a fault; or None if there is no object."""
        found, row = self.wanted(key), self.stated(key)
        if found is not None:
            row = found.as_row(0)
        return None if row is None else read(kind, row)

    def missing(self, key: str) -> Blame | None:
        """The blame on an object that must exist."""
        row = self.stated(key)
        if row is not None and row.deleted_ms:
            return deleting(key)
        return None if self.exists(key) else absent(key)

    def unready(self, key: str, unknown: str) -> Blame | None:
        """The blame on an object that is absent or not ready; `unknown` is said if nothing is observed of it."""
        if (blame := self.missing(key)) is not None:
            return blame
        seen = self.observed.get(key)
        if seen is not None and seen.is_ready:
            return None
        if seen is None:
            return Blame(key, f"{short_name(key)} {unknown}{_reporter(key)}", is_unknown=True)
        phase = f" is in phase {seen.phase}" if seen.phase else " is not ready"
        return Blame(key, f"{short_name(key)}{phase}" + (f": {seen.message}" if seen.message else ""))


_OBSERVERS = {
    kinds.BFB: "a provisioner with --images-dir",
    kinds.BLUEFIELD_SOFTWARE: "a provisioner with --images-dir",
    kinds.DPU_CLUSTER: "the manager of the cluster",
    kinds.DPU: "the DPU's zone",
    kinds.DPU_SERVICE: "Argo CD",
}
"""What reports the state of the real thing behind an object, by kind."""


def _reporter(key: str) -> str:
    """The end of a sentence about an object of which nothing has been reported: who would report it."""
    return f" ({_OBSERVERS.get(object_id(key).kind, 'the driver of its DPU clusters')} reports it)"
