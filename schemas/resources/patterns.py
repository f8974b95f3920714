"""Patterns of schemas in words: a person whose value does not match is told what is expected."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.resources.dpf import credentials, discovery, flavor_parts, helm, operator_components, provisioning_settings
from schemas.resources.dpf.types import QUANTITY

WORDS: Mapping[str, str] = {
    credentials.DURATION: "a duration with units h, m, s or ms, such as 1h30m",
    discovery.ADDRESS: "an IP address, such as 10.0.0.1",
    flavor_parts.CPU_LIST: "CPUs and ranges of CPUs, such as 0-3,5",
    flavor_parts.MAC: "a MAC address, such as 00:00:5e:00:53:01",
    flavor_parts.POOL: "a name of letters, digits, '.', '_' and '-' that begins with a letter or digit",
    flavor_parts.PORT: "*, a port such as p0, or a PCI address such as 0000:03:00.0",
    helm.REPOSITORY: "an address that begins with oci:// or https://",
    operator_components.IMAGE: "an image of a registry, such as nvcr.io/nvidia/doca:1.0",
    provisioning_settings.DURATION: "a duration of whole numbers with units, such as 30s or 1h30m",
    QUANTITY: "a quantity, such as 500m, 2 or 1Gi",
    r"^(http|https)://.+$": "an address that begins with http:// or https://",
    r"^https?://": "an address that begins with http:// or https://",
    r"^https://.+$": "an address that begins with https://",
    r'^https://[^[:space:]"\\]+$': "an address that begins with https://, without spaces, quotes and backslashes",
    r"^[A-Za-z0-9\_\-\.]+\.bfb$": "a file name of letters, digits, '.', '_' and '-' that ends with .bfb",
    r"^([0-9a-fA-F]{4}[-])?[0-9a-fA-F]{2}[-][0-9a-fA-F]{2}$": "a PCI address with dashes, such as 0000-03-00",
    r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]{1}$": "a PCI address in lower case, such as 0000:03:00.0",
    r"^[^=\s]+=[^\s]*$": "NAME=VALUE without spaces",
    r"^[a-z0-9-]+$": "a name of lower-case letters, digits and '-'",
    r"^[a-z][a-z0-9-]*$": "a name of lower-case letters, digits and '-' that begins with a letter",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": "a DNS name in lower case",
    r"^\w(([\w.-]+)?\w)?$": "a name of letters, digits, '.', '_' and '-' that begins and ends with no '.' or '-'",
    r"^/?[^/\s][^\s]*$": "a path without spaces",
    r"kamaji|static|[^/]+/.*": "kamaji, static, or PREFIX/NAME of another manager of clusters",
}
"""What a text must be, by the pattern of its field."""


def expected(pattern: str) -> str:
    """What a text must be to match a pattern, as the end of `must`."""
    return f"be {WORDS[pattern]}" if pattern in WORDS else f"match {pattern}"
