"""At most one agent of a host at a time: two would install one DPU at once.

The agent binds an abstract Unix socket, which the kernel releases when its process ends, however it ends.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from eventstore.errors import FatalError


@contextmanager
def only_one(namespace: str, node: str) -> Iterator[None]:
    """Be the only agent of a host while the context lasts. Raises FatalError if another one runs."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as held:
        try:
            held.bind(f"\0dpuplane-host-agent/{namespace}/{node}"[:107])
        except OSError as error:
            raise FatalError(f"node: another agent of host {node} runs on this machine") from error
        yield
