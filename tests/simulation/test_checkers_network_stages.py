"""The checkers of staged changes of networks find documents outside of their stages, and changes that do not go on."""

from __future__ import annotations

from projections.resources.network_documents.derive import NetworkDocuments, node_of
from projections.resources.network_documents.staged import source_documents
from projections.resources.network_documents.stated import in_clusters, stated_networks
from projections.resources.network_documents.stated_text import decoded_networks, encoded_networks
from projections.resources.network_stages.rows import StagedNetworks
from projections.resources.state import LOCAL, ResourcesState
from projections.staging.course import PATIENCE_MS
from schemas import events as e
from tests.simulation.checkers import network_stages
from tests.simulation.checkers.staging import IDLE_S
from tests.simulation.test_checkers_networks import Network
from tests.simulation.test_checkers_wanted import KEY, NAME, RESOURCES_0
from tests.support.derivations import full
from tests.support.written_run import ZONES_0


class StagedNetwork:
    """The log of a DPU whose interface goes from port p0 to port p1 in two stages. The first one has the DPU."""

    def __init__(self) -> None:
        self.network = network = Network()
        self.run = network.run
        node = node_of(self.state, full(self.state), KEY)
        assert node is not None
        self.node = node
        self.stage()
        network.interface("p1")
        self.change = 1 + self.stage()
        self.run.write(RESOURCES_0, e.StageDpusNamed(self.run.stated(LOCAL), self.change, 1, 2, ["z"], [NAME]))

    @property
    def state(self) -> ResourcesState:
        state: ResourcesState = self.run.evidence().folded[RESOURCES_0].state
        return state

    @property
    def row(self) -> StagedNetworks:
        return self.state.staged_networks.rows[LOCAL]

    def stage(self) -> int:
        """A driver states the present networks; the offset."""
        text = encoded_networks(stated_networks(self.state, full(self.state), LOCAL))
        end, stages = len(self.run.records[RESOURCES_0]), ["1", "100%"]
        return self.run.write(RESOURCES_0, e.NetworksStaged(self.run.stated(LOCAL), LOCAL, end, text, stages, 0, "0"))

    def observe(self, stage: int, named: int = 0) -> None:
        """A driver saw that no DPU waits."""
        said = self.run.stated(LOCAL)
        self.run.write(RESOURCES_0, e.StageObserved(said, self.change, stage, 2, named, 0, [], []))

    def request(self, verb: str) -> None:
        self.run.write(RESOURCES_0, e.StagesRequested(self.run.said(LOCAL), LOCAL, verb))

    def want(self, networks: str) -> None:
        """The zone is told of the document of these networks."""
        mark, end = self.run.evidence().zone_states[0].networks_before(0), len(self.run.records[RESOURCES_0])
        found = decoded_networks(networks)
        assert found is not None
        text = NetworkDocuments(in_clusters(found, lambda _: (self.node[0],))).of_node(*self.node).text
        self.run.write(ZONES_0, e.NetworksWanted(self.run.stated(), 0, mark, end, [KEY], [NAME], [0], [text]))

    def found(self) -> list[str]:
        run = self.run.evidence()
        return [*network_stages.check_documents(run), *network_stages.check_order(run)]


def test_a_change_in_order_has_no_fault() -> None:
    staged = StagedNetwork()
    assert source_documents(staged.state, full(staged.state), LOCAL).row is not None
    staged.observe(0, named=1)
    staged.want(staged.row.after)
    staged.observe(1)
    staged.observe(2)
    assert staged.row.result == "complete"
    assert not staged.found()


def test_a_document_before_the_release_of_its_stage_is_a_fault() -> None:
    staged = StagedNetwork()
    staged.want(staged.row.after)
    (fault,) = staged.found()
    assert fault.startswith(f"{NAME} gets the document of a change at ") and fault.endswith("outside of its stage")


def test_the_document_of_a_change_after_its_undo_is_a_fault() -> None:
    staged = StagedNetwork()
    staged.observe(0, named=1)
    staged.request("undo")
    staged.want(staged.row.after)
    (fault,) = staged.found()
    assert fault.endswith("outside of its stage")


def test_the_document_before_a_change_after_its_last_stage_is_a_fault() -> None:
    staged = StagedNetwork()
    staged.observe(0, named=1)
    staged.want(staged.row.after)
    staged.observe(1)
    staged.want(staged.row.before)
    (fault,) = staged.found()
    assert fault.endswith("after its last stage")


def test_a_change_that_nothing_holds_up_goes_on() -> None:
    staged = StagedNetwork()
    staged.run.now_s += PATIENCE_MS / 1_000
    assert not [*network_stages.check_ended(staged.run.evidence())]
    staged.run.now_s += IDLE_S + PATIENCE_MS / 1_000
    staged.network.interface("p2")
    (fault,) = network_stages.check_ended(staged.run.evidence())
    assert fault.startswith(f"the change of the networks of {LOCAL} stays in stage 0 since ")
    staged.request("pause")
    assert not [*network_stages.check_ended(staged.run.evidence())]
