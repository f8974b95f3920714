"""A DPU's network document and its device: validate a document, program the device, save it, and read it back.

A document replaces the last one as a whole. The agent reads the device back for every heartbeat. If the device has lost
the document, the agent programs the last good one again, without the control plane.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import blake2b

from drivers.agents.fault_log import ReadBackLog
from drivers.agents.network_store import NO_NETWORK, HeldNetwork, NetworkStore
from drivers.agents.table import SELF
from drivers.backends.device import DeviceFailed, NetworkDevice, Programmed
from drivers.wire.agent_messages import NO_DIGEST, NetworkRefusal
from drivers.wire.protocol import DIGEST_BYTES, MAX_UNRESOLVED, NetworkStatus
from drivers.wire.relay_messages import Network
from projections.rules.device_table import RefusalCode

logger = logging.getLogger(__name__)

PROGRAM_S = 60.0
"""Timeout of the device for one document."""
READ_BACK_S = 5.0
"""Timeout of a read-back of the device."""


class AgentNetwork:
    """The network document of one DPU."""

    def __init__(self, device: NetworkDevice, store: NetworkStore) -> None:
        self.held = NO_NETWORK
        """The last good document."""
        self._device = device
        self._store = store
        self._received = 0
        self._in_device = Programmed(NO_DIGEST)
        """The network of the device, as of the last document or read-back."""
        self._was_read = False
        """Whether the device could be read back, ever."""
        self._busy = asyncio.Lock()
        self._read_back_log = ReadBackLog("network of the device")

    async def load(self) -> None:
        """Load the last good document, and make the device hold it."""
        self.held = self._store.load()
        self._received = self.held.version
        await self.read_back()
        if self.held.version and not self._was_read:  # a device without a connection takes it for later
            async with self._busy:
                await self._program(self.held)

    def status(self) -> NetworkStatus:
        """The status of the document, as of the last read-back."""
        held, device = self.held, self._in_device
        received = max(self._received, held.version)
        return NetworkStatus(
            SELF, held.epoch, received, held.version, device.digest, device.unresolved[:MAX_UNRESOLVED]
        )

    async def take(self, network: Network) -> NetworkStatus | NetworkRefusal:
        """Apply or refuse a document, and return the status afterwards."""
        if fault := self._fault(network):
            return NetworkRefusal(self.status(), network.version, *fault)
        async with self._busy:
            if network.epoch == self.held.epoch:
                self._received = max(self._received, network.version)
            after = HeldNetwork(network.epoch, network.version, network.digest, network.document)
            if fault_of_device := await self._program(after):
                self._received = self.held.version
                return NetworkRefusal(self.status(), network.version, RefusalCode.DEVICE, fault_of_device)
            if after != self.held:
                self.held, self._received = after, after.version
                self._keep(after)
        return self.status()

    async def read_back(self) -> NetworkStatus:
        """Read back what the device holds, and repair it if it is not the last good document."""
        if self._busy.locked():
            return self.status()
        async with self._busy:
            try:
                async with asyncio.timeout(READ_BACK_S):
                    self._in_device = await self._device.read_back()
                    self._was_read = True
            except (DeviceFailed, TimeoutError) as error:
                self._read_back_log.failed(error)
                return self.status()
            self._read_back_log.succeeded()
            has_lost = self.held.version and self._in_device.digest != self.held.digest
            if has_lost and (fault := await self._program(self.held)):
                logger.warning("saved network document not applied to the device yet: %s", fault)
        return self.status()

    def _fault(self, network: Network) -> tuple[RefusalCode, str] | None:
        if (network.epoch, network.version) < (self.held.epoch, self.held.version):
            reason = f"version {network.version} of epoch {network.epoch} is older than {self.held.version} of epoch"
            return RefusalCode.OLDER, f"{reason} {self.held.epoch}, which this DPU has"
        if blake2b(network.document, digest_size=DIGEST_BYTES).digest() != network.digest:
            return RefusalCode.DIGEST, "the document does not have the digest of the message"
        return None

    async def _program(self, network: HeldNetwork) -> str:
        """Make the device hold a document. Returns a sentence about the failure, or ""."""
        try:
            async with asyncio.timeout(PROGRAM_S):
                self._in_device = await self._device.program(network.document, network.digest)
        except (DeviceFailed, TimeoutError) as error:
            return str(error) or f"the device did not apply the document within {PROGRAM_S:g} s"
        return ""

    def _keep(self, network: HeldNetwork) -> None:
        try:
            self._store.save(network)
        except OSError as error:
            about = {"version": network.version, "reason": str(error)}
            logger.warning("network document applied but not saved, a restart loses it", extra=about)
