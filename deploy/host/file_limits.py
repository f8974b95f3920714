"""The limit of open files of a process, and the share of it for connections.

A process without a free descriptor cannot append: RocksDB opens a file for every new part of the log, and every
connection takes a descriptor too. A reserve of descriptors is therefore set aside for the log, the saved folds and
outgoing connections. The listeners' connections get the remaining descriptors. If the settings allow more connections
than remain, the limits of the listeners are lowered.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

FILES_MAX = 65_536
"""The soft limit of open files is raised to this number, as far as the hard limit allows."""
RESERVE = 512
"""File descriptors that connections do not get. They are for the log (128 files in RocksDB), saved folds (64), state
checkpoints that are read, connections to Kafka brokers, BMCs and relays, and pipes to as-of servers.
"""
HTTP_LEAST_SHARE, API_LEAST_SHARE = 1 / 8, 1 / 4
"""The shares of HTTP and the API in the descriptors outside the reserve. They apply if the settings allow more
connections than there are such descriptors. Agents get the rest, so the page, the probes and the API stay reachable
while many agents are connected.
"""


class ConnectionLimitsPerListener(NamedTuple):
    """The maximum number of connections of each listener."""

    http: int
    api: int
    agents: int


def raise_file_limit() -> int:
    """Raise the soft limit of open files to FILES_MAX, or to a lower hard limit; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return file_limit()


def file_limit() -> int:
    """The number of files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else soft


def fit_connection_limits(files: int, wanted: ConnectionLimitsPerListener) -> ConnectionLimitsPerListener:
    """The limits of a process with `files` descriptors: the wanted limits, or lower ones if the wanted ones would use
    descriptors of the reserve."""
    left = files - min(RESERVE, files // 2)
    if sum(wanted) <= left:
        return wanted
    http = min(wanted.http, max(1, int(left * HTTP_LEAST_SHARE)))
    api = min(wanted.api, max(1, int(left * API_LEAST_SHARE)))
    return ConnectionLimitsPerListener(http, api, max(1, min(wanted.agents, left - http - api)))
