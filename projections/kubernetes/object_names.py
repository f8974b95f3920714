"""Names of Kubernetes objects: lower-case DNS subdomains (RFC 1123), as the API server requires them."""

from __future__ import annotations

import re
from hashlib import blake2b

OWN_LABELS = {"app.kubernetes.io/managed-by": "dpuplane"}
"""The labels of an object that the plane creates."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OTHER = re.compile(r"[^a-z0-9]+")
_HASH_BYTES = 4
_HOLD = re.compile(r"hold-([1-9][0-9]{0,18})")


def object_name(zone: str) -> str:
    """The name of a zone's object: the zone's name if the API server allows it, else a slug and a hash of that name."""
    if _SUBDOMAIN.fullmatch(zone):
        return zone
    slug = _OTHER.sub("-", zone.lower()).strip("-") or "zone"
    return f"{slug}-{blake2b(zone.encode(), digest_size=_HASH_BYTES).hexdigest()}"


def hold_name(number: int) -> str:
    """The name of a hold's object."""
    return f"hold-{number}"


def hold_number(name: str) -> int | None:
    """The number of the hold that an object of this name is about; None if the plane did not choose the name."""
    match = _HOLD.fullmatch(name)
    return int(match[1]) if match else None
