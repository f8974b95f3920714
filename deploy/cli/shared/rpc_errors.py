"""Sentences for calls that got no response, with the flag that may help."""

from __future__ import annotations

import grpc

from commands.client.errors import CallFailed
from projections.field_checks import quoted

_REASON_SHOWN = 200
_WITHOUT_TLS = "give --tls-cert, --tls-key and --tls-ca if it uses TLS"
_WITH_TLS = "it must use TLS, and each side must trust the other's certificate: see `dpuplane certs show`"


def not_sent_message(error: CallFailed, *, is_secure: bool) -> str:
    """The sentence for a request without a connection."""
    details, server = error.details, error.server
    if "Connection refused" in details:
        return f"no process listens at {server}: start `dpuplane serve`, or give its --listen address with --server"
    if not details.startswith("failed to connect"):
        return f"{server}: the host name does not resolve; give another address with --server"
    if "http1" in details:
        return f"{server} speaks HTTP/1: give the --listen address with --server, not that of --http or --agents"
    reason = details.rpartition(": ")[2].partition("\n")[0]
    why = f" ({_short(reason)})" if reason not in ("", "OK") else ""  # a failed handshake looks like a closed socket
    return f"cannot connect to {server}{why}: {_WITH_TLS if is_secure else _WITHOUT_TLS}"


def no_answer_message(error: CallFailed, advice: str, *, is_secure: bool) -> str:
    """The sentence for a request that was sent and got no response."""
    code = error.code.name.lower().replace("_", " ")
    details = error.details.partition("\n")[0]
    reason = f"{code}, {_short(details)}" if details else code
    if error.code is grpc.StatusCode.UNAVAILABLE:  # a connection breaks this way if the server expects TLS
        advice += f"; {_WITH_TLS if is_secure else _WITHOUT_TLS}"
    return f"no response from {error.server} ({reason}): {advice}"


def _short(text: str) -> str:
    return text if len(text) <= _REASON_SHOWN and text.isprintable() else quoted(text)
