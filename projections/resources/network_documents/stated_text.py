"""The networks of a source as canonical text, for the log: equal networks have equal texts.

The text has selectors of DPU clusters, not the clusters themselves: a new one changes no networks.
"""

from __future__ import annotations

import msgspec

from projections.resources.network_documents.stated import StatedNetworks, in_clusters

_decoder = msgspec.json.Decoder(StatedNetworks)
_KEY_PARTS = 4


def encoded_networks(networks: StatedNetworks) -> str:
    """The text of networks. Their faults are left out: objects with a fault are in no document."""
    nowhere = in_clusters(networks._replace(faults={}), lambda _: ())
    return msgspec.json.encode(nowhere, order="deterministic").decode()


def decoded_networks(text: str) -> StatedNetworks | None:
    """The networks of a text, in no DPU cluster; None if this build cannot read all of it, or did not write it."""
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    keys = [each.key for part in (found.interfaces, found.chains) for each in part]
    is_read = all(len(key.split("/")) == _KEY_PARTS for key in keys)
    return found if is_read and encoded_networks(found) == text else None
