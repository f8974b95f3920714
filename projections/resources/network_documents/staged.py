"""The documents of one source while its networks may be changing in stages.

A DPU has the document of the networks that its stage should have. Without a staged change this is that of the present
networks, which follow from the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from projections.label_selectors import LabelSelector
from projections.resources.clusters import clusters_with
from projections.resources.derivation import Derivation
from projections.resources.network_documents.derive import NetworkDocuments
from projections.resources.network_documents.document import NetworkDocument
from projections.resources.network_documents.stated import (
    StatedChain,
    StatedInterface,
    StatedNetworks,
    in_clusters,
    stated_networks,
)
from projections.resources.network_documents.stated_text import decoded_networks, encoded_networks
from projections.resources.network_stages.annotations import stages_of
from projections.resources.network_stages.rows import MAX_NETWORKS_BYTES, StagedNetworks
from projections.resources.state import ResourcesState
from projections.staging.course import COMPLETE, UNDONE, stage_text, stop_reason
from projections.staging.plan import ALL, StagePlan

_Key: TypeAlias = tuple[str, tuple[frozenset[str], ...]]
_ANY_STAGES = StagePlan(("1", ALL), 0, "0")
"""Stages of a first row, which changes nothing; each change has its own."""
_Stated: TypeAlias = Sequence[StatedInterface | StatedChain]

UNREADABLE = NetworkDocument("", "", faults={"": ("the networks before or after the staged change cannot be read",)})
"""The document of networks that a later build encoded: DPUs keep the one that they have."""


class StagedDocument(NamedTuple):
    """The document that a DPU should have. `present` is that of the present networks, and `unreleased` says of each
    object of either whose present state the DPU gets only later what it waits for."""

    document: NetworkDocument
    present: NetworkDocument
    unreleased: Mapping[str, str] = {}


class NextChange(NamedTuple):
    """A change that is to begin: the text of the networks, and the stages. Without stages networks change at once
    again, and the text is an empty list."""

    text: str
    stages: StagePlan | None


class SourceDocuments:
    """The documents of one source. `stages` are those that the source states, or their fault. `clusters_of` gives the
    DPU clusters of a selector. `earlier` are the documents of another state of the source, which may be the same.
    """

    def __init__(
        self,
        networks: StatedNetworks,
        row: StagedNetworks | None = None,
        stages: StagePlan | str | None = None,
        clusters_of: Callable[[LabelSelector], Iterable[str]] = lambda _: (),
        earlier: SourceDocuments | None = None,
    ) -> None:
        self.networks, self.row, self.stages = networks, row, stages
        self.text = encoded_networks(networks)
        self._known: dict[_Key, NetworkDocuments] = {}
        earlier_known = earlier._known if earlier is not None else {}
        self._present = self._documents(networks, earlier_known)
        self._by_text: dict[str, NetworkDocuments | None] = {}
        for text in (row.before, row.after) if row is not None else ():
            found = decoded_networks(text)
            moved = in_clusters(found, clusters_of) if found is not None else None
            self._by_text[text] = self._documents(moved, earlier_known) if moved is not None else None
        self._too_large = _fault_of_size(self.text)
        self._unreleased: dict[str, dict[str, str]] = {}

    def _documents(self, networks: StatedNetworks, known: Mapping[_Key, NetworkDocuments]) -> NetworkDocuments:
        key = _key(networks)
        self._known[key] = known.get(key) or NetworkDocuments(networks)
        return self._known[key]

    def is_same(self, other: SourceDocuments) -> bool:
        """Whether two states of a source give the same documents."""
        mine, theirs = ((each.row, each.stages, each.networks.faults, [*each._known]) for each in (self, other))
        return mine == theirs

    def of_node(self, stage: int, cluster: str, labels: Mapping[str, str]) -> StagedDocument:
        """The document of a DPU whose node in this DPU cluster has these labels: `stage` is its released stage."""
        present = self._present.of_node(cluster, labels)
        if self.row is None:
            return StagedDocument(present, present)
        text = self.row.of_stage(stage)
        document = self._of_text(text, cluster, labels)
        if document.digest == present.digest:
            return StagedDocument(document, present)
        if text not in self._unreleased:
            self._unreleased[text] = self._unreleased_in(text)
        of_parts = {
            key: why for key, why in self._unreleased[text].items() if key in present.parts or key in document.parts
        }
        return StagedDocument(document, present, of_parts)

    def of_change(self, cluster: str, labels: Mapping[str, str]) -> tuple[NetworkDocument, NetworkDocument]:
        """The documents of a DPU before and after the staged change."""
        assert self.row is not None, "a staged change is under way"
        return self._of_text(self.row.before, cluster, labels), self._of_text(self.row.after, cluster, labels)

    def _of_text(self, text: str, cluster: str, labels: Mapping[str, str]) -> NetworkDocument:
        documents = self._by_text[text]
        return documents.of_node(cluster, labels) if documents is not None else UNREADABLE

    @property
    def is_readable(self) -> bool:
        """Whether this build can read the networks before and after the change."""
        return None not in self._by_text.values()

    def next_change(self) -> NextChange | None:
        """The change that is to begin; None if none is."""
        row = self.row
        if row is not None and not row.result:
            return None
        if self.stages is None:  # whatever size the networks have
            return NextChange("[]", None) if row is not None else None
        if self._too_large:
            return None
        if row is None:  # with wrong stages, too: no change may pass them by
            return NextChange(self.text, self.stages if isinstance(self.stages, StagePlan) else _ANY_STAGES)
        if isinstance(self.stages, str):
            return None
        is_unknown = self.text not in (row.before, row.after)
        is_taken_back = row.result == UNDONE and self.text == row.before
        is_earlier = row.result == COMPLETE and self.text == row.before != row.after
        return NextChange(self.text, self.stages) if is_unknown or is_taken_back or is_earlier else None

    def _unreleased_in(self, text: str) -> dict[str, str]:
        """The objects whose present state is not in networks with this text, each with the release that it waits
        for."""
        documents, why = self._by_text[text], self._why_unreleased()
        other = documents.networks if documents is not None else StatedNetworks()
        pairs: tuple[tuple[_Stated, _Stated], ...] = (
            (self.networks.interfaces, other.interfaces),
            (self.networks.chains, other.chains),
        )
        found: dict[str, str] = {}
        for mine, theirs in pairs:
            known = {each.key: each for each in theirs}
            found |= {each.key: why for each in mine if known.get(each.key) != each}
        return found

    def _why_unreleased(self) -> str:
        row = self.row
        assert row is not None, "without a staged change every DPU has the present networks"
        if not self.is_readable:
            return "waits for a later version of the plane, which stated the networks"
        if row.undone_by and self.text == row.after:
            return f"its change was rolled back by {row.undone_by}"
        if not row.result:
            stage = f"the staged change of the networks ({stage_text(row)})"
            waits = f"its stage of {stage}" if self.text == row.after else f"the end of {stage}"
            return f"waits for {waits}" + (f": {stopped}" if (stopped := stop_reason(row)) else "")
        if fault := self.stages if isinstance(self.stages, str) else self._too_large:
            return f"its change cannot begin: {fault}"
        return "its staged change has not begun yet"


def source_documents(
    state: ResourcesState, derivation: Derivation, source: str, earlier: SourceDocuments | None = None
) -> SourceDocuments:
    """The documents of a source; `earlier` are returned if they are those."""
    networks, stages = stated_networks(state, derivation, source), stages_of(state, source)
    row = state.staged_networks.rows.get(source)
    found = SourceDocuments(networks, row, stages, partial(clusters_with, state, source), earlier)
    return earlier if earlier is not None and earlier.is_same(found) else found


def _key(networks: StatedNetworks) -> _Key:
    """Networks by their text: values of JSON may be equal, as 1 and true are, and have different texts."""
    parts = (networks.interfaces, networks.chains, networks.pools)
    return encoded_networks(networks), tuple(each.where.clusters for part in parts for each in part)


def _fault_of_size(text: str) -> str:
    size = len(text.encode())
    return f"the networks have {size} bytes, more than {MAX_NETWORKS_BYTES}" if size > MAX_NETWORKS_BYTES else ""
