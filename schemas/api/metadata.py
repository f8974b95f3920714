"""The keys of gRPC metadata that the API uses, for clients and servers."""

from __future__ import annotations

PRINCIPAL_KEY = "x-dpuplane-as"
"""On a request: the principal of a caller without a certificate."""

STATUS_DETAILS_KEY = "grpc-status-details-bin"
"""On an error: the google.rpc.Status of the error, with an ErrorInfo. gRPC libraries read this key."""

ERROR_DOMAIN = "dpuplane.io"
"""The domain of an ErrorInfo: it says that the plane defines the code."""

ANSWERED_KEY = "x-dpuplane-answered"
"""On an error: a server of the plane returned it. Without this key, the client's library or a proxy failed the call."""
