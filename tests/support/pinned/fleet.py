"""A history of fleet with every event and every refusal of its fold, and random events."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from eventstore.folding.fold import Outcome
from eventstore.log import Record
from projections.fleet.fold import FleetFold, FleetFold2
from schemas.events import (
    MAX_FORWARD_ITEMS,
    Event,
    HoldApproved,
    MembershipChanged,
    PolicySet,
    StageDpusNamed,
    StageObserved,
    WritesFrozen,
    WritesThawed,
)
from tests.support.delivered import Delivered
from tests.support.fleet import HERE, PARTITIONS, Fleet, Item, envelope, membership
from tests.support.toy_records import T0

MANY = 150
"""More than the 100 of denied-by-change, less than the 1,000 of denied-by-leave."""


class DeliveredFleet(Fleet):
    """A fleet that receives its records as from a real log."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = T0
        self.delivered = Delivered(HERE, FleetFold2(PARTITIONS), T0, [FleetFold(PARTITIONS)])
        self.state = self.delivered.folded.state

    def apply(self, event: Event) -> Outcome:
        self.now_ms += 1
        if not isinstance(event, MembershipChanged):
            event = replace(event, envelope=replace(event.envelope, command_id="id"))
        return self.delivered.issue(event, self.now_ms)[2]


def records() -> list[Record]:
    fleet, rng = DeliveredFleet(), Random(3)
    _malformed_members(fleet)
    _malformed_statements(fleet)
    _members(fleet)
    _member_holds(fleet)
    _edit_holds(fleet)
    _freezes(fleet)
    _commands(fleet)
    _some_of_all(fleet, rng)
    _agents(fleet)
    for _ in range(200):
        fleet.now_ms += rng.choice([0, 0, 1_000, 100_000])
        _some_members(fleet, rng, states=(0, 1, 2, *range(4, 11)))
    _malformed_stages(fleet)
    _stages(fleet)
    _held_stages(fleet)
    _some_stages(fleet, rng)
    return fleet.delivered.records


def _node(number: int) -> Item:
    side = "left" if number % 2 else "right"
    six = f"2001:db8::{number + 1:x}" if number % 3 == 0 else ""
    return Item(f"n{number}", "z0", f"10.0.{number // 250}.{number % 250 + 1}", six, {"side": side})


def _malformed_members(fleet: DeliveredFleet) -> None:
    good = membership(1, 0, 5, [Item("a", address="10.1.0.1"), Item("b", labels={"app": "web"})])
    many = [f"n{number}" for number in range(MAX_FORWARD_ITEMS + 1)]
    changed: list[dict[str, object]] = [
        {"cause_partition": PARTITIONS},
        {"cause_partition": -1},
        {"from_offset": 1},
        {"to_offset": 0},
        {"names": many},
        {"names": ["a", "a"]},
        {"zones": []},
        {"zones": ["no zone"]},
        {"states": [0, 11]},
        {"uids": ["u", "v", "w"]},
        {"addresses4": b"123"},
        {"addresses6": b"123"},
        {"label_index": []},
        {"label_index": [0, 2]},
        {"label_index": [-1, 0]},
        {"command_ids": ["a"]},
        {"command_ids": ["a"], "actors": ["x"], "cause_items": [9]},
    ]
    for changes in changed:
        fleet.apply(replace(good, **changes))
    fleet.apply(membership(2, 0, 3, []))
    fleet.apply(membership(2, 0, 3, []))
    fleet.apply(good)


def _malformed_statements(fleet: DeliveredFleet) -> None:
    good = PolicySet(envelope("ann"), "p", 1, "allow", "tcp", [1, 2], {"app": "web"}, {"tier": "1"})
    changed: list[dict[str, object]] = [
        {"action": "reject"},
        {"protocol": "sctp"},
        {"priority": 1_000_001},
        {"name": "no name"},
        {"ports": [2, 1]},
        {"ports": [1]},
        {"protocol": "icmp"},
        {"sources": {"-": "x"}},
        {"zones": {"k": "x\n"}},
        {"zones": {f"k{number}": "" for number in range(129)}},
    ]
    for changes in changed:
        fleet.apply(replace(good, **changes))
    fleet.delete_policy("p")
    for budget in (("whim", 1, 1), ("denied-by-leave", 1_001, 1), ("denied-by-leave", 1, -1)):
        fleet.budget(*budget)
    fleet.describe("no zone", {})
    fleet.describe("z0", {"": "x"})
    fleet.limit("z0", -2, 1)
    fleet.limit("z0", 1, 1_000_001)
    fleet.attempt_limits("z0", 1, 2)
    fleet.attempt_limits("z0", 1, 2, 101)
    fleet.attempt_limits("z0", 7, -1, 2)
    fleet.agents("z0", ["10.0.0.1/8"], [])
    fleet.agents("z0", ["10.0.0.0/8"] * 65, [])
    fleet.agents("z0", [], ["-"])
    fleet.agents("z0", [], ["k"] * 129)
    fleet.approve(999, "bob")
    fleet.reject(999)
    fleet.apply(WritesFrozen(envelope("ann"), "no zone"))
    for zone in ("z0", ""):
        fleet.apply(WritesThawed(envelope("ann"), zone))


def _members(fleet: DeliveredFleet) -> None:
    """Many nodes in columns: nodes change, move, share addresses and return."""
    fleet.limit("z0", 5, -1)
    fleet.budget("allowed-by-change", 1_000, 0)
    fleet.describe("z0", {"tier": "1"})
    fleet.change(*map(_node, range(2 * MANY)))
    fleet.change(*(Item(f"m{number}", "z1", f"10.2.0.{number + 1}") for number in range(3)))
    fleet.policy("web", priority=5, protocol="tcp", ports=(443, 443, 80, 90, 91, 99), sources={"app": "web"})
    fleet.policy("web", priority=5, protocol="tcp", ports=(443, 443, 80, 99), sources={"app": "web"})
    fleet.policy("ssh", priority=7, action="drop", protocol="tcp", ports=(22, 22), zones={"tier": "2"})
    fleet.change(Item("m0", "z1", "10.2.0.9", labels={"app": "web"}, created_ms=2))
    fleet.change(Item("m0", "z2", "10.2.0.9", labels={"app": "web"}, created_ms=3))
    fleet.change(Item("m0", "z1", "10.2.0.9", created_ms=1))
    fleet.change(Item("m1", "z1", "10.2.0.9", "2001:db8:1::1", {"app": "db"}))
    fleet.leave("m1", "m2")
    fleet.change(Item("m2", "z1", "10.2.0.3", created_ms=9), Item("m3", "z1", "10.2.0.4"))
    fleet.change(Item("nobody", "z1", state=1), Item("m3", "z1", state=3))
    fleet.change(*(Item(f"k{number}", "z3", f"10.3.0.{number + 1}", labels={"app": "web"}) for number in range(40)))


def _member_holds(fleet: DeliveredFleet) -> None:
    half = [f"n{number}" for number in range(MANY)]
    hold = fleet.leave(*half, state=2).result["hold"]
    fleet.change(*(_node(number)._replace(created_ms=5) for number in range(20)))
    fleet.approve(hold, "bob")
    fleet.approve(hold, "operator/bob")
    fleet.reject(hold)
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    fleet.now_ms += 300_000
    fleet.change(*(_node(number)._replace(created_ms=6) for number in range(MANY)))
    dropped = {"side": "none"}
    fleet.policy("none", priority=9, action="drop", sources=dropped)
    hold = fleet.change(*(_node(number)._replace(labels=dropped, created_ms=7) for number in range(250))).result["hold"]
    fleet.change(*(Item(f"x{number}", "z0", f"10.0.0.{number + 1}", labels=dropped) for number in range(200)))
    fleet.leave("n0", "n1", "n3")
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    fleet.now_ms += 700_000
    fleet.change(*(_node(number)._replace(created_ms=8) for number in range(2 * MANY)), partition=0)
    mark = fleet.state.marks[0]
    leaves = membership(0, mark, mark + 1, [_node(number)._replace(state=2) for number in range(MANY)])
    fleet.apply(replace(leaves, command_ids=["a", "b"], actors=["ann", "bob"], cause_items=[9, MANY - 9]))


def _edit_holds(fleet: DeliveredFleet) -> None:
    fleet.change(*(_node(number)._replace(created_ms=20) for number in range(2 * MANY)))
    hold = fleet.policy("no", action="drop", sources={"side": "left"}).result["hold"]
    row = fleet.state.holds.rows[str(hold)]
    fleet.approve(hold, "ann")
    fleet.apply(HoldApproved(envelope("bob"), hold, b"\0" * 16))
    fleet.approve(hold, "bob")
    fleet.change(*(_node(number)._replace(labels={"side": "left"}, created_ms=30) for number in range(2 * MANY)))
    fleet.approve(hold, "cid")
    fleet.apply(HoldApproved(envelope("bob"), hold, row.hash))
    fleet.approve(hold, "bob")
    fleet.reject(hold)
    hold = fleet.policy("default", priority=-1_000, sources={"side": "right"}).result["hold"]
    hold = fleet.policy("default", priority=-1_000, sources={"side": "none"}).result["hold"]
    fleet.delete_policy("default")
    fleet.policy("ssh", priority=7, action="drop", protocol="tcp", ports=(22, 23), zones={"tier": "2"})
    hold = fleet.describe("z0", {"tier": "2"}).result["hold"]
    fleet.describe("z0", {"tier": "1"})
    hold = fleet.describe("z0", {"tier": "2"}).result["hold"]
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    fleet.delete_policy("web")
    fleet.budget("denied-by-change", 1_000, 10_000)
    fleet.describe("z0", {"tier": "3"})
    fleet.delete_policy("ssh", "bob")
    fleet.delete_policy("default")
    fleet.budget("denied-by-change", 10, 3)
    fleet.budget("denied-by-leave", 0, 4)


def _freezes(fleet: DeliveredFleet) -> None:
    for zone in ("z2", ""):
        fleet.apply(WritesFrozen(envelope("ann"), zone))
    for zone in ("z1", "z2", ""):
        fleet.apply(WritesThawed(envelope("ann"), zone))
    fleet.apply(WritesFrozen(envelope("ann"), "z5"))


def _commands(fleet: DeliveredFleet) -> None:
    """Commands for which fleet's decision differs from the zone's."""
    nodes = [Item(f"c{number}", "z1", f"10.6.0.{number + 1}") for number in range(12)]
    fleet.change(*nodes)
    fleet.leave(*(node.name for node in nodes[:6]))
    fleet.change(*(node._replace(created_ms=2) for node in nodes[:6]))
    hold = fleet.change(*(node._replace(state=1, created_ms=2) for node in nodes[:6]), command_id="approved").result[
        "hold"
    ]
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    hold = fleet.change(*(node._replace(state=1) for node in nodes[6:]), command_id="rejected").result["hold"]
    fleet.reject(hold)
    fleet.change(Item("d", "z2", "10.6.1.1", state=4, created_ms=2))
    fleet.change(Item("d", "z1", "10.6.1.1", state=4, created_ms=3), command_id="moved")


def _some_of_all(fleet: DeliveredFleet, rng: Random) -> None:
    for _ in range(500):
        fleet.now_ms += rng.choice([0, 0, 1_000, 100_000])
        choice = rng.random()
        holds = sorted(fleet.state.holds.rows)
        if choice < 0.7:
            _some_members(fleet, rng)
        elif choice < 0.8 and holds:
            if rng.random() < 0.8:
                fleet.approve(int(rng.choice(holds)), rng.choice(["ann", "bob", "cid"]))
            else:
                fleet.reject(int(rng.choice(holds)))
        elif choice < 0.9:
            sources = rng.choice([{}, {"app": "web"}, {"app": "db"}])
            zones = rng.choice([{}, {"tier": "1"}])
            name, action = rng.choice(["p", "q", "default"]), rng.choice(["allow", "drop"])
            if rng.random() < 0.7:
                fleet.policy(name, priority=rng.randrange(3), action=action, sources=sources, zones=zones)
            else:
                fleet.delete_policy(name)
        elif choice < 0.96:
            fleet.describe(f"z{rng.randrange(4)}", {"tier": rng.choice("12")})
        else:
            fleet.limit(f"z{rng.randrange(4)}", rng.randrange(-1, 3), rng.randrange(-1, 3))
            fleet.budget(
                rng.choice(["denied-by-leave", "denied-by-change", "allowed-by-change", "allowed-by-join"]),
                rng.randrange(300),
                rng.randrange(6),
            )


def _agents(fleet: DeliveredFleet) -> None:
    """Addresses stated by agents while other nodes have them."""
    fleet.agents("z1", ["10.0.0.0/8"], ["role"])
    fleet.agents("z1", ["10.0.0.0/8"], ["role"])
    fleet.change(Item("o", "z1", "10.5.0.1", "2001:db8:5::1"), Item("o2", "z1", "10.5.0.2"))
    for name in "rq":
        fleet.change(Item(name, "z1", "10.5.0.1", "2001:db8:5::1", state=10))
    fleet.change(Item("q", "z1", "10.5.0.2", state=9, created_ms=2), Item("s", "z1", "10.5.0.9", state=5))
    fleet.change(Item("o", "z2", "10.5.0.7", state=4, created_ms=2))
    fleet.change(Item("o", "z1", "10.5.0.8", created_ms=3), Item("o2", "z1", state=1))


def _malformed_stages(fleet: DeliveredFleet) -> None:
    for stages in (("100%",), ("x", "100%"), ("0", "100%"), ("1", "10%"), ("20%", "10%", "100%"), ("k=x\n", "100%")):
        fleet.stage("s", stages)
    fleet.stage("s", bake_ms=-1)
    fleet.stage("s", failure_budget="many")
    fleet.stage("s", action="reject")
    fleet.stage("no name", is_deleted=True)
    fleet.stage("s", is_deleted=True)
    for verb, name in (("stop", "s"), ("pause", "s"), ("pause", "no name")):
        fleet.request_stages(verb, name)
    fleet.observe(0)
    good = StageObserved(envelope("driver/a"), 1, 0, 9, 0, 0, [], [])
    changed: list[dict[str, object]] = [
        {"failed": ["z0/d0"]},
        {"total": -1},
        {"failed": ["z0/d0"], "reasons": ["x\n"]},
        {"failed": ["d0"], "reasons": ["x"]},
    ]
    for changes in changed:
        fleet.apply(replace(good, **changes))
    named = StageDpusNamed(envelope("driver/a"), 1, 1, 9, ["z0"], ["d0"])
    faults: list[dict[str, object]] = [{"zones": []}, {"total": -1}, {"zones": ["no zone"]}, {}]
    for changes in faults:
        fleet.apply(replace(named, **changes))


def _stages(fleet: DeliveredFleet) -> None:
    """A change to its end, and one that is rolled back."""
    fleet.unlimited()
    fleet.describe("z0", {"tier": "1"})
    fleet.stage("s", ("1", "tier=1", "100%"), sources={"app": "web"})
    fleet.stage("other")
    fleet.policy("s", action="drop")
    fleet.delete_policy("s")
    fleet.describe("z1", {"tier": "2"})
    fleet.name_dpus(2, "z0/d1")
    fleet.name_dpus(1, "z0/d0")
    fleet.name_dpus(1, "z0/d0")
    fleet.name_dpus(1, "z0/d1")
    fleet.observe(0, named=9)
    fleet.observe(0, named=1)
    fleet.name_dpus(2, "z1/d1")
    fleet.name_dpus(2, "z0/d1", "z0/d2")
    _some_members(fleet, Random(5))
    fleet.request_stages("resume", "s")
    fleet.request_stages("pause", "s")
    fleet.request_stages("pause", "s")
    fleet.observe(1, named=2)
    fleet.request_stages("resume", "s")
    fleet.observe(1, failed={f"z0/d{number}": "no report" for number in range(5)})
    fleet.observe(1, named=2)
    fleet.request_stages("resume", "s")
    fleet.observe(1, named=2, failed={"z0/d0": "no report"})
    fleet.observe(2, failed={"z0/d9": "refused"})
    fleet.request_stages("resume", "s")
    fleet.observe(2)
    _some_members(fleet, Random(6))
    fleet.observe(3)
    fleet.observe(3)
    fleet.stage("s", is_deleted=True, bake_ms=1_000)
    fleet.request_stages("undo", "s")
    fleet.stage("s", is_deleted=True, bake_ms=1_000)
    fleet.name_dpus(1, "z0/d0")
    fleet.observe(0, named=1)
    fleet.observe(1)
    fleet.request_stages("undo", "s")
    fleet.request_stages("undo", "s")
    fleet.describe("z1", {"tier": "2"})
    fleet.observe(1, waiting=1)
    fleet.now_ms += 60_000
    fleet.observe(1, waiting=1)
    fleet.stage("t", priority=8)
    fleet.name_dpus(1, "z0/d0")
    fleet.observe(0, named=1)
    fleet.request_stages("undo", "t")
    fleet.stage("s", ("1", "100%"), is_deleted=True)
    fleet.observe(0)
    fleet.observe(1)
    fleet.observe(2)


def _held_stages(fleet: DeliveredFleet) -> None:
    """Changes that are over a budget when they begin, or when all DPUs get them."""
    web = [Item(f"y{number}", "z1", f"10.7.0.{number + 1}", labels={"app": "late"}) for number in range(200)]
    fleet.change(*web[:40])
    fleet.now_ms += 4_000_000
    fleet.change(*web[40:50])
    fleet.budget("denied-by-change", 10, 3)
    hold = fleet.stage("u", sources={"app": "late"}).result["hold"]
    fleet.stage("u", sources={"app": "late"})
    other = fleet.stage("v", sources={"app": "late"}, priority=6).result["hold"]
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    fleet.approve(other, "bob")
    fleet.approve(other, "cid")
    fleet.name_dpus(1, "z0/d0")
    fleet.observe(0, named=1)
    fleet.change(*web[50:])
    fleet.observe(1)
    fleet.observe(2)
    fleet.request_stages("resume", "u")
    fleet.observe(2)
    fleet.request_stages("undo", "u")
    fleet.observe(2)


def _some_stages(fleet: DeliveredFleet, rng: Random) -> None:
    fleet.unlimited()
    for _ in range(200):
        fleet.now_ms += rng.choice([0, 1_000, 30_000])
        staged, choice = fleet.state.staged, rng.random()
        if choice < 0.3:
            _some_members(fleet, rng)
        elif staged is None or not staged.is_open:
            name, sources = rng.choice(["p", "q", "default"]), rng.choice([{}, {"app": "web"}, {"app": "db"}])
            fleet.stage(name, ("1", "3", "100%"), priority=rng.randrange(3), sources=sources, bake_ms=1_000)
        elif choice < 0.5:
            fleet.name_dpus(staged.stage + 1, *(f"z{rng.randrange(4)}/d{n}" for n in range(staged.stage + 1)))
        elif choice < 0.9:
            failed = {f"z0/d{rng.randrange(9)}": "refused"} if rng.random() < 0.1 else {}
            named = fleet.state.named_dpus[staged.stage + 1]
            fleet.observe(staged.stage, named=named, waiting=rng.choice([0, 0, 1]), failed=failed)
        else:
            fleet.request_stages(rng.choice(["pause", "resume", "resume", "undo"]), staged.policy)


def _some_members(fleet: DeliveredFleet, rng: Random, states: Sequence[int] = (0, 0, 0, 1, 2, 3)) -> None:
    items = []
    for number in rng.sample(range(16), rng.choice([1, 2, 8])):
        address = f"10.4.0.{rng.randrange(1, 12)}" if rng.random() < 0.9 else ""
        six = f"2001:db8:4::{rng.randrange(1, 12):x}" if rng.random() < 0.3 else ""
        labels = rng.choice([{}, {"app": "web"}, {"app": "db"}])
        state = rng.choice(states)
        about = {"created_ms": rng.randrange(1, 4), "uid": rng.choice("uv")}
        items.append(Item(f"r{number}", f"z{rng.randrange(4)}", address, six, labels, state, **about))  # type: ignore[arg-type]
    fleet.change(*items, earliest_ms=fleet.now_ms - rng.randrange(1_000))
