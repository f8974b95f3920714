"""UDP packets of the device demo, sent and received in network namespaces.

python -m deploy.demo.devices.packets receive ADDRESS PORT     until a line on stdin; prints counts by source
python -m deploy.demo.devices.packets send ADDRESS PORT COUNT SOURCE...
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

DRAIN_S = 1.0
"""Time after the last line in which packets may still arrive."""
LOOK_S, PAUSE_S = 0.1, 0.01
SO_NO_CHECK = 11
"""Of Linux: send UDP without a checksum. A wire leaves it to hardware, which the switch does not have."""


def receive(address: str, port: int) -> dict[str, int]:
    """Count the packets by their source until a line comes on stdin."""
    counts: Counter[str] = Counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((address, port))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        watched: list[Any] = [listening, sys.stdin]
        ends_at = float("inf")
        while time.monotonic() < ends_at:
            for ready in select.select(watched, [], [], LOOK_S)[0]:
                if ready is listening:
                    counts[listening.recvfrom(100)[1][0]] += 1
                else:
                    watched.remove(sys.stdin)
                    ends_at = time.monotonic() + DRAIN_S
    return dict(counts)


def send(address: str, port: int, count: int, sources: Sequence[str]) -> None:
    """Send packets from each of these addresses in turn."""
    for source in sources:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            sending.bind((source, 0))
            for _ in range(count):
                sending.sendto(b"demo", (address, port))
                time.sleep(PAUSE_S)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", address, port]:
            sys.stdout.write(json.dumps(receive(address, int(port))))
        case ["send", address, port, count, *sources]:
            send(address, int(port), int(count), sources)
