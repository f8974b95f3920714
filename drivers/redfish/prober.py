"""Searches for BMCs that speak Redfish, in ranges of both address families.

A probe reads the service root, which needs no password, and logs in only to a DPU. The only change that it may make is
that of the factory password, without which a BMC does not say which card it is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed, Unreachable
from drivers.discovery.prober import NotUsable, ignore
from drivers.redfish.certificates import peer_certificate, pinned
from drivers.redfish.client import SCHEME, ConnectRedfish
from drivers.redfish.connection import card_serial
from drivers.redfish.resources import SERVICE_ROOT, Root, best_member
from drivers.redfish.sessions import Credentials, log_in, log_out
from projections.resources.discovery import Probed, endpoint

_Result = TypeVar("_Result")


async def _call(make: Callable[[], Awaitable[_Result]], *, alters: bool = True) -> _Result:
    """A call of a probe, whose deadline is that of the probe."""
    return await make()


class RedfishProber:
    """Identifies DPUs by their BMCs, with the credentials that all of them share."""

    def __init__(self, connect: ConnectRedfish, credentials: Callable[[], Awaitable[Credentials]]) -> None:
        self._connect = connect
        self._credentials = credentials

    async def probe(self, address: str, port: int, answers: Callable[[], None] = ignore) -> Probed | None:
        """The DPU whose BMC answers at an address; None if no BMC of a DPU does."""
        at = f"{SCHEME}://{endpoint(address, port)}"
        client = self._connect(at)
        try:
            client.trust = pinned(await peer_certificate(client.host))
            root = await client.read(SERVICE_ROOT, Root)
        except (Unreachable, TaskFailed, NeedsOperator, SessionEnded):
            return None  # most addresses have no host, or another one than a BMC
        if not root.is_dpu:
            return None
        answers()
        try:
            own = await log_in(client, root, await self._credentials(), None, _call)
            try:
                system = best_member(await client.members(root.systems), "bluefield")
                serial = await card_serial(client, root, system)
            finally:
                if own:
                    await log_out(client, own)
        except (Unreachable, SessionEnded, TaskFailed, NeedsOperator) as error:
            raise NotUsable(str(error)) from error
        if not serial:
            raise NotUsable("serial: the BMC reports none")
        return Probed(serial, at)
