"""The result of the device demo: what the log says, what the switches do with packets, and what the BMCs did."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.demo.devices.manifests import CHAIN, FIRST_IMAGE, SECOND_IMAGE
from deploy.demo.devices.switches import PACKETS


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """The result. Counts of switches are numbers of bridges."""

    nodes: int
    zones: int
    dpus: int
    rules: int
    """Rules of each DPU: prefixes of nodes."""
    installs: int
    """Installations in the log."""
    updates: int
    """Installations that BMCs were asked for, by Redfish."""
    image_bytes: int
    """Bytes of images and configurations that BMCs fetched."""
    install_seconds: float
    os_versions: Mapping[str, int]
    """The operating systems that BMCs report, with the numbers of their DPUs."""
    certified: int
    """DPUs whose BMCs have a certificate of the plane."""
    chained: int
    reflashed: str
    equal: int
    """Bridges whose rules equal those of a new fold of the log."""
    differences: tuple[str, ...]
    passed_node: int
    passed_gone: int
    passed_stranger: int
    arrived: Mapping[str, int]
    """Packets that arrived through a bridge, by source: of a node, of the node that left, of a stranger."""
    log_records: int
    log_bytes: int
    digests_match: bool

    @property
    def is_good(self) -> bool:
        passed = (self.passed_node, self.passed_gone, self.passed_stranger) == (self.dpus, 0, 0)
        wired = not self.arrived or [*self.arrived.values()] == [PACKETS, 0, 0]
        whole = self.equal == self.chained == self.certified == self.dpus and not self.differences
        return passed and wired and whole and self.installs == self.updates == self.dpus + 1 and self.digests_match

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_text(self) -> str:
        rows = [*self._rows()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}   {value}".rstrip() for name, value in rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "devices", f"{self.dpus:,} DPUs: a bridge of one Open vSwitch and a BMC with Redfish over HTTPS for each"
        yield "nodes", f"{self.nodes:,} in {self.zones:,} zones; every DPU has a rule for each of them"
        yield "installed", f"{self.dpus:,} DPUs with {FIRST_IMAGE} in {self.install_seconds:.1f} s"
        fetched = f"{self.updates:,} updates asked for, {self.image_bytes / 1e6:,.1f} MB fetched over HTTPS"
        yield "  by their BMCs", f"{fetched}; {self.certified:,} have a certificate of the plane"
        yield "  they report", ", ".join(f"{name}: {count:,}" for name, count in self.os_versions.items())
        yield "chain", f"{CHAIN}: router and firewall are connected in {self.chained:,} bridges"
        yield "installed anew", f"{self.reflashed} with {SECOND_IMAGE}; its bridge was emptied, and has all again"
        yield "a packet of a node", f"passes from the router to the firewall in {self.passed_node:,} bridges"
        yield "of a node that left", f"passes in {self.passed_gone:,}"
        yield "of a stranger", f"passes in {self.passed_stranger:,}"
        yield "packets sent", self._sent()
        yield "bridges equal to the log", f"{self.equal:,} of {self.dpus:,}, each with {self.rules:,} prefixes"
        for each in self.differences:
            yield "  differs", each
        yield "log", f"{self.log_records:,} records, {self.log_bytes / 1e6:,.1f} MB"
        yield "folded afresh, same state", "yes" if self.digests_match else "no"

    def _sent(self) -> str:
        if not self.arrived:
            return "none: network namespaces need root"
        node, gone, stranger = self.arrived.values()
        counts = f"{node} of {PACKETS} from a node, {gone} from the node that left, {stranger} from a stranger"
        return f"{counts} arrived through a bridge"
