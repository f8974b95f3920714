"""Checks that no schema can state: in DPF, its admission webhooks make them. Each takes a spec with its defaults."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from schemas.resources.faults import Fault

Spec = Mapping[str, Any]

_QUANTITY = re.compile(r"([+-]?[0-9.]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9.]+)?")
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {letter: Decimal(1000) ** power for power, letter in enumerate("num-kMGTPE", -3)}
_EXPONENT_MAX = Decimal(30)
"""Beyond it, the API server takes every amount for the largest one."""
_PERCENT = re.compile(r"([0-9]{1,3})%")


def flavor_faults(spec: Spec, older: Spec | None) -> Iterator[Fault]:
    """The faults of a DPUFlavor: resources that do not fit, and ports that are given twice or without a setting."""
    total, reserved = spec.get("dpuResources", {}), spec.get("systemReservedResources", {})
    if reserved and not total:
        yield Fault("spec.systemReservedResources", "must not be set without dpuResources")
    for name, amount in reserved.items() if total else ():
        if amount_of(amount) > amount_of(total.get(name, 0)):
            yield Fault(
                f"spec.systemReservedResources.{name}", f"must be at most {total.get(name, 0)}, as in dpuResources"
            )
    ports = spec.get("hostNetworkInterfaceConfigs", [])
    counts = Counter(port["portNumber"] for port in ports)
    for at, port in enumerate(ports):
        path = f"spec.hostNetworkInterfaceConfigs[{at}]"
        if counts[port["portNumber"]] > 1:
            yield Fault(f"{path}.portNumber", f"must be given once, but {port['portNumber']} is given twice")
        if not port.keys() & {"mtu", "dhcp", "nvconfig"}:
            yield Fault(path, "must have mtu, dhcp or nvconfig")


def set_faults(spec: Spec, older: Spec | None) -> Iterator[Fault]:
    """The faults of a DPUSet."""
    yield from _strategy_faults(spec.get("strategy", {}), "spec.strategy")


def deployment_faults(spec: Spec, older: Spec | None) -> Iterator[Fault]:
    """The faults of a DPUDeployment: of its strategy, and services that are named but not there."""
    yield from _strategy_faults(spec["dpus"].get("dpuSetStrategy", {}), "spec.dpus.dpuSetStrategy")
    for name, service in spec["services"].items():
        for at, dependency in enumerate(service.get("dependsOn", [])):
            if dependency["name"] not in spec["services"] or dependency["name"] == name:
                yield Fault(f"spec.services.{name}.dependsOn[{at}].name", "must be another service of this deployment")


def discovery_faults(spec: Spec, older: Spec | None) -> Iterator[Fault]:
    """The faults of a DPUDiscovery."""
    given = spec["ipRangeSpec"]["ipRange"]
    try:
        first, last = (ipaddress.ip_address(given[end]) for end in ("startIP", "endIP"))
    except ValueError as error:
        yield Fault("spec.ipRangeSpec.ipRange", f"must have two addresses: {error}")
        return
    if first.version != last.version:
        yield Fault("spec.ipRangeSpec.ipRange.endIP", f"must be an IPv{first.version} address, as startIP is")
    elif int(first) > int(last):
        yield Fault("spec.ipRangeSpec.ipRange.endIP", f"must not be below startIP, which is {first}")


def amount_of(quantity: float | str) -> Decimal:
    """The amount of a quantity of Kubernetes, such as 2.5, 500m or 4Gi."""
    match = _QUANTITY.fullmatch(str(quantity))
    assert match is not None, "the schema has checked the form"
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return number * Decimal(10) ** max(-_EXPONENT_MAX, min(Decimal(suffix[1:]), _EXPONENT_MAX))
    return number * (_BINARY.get(suffix) or _DECIMAL.get(suffix) or 1)


def _strategy_faults(strategy: Spec, path: str) -> Iterator[Fault]:
    """A rollout with nothing unavailable would never make progress."""
    maximum = strategy.get("rollingUpdate", {}).get("maxUnavailable")
    if strategy.get("type") != "RollingUpdate" or maximum is None:
        return
    at = f"{path}.rollingUpdate.maxUnavailable"
    if not isinstance(maximum, str):
        if maximum <= 0:
            yield Fault(at, f"must be above 0, but is {maximum}")
    elif (percent := _PERCENT.fullmatch(maximum)) is None or not 0 < int(percent[1]) <= 100:
        yield Fault(at, f"must be a number, or a percentage from 1% to 100%, not {maximum!r}")
