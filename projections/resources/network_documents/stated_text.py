"""The networks of a source as canonical text, for the log: equal networks have equal texts."""

from __future__ import annotations

import msgspec

from projections.resources.network_documents.stated import StatedNetworks

_decoder = msgspec.json.Decoder(StatedNetworks)


def encoded_networks(networks: StatedNetworks) -> str:
    """The text of networks. Their faults are left out: objects with a fault are in no document."""
    return msgspec.json.encode(networks._replace(faults={}), order="deterministic").decode()


def decoded_networks(text: str) -> StatedNetworks | None:
    """The networks of a text; None if this build cannot read it."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
