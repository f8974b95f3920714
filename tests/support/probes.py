"""Probes between two network namespaces: numbered datagrams from several source addresses, and what of them arrives.

Run in a namespace. `python -m tests.support.probes send ADDRESS PORT SOURCE...` sends a datagram from each source in
turn until its input ends, but LEAST from each, and then prints how many it has sent from each. `python -m
tests.support.probes receive ADDRESS PORT` prints the sources and the numbers of the datagrams that arrived, as JSON,
when its input ends.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

LEAST = 21
INTERVAL_S = 0.005
"""Time between two datagrams. The buffers of the way hold those of a second in which the switch is not scheduled."""
SO_RCVBUFFORCE = 33
"""Set the size of a buffer beyond the limit of the system, which root may."""
SO_NO_CHECK, UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 11, 101, 102
"""Leave out the checksum, which an interface fills in: a switch in user space passes packets on before that. For IPv6,
the receiver has to accept that."""
LAST_S = 1.5
"""What has not arrived this time after the end of the input does not arrive."""


def unchecked(address: str, port: int) -> socket.socket:
    """A socket with this address, without checksums."""
    if ":" in address:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        for option in (UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX):
            made.setsockopt(socket.IPPROTO_UDP, option, 1)
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    made.bind((address, port))
    return made


def send(address: str, port: int, sources: Sequence[str]) -> None:
    sockets = []
    for source in sources:
        sender = unchecked(source, 0)
        sockets.append(sender)
    count = 0
    while count < LEAST or not select.select([sys.stdin], [], [], 0)[0]:
        for sender in sockets:
            sender.sendto(b"%d" % count, (address, port))
            time.sleep(INTERVAL_S)
        count += 1
    print(count)


def receive(address: str, port: int) -> None:
    receiver = unchecked(address, port)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    print("ready", flush=True)
    found: defaultdict[str, list[int]] = defaultdict(list)
    ends_at = float("inf")
    while time.monotonic() < ends_at:
        ready = select.select([receiver, sys.stdin][: 2 if ends_at == float("inf") else 1], [], [], 0.05)[0]
        if sys.stdin in ready:
            ends_at = time.monotonic() + LAST_S
        if receiver in ready:
            data, source = receiver.recvfrom(64)
            found[source[0]].append(int(data))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        receive(sys.argv[2], int(sys.argv[3]))
