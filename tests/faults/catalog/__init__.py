"""All 96 faults that the plane must survive, by number, each with its cause in the tests or the reason why it has none.

A cause also proves that the fault happened: by a count in the simulator, by evidence on real processes, or by an
assertion in the named test. A test checks that the list is complete and that its references exist.
"""

from __future__ import annotations

from tests.faults.catalog.devices import DEVICES
from tests.faults.catalog.entry import CatalogEntry
from tests.faults.catalog.kubernetes import KUBERNETES
from tests.faults.catalog.log import LOG
from tests.faults.catalog.network import NETWORK
from tests.faults.catalog.processes import PROCESSES
from tests.faults.catalog.storage import STORAGE

__all__ = ["SECTIONS", "CatalogEntry", "known", "printed"]

SECTIONS = {
    "processes and ownership": PROCESSES,
    "Kafka and the log": LOG,
    "storage": STORAGE,
    "network and time": NETWORK,
    "Kubernetes API": KUBERNETES,
    "devices, drivers and mass events": DEVICES,
}


def all_entries() -> list[CatalogEntry]:
    """Every fault, in order."""
    return [fault for found in SECTIONS.values() for fault in found]


def catalog_table() -> str:
    """The catalog as a table."""
    lines = []
    for section, found in SECTIONS.items():
        lines.append(f"-- {section}")
        for fault in found:
            lacks = [f"not yet: {fault.lacks}"] if fault.lacks else []
            first, *more = [*fault.by, *lacks]
            lines.append(f"{fault.number:3}  {fault.what:72} {first}")
            lines += [" " * 78 + line for line in more]
    made = sum(bool(fault.by) for fault in all_entries())
    return "\n".join(
        [*lines, f"{len(all_entries())} faults, {made} made to happen, {len(all_entries()) - made} not yet"]
    )
