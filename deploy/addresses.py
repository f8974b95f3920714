"""HOST:PORT, as listeners, servers and brokers are named in flags, the environment and files."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


class Address(NamedTuple):
    """Where a listener listens. Port 0 takes a free one."""

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
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """`HOST:PORT,...`, at least one. Raises ValueError with a sentence."""
    found = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"{text!r} is not HOST:PORT,...")
    return found
