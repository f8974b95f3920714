"""The document $metadata of a service: the schemas of the types that its resources name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from drivers.simulators.redfish.identity import ROOT
from drivers.simulators.redfish.messages import Json

_DMTF = "http://redfish.dmtf.org/schemas/v1"
_OWN = f"{ROOT}/schema"
_OWN_PREFIXES = ("Nvidia", "OpenBMC")


def metadata(read: Callable[[str], Json | None]) -> str:
    """The document for the resources that the service root leads to; `read` returns the one at a path."""
    namespaces: dict[str, set[str]] = {}
    paths, seen = [ROOT], {ROOT}
    while paths:
        for name, value in _members(read(paths.pop())):
            if name == "@odata.type":
                namespace = value.lstrip("#").rpartition(".")[0]
                schema = namespace.partition(".")[0]
                namespaces.setdefault(schema, {schema}).add(namespace)
            elif value.rstrip("/") not in seen:
                seen.add(value.rstrip("/"))
                paths.append(value)
    return _document(namespaces)


def _members(value: Any) -> Iterator[tuple[str, str]]:
    """The types and references in a resource."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name in ("@odata.type", "@odata.id"):
                yield name, member
            else:
                yield from _members(member)
    elif isinstance(value, list):
        for member in value:
            yield from _members(member)


def _document(namespaces: dict[str, set[str]]) -> str:
    references = "".join(
        f'  <edmx:Reference Uri="{_OWN if schema.startswith(_OWN_PREFIXES) else _DMTF}/{schema}_v1.xml">\n'
        + "".join(f'    <edmx:Include Namespace="{each}"/>\n' for each in sorted(included))
        + "  </edmx:Reference>\n"
        for schema, included in sorted(namespaces.items())
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">\n'
        f"{references}"
        "  <edmx:DataServices>\n"
        '    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">\n'
        '      <EntityContainer Name="Service" Extends="ServiceRoot.v1_17_0.ServiceContainer"/>\n'
        "    </Schema>\n"
        "  </edmx:DataServices>\n"
        "</edmx:Edmx>\n"
    )
