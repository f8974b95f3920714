"""The dialer of an agent or a simulator, with certificates that are reloaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from drivers.wire.websocket import Dialer

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates


@asynccontextmanager
async def dialing(certificates: Certificates | None) -> AsyncIterator[Dialer]:
    """A dialer of links to relays. The certificates, if given, are reloaded while the context lasts."""
    if certificates is None:
        async with Dialer() as dialer:
            yield dialer
        return
    watching = asyncio.create_task(certificates.run())
    try:
        async with Dialer(certificates.client_context) as dialer:
            yield dialer
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
