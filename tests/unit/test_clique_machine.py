"""The clique fold compared with an independent model, at every position of random logs.

The model has one dict per clique and the simplest code: no bitmap, no derived index, no change sets. Cliques are small,
with few nodes and few incarnations, so that all combinations of rules occur.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from projections.cliques.state import DEFAULT_CAPACITY
from projections.cliques.views import CliqueView, show
from schemas.events import IndicesReleased
from tests.support.cliques import DeliveredCliques, reloaded, rows_of
from tests.support.delivered_machine import DELIVERIES, DeliveredMachine
from tests.support.sometimes import Sometimes, sized

NODES = st.sampled_from([f"n{number}" for number in range(6)])
CLIQUES = st.sampled_from(["c1", "c1", "c1", "c2"])
AGES = st.sampled_from([1, 2, 2, 3, 3])
REQUESTED_INDICES = st.sampled_from([-1] * 9 + [0, 2, 4])


class Model:
    """One domain: the indices, waiting nodes and capacity of each clique, and the pod and last index of each node."""

    def __init__(self) -> None:
        self.capacity = {"c1": 18, "c2": 18}
        self.held: dict[str, dict[str, int]] = {"c1": {}, "c2": {}}
        self.waiting: dict[str, list[str]] = {"c1": [], "c2": []}
        self.last: dict[tuple[str, str], int] = {}
        self.newest: dict[tuple[str, str], tuple[int, str]] = {}

    def place(self, node: str) -> str | None:
        return next((c for c in self.held if node in self.held[c] or node in self.waiting[c]), None)

    def free(self, clique: str) -> list[int]:
        return sorted(set(range(self.capacity[clique])) - set(self.held[clique].values()))

    def claim(self, clique: str, node: str, pod: tuple[int, str], requested_index: int) -> tuple[str, int, int]:
        """Decide a claim: its code, its index or -1, and its queue position or 0."""
        here = self.place(node)
        known = [self.newest[where, node] for where in {clique, here or clique} if (where, node) in self.newest]
        if any(pod[1] != other[1] and pod[0] < other[0] for other in known):
            return "refused", -1, 0
        is_same = here is not None and self.newest[here, node][1] == pod[1]
        if is_same and here != clique:
            return "refused", -1, 0
        held = self.held[clique].get(node, -1)
        if requested_index not in (-1, held) and (is_same or requested_index not in self.free(clique)):
            return "refused", -1, 0
        if here is not None and not is_same:
            if here != clique:
                self.leave(here, node)
            elif held < 0:
                self.waiting[clique].remove(node)
        self.newest[clique, node] = self.newest[clique, node] if is_same else pod
        if held < 0 or requested_index not in (-1, held):
            held = self.choose(clique, node, requested_index)
        if held < 0:
            if node not in self.waiting[clique]:
                self.waiting[clique].append(node)
            return "waiting", -1, self.waiting[clique].index(node) + 1
        self.held[clique][node] = self.last[clique, node] = held
        return "done", held, 0

    def choose(self, clique: str, node: str, requested_index: int = -1) -> int:
        free = self.free(clique)
        last = self.last.get((clique, node), -1)
        return requested_index if requested_index >= 0 else last if last in free else free[0] if free else -1

    def leave(self, clique: str, node: str) -> None:
        self.held[clique].pop(node, None)
        if node in self.waiting[clique]:
            self.waiting[clique].remove(node)
        self.serve(clique)

    def serve(self, clique: str) -> None:
        while self.waiting[clique] and self.free(clique):
            node = self.waiting[clique].pop(0)
            index = self.choose(clique, node)
            self.held[clique][node] = self.last[clique, node] = index


SOMETIMES = Sometimes(
    "an index was assigned",
    "a clique was full, and a node waited",
    "a waiting node got an index",
    "a refusal",
    "a newer incarnation took over",
    *DELIVERIES,
)


class CliqueMachine(DeliveredMachine):
    log: DeliveredCliques
    sometimes = SOMETIMES

    def __init__(self) -> None:
        super().__init__()
        self.log = DeliveredCliques()
        self.model = Model()
        self.ran: dict[tuple[str, str], tuple[str, int]] = {}
        self.log.clique = "c1"
        for clique in ("c1", "c2"):
            self.resize(clique, 2)

    @rule(clique=CLIQUES, node=NODES, age=AGES, requested_index=REQUESTED_INDICES)
    def claim(self, clique: str, node: str, age: int, requested_index: int) -> None:
        before = self.model.newest.get((clique, node))
        outcome = self.log.claim(node, f"u{age}", clique=clique, created_ms=age, requested_index=requested_index)
        assert (
            outcome.code,
            outcome.result.get("index", -1),
            outcome.result.get("queue_position", 0),
        ) == self.model.claim(clique, node, (age, f"u{age}"), requested_index)
        assert bool(outcome.reason) == (outcome.code != "done")
        SOMETIMES.saw("an index was assigned", outcome.code == "done")
        SOMETIMES.saw("a clique was full, and a node waited", outcome.code == "waiting")
        SOMETIMES.saw("a refusal", outcome.code == "refused")
        SOMETIMES.saw(
            "a newer incarnation took over", outcome.code == "done" and before is not None and before[0] < age
        )

    @rule(
        clique=CLIQUES,
        nodes=st.lists(NODES, min_size=2, max_size=4, unique=True),
        age=AGES,
        requested_index=REQUESTED_INDICES,
    )
    def claim_together(self, clique: str, nodes: list[str], age: int, requested_index: int) -> None:
        """One record with several claims. The model decides them one by one; the first claim requests an index."""
        wanted = [requested_index] + [-1] * (len(nodes) - 1)
        claims = [(node, f"u{age}", "", age, index) for node, index in zip(nodes, wanted, strict=True)]
        outcome = self.log.claim_all(*claims, clique=clique)
        items = {item.name: item for item in outcome.items}
        for node, index in zip(nodes, wanted, strict=True):
            item = items[node]
            told = item.code, item.result.get("index", -1), item.result.get("queue_position", 0)
            assert told == self.model.claim(clique, node, (age, f"u{age}"), index)

    @rule(nodes=st.permutations([f"n{number}" for number in range(6)]), age=AGES)
    def burst(self, nodes: list[str], age: int) -> None:
        for node in nodes:
            self.claim("c1", node, age, -1)

    @rule(nodes=st.permutations([f"n{number}" for number in range(6)]), count=st.integers(2, 6))
    def storm(self, nodes: list[str], count: int) -> None:
        """Some nodes leave, and return in another order."""
        for node in nodes[:count]:
            self.release("c1", node, 0)
            self.no_index_changes_under_a_running_pod()
        for node in sorted(nodes[:count]):
            self.claim("c1", node, 3, -1)

    @rule(clique=CLIQUES, node=NODES, age=st.sampled_from([0, 0, 0, 2, 3]))
    def release(self, clique: str, node: str, age: int) -> None:
        before = rows_of(self.log.state)
        outcome = self.log.release(node, f"u{age}" if age else "", clique=clique)
        assert (outcome.code == "done") == (rows_of(self.log.state) != before)
        if self.model.place(node) == clique and age in (0, self.model.newest[clique, node][0]):
            waited = len(self.model.waiting[clique]) - (node in self.model.waiting[clique])
            self.model.leave(clique, node)
            SOMETIMES.saw("a waiting node got an index", waited - len(self.model.waiting[clique]))

    @rule(clique=CLIQUES, capacity=st.sampled_from([0, 2, 2, 3, 3, 4, 18]))
    def resize(self, clique: str, capacity: int) -> None:
        outcome = self.log.resize(capacity, clique)
        highest = max(self.model.held[clique].values(), default=-1)
        assert (outcome.code != "refused") == (capacity >= 1 and capacity > highest)
        if outcome.code != "refused":
            self.model.capacity[clique] = capacity
            self.model.serve(clique)

    @rule(node=NODES, ready=st.booleans())
    def ready(self, node: str, ready: bool) -> None:
        outcome = self.log.ready(node, ready)
        assert (outcome.code != "refused") == (node in self.model.held["c1"])

    @rule(node=NODES)
    def open_session(self, node: str) -> None:
        """A session changes the row of a node, but neither its index nor its place in the queue."""
        outcome = self.log.open_session(node, f"session-{self.log.now_ms}")
        assert (outcome.code != "refused") == (self.model.place(node) == "c1")

    def another(self) -> IndicesReleased:
        return IndicesReleased(self.log.events[-1][0].envelope, "d", "c1", ["n0"], [])

    @rule()
    def restart(self) -> None:
        """Check that rows alone yield the same state after a restart."""
        assert rows_of(reloaded(self.log.state)) == rows_of(self.log.state)

    def teardown(self) -> None:
        self.log.delivered.check_replicas()

    @invariant()
    def equals_the_model(self) -> None:
        for clique in ("c1", "c2"):
            view = self._view(clique)
            assert view.capacity == self.model.capacity[clique]
            assert {member.node: member.index for member in view.members} == self.model.held[clique]
            assert [waiter.node for waiter in view.waiting] == self.model.waiting[clique]

    @invariant()
    def no_index_changes_under_a_running_pod(self) -> None:
        ran = {}
        for clique in ("c1", "c2"):
            for member in self._view(clique).members:
                ran[clique, member.node] = (member.uid, member.index)
        for place, (uid, index) in ran.items():
            assert self.ran.get(place, ("", -1))[0] != uid or self.ran[place][1] == index
        self.ran = ran

    def _view(self, clique: str) -> CliqueView:
        """The fold's view of a clique, or an empty view if the fold has no clique of this id."""
        return show(self.log.state, "d", clique) or CliqueView("d", clique, DEFAULT_CAPACITY, (), ())


TestCliqueMachine = sized(CliqueMachine, 100, 50, SOMETIMES)
