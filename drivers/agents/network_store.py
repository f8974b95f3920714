"""Storage of a DPU's last good network document across restarts of its agent, by the rules of `store`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from drivers.agents.saved_file import HashMismatch, load_bytes, save_bytes
from drivers.wire.agent_messages import NO_DIGEST

logger = logging.getLogger(__name__)


class HeldNetwork(NamedTuple):
    """A network document with its version; version 0 is none."""

    epoch: int = 0
    version: int = 0
    digest: bytes = NO_DIGEST
    document: bytes = b""


NO_NETWORK = HeldNetwork()


class NetworkStore(Protocol):
    """Storage of an agent's network document."""

    def load(self) -> HeldNetwork:
        """The last saved document; NO_NETWORK if none was saved, or the saved one is not valid."""
        ...

    def save(self, network: HeldNetwork) -> None:
        """Replace the saved document. Raises OSError."""
        ...


class MemoryNetworkStore:
    """Storage in memory, for simulated devices."""

    def __init__(self) -> None:
        self._network = NO_NETWORK

    def load(self) -> HeldNetwork:
        return self._network

    def save(self, network: HeldNetwork) -> None:
        self._network = network


class FileNetworkStore:
    """Storage in one file. A file of another DPU, or of the DPU's former zone, is ignored."""

    def __init__(self, path: Path, dpu: str, zone: str) -> None:
        self._path = path
        self._whose = (dpu, zone)

    def load(self) -> HeldNetwork:
        try:
            dpu, zone, epoch, version, digest, document = msgspec.msgpack.decode(
                load_bytes(self._path), type=tuple[str, str, int, int, bytes, bytes]
            )
        except FileNotFoundError:
            return NO_NETWORK
        except (OSError, msgspec.DecodeError, HashMismatch) as error:
            about = {"dpu": self._whose[0], "path": str(self._path), "reason": str(error)}
            logger.warning("saved network document ignored, the file cannot be read", extra=about)
            return NO_NETWORK
        if (dpu, zone) != self._whose:
            about = {"path": str(self._path), "dpu": dpu, "zone": zone}
            logger.warning("saved network document ignored, it belongs to another DPU or zone", extra=about)
            return NO_NETWORK
        return HeldNetwork(epoch, version, digest, document)

    def save(self, network: HeldNetwork) -> None:
        save_bytes(self._path, msgspec.msgpack.encode((*self._whose, *network)))
