"""The bridges of Open vSwitch with their ports, as the rows of its database say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from drivers.ovsdb.session import Row, Rows

COLUMNS = {
    "Open_vSwitch": ("cur_cfg", "dpdk_initialized"),
    "Bridge": ("name", "ports", "datapath_type"),
    "Port": ("name", "interfaces", "external_ids"),
    "Interface": ("name", "type", "options", "external_ids", "ofport", "mtu_request"),
}
"""The columns to monitor."""

_RESERVED = 0xFF00
"""The first reserved number, such as that of a bridge's own port."""


class Port(NamedTuple):
    """A port with its one interface; ports of several (bonds) are not listed. `number` is that of OpenFlow, 0 if the
    switch has none for it, such as while its device does not exist, and for the bridge's own port."""

    uuid: str
    interface: str
    """The UUID of the interface."""
    name: str
    bridge: str
    type: str
    number: int
    mtu_request: int
    options: Mapping[str, str]
    port_ids: Mapping[str, str]
    """External ids of the port."""
    ids: Mapping[str, str]
    """External ids of the interface."""


class Bridge(NamedTuple):
    """A bridge, and its ports by name."""

    uuid: str
    name: str
    datapath: str
    ports: Mapping[str, Port]


class SwitchRows(NamedTuple):
    """Everything of one switch. `bridge_of` is the bridge of each port, also of ports that are not listed.
    `port_of_interface` is the port of each interface whose name is not that of its port, such as a member of a bond."""

    has_dpdk: bool
    configured: int
    """The last number of a configuration that the switch has taken over completely."""
    bridges: Mapping[str, Bridge]
    bridge_of: Mapping[str, str]
    port_of_interface: Mapping[str, str]


def switch_rows(rows: Rows) -> SwitchRows:
    """Read monitored rows."""
    ports, interfaces = rows.get("Port", {}), rows.get("Interface", {})
    bridges: dict[str, Bridge] = {}
    bridge_of: dict[str, str] = {}
    port_of_interface: dict[str, str] = {}
    for uuid, row in rows.get("Bridge", {}).items():
        found: dict[str, Port] = {}
        for port_uuid in _uuids(row["ports"]):
            port = ports.get(port_uuid)
            if port is None:
                continue
            bridge_of[port["name"]] = row["name"]
            members = _uuids(port["interfaces"])
            if len(members) == 1 and members[0] in interfaces:
                found[port["name"]] = _port(port_uuid, port, members[0], interfaces[members[0]], row["name"])
            names = (interfaces[each]["name"] for each in members if each in interfaces)
            port_of_interface |= {name: port["name"] for name in names if name != port["name"]}
        bridges[row["name"]] = Bridge(uuid, row["name"], row["datapath_type"], found)
    return SwitchRows(*_root(rows), bridges, bridge_of, port_of_interface)


def configured(rows: Rows) -> int:
    """The last number of a configuration that the switch has taken over completely."""
    return _root(rows)[1]


def _root(rows: Rows) -> tuple[bool, int]:
    for row in rows.get("Open_vSwitch", {}).values():
        return bool(row["dpdk_initialized"]), row["cur_cfg"]
    return False, 0


def _port(uuid: str, port: Row, interface_uuid: str, interface: Row, bridge: str) -> Port:
    return Port(
        uuid,
        interface_uuid,
        port["name"],
        bridge,
        interface["type"],
        number if 0 < (number := _integer(interface["ofport"])) < _RESERVED else 0,
        _integer(interface["mtu_request"]),
        _map(interface["options"]),
        _map(port["external_ids"]),
        _map(interface["external_ids"]),
    )


def _uuids(value: Any) -> list[str]:
    """A column of references: one, or a set."""
    return [value[1]] if value[0] == "uuid" else [each[1] for each in value[1]]


def _integer(value: Any) -> int:
    """An optional number: absent ones, which are empty sets, are 0."""
    return value if isinstance(value, int) else 0


def _map(value: Any) -> dict[str, str]:
    return dict(value[1])
