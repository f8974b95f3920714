"""The log of read-backs of a device: a line for each new fault and for its end, none for each heartbeat."""

from __future__ import annotations

import logging

from drivers.backends.device import DeviceNotReady

logger = logging.getLogger(__name__)


class DeviceLog:
    """The last fault of one kind of read-back."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fault = ""

    def failed(self, error: Exception) -> None:
        """Log a fault, unless it is the last one. A device that has not been tried yet has none."""
        fault = str(error) or "timed out"
        if fault != self._fault and not isinstance(error, DeviceNotReady):
            logger.warning("%s cannot be read: %s", self._what, fault)
            self._fault = fault

    def succeeded(self) -> None:
        if self._fault:
            logger.info("%s is read again", self._what)
            self._fault = ""
