"""File descriptors of a process: its limit, and the share of it for connections.

A process without a free descriptor cannot append: RocksDB opens a file for every new part of the log, and every
connection takes a descriptor too. Connections therefore get the rest after a reserve for the log, the saved folds and
outgoing connections; if the rest is less than the settings allow, the limits of the listeners are lowered.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

FILES_MAX = 65_536
"""The soft limit is raised to this, as far as the hard limit allows."""
RESERVE = 512
"""The log (128 files in RocksDB), saved folds (64), state checkpoints that are read, connections to Kafka brokers, BMCs
and relays, pipes to servers of the past.
"""
HTTP_LEAST_SHARE, API_LEAST_SHARE = 1 / 8, 1 / 4
"""Shares of the rest, if it is less than wanted: the page and the probes stay reachable beside many agents."""


class ConnectionLimitsPerListener(NamedTuple):
    """The limit of connections of each listener."""

    http: int
    api: int
    agents: int


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as useful and allowed; returns the present limit."""
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
    """The wanted limits, lowered so that their sum leaves the reserve of a process with this limit of files."""
    left = files - min(RESERVE, files // 2)
    if sum(wanted) <= left:
        return wanted
    http = min(wanted.http, max(1, int(left * HTTP_LEAST_SHARE)))
    api = min(wanted.api, max(1, int(left * API_LEAST_SHARE)))
    return ConnectionLimitsPerListener(http, api, max(1, min(wanted.agents, left - http - api)))
