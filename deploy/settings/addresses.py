"""HOST:PORT, the syntax of listeners, servers and brokers in flags, the environment and files."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from projections.field_checks import quoted

_HOST = re.compile(r"[\w.-]{1,253}")
_HOST6 = re.compile(r"([0-9A-Fa-f:.]+)(%[\w.-]{1,64})?")
_DIGITS_MAX = 9
"""Maximum number of digits of a port, with leading zeros: `int` raises for a text of thousands of digits."""


class Address(NamedTuple):
    """The address of a listener. Port 0 stands for any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """`HOST:PORT`, with brackets around an IPv6 host. Raises ValueError with a sentence."""
    host, _, port = text.rpartition(":")
    is_in_brackets = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_in_brackets else host
    is_host = _is_ipv6(host) if is_in_brackets else _HOST.fullmatch(host)
    if not is_host or not (port.isascii() and port.isdigit()) or len(port) > _DIGITS_MAX or int(port) > 65_535:
        raise ValueError(f"{quoted(text)} must be HOST:PORT with a port from 0 to 65535")
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """`HOST:PORT,...`, at least one. Raises ValueError with a sentence."""
    found = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"{quoted(text)} must be HOST:PORT,...")
    return found


def _is_ipv6(host: str) -> bool:
    match = _HOST6.fullmatch(host)
    try:
        ipaddress.IPv6Address(match[1] if match else "")
    except ValueError:
        return False
    return True
