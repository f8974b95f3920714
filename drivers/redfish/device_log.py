"""The event log of a BMC (SEL), for the cause of a failure, such as a power supply that is too low."""

from __future__ import annotations

from functools import partial

from drivers.redfish.connection import Connection
from drivers.redfish.resources import LogEntries
from eventstore.errors import PlaneError
from projections.field_checks import printable

_FAULTS_MAX = 2
_TEXT_MAX = 80


async def latest_faults(bmc: Connection) -> str:
    """The last warnings and critical entries, in one line; empty if there is none, or if the log cannot be read."""
    path = f"{bmc.system}/LogServices/SEL/Entries"
    try:
        found = await bmc.attempt.call(partial(bmc.client.find, path, LogEntries), alters=False)
    except PlaneError:
        return ""
    entries = found.members if found is not None else []
    faults = sorted(
        ((each.created or "", each.message or "") for each in entries if each.severity in ("Warning", "Critical")),
        reverse=True,
    )
    texts = dict.fromkeys(printable(text[:_TEXT_MAX]) for _, text in faults if text)
    return ", ".join([*texts][:_FAULTS_MAX])
