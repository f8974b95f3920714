"""Where images may be downloaded from: rules for addresses, which protect the plane's own network.

Every user who may create objects gives URLs of images, and the plane can reach addresses that such a user cannot.
Loopback and link-local addresses (the metadata service of a cloud is one) are therefore refused unless a setting allows
the host. The address is checked after the resolution of the name, where the connection is made, and again for each
redirection. So a name whose address changes between check and use cannot pass.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from eventstore.errors import TransientError
from projections.field_checks import quoted

_SCHEMES = ("http", "https")


class RefusedAddress(TransientError):
    """A URL whose address images may not come from."""


class AllowedHosts:
    """Hosts, `*.DOMAIN` patterns and networks that images may come from, besides public and private addresses.

    With `is_exclusive`, images may come from these only.
    """

    def __init__(self, hosts: Sequence[str] = (), *, is_exclusive: bool = False) -> None:
        self._is_exclusive = is_exclusive
        self._networks = []
        self._names = []
        for host in hosts:
            try:
                self._networks.append(ipaddress.ip_network(host, strict=False))
            except ValueError:
                self._names.append(host.lower())

    def check_url(self, url: URL) -> None:
        """Check scheme, credentials and host of a URL. Raises RefusedAddress."""
        if url.scheme not in _SCHEMES or not url.host:
            raise RefusedAddress(f"the URL {quoted(shown(url))} must begin with http:// or https://")
        if url.user or url.password:
            raise RefusedAddress(f"the URL {quoted(shown(url))} must have no credentials")
        if _address_of(url.host) is not None:
            self.check_address(url.host, url.host)

    def check_address(self, host: str, address: str) -> None:
        """Check an address to which a host was resolved. Raises RefusedAddress."""
        found = _address_of(address)
        if found is None:
            raise RefusedAddress(f"host {quoted(host)} has no usable address")
        if self._names_host(host) or any(found in network for network in self._networks):
            return
        if self._is_exclusive:
            raise RefusedAddress(f"host {quoted(host)} is not among those that images may come from (image_hosts)")
        if found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved:
            raise RefusedAddress(
                f"host {quoted(host)} has the local address {found}, which images may come from only if image_hosts "
                "allows it"
            )

    def _names_host(self, host: str) -> bool:
        name = host.lower()
        return any(name == each or (each.startswith("*.") and name.endswith(each[1:])) for each in self._names)


class CheckedResolver(AbstractResolver):
    """A resolver that refuses names with an address that is not allowed."""

    def __init__(self, resolver: AbstractResolver, allowed: AllowedHosts) -> None:
        self._resolver = resolver
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for each in found:
            self._allowed.check_address(host, each["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()


def parse_hosts(setting: str) -> tuple[tuple[str, ...], bool]:
    """The hosts in a setting, and whether images may come from them only: `only:` begins such a list. Raises
    ValueError."""
    text = setting.strip()
    is_exclusive = text.startswith("only:")
    hosts = tuple(each.strip() for each in text.removeprefix("only:").split(",") if each.strip())
    for each in hosts:
        if any(letter.isspace() or letter in "/:@" for letter in each) and _network_of(each) is None:
            raise ValueError(f"{quoted(each)} must be a host, *.DOMAIN or a network")
    return hosts, is_exclusive


def checked_hosts(setting: str) -> str:
    """The setting itself, if its hosts can be parsed. Raises ValueError."""
    parse_hosts(setting)
    return setting


def shown(url: URL) -> str:
    """A URL for messages: without credentials, query and fragment, which may contain secrets."""
    try:
        return str(url.with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return url.scheme


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return mapped or found


def _network_of(text: str) -> object | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
