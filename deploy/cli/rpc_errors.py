"""Errors of calls: whether the plane or the gRPC library reported them, and whether the request was ever sent.

A request without a connection took no effect, so its outcome is not unknown. The library reports this case only as
"failed to connect to all addresses", or as a name that did not resolve. It reports a broken connection in other words.
"""

from __future__ import annotations

from typing import Any

import grpc

from projections.field_checks import quoted
from schemas.api.metadata import ANSWERED_KEY

_REASON_SHOWN = 200
_WITHOUT_TLS = "give --tls-cert, --tls-key and --tls-ca if it uses TLS"
_WITH_TLS = "it must use TLS, and each side must trust the other's certificate: see `dpuplane certs show`"


def is_folding(error: grpc.RpcError) -> bool:
    """Whether the server is still folding the log up to the point of an as-of query."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _details(error).startswith("as_of: ")


def is_from_plane(error: grpc.RpcError) -> bool:
    """Whether a server of the plane returned this error, and not the gRPC library."""
    said: Any = error.trailing_metadata() or ()
    return any(key == ANSWERED_KEY for key, _ in said)


def was_sent(error: grpc.RpcError) -> bool:
    """Whether the request may have reached a server."""
    details = _details(error)
    never = details.startswith(("failed to connect to all addresses", "errors resolving", "DNS resolution failed"))
    return not never or error.code() is not grpc.StatusCode.UNAVAILABLE or is_from_plane(error)


def not_sent_message(server: str, error: grpc.RpcError, *, is_secure: bool) -> str:
    """The sentence for a request without a connection."""
    details = _details(error)
    if "Connection refused" in details:
        return f"no process listens at {server}: start `dpuplane serve`, or give its --listen address with --server"
    if not details.startswith("failed to connect"):
        return f"{server}: the host name does not resolve; give another address with --server"
    if "http1" in details:
        return f"{server} speaks HTTP/1: give the --listen address with --server, not that of --http or --agents"
    reason = details.rpartition(": ")[2].partition("\n")[0]
    why = f" ({_short(reason)})" if reason not in ("", "OK") else ""  # a failed handshake looks like a closed socket
    return f"cannot connect to {server}{why}: {_WITH_TLS if is_secure else _WITHOUT_TLS}"


def no_answer_message(server: str, error: grpc.RpcError, advice: str, *, is_secure: bool) -> str:
    """The sentence for a request that was sent and got no response."""
    code = error.code().name.lower().replace("_", " ")
    details = _details(error).partition("\n")[0]
    reason = f"{code}, {_short(details)}" if details else code
    if error.code() is grpc.StatusCode.UNAVAILABLE:  # a connection breaks this way if the server expects TLS
        advice += f"; {_WITH_TLS if is_secure else _WITHOUT_TLS}"
    return f"no response from {server} ({reason}): {advice}"


def _details(error: grpc.RpcError) -> str:
    return error.details() or ""


def _short(text: str) -> str:
    return text if len(text) <= _REASON_SHOWN and text.isprintable() else quoted(text)
