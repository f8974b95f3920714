"""File import: a real inventory, every kind of bad row, and arbitrary bytes, which raise only errors of the import.

data/openb-nodes-excerpt.csv is 65 rows of openb_node_list_all_node.csv of Alibaba's public GPU cluster trace
(github.com/alibaba/clusterdata, cluster-trace-gpu-v2023): a production cluster's nodes, without racks and addresses.
"""

from __future__ import annotations

import io
import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.inventory.batches import ExistingNode
from commands.inventory.comparison import Comparison, compare
from commands.inventory.plan import ImportOptions, InventoryError, InventoryPlan, plan
from commands.inventory.rows import MAX_FAULTS, MAX_LINE_BYTES
from eventstore.avro.codec import encode
from projections.columns import expand, fault_of_nodes
from projections.field_checks import is_printable
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, Envelope, NodesJoined

EXCERPT = Path(__file__).parent / "data" / "openb-nodes-excerpt.csv"


def planned(text: str | bytes, **options: object) -> InventoryPlan:
    data = text.encode() if isinstance(text, str) else text
    return plan(io.BytesIO(data), ImportOptions(**options))  # type: ignore[arg-type]


def faults_of(text: str | bytes, **options: object) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        planned(text, **options)
    return [str(fault) for fault in caught.value.faults]


def joined(found: InventoryPlan) -> list[NodesJoined]:
    """The records of a plan, after a check by the rules of the fold."""
    envelope = Envelope("01890000-0000-7000-8000-000000000000", "z", "?test", 1)
    events = []
    for batch in found.batches:
        labels = [dict(labels) for labels in batch.label_sets]
        columns = (batch.addresses4, batch.addresses6, labels, list(batch.label_index))
        events.append(NodesJoined(envelope, batch.zone, list(batch.names), [], [], *columns))
        assert fault_of_nodes(events[-1], 1) is None
    return events


def test_a_real_inventory_with_synthetic_racks_addresses_and_cliques() -> None:
    with EXCERPT.open("rb") as stream:
        found = plan(
            stream,
            ImportOptions(zone_size=40, address_pool="10.0.0.0/16", clique_size=18, clique_when=("model", "G2")),
        )
    assert (found.node_count, found.zones, found.skipped_count) == (65, ("rack-0000", "rack-0001"), 0)
    first, second = joined(found)
    assert (len(first.names), len(second.names)) == (40, 25)
    assert first.names[0] == "openb-node-0000"
    assert first.addresses4[:8] == bytes([10, 0, 0, 1, 10, 0, 0, 2])
    assert first.label_sets[first.label_index[0]] == {"cpu_milli": "32000", "gpu": "0", "memory_mib": "262144"}
    assert [(c.clique, c.capacity, len(c.members)) for c in found.cliques] == [
        ("clique-0000", 18, 18),
        ("clique-0001", 18, 14),
    ]
    assert found.cliques[0].members[0] == ("openb-node-0234", "10.0.0.21")


def test_columns_for_everything() -> None:
    found = planned(
        "host,room,v4,gpu\na,r1,10.0.0.1,x\nb,r2,2001:db8::2;10.0.0.2,\n",
        name_column="host",
        zone_column="room",
        address_column="v4",
        clique_when=("gpu", "x"),
        clique_domain="d",
    )
    assert found.zones == ("r1", "r2")
    assert [batch.label_sets for batch in found.batches] == [({"gpu": "x"},), ()]
    assert found.batches[1].addresses4 == bytes([10, 0, 0, 2])
    assert found.batches[1].addresses6 == ipaddress.IPv6Address("2001:db8::2").packed
    assert [(c.domain, c.capacity, c.members) for c in found.cliques] == [("d", 18, (("a", "10.0.0.1"),))]


@pytest.mark.parametrize("column", ["name", "node", "hostname", "sn"])
def test_usual_columns_are_found(column: str) -> None:
    found = planned(f"{column},zone,ip\na,z,10.0.0.1\n")
    assert (found.zones, found.batches[0].names, found.batches[0].label_sets) == (("z",), ("a",), ())


def test_json_lines_and_csv_give_the_same_plan() -> None:
    rows = [
        {"name": "a", "zone": "z", "address": "10.0.0.1", "gpus": 8, "big": True, "note": None, "share": 1.50},
        {"name": "b", "zone": "z", "address": "10.0.0.2", "gpus": 4, "big": False, "note": "", "share": 0.25},
    ]
    csv = "name,zone,address,gpus,big,note,share\na,z,10.0.0.1,8,true,,1.5\nb,z,10.0.0.2,4,false,,0.25\n"
    assert planned("\n".join(map(json.dumps, rows))) == planned(csv)


def test_a_byte_order_mark_crlf_quotes_and_blank_lines() -> None:
    text = b'\xef\xbb\xbfname,zone,ip,note\r\n\r\n"a",z, 10.0.0.1 ,"one, ""two"""\r\n\r\n'
    assert planned(text).batches[0].label_sets == ({"note": 'one, "two"'},)


def test_bad_rows_are_listed_by_line_and_nothing_is_planned() -> None:
    text = (
        "name,zone,ip,note\n,z,10.0.0.1,\na b,z,10.0.0.2,\nc,,10.0.0.3,\nd,z,127.0.0.1,\ne,z,nonsense,\nf,z,10.0.0.9\n"
    )
    text += "g,z,10.0.0.4,ok\ng,z,10.0.0.5,again\nh,z,10.0.0.4,same\ni,z,10.0.0.6 10.0.0.7,two\nj,z,10.0.0.8,\x07\n"
    assert [fault[: fault.index(" must")] if " must" in fault else fault for fault in faults_of(text)] == [
        "line 2: name: ''",
        "line 3: name: 'a b'",
        "line 4: zone: ''",
        "line 5: ip: '127.0.0.1'",
        "line 6: ip: 'nonsense'",
        "line 7: the row has 3 fields and the header 4",
        "line 9: name: 'g'",
        "line 10: ip: '10.0.0.4'",
        "line 11: ip: '10.0.0.6 10.0.0.7'",
        "line 12: labels[note]: '\\x07'",
    ]


def test_bad_rows_can_be_skipped_and_take_no_slot_and_no_address() -> None:
    text = "name,note\n" + "".join(f"n{number},\n" if number != 1 else ",\n" for number in range(5))
    found = planned(text, zone_size=2, address_pool="10.0.0.0/24", skip_bad_rows=True)
    assert (found.node_count, found.zones) == (4, ("rack-0000", "rack-0001"))
    assert [str(fault)[:15] for fault in found.skipped] == ["line 3: name: '"]
    assert found.batches[1].addresses4 == bytes([10, 0, 0, 3, 10, 0, 0, 4])


def test_faults_are_bounded_and_counted() -> None:
    with pytest.raises(InventoryError, match=r"^line 2: .* \(the first of 500 faults\)$") as caught:
        planned("name,zone,ip\n" + "!,z,10.0.0.1\n" * 500)
    assert (len(caught.value.faults), caught.value.count) == (MAX_FAULTS, 500)


@pytest.mark.parametrize(
    ("text", "options", "fault"),
    [
        ("", {}, "inventory: the file has no valid row"),
        ("name,zone,ip\n", {}, "inventory: the file has no valid row"),
        ("a,,b\n1,2,3\n", {}, "line 1: column 2 has no name"),
        ("a,b,a\n1,2,3\n", {}, "line 1: column 'a' is named twice"),
        (
            "x,zone,ip\n1,2,3\n",
            {},
            "name_column: must be given, because the file has none of the default columns name, node, hostname, sn",
        ),
        (
            "name,ip\na,1\n",
            {},
            "zone_column: must be given, because the file has none of the default columns zone, rack, only "
            "'name', 'ip'",
        ),
        ("name,zone\na,z\n", {}, "address_column: must be given"),
        (
            "name,zone,ip\na,z,1\n",
            {"name_column": "nom"},
            "name_column: 'nom' must be one of the file's columns, which are",
        ),
        (
            "name,zone,ip\na,z,1\n",
            {"clique_when": ("model", "x")},
            "clique_when: 'model' must be one of the file's columns",
        ),
        ("name,zone,ip,GPU type\na,z,1,x\n", {}, "column: 'GPU type' must be "),
        (
            "name\na\n",
            {"zone_column": "z", "zone_size": 3},
            "zone_column: 'z' must not be given together with zone_size",
        ),
        ("name\na\n", {"name_column": "\x1f"}, "name_column: '\\x1f' must be at most 253 printable"),
        ("name\na\n", {"zone_size": -1}, "zone_size: -1 must be 1 or more"),
        ("name\na\n", {"clique_size": 5000}, "clique_size: 5000 must be from 1 to 4096"),
        ("name\na\n", {"clique_domain": "a/b"}, "clique_domain: 'a/b' must be "),
        (
            "name,zone\na,z\n",
            {"address_pool": "10.0.0.1/16"},
            "address_pool: '10.0.0.1/16' must be a network without host",
        ),
        (
            "name,zone\na,z\n",
            {"address_pool": "126.0.0.0/7"},
            "address_pool: '126.0.0.0/7' must have host addresses only",
        ),
        (
            "name,zone\na,z\n",
            {"address_pool": "0.0.0.0/0"},
            "address_pool: '0.0.0.0/0' must have host addresses only",
        ),
        (
            "name,zone\na,z\nb,z\nc,z\n",
            {"address_pool": "10.0.0.0/30"},
            "line 4: address_pool: '10.0.0.0/30' has no address left",
        ),
        (
            "name,zone,ip,m\na,z,10.0.0.1,G2\n",
            {"clique_size": 18, "clique_when": ("m", "G3")},
            "clique_when: 'm' has the value 'G3' in no row of the file",
        ),
        (b"\xff\xfen\x00a\x00m\x00e\x00\n", {}, "line 1: byte 1 of the line is not UTF-8"),
        (b"name,zone,ip\n\xffa,z,10.0.0.1\n", {}, "line 2: byte 1 of the line is not UTF-8"),
        ('name,zone,ip\n"a,z,10.0.0.1\n', {}, "line 2: the line is not valid CSV: "),
        ("name,zone,ip\n" + "a" * (MAX_LINE_BYTES + 1) + "\n", {}, "line 2: the line is longer than the "),
        ('{"name": "a", "name": "b"}\n', {}, "line 1: 'name' is given twice"),
        ('{"name": "a"\n', {}, "line 1: the line is not valid JSON: "),
        ('{"name": NaN}\n', {}, "line 1: NaN is not a valid JSON number"),
        ('[\n  {"name": "a"}\n]\n', {}, "line 1: a JSON file must have one object per line, not a list"),
        ('{"name": ["a"]}\n', {}, "line 1: 'name' must be text, a number, true, false or null"),
        ('{"name": "a", "zone": "z", "ip": "10.0.0.1"}\n[1]\n', {}, "line 2: the line must be one JSON object"),
        ('{"name": ' + "[" * 100_000 + "\n", {}, "line 1: the line is JSON nested too deeply"),
    ],
)
def test_invalid_files_are_refused_with_the_reason(text: str | bytes, options: dict[str, object], fault: str) -> None:
    assert faults_of(text, **options)[0].startswith(fault)


def test_a_line_after_an_overlong_one_has_the_right_number() -> None:
    text = "name,zone,ip\n" + "a" * (3 * MAX_LINE_BYTES) + "\nb,z,10.0.0.1\n,z,10.0.0.2\n"
    found = planned(text, skip_bad_rows=True)
    assert ([fault.line for fault in found.skipped], found.node_count) == ([2, 4], 1)


@pytest.mark.parametrize(
    ("pool", "first", "count"),
    [
        ("10.0.0.0/30", "10.0.0.1", 2),
        ("10.0.0.0/31", "10.0.0.0", 2),
        ("10.0.0.7/32", "10.0.0.7", 1),
        ("2001:db8::/126", "2001:db8::1", 3),
        ("2001:db8::8/127", "2001:db8::8", 2),
    ],
)
def test_a_pool_gives_its_hosts_in_order(pool: str, first: str, count: int) -> None:
    text = "name,zone\n" + "".join(f"n{number},z\n" for number in range(count))
    (event,) = joined(planned(text, address_pool=pool))
    packed = event.addresses4 or event.addresses6
    assert packed == b"".join((ipaddress.ip_address(first) + number).packed for number in range(count))
    assert len(faults_of(f"{text}more,z\n", address_pool=pool)) == 1


def test_batches_fit_a_record_by_count_and_by_size() -> None:
    many = "name,zone\n" + "".join(f"n{number},z\n" for number in range(2 * MAX_ITEMS + 1))
    assert [len(event.names) for event in joined(planned(many, address_pool="10.0.0.0/16"))] == [1000, 1000, 1]
    keys = [f"key-{number}" for number in range(20)]
    header = ",".join(["name", "zone", *keys])
    large = header + "\n" + "".join(f"n{row},z,{','.join(f'{row:0>250}' for _ in keys)}\n" for row in range(300))
    events = joined(planned(large, address_pool="2001:db8::/64"))
    assert sum(len(event.names) for event in events) == 300
    assert len(events) > 5
    assert all(len(encode(event)) <= MAX_COMMAND_BYTES for event in events)


def test_the_same_file_gives_the_same_plan() -> None:
    text = EXCERPT.read_bytes()
    options = {"zone_size": 7, "address_pool": "2001:db8::/64", "clique_size": 4}
    assert planned(text, **options) == planned(text, **options)


CELL = st.one_of(
    st.text(max_size=8), st.sampled_from(["", "a", "n1", "z", "10.0.0.1", "::1", '"', "2001:db8::1", "\ud800", "\x00"])
)
LINE = st.lists(CELL, max_size=5).map(",".join)
JSON = st.dictionaries(
    st.one_of(st.sampled_from(["name", "zone", "ip"]), CELL), st.one_of(CELL, st.integers(), st.none())
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "name_column": CELL,
        "zone_column": CELL,
        "zone_size": st.integers(-1, 3),
        "address_column": CELL,
        "address_pool": st.sampled_from(["", "10.0.0.0/30", "::/0", "x", "2001:db8::/120"]),
        "clique_size": st.integers(-1, 5),
        "clique_when": st.none() | st.tuples(CELL, CELL),
        "skip_bad_rows": st.booleans(),
    },
)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(LINE, max_size=6).map(
            lambda lines: "\n".join(["name,zone,ip", *lines]).encode(errors="surrogatepass")
        ),
        st.lists(JSON, max_size=6).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
    ),
    OPTIONS,
)
def test_arbitrary_bytes_raise_only_import_errors(data: bytes, options: dict[str, object]) -> None:
    try:
        found = planned(data, **options)
    except InventoryError as error:
        assert 1 <= len(error.faults) <= error.count
        assert is_printable(str(error))
        return
    assert found.node_count == sum(len(event.names) for event in joined(found))


# --- with nodes that the plane already has ---------------------------------------------------------------------------


def known_of(found: InventoryPlan) -> dict[str, ExistingNode]:
    """The nodes that the plane has after the import of a plan."""
    existing = {}
    for event in joined(found):
        for name, _, _, address4, address6, labels in zip(event.names, *expand(event), strict=False):
            number6 = int.from_bytes(address6, "big")
            existing[name] = ExistingNode(event.zone, address4, number6, tuple(sorted(labels.items())))
    return existing


def rows(*names: str, zone: str = "z") -> str:
    return "name,zone\n" + "".join(f"{name},{zone}\n" for name in names)


@pytest.mark.parametrize("pool", ["10.0.0.0/24", "fd00::/120"])
def test_a_removed_row_changes_no_address_of_the_others(pool: str) -> None:
    existing = known_of(planned(rows("a", "b", "c"), address_pool=pool))
    again = known_of(planned_beside(existing, rows("b", "new", "c"), address_pool=pool))
    assert (again["b"], again["c"]) == (existing["b"], existing["c"])
    assert addresses(again["new"]) not in map(addresses, existing.values()), (
        "the address of the remaining node `a` must not be assigned"
    )


def test_a_repeated_import_after_an_interruption_assigns_the_same_addresses() -> None:
    text = rows(*(f"n{i}" for i in range(9)))
    other = {"x": ExistingNode("y", int(ipaddress.IPv4Address("10.0.0.3")), 0, ())}
    whole = known_of(planned_beside(other, text, address_pool="10.0.0.0/24"))
    for applied in (("n0", "n1"), ("n7", "n3"), ("n8",)):
        existing = other | {name: whole[name] for name in applied}
        assert known_of(planned_beside(existing, text, address_pool="10.0.0.0/24")) == whole


def test_two_nodes_that_share_an_address_of_the_pool_get_one_each() -> None:
    shared = int(ipaddress.IPv4Address("10.0.0.1"))
    existing = {name: ExistingNode("z", shared, 0, ()) for name in "ab"}
    found = known_of(planned_beside(existing, rows("a", "b"), address_pool="10.0.0.0/24"))
    assert (found["a"].address4, found["b"].address4) == (shared, shared + 1)


def test_a_comparison_counts_each_node_once_and_addresses_separately() -> None:
    header = "name,zone,ip,app\nsame,z,10.0.0.1,x\n"
    before = f"{header}label,z,10.0.0.2,x\nto,y,10.0.0.3,x\nfree,z,10.0.0.4,x\ngone,z,10.0.0.5,x\n"
    after = f"{header}label,z,10.0.0.2,y\nto,z,10.0.0.3,x\nfree,z,10.0.0.9,x\nnew,z,10.0.0.8,x\n"
    found = compare(planned(after), known_of(planned(before)))
    assert found == Comparison(new=1, moved=1, changed=2, unchanged=1, not_in_file=1, readdressed=1, added=2, removed=1)
    assert not found.shifts_most


@pytest.mark.parametrize(
    ("ips", "zone", "shifts"),
    [((1, 2, 3, 4), "z", False), ((1, 2, 8, 9), "z", False), ((1, 7, 8, 9), "z", True), ((1, 2, 3, 4), "y", True)],
)
def test_a_file_shifts_most_if_more_than_half_of_the_known_nodes_get_another_address_or_zone(
    ips: tuple[int, ...], zone: str, shifts: bool
) -> None:
    def text(of: tuple[int, ...], zone: str) -> str:
        return "name,zone,ip\n" + "".join(f"n{place},{zone},10.0.0.{ip}\n" for place, ip in enumerate(of))

    existing = known_of(planned(text((1, 2, 3, 4), "z")))
    assert compare(planned(text(ips, zone)), existing).shifts_most == shifts
    assert not compare(planned(text(ips, zone)), {}).shifts_most


@given(data=st.data(), count=st.integers(1, 12))
def test_addresses_of_a_pool_are_stable_by_name_and_unique(data: st.DataObject, count: int) -> None:
    names = [f"n{i}" for i in range(12)]
    existing: dict[str, ExistingNode] = {}
    for _ in range(3):
        chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=count, unique=True))
        found = known_of(planned_beside(existing, rows(*chosen), address_pool="10.0.0.0/26"))
        assert all(found[name] == existing[name] for name in found.keys() & existing.keys())
        existing |= found
        assert len({addresses(node) for node in existing.values()}) == len(existing)


def planned_beside(existing: dict[str, ExistingNode], text: str, **options: object) -> InventoryPlan:
    return plan(io.BytesIO(text.encode()), ImportOptions(**options), existing)  # type: ignore[arg-type]


def addresses(node: ExistingNode) -> tuple[int, int]:
    return node.address4, node.address6
