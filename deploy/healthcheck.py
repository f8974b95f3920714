"""Whether the process in this container serves: for an image's HEALTHCHECK, with nothing but the standard library.

Asks /readyz where the process listens by its environment (DPUPLANE_HTTP), with TLS if it has certificates; probes need
none of their own.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping
from urllib.error import URLError
from urllib.request import urlopen

TIMEOUT_S = 4.0
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def fault(environment: Mapping[str, str]) -> str:
    """Why it does not serve; empty if it does."""
    host, _, port = environment.get("DPUPLANE_HTTP", "127.0.0.1:7081").rpartition(":")
    context = None
    if "DPUPLANE_TLS_CERT" in environment:
        context = ssl.create_default_context(cafile=environment.get("DPUPLANE_TLS_CLIENT_CA"))
        context.check_hostname = False  # we ask by the address that it listens on, which it need not be called by
    scheme = "http" if context is None else "https"
    try:
        with urlopen(f"{scheme}://{_ANY.get(host, host)}:{port}/readyz", timeout=TIMEOUT_S, context=context) as answer:
            answer.read()
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(fault(os.environ) or 0)
