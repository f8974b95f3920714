"""Changes of ports, as operations of a transaction (RFC 7047, section 5.2). Pure.

Sets and maps are mutated, never written as a whole: what others put there stays, whatever the copy knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from drivers.ovsdb.session import Operation
from drivers.ovsdb.tables import Port


class WantedPort(NamedTuple):
    """A port of a bridge as it is wanted. `mtu` 0 leaves the MTU to the switch."""

    name: str
    type: str = ""
    mtu: int = 0
    options: Mapping[str, str] = {}
    port_ids: Mapping[str, str] = {}
    ids: Mapping[str, str] = {}


def insertion(bridge: str, wanted: WantedPort, number: int) -> list[Operation]:
    """Add a port to the bridge with this UUID. `number` is unique in the transaction."""
    interface, port = f"interface{number}", f"port{number}"
    row: dict[str, Any] = {"name": wanted.name, "type": wanted.type}
    row |= {"options": _map(wanted.options), "external_ids": _map(wanted.ids)}
    if wanted.mtu:
        row["mtu_request"] = wanted.mtu
    return [
        {"op": "insert", "table": "Interface", "uuid-name": interface, "row": row},
        {
            "op": "insert",
            "table": "Port",
            "uuid-name": port,
            "row": {
                "name": wanted.name,
                "interfaces": ["named-uuid", interface],
                "external_ids": _map(wanted.port_ids),
            },
        },
        _mutation("Bridge", bridge, "ports", "insert", ["named-uuid", port]),
    ]


def adaptation(present: Port, wanted: WantedPort) -> list[Operation]:
    """Make a present port what is wanted; no operation if it is that. External ids of others stay."""
    row: dict[str, Any] = {}
    if present.type != wanted.type:
        row["type"] = wanted.type
    if present.options != wanted.options:
        row["options"] = _map(wanted.options)
    if present.mtu_request != wanted.mtu:
        row["mtu_request"] = wanted.mtu or ["set", []]
    found: list[Operation] = []
    if row:
        found.append({"op": "update", "table": "Interface", "where": _is(present.interface), "row": row})
    found += _external_ids("Interface", present.interface, present.ids, wanted.ids)
    return found + _external_ids("Port", present.uuid, present.port_ids, wanted.port_ids)


def removal(bridge: str, port: Port) -> Operation:
    """Remove a port from the bridge with this UUID; the database then deletes it and its interface."""
    return _mutation("Bridge", bridge, "ports", "delete", ["uuid", port.uuid])


def next_configuration() -> list[Operation]:
    """Number the configuration, and read the number: the switch says when it has taken it over. The last operations of
    a transaction."""
    return [
        {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]},
        {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]},
    ]


def configuration_number(results: list[Any]) -> int:
    """The number that `next_configuration` read, from the results of its transaction."""
    number: int = results[-1]["rows"][0]["next_cfg"]
    return number


def _external_ids(table: str, uuid: str, present: Mapping[str, str], wanted: Mapping[str, str]) -> list[Operation]:
    differing = {key: value for key, value in wanted.items() if present.get(key) != value}
    if not differing:
        return []
    mutations = [
        ["external_ids", "delete", ["set", list(differing)]],
        ["external_ids", "insert", _map(differing)],
    ]
    return [{"op": "mutate", "table": table, "where": _is(uuid), "mutations": mutations}]


def _mutation(table: str, uuid: str, column: str, mutator: str, value: Any) -> Operation:
    return {"op": "mutate", "table": table, "where": _is(uuid), "mutations": [[column, mutator, value]]}


def _is(uuid: str) -> list[Any]:
    return [["_uuid", "==", ["uuid", uuid]]]


def _map(value: Mapping[str, str]) -> list[Any]:
    return ["map", [[key, each] for key, each in value.items()]]
