"""The checkers of network documents find old, unknown and missing documents, and chains that are shown wrongly."""

from __future__ import annotations

from typing import Any

import msgspec

from projections.resources import kinds
from projections.resources.state import LOCAL, ObjectId
from projections.zones.rows import DpuNetwork
from schemas import events as e
from tests.simulation.checkers import network_documents
from tests.simulation.history import FinalNetwork, NetworkInstalled
from tests.simulation.test_checkers_wanted import KEY, NAME, RESOURCES_0, Fleet
from tests.support.written_run import ZONES_0

CHECKS = (
    network_documents.check_versions,
    network_documents.check_documents,
    network_documents.check_applied,
    network_documents.check_shown,
)


class Network:
    """The log of a DPU in a DPU cluster with an interface, whose document its zone knows, and its agent has applied."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.run = self.fleet.run
        self.fleet.apply(kinds.DPU_CLUSTER, "c", {"type": "static", "maxNodes": 9})
        self.observe(kinds.DPU_CLUSTER, "c", {"ready": True, "phase": "Ready"})
        self._allocate()
        self.interface("p0")
        self.want()
        self.report()
        self.show(ready=True, phase="", message="", applied=1, selected=1)
        self.install(self.row.version)
        self.hold(self.row.version, self.row.digest)

    @property
    def row(self) -> DpuNetwork:
        return self.run.evidence().zone_states[0].networks.rows[NAME]

    def interface(self, port: str) -> None:
        spec = {"interfaceType": "physical", "physical": {"interfaceName": port}}
        template = {"metadata": {"labels": {"port": port}}, "spec": spec}
        self.fleet.apply(kinds.DPU_SERVICE_INTERFACE, "if", {"template": {"spec": {"template": template}}})

    def observe(self, kind: str, name: str, fields: dict[str, Any]) -> None:
        text = msgspec.json.encode(fields).decode()
        self.run.write(RESOURCES_0, e.ResourcesObserved(self.run.said(), LOCAL, [kind], ["dpf"], [name], [], [text]))

    def want(self) -> None:
        """State the document that the objects want."""
        (standings,) = network_documents.standings(self.run.evidence()).values()
        mark, end = self.run.evidence().zone_states[0].networks_before(0), len(self.run.records[RESOURCES_0])
        text = standings[KEY].document.text
        self.run.write(ZONES_0, e.NetworksWanted(self.run.stated(), 0, mark, end, [KEY], [NAME], [0], [text]))

    def report(self, applied: int | None = None, unresolved: str = "") -> None:
        version = self.row.version
        columns = ([version], [version if applied is None else applied], [b"\1"], [unresolved], [""])
        self.run.write(ZONES_0, e.NetworksReported(self.run.stated(), "z", "relay", *columns))

    def show(self, **fields: Any) -> None:
        self.observe(kinds.DPU_SERVICE_INTERFACE, "if", fields)

    def install(self, version: int, **fields: Any) -> None:
        at: dict[str, Any] = {"at_s": self.run.now_s, "zone": "z", "device": NAME, "boot": 1, "epoch": 1}
        at |= {"version": version, "digest": bytes.fromhex(self.row.digest)}
        self.run.history.add(NetworkInstalled(**(at | fields)))

    def hold(self, version: int, digest: str) -> None:
        self.run.history.add(FinalNetwork("z", NAME, version, bytes.fromhex(digest)))

    def found(self, check: Any) -> list[str]:
        return [*check(self.run.evidence())]

    def _allocate(self) -> None:
        position = len(self.run.records[RESOURCES_0])
        self.run.write(RESOURCES_0, e.DpusAllocated(self.run.stated(), LOCAL, position, ["dpf"], [NAME], ["dpf/c"]))


def test_a_network_at_rest_has_no_fault() -> None:
    network = Network()
    assert network.row.is_applied
    for check in CHECKS:
        assert not network.found(check)


def test_an_older_document_is_a_fault_unless_the_dpu_was_installed_anew() -> None:
    network = Network()
    version = network.row.version
    network.install(version - 1, boot=2)
    assert not network.found(network_documents.check_versions)
    network.install(version - 1, at_s=9.0)
    fault = f"{NAME} went back from document {version} to {version - 1} at 9.000 s"
    assert network.found(network_documents.check_versions) == [fault]


def test_a_document_that_was_never_wanted_or_not_yet_is_a_fault() -> None:
    network = Network()
    version = network.row.version
    network.install(version, at_s=0.5)
    network.install(version, digest=b"other")
    network.install(version - 1)
    assert network.found(network_documents.check_documents) == [
        f"{NAME} had document {version} at 0.500 s, before it was in the log",
        f"{NAME} had document {version} of z, which was never wanted there",
        f"{NAME} had document {version - 1} of z, which was never wanted there",
    ]


def test_a_zone_that_lacks_the_wanted_document_is_a_fault() -> None:
    network = Network()
    network.interface("p1")
    (fault,) = network.found(network_documents.check_applied)
    assert fault.startswith(f"{NAME} is known in z with ")


def test_a_device_with_another_document_or_an_unknown_one_is_a_fault() -> None:
    network = Network()
    row = network.row
    network.report(applied=0)
    (fault,) = network.found(network_documents.check_applied)
    assert fault.startswith(f"{NAME} has document {row.version}, and its zone knows ")
    network.report()
    assert not network.found(network_documents.check_applied)
    network.hold(row.version, "00" * 16)
    (fault,) = network.found(network_documents.check_applied)
    assert (
        fault
        == f"{NAME} has document {row.version}, digest 00000000, and {row.version}, {row.digest[:8]} is wanted in z"
    )


def test_an_interface_that_is_shown_as_ready_and_waits_is_a_fault() -> None:
    network = Network()
    network.report(unresolved="dpf/if")
    (fault,) = network.found(network_documents.check_shown)
    assert fault.startswith(f"{ObjectId(LOCAL, kinds.DPU_SERVICE_INTERFACE, 'dpf', 'if').key} is shown as ")
