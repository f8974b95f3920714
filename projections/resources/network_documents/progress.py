"""On how many of its DPUs each chain and interface is ready, kept up to date DPU by DPU."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from projections.resources.network_documents.document import Document, awaited
from projections.resources.network_documents.needs import Standing
from projections.resources.state import object_id
from projections.zones.rows import DpuNetwork

NAMED_MAX = 3
"""Number of DPUs that the message of an observation names."""
LACKING_MAX = 100
"""Number of DPUs that an observation lists, for the operational conditions of DPUs."""
NO_DOCUMENT_YET = "its zone does not know its network document yet"
NOT_APPLIED = "its agent has not applied the network document yet"


class Lack(NamedTuple):
    """The reason why an object is not ready on a DPU, in a sentence; empty if it is ready. `is_staged` means that the
    DPU gets it in a later stage, and lacks nothing until then."""

    reason: str = ""
    is_staged: bool = False


class _Part:
    """One object: its DPUs, and what each of them lacks that is not ready."""

    __slots__ = ("dpus", "lacking")

    def __init__(self) -> None:
        self.dpus: dict[str, None] = {}
        self.lacking: dict[str, Lack] = {}


class NetworkProgress:
    """The chains and interfaces of a partition. The content does not depend on the order of calls."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._of_dpu: dict[str, Mapping[str, Lack]] = {}

    def put(self, dpu: str, standing: Standing | None) -> dict[str, None]:
        """Replace what is known of a DPU; None for one that is gone. Returns the objects that this concerns."""
        found = {} if standing is None else lacks_by_part(standing)
        before = self._of_dpu.pop(dpu, {})
        if found:
            self._of_dpu[dpu] = found
        if found == before:
            return {}
        for part in before:
            self._parts[part].dpus.pop(dpu)
            self._parts[part].lacking.pop(dpu, None)
        for part, lack in found.items():
            entry = self._parts.setdefault(part, _Part())
            entry.dpus[dpu] = None
            if lack.reason:
                entry.lacking[dpu] = lack
        for part in before:
            if not self._parts[part].dpus:
                del self._parts[part]
        return dict.fromkeys((*before, *found))

    def dpus(self) -> Iterator[str]:
        """The DPUs that have a chain or an interface."""
        return iter(self._of_dpu)

    def observation(self, part: str) -> str:
        """The observation of a chain or an interface; empty if it is on no DPU."""
        entry = self._parts.get(part)
        if entry is None:
            return ""
        total, ready = len(entry.dpus), len(entry.dpus) - len(entry.lacking)
        fields = {"ready": ready == total, "phase": "", "message": _message(entry), "applied": ready, "selected": total}
        lacking = [dpu for dpu, lack in entry.lacking.items() if not lack.is_staged]
        if lacking:
            fields["lacking"] = [object_id(dpu).name for dpu in heapq.nsmallest(LACKING_MAX, lacking)]
        if len(lacking) < len(entry.lacking):
            fields["staged"] = len(entry.lacking) - len(lacking)
        return msgspec.json.encode(fields).decode()


def fault_observation(fault: str) -> str:
    """The observation of a chain or an interface whose spec cannot be read."""
    message = f"in no network document, because its spec has a fault: {fault}"
    return msgspec.json.encode({"ready": False, "phase": "", "message": message}).decode()


def lacks_by_part(standing: Standing) -> dict[str, Lack]:
    """The lack of each object of the document of a DPU, and of the objects whose present state it gets in a later
    stage."""
    document, known = standing.document, standing.known
    general = ""
    if not standing.zone or standing.is_lacking or known is None:
        general = NO_DOCUMENT_YET if document.text else ""
    else:
        general = _unapplied(known)
    waiting = known.unresolved if known is not None else ()
    found = {}
    for part, interfaces in document.parts.items():
        ports = [name for name in waiting if name in interfaces]
        faults = document.faults.get(part, ())
        found[part] = Lack(faults[0] if faults else general or _waits(ports, document.text))
    return found | {part: Lack(why, is_staged=True) for part, why in standing.unreleased.items()}


def lack_of_network(known: DpuNetwork, text: str) -> str:
    """What a DPU lacks of its whole network document, which has this text; empty if it lacks nothing."""
    return _unapplied(known) or _waits(known.unresolved, text)


def _unapplied(known: DpuNetwork) -> str:
    if known.applied == known.version:
        return ""
    return f"its agent refused the network document: {known.refusal}" if known.refusal else NOT_APPLIED


def _waits(without_port: Sequence[str], text: str) -> str:
    if not without_port:
        return ""
    first, more = without_port[0], len(without_port) - 1
    interfaces = msgspec.json.decode(text, type=Document).interfaces if text else ()  # too large: the DPU keeps another
    waits = next((f", waits for {awaited(each)}" for each in interfaces if each.name == first), "")
    return f"{first} has no port yet{waits}" + (f", and {more} more have none" if more else "")


def _message(entry: _Part) -> str:
    if not entry.lacking:
        return ""
    first = heapq.nsmallest(NAMED_MAX, entry.lacking)
    more = f"; and {len(entry.lacking) - len(first)} more" if len(entry.lacking) > len(first) else ""
    named = "; ".join(f"{object_id(dpu).name}: {entry.lacking[dpu].reason}" for dpu in first)
    return f"ready on {len(entry.dpus) - len(entry.lacking)} of {len(entry.dpus)} DPUs ({named}{more})"
