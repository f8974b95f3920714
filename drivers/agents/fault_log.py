"""Log lines about a device: one for each new fault, however often a heartbeat or a relay repeats it."""

from __future__ import annotations

import logging

from drivers.backends.device import DeviceNotReady

logger = logging.getLogger(__name__)


class ReadBackLog:
    """Logs the faults of one kind of read-back, and their end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fault = ""

    def failed(self, error: Exception) -> None:
        """Log a fault, unless it is the last one. A device that has not been tried yet has none."""
        fault = str(error) or "timed out"
        if fault != self._fault and not isinstance(error, DeviceNotReady):
            logger.warning("%s not read, retrying at each heartbeat: %s", self._what, fault)
            self._fault = fault

    def succeeded(self) -> None:
        """Log the end of a fault."""
        if self._fault:
            logger.info("%s read again", self._what)
            self._fault = ""


class RefusalLog:
    """Logs what a DPU refuses of one kind: rule tables or network documents. A relay sends a refused one again and
    again."""

    def __init__(self, dpu: str, what: str) -> None:
        self._dpu = dpu
        self._what = what
        self._last: tuple[int, str] | None = None

    def refused(self, version: int, reason: str) -> None:
        """Log a refusal, unless it is the last one."""
        if (version, reason) != self._last:
            logger.warning("dpu %s refused %s version %d: %s", self._dpu, self._what, version, reason)
            self._last = (version, reason)
