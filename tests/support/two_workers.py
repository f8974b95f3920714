"""How the tests are divided between two workers (`make test`): a file runs in one of them, with the brokers and API
servers of its worker. What loads or changes the whole machine runs in one worker, one test after the other, and so do
tests that need the same part of the machine for themselves. Without `-n`, one process runs all.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ONE_AT_A_TIME = (
    "tests/faults/",  # clocks, networks and disks of the machine
    *(f"tests/integration/test_{name}.py" for name in ("compose", "image", "wheel")),  # one Docker daemon, one build
)
PACKETS = (
    "tests/integration/test_demo_devices.py",
    "tests/integration/test_openvswitch_packets.py",
    "tests/integration/test_openvswitch_network_packets.py",
)
"""There can be one Open vSwitch that forwards packets: in two workers, the files would wait for each other."""


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One lane for the tests that run one at a time, one for those of packets, and one for each other file."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ONE_AT_A_TIME):
            return "one at a time"
        return "packets" if nodeid.startswith(PACKETS) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # the longest lane is collected early
    return Lanes(config, log)
