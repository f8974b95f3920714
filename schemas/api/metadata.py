"""The keys of gRPC metadata that the API gives a meaning, for both of its ends."""

from __future__ import annotations

PRINCIPAL_KEY = "x-dpuplane-as"
"""Of a request: who calls, where no certificate says it."""

ANSWERED_KEY = "x-dpuplane-answered"
"""Of a failure: a server of the plane said so. Without it a client's own library, or a proxy, gave up on the way."""
