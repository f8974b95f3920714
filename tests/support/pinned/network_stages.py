"""Staged changes of networks for the history of a resources partition: every event, and every refusal of its fold."""

from __future__ import annotations

from typing import Any

from projections.resources import kinds
from projections.resources.json_limits import NESTING_MAX
from projections.resources.network_documents.stated import StatedNetworks, StatedPool, Where
from projections.resources.network_documents.stated_text import encoded_networks
from projections.resources.network_stages.annotations import STAGES
from projections.resources.network_stages.rows import MAX_NETWORKS_BYTES
from projections.sizes import MAX_BAKE_MS
from schemas.events import NetworksStaged, StageDpusNamed, StageObserved, StagesRequested
from tests.support.resources import EAST, LOCAL, DeliveredResources

_HOUR_MS = 3_600_000


def networks(number: int) -> str:
    """The text of networks with one pool."""
    return encoded_networks(StatedNetworks(pools=(StatedPool(f"pool{number}", Where((), frozenset()), {}),)))


class NetworkLog:
    """Records about the networks of one source."""

    def __init__(self, log: DeliveredResources, source: str = LOCAL) -> None:
        self.log, self.source = log, source

    @property
    def _row(self) -> Any:
        return self.log.state.staged_networks.rows[self.source]

    @property
    def version(self) -> int:
        version: int = self._row.version
        return version

    def stage(self, number: int, **columns: Any) -> None:
        given: dict[str, Any] = {"source": self.source, "to_offset": self.log.delivered.folded.position}
        given |= {"networks": networks(number), "stages": ["1", "50%", "100%"], "bake_ms": 0, "failure_budget": "0"}
        self.log.append(NetworksStaged(self.log.envelope(), **(given | columns)))

    def name(self, *dpus: str, **columns: Any) -> None:
        given: dict[str, Any] = {"change": self._row.version, "stage": self._row.stage + 1, "total": 4}
        given |= {"zones": ["z1"] * len(dpus), "dpus": [*dpus]}
        self.log.append(StageDpusNamed(self.log.envelope(), **(given | columns)))

    def observe(self, named: int = 0, waiting: int = 0, **failed: str) -> None:
        dpus, reasons = [f"z1/{dpu}" for dpu in failed], [*failed.values()]
        row = self._row
        said = self.log.envelope()
        self.log.append(StageObserved(said, row.version, row.stage, 4, named, waiting, dpus, reasons))

    def request(self, verb: str, name: str = "") -> None:
        self.log.append(StagesRequested(self.log.envelope(), name or self.source, verb))


def add_network_stages(log: DeliveredResources) -> None:
    local, east = NetworkLog(log), NetworkLog(log, EAST)
    _malformed(local)
    local.request("pause")
    local.stage(1, stages=[])
    log.apply(kinds.DPF_OPERATOR_CONFIG, "config", "{}", annotations=[{STAGES: "1"}])
    local.stage(1, to_offset=1)
    local.stage(1, to_offset=log.delivered.folded.position + 9)
    local.stage(1)
    local.stage(1)
    _course(local)
    local.stage(3, to_offset=local.version - 1)
    log.apply(kinds.DPU_SERVICE_IPAM, "pool", '{"a":1}')
    local.stage(3, to_offset=log.delivered.folded.position - 1)
    _undone(local)
    east.stage(1)
    east.stage(2)
    east.stage(3, stages=[])
    east.request("undo")
    east.stage(3, stages=[])
    local.stage(1, stages=[])


def _malformed(networks_of: NetworkLog) -> None:
    text = " " * MAX_NETWORKS_BYTES
    wrong: tuple[dict[str, Any], ...] = (
        {"source": "a b"},
        {"stages": ["100%"]},
        {"bake_ms": MAX_BAKE_MS + 1},
        {"networks": f"[{text}]"},
        {"networks": "{"},
        {"networks": "[" * (NESTING_MAX + 1)},
        {"networks": "{}"},
    )
    for columns in wrong:
        networks_of.stage(1, **columns)


def _course(local: NetworkLog) -> None:
    """A change that is named, released stage by stage, held, resumed, and ends."""
    local.stage(2)
    local.stage(3)
    local.name("d1", "d2")
    local.name("d1", stage=2)
    local.name("d1", change=1)
    local.name("d1")
    local.name("d1")
    local.observe()
    local.observe(named=1)
    local.observe(named=0, waiting=1)
    local.request("pause")
    local.request("pause")
    local.request("pause", name="a b")
    local.request("stop")
    local.request("resume")
    local.request("resume")
    local.name("d2")
    local.observe(named=1, d1="refused")
    local.observe(named=1)
    local.request("resume")
    local.observe(named=1)
    local.observe()
    local.observe()
    local.observe()


def _undone(local: NetworkLog) -> None:
    """Changes that are rolled back before and after their first stage, and stated again."""
    local.stage(3)
    local.request("undo")
    local.stage(3)
    local.stage(2)
    local.stage(3)
    local.name("d1")
    local.observe(named=1)
    local.request("undo")
    local.request("undo")
    local.observe(waiting=1)
    local.observe()
    local.stage(4)
    local.name("d1")
    local.observe(named=1)
