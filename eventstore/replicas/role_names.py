"""The roles of processes, as settings, beacons and grants name them."""

from __future__ import annotations

from typing import Final

API: Final = "api"
RELAY: Final = "relay"
PROVISIONER: Final = "provisioner"
DECISION_WRITER: Final = "decisions"
KUBERNETES: Final = "kubernetes"
