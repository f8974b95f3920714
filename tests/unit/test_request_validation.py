"""An invalid request is refused before it is appended, in one sentence that names the field, the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from commands.requests import cliques, dpus, fleet, nodes
from commands.requests.validation import NewEvent
from eventstore.errors import PermanentError
from projections.columns import expand
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp
from schemas.events import Envelope, NodesJoined
from tests.support.call_counts import count_calls

ID = "0197b2a4-7c00-7000-8000-000000000001"


def envelope(subject: str) -> Envelope:
    return Envelope(ID, subject, "?test", 1)


def join(*specs: pb.NodeSpec, zone: str = "z1") -> pb.JoinNodesRequest:
    return pb.JoinNodesRequest(zone=zone, nodes=specs)


def columns(**given_columns: Any) -> pb.JoinNodesRequest:
    return pb.JoinNodesRequest(zone="z1", columns=pb.NodeColumns(**given_columns))


def node(name: str = "n1", *addresses: str, **more: Any) -> pb.NodeSpec:
    return pb.NodeSpec(name=name, addresses=addresses, **more)


def policy(**fields: Any) -> pb.SetPolicyRequest:
    return pb.SetPolicyRequest(policy=pb.PolicySpec(**{"name": "web", "action": "allow", **fields}))


Shape = Callable[[Any, Callable[[str], Envelope]], NewEvent]


FIVE_MS = to_timestamp(5)
YEAR_10000 = Timestamp(seconds=253_402_300_800)


def claim(**fields: Any) -> pb.ClaimIndicesRequest:
    return pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n", **fields)])


BAD: list[tuple[str, Shape, Any, tuple[str, ...]]] = [
    ("no zone", nodes.join, join(node(), zone=""), ("zone", "''", "1 to 63")),
    ("bad zone", nodes.join, join(node(), zone="a/b"), ("zone", "'a/b'", "1 to 63")),
    ("no nodes", nodes.join, join(), ("nodes", "0", "1 to 1000")),
    ("too many nodes", nodes.join, join(*(node(f"n{i}") for i in range(1_001))), ("nodes", "1001", "1 to 1000")),
    ("bad name", nodes.join, join(node("-n")), ("name", "'-n'", "must be")),
    ("name with newline", nodes.join, join(node("a\nb")), ("name", r"'a\nb'", "must be")),
    ("name twice", nodes.join, join(node("n1"), node("n1")), ("name", "'n1'", "once")),
    ("bad address", nodes.join, join(node("n1", "10.0.0")), ("address", "'10.0.0'", "IPv4 or IPv6")),
    ("loopback", nodes.join, join(node("n1", "127.0.0.1")), ("address", "'127.0.0.1'", "host address")),
    ("address twice", nodes.join, join(node("a", "10.0.0.1"), node("b", "10.0.0.1")), ("addresses4", "once")),
    ("address6 twice", nodes.join, join(node("a", "fd00::1"), node("b", "fd00:0::1")), ("addresses6", "'fd00::1'")),
    ("two of a family", nodes.join, join(node("a", "10.0.0.1", "10.0.0.2")), ("10.0.0.2", "at most one")),
    ("bad label key", nodes.join, join(node(labels={"a b": "c"})), ("labels", "'a b'", "must be")),
    ("long label", nodes.join, join(node(labels={"a": "x" * 254})), ("labels[a]", "254 characters", "at most 253")),
    ("time before 1970", nodes.join, join(node(create_time=Timestamp(seconds=-1), uid="u")), ("create_time", "-1 s")),
    ("time after 9999", nodes.join, join(node(create_time=YEAR_10000, uid="u")), ("create_time", "9999")),
    (
        "a second of ns",
        cliques.claim_indices,
        claim(create_time=Timestamp(nanos=1_000_000_000)),
        ("create_time[0]", " ns"),
    ),
    ("half an incarnation", nodes.join, join(node(create_time=FIVE_MS)), ("uid", "''", "create_time")),
    (
        "an incarnation for some",
        nodes.join,
        join(node("a", create_time=FIVE_MS, uid="u"), node("b")),
        ("uid", "'b'", "every node"),
    ),
    (
        "both forms",
        nodes.join,
        pb.JoinNodesRequest(zone="z", nodes=[node()], columns={}),
        ("columns", "1", "together with columns"),
    ),
    (
        "short column",
        nodes.join,
        columns(names=["a", "b"], addresses4=b"\x0a\0\0\1"),
        ("addresses4", "4 bytes", "2 names", "4 per name"),
    ),
    ("bad label number", nodes.join, columns(names=["a"], label_index=[3]), ("label_index", "3", "0 label sets")),
    ("labels of nobody", nodes.join, columns(names=["a"], label_sets=[{}]), ("label_index", "0", "1 label sets")),
    ("column of multicast", nodes.join, columns(names=["a"], addresses4=b"\xe0\0\0\1"), ("224.0.0.1", "host address")),
    ("column of mapped", nodes.join, columns(names=["a"], addresses6=bytes(10) + b"\xff\xff\x0a\0\0\1"), ("IPv4",)),
    ("uids alone", nodes.join, columns(names=["a"], uids=["u"]), ("uids", "1", "created_ms")),
    ("leave of no zone", nodes.leave, pb.LeaveNodesRequest(names=["a"]), ("zone", "''", "LocateNodes")),
    (
        "lifecycle of no zone",
        dpus.request_lifecycle,
        pb.RequestLifecycleRequest(dpu="d", verb="VERB_PAUSE"),
        ("zone", "GetDpu"),
    ),
    ("leave of nobody", nodes.leave, pb.LeaveNodesRequest(zone="z1"), ("names", "0", "1 to 1000")),
    ("leave twice", nodes.leave, pb.LeaveNodesRequest(zone="z1", names=["a", "a"]), ("names", "'a'", "once")),
    ("no such verb", dpus.request_lifecycle, pb.RequestLifecycleRequest(dpu="d"), ("verb", "0", "provision, pause")),
    (
        "image of a pause",
        dpus.request_lifecycle,
        pb.RequestLifecycleRequest(zone="z1", dpu="d", verb="VERB_PAUSE", image="i"),
        ("image", "'i'", "provision only"),
    ),
    ("DPU without a name", dpus.register, pb.RegisterDpuRequest(zone="z1"), ("dpu", "''", "must be")),
    (
        "claim without node",
        cliques.claim_indices,
        pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n"), pb.ClaimSpec()]),
        ("nodes[1]", "''", "must be"),
    ),
    (
        "bad requested_index",
        cliques.claim_indices,
        claim(requested_index=-2),
        ("requested_indices[0]", "-2", "from -1"),
    ),
    (
        "no capacity",
        cliques.set_clique_capacity,
        pb.SetCliqueCapacityRequest(domain="d", clique="c"),
        ("capacity", "0", "from 1"),
    ),
    (
        "huge capacity",
        cliques.set_clique_capacity,
        pb.SetCliqueCapacityRequest(domain="d", clique="c", capacity=1 << 30),
        ("capacity", str(1 << 30), "from 1"),
    ),
    (
        "slash in a domain",
        cliques.set_clique_capacity,
        pb.SetCliqueCapacityRequest(domain="a/b", clique="c"),
        ("domain", "'a/b'"),
    ),
    ("bad action", fleet.set_policy, policy(action="permit"), ("action", "'permit'", "allow or drop")),
    ("bad protocol", fleet.set_policy, policy(protocol="sctp"), ("protocol", "'sctp'", "tcp")),
    (
        "ports of any",
        fleet.set_policy,
        policy(ports=[{"first": 1, "last": 2}]),
        ("ports", "must be empty", "tcp and udp"),
    ),
    (
        "ports in no order",
        fleet.set_policy,
        policy(protocol="tcp", ports=[{"first": 9, "last": 2}]),
        ("ports", "9-2", "in order"),
    ),
    ("bad priority", fleet.set_policy, policy(priority=2_000_000), ("priority", "2000000", "from -1000000")),
    ("approval unseen", fleet.approve_hold, pb.ApproveHoldRequest(hold=3), ("hash", "''", "hexadecimal")),
    (
        "bad budget",
        fleet.set_budget,
        pb.SetBudgetRequest(kind="x"),
        ("kind", "'x'", "denied-by-leave, denied-by-change, allowed-by-change, allowed-by-join"),
    ),
    (
        "bad share",
        fleet.set_budget,
        pb.SetBudgetRequest(kind="denied-by-leave", permille=1_001),
        ("permille", "1001", "0 to 1000"),
    ),
    ("empty description", fleet.update_zone, pb.UpdateZoneRequest(zone="z"), ("request", "labels or a limit")),
    (
        "bad limit",
        fleet.update_zone,
        pb.UpdateZoneRequest(zone="z", parallel_installs=-1),
        ("parallel_installs", "-1", "from 0"),
    ),
    ("bad freeze", fleet.freeze_writes, pb.FreezeWritesRequest(zone="a b"), ("zone", "'a b'", "must be")),
    ("freeze of nothing", fleet.freeze_writes, pb.FreezeWritesRequest(), ("zone", "''", "must be")),
    ("thaw of nothing", fleet.thaw_writes, pb.ThawWritesRequest(), ("zone", "''", "must be")),
    (
        "freeze of both",
        fleet.freeze_writes,
        pb.FreezeWritesRequest(zone="a", all_zones=True),
        ("all_zones", "true", "zone 'a'"),
    ),
    (
        "thaw of both",
        fleet.thaw_writes,
        pb.ThawWritesRequest(zone="a", all_zones=True),
        ("all_zones", "true", "zone 'a'"),
    ),
]


@pytest.mark.parametrize(("shape", "request_", "said"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_an_invalid_request_is_refused_in_one_sentence(shape: Shape, request_: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(PermanentError) as caught:
        shape(request_, envelope)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.partition(":")[0].split("[")[0].split(" ")[0].isidentifier()
    for part in said:
        assert part in sentence


addresses4 = st.integers(0x0A000000, 0x0AFFFFFF)
labels = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y", ""]), max_size=2)
fleets = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True), st.tuples(addresses4, labels), min_size=1
)


@given(fleets)
def test_nodes_are_converted_to_equal_columns(fleet: dict[str, tuple[int, dict[str, str]]]) -> None:
    addresses = [address for address, _ in fleet.values()]
    specs = [
        node(name, ".".join(str(byte) for byte in address.to_bytes(4, "big")), labels=given_labels)
        for name, (address, given_labels) in fleet.items()
    ]
    if len(set(addresses)) != len(addresses):
        with pytest.raises(PermanentError, match="once"):
            nodes.join(join(*specs), envelope)
        return
    event = nodes.join(join(*specs), envelope).event
    assert isinstance(event, NodesJoined)
    assert event.names == list(fleet)
    assert event.addresses4 == b"".join(address.to_bytes(4, "big") for address in addresses)
    index = event.label_index * len(fleet) if len(event.label_index) == 1 else event.label_index
    said = [event.label_sets[number] for number in index] if index else [{} for _ in fleet]
    assert said == [given_labels for _, given_labels in fleet.values()]
    assert len(event.label_sets) == len({tuple(sorted(one.items())) for one in event.label_sets})


incarnations = st.sampled_from([{}, {"create_time": FIVE_MS, "uid": "u"}])
address_lists = st.sampled_from([[], ["10.0.0.1"], ["fd00::1"], ["fd00::1", "10.0.0.1"]])


@given(address_lists, labels, incarnations)
def test_a_single_node_has_the_same_columns_as_among_others(
    addresses: list[str], given_labels: dict[str, str], incarnation: dict[str, Any]
) -> None:
    first, other = node("a", *addresses, labels=given_labels, **incarnation), node("b", **incarnation)
    alone, among = [nodes.join(join(*specs), envelope).event for specs in ([first], [first, other])]
    assert isinstance(alone, NodesJoined)
    assert isinstance(among, NodesJoined)
    assert [next(iter(column)) for column in expand(alone)] == [next(iter(column)) for column in expand(among)]


def test_columns_are_passed_on_unchanged() -> None:
    event = nodes.join(
        columns(
            names=["a", "source/b"],
            addresses4=b"\x0a\0\0\1\0\0\0\0",
            addresses6=bytes(16) + b"\xfd" + bytes(14) + b"\1",
            label_sets=[{"labels": {"k": "v"}}],
            label_index=[0],
            created_ms=[5],
            uids=["u1", "u2"],
        ),
        envelope,
    ).event
    assert event == NodesJoined(
        envelope("z1"),
        "z1",
        ["a", "source/b"],
        [5],
        ["u1", "u2"],
        b"\x0a\0\0\1\0\0\0\0",
        bytes(16) + b"\xfd" + bytes(14) + b"\1",
        [{"k": "v"}],
        [0],
    )


def test_a_repeated_command_is_the_same_record_for_any_order_of_labels() -> None:
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    cases: list[tuple[Shape, Callable[[dict[str, str]], Any]]] = [
        (nodes.join, lambda labels: join(node(labels=labels))),
        (nodes.join, lambda labels: columns(names=["n"], label_sets=[{"labels": labels}], label_index=[0])),
        (fleet.set_policy, lambda labels: policy(sources=labels, zones=labels)),
        (fleet.update_zone, lambda labels: pb.UpdateZoneRequest(zone="z", set_labels=True, labels=labels)),
    ]
    for shape, make in cases:
        assert repr(shape(make(one), envelope)) == repr(shape(make(other), envelope))


MANY = 200_000
MANY_CALLS = 5_000
"""Far fewer than a call for each item."""
KEYS = {f"{number:x}": "" for number in range(MANY // 4)}


@pytest.mark.parametrize(
    ("shape", "request_", "fault"),
    [
        pytest.param(
            nodes.join,
            columns(names=["a"], label_index=[0], label_sets=[pb.LabelSet()] * MANY),
            "label_sets: 200000 items must be at most 1000",
            id="label sets",
        ),
        pytest.param(
            nodes.join,
            columns(names=["a"], label_index=[0], label_sets=[{"labels": KEYS}]),
            "labels: 50000 labels are more than the 128 allowed",
            id="labels of a set",
        ),
        pytest.param(
            nodes.join, join(node(labels=KEYS)), "labels: 50000 labels are more than the 128 allowed", id="of a node"
        ),
        pytest.param(
            nodes.change,
            pb.ChangeNodesRequest(zone="z", nodes=[node("a"), node("b", labels=KEYS)]),
            "labels: 50000 labels are more than the 128 allowed",
            id="of a changed node",
        ),
        pytest.param(
            fleet.set_policy, policy(zones=KEYS), "zones: 50000 labels are more than the 128 allowed", id="selector"
        ),
        pytest.param(
            fleet.set_policy,
            policy(protocol="tcp", ports=[pb.PortRange()] * MANY),
            "ports: 400000 port numbers must be at most 64 pairs of first and last",
            id="ports",
        ),
        pytest.param(
            fleet.update_zone,
            pb.UpdateZoneRequest(zone="z", set_labels=True, labels=KEYS),
            "labels: 50000 labels are more than the 128 allowed",
            id="of a zone",
        ),
    ],
)
def test_too_many_items_are_refused_before_they_are_parsed(shape: Shape, request_: Any, fault: str) -> None:
    """The check of a message of 1 MiB once parsed all items first and blocked the loop for a second."""

    def check() -> None:
        with pytest.raises(PermanentError) as refused:
            shape(request_, envelope)
        assert str(refused.value) == fault

    assert count_calls(check) < MANY_CALLS


def test_absent_and_zero_limits_differ() -> None:
    event: Any = fleet.update_zone(pb.UpdateZoneRequest(zone="z", parallel_installs=0), envelope).event
    assert (event.parallel_installs, event.unavailable_nodes, event.set_labels) == (0, -1, False)
