"""Seeds of untrusted inputs: frames, requests, inventory files, texts, stored files, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from deploy.operations.audit.audit_checkpoints import FORMAT, CheckpointContent
from drivers.agents.saved_file import HASH_BYTES
from drivers.agents.store import FileTableStore
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Ack, FromAgent, Heartbeat, Hello, Refusal
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import GoAway, HeartbeatReply, Unserved, Welcome
from eventstore.ids import uuid7
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.position import Position, to_token
from eventstore.recovery.backup import Manifest, PartitionCopy, write_record
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, RefusalCode, apply
from projections.rules.digests import digest_of, to_bytes
from projections.rules.rule import Delta, Rule, SetStep
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp
from tests.fuzz.api_targets import KINDS
from tests.fuzz.files_targets import first_rows
from tests.fuzz.framing import Part, joined
from tests.fuzz.log_targets import records_of
from tests.fuzz.seeds_log import lifecycle
from tests.support.toy_records import LOG_ID, T0, Issuer

WEB, NONE = Rule(5, "allow", "tcp", (443, 443)), Rule(9, "drop", "any", ())
ONE, TWO, SIX = bytes((10, 0, 0, 1, 32)), bytes((10, 0, 1, 0, 24)), bytes(15) + b"\x02\x80"
HOLDING = TableStatus(1, 1, 5, 5, 5, bytes(16))


def _agent_messages() -> Iterable[bytes]:
    hello = Hello("rack-1", ["d1", "src/d2"], ["b1", "b2"], [HOLDING])
    refusal = Refusal(HOLDING, 7, RefusalCode.FULL, "table is full")
    messages: list[FromAgent] = [hello, Ack([HOLDING], [refusal]), Heartbeat([HOLDING._replace(dpus=1 << 77)])]
    return map(agent_messages.encode, messages)


def _deltas() -> list[Delta]:
    """A snapshot and the two deltas after it."""
    first = (SetStep(WEB, ONE, SIX, b"", b""), SetStep(NONE, TWO, b"", b"", b""))
    second = (SetStep(WEB, TWO, b"", ONE, b""),)
    total = digest_of(WEB, ONE, SIX) + digest_of(NONE, TWO, b"")
    after = total + digest_of(WEB, TWO, b"") - digest_of(WEB, ONE, b"")
    third = (SetStep(NONE, b"", b"", TWO, b""),)
    last = after - digest_of(NONE, TWO, b"")
    return [
        Delta(0, 5, to_bytes(total), first),
        Delta(5, 6, to_bytes(after), second),
        Delta(6, 9, to_bytes(last), third),
    ]


def _relay_messages() -> Iterable[bytes]:
    frames = [relay_messages.encode_frame(1, delta) for delta in _deltas()]
    welcome = Welcome(1, 5, False, 10_000, [Unserved(5, "not registered", 1_500)])
    refused = GoAway("zone 'z' is not served here", 2_000)
    words = [
        relay_messages.encode(welcome),
        relay_messages.encode(HeartbeatReply(1, 5, True)),
        relay_messages.encode(refused),
    ]
    network = relay_messages.encode_network(1, 7, bytes(16), b"{}")
    yield joined(Part(0, content) for content in (words[0], *frames, words[1], network))
    yield joined(Part(0, content) for content in (frames[0] + relay_messages.encode_group(1), words[2], frames[0]))


def _commands() -> Iterable[bytes]:
    node = pb.NodeSpec(
        name="n1", addresses=["10.0.0.1", "2001:db8::1"], labels={"a": "1"}, create_time=to_timestamp(T0), uid="u"
    )
    columns = pb.NodeColumns(names=["n1", "n2"], addresses4=bytes((10, 0, 0, 1, 10, 0, 0, 2)), label_index=[0, 0])
    columns.label_sets.add().labels["app"] = "web"
    policy = pb.PolicySpec(name="web", priority=3, action="allow", protocol="tcp", sources={"a": "1"}, zones={"t": "1"})
    policy.ports.add(first=80, last=443)
    about = {"domain": "d", "clique": "c", "node": "n1"}
    claim = pb.ClaimSpec(node="n1", address="10.0.0.1", create_time=to_timestamp(T0), uid="u", requested_index=3)
    requests = [
        pb.JoinNodesRequest(zone="z", nodes=[node], command_id=Issuer().id()),
        pb.JoinNodesRequest(zone="z", columns=columns),
        pb.ChangeNodesRequest(zone="z", nodes=[node]),
        pb.LeaveNodesRequest(zone="z", names=["n1"]),
        pb.UpdateZoneRequest(zone="z", set_labels=True, labels={"t": "1"}, parallel_installs=5, unavailable_nodes=3),
        pb.DeleteZoneRequest(zone="z"),
        pb.RegisterDpuRequest(zone="z", dpu="d1", node="n1", serial="s", bmc_address="redfish://10.0.0.9:80"),
        pb.RequestLifecycleRequest(zone="z", dpu="d1", verb="VERB_PROVISION", image="bf-bundle-2.10"),
        pb.ClaimIndicesRequest(domain="d", clique="c", claims=[claim, pb.ClaimSpec(node="n2")]),
        pb.ReleaseIndicesRequest(domain="d", clique="c", releases=[pb.ReleaseSpec(node="n1", uid="u")]),
        pb.SetCliqueCapacityRequest(domain="d", clique="c", capacity=4),
        pb.ReportDaemonReadinessRequest(**about, uid="u", ready=True),
        pb.OpenSessionRequest(**about, uid="u", session="s1"),
        pb.SetPolicyRequest(policy=policy),
        pb.DeletePolicyRequest(name="web"),
        pb.ApproveHoldRequest(hold=7, hash="00ff"),
        pb.RejectHoldRequest(hold=7),
        pb.SetBudgetRequest(kind="denied-by-leave", permille=10, min_addresses=100),
        pb.FreezeWritesRequest(zone="z"),
        pb.FreezeWritesRequest(zone="z", all_zones=True),
        pb.ThawWritesRequest(all_zones=True),
    ]
    return [bytes((KINDS.index(type(request)),)) + request.SerializeToString() for request in requests]


_CSV = b"name,zone,ip,gpu\nn1,z1,10.0.0.1,yes\nn2,z1,10.0.0.2;2001:db8::2,no\n"
_JSON = b'{"sn": "n1", "rack": "z1", "ip": "10.0.0.1", "up": true, "u": 42, "gpu": "yes"}\n{"sn": "n2", "rack": "z2"}\n'
_BAD = b'name,zone\nn1\n"n2,z\nn3,\xff\nn1,z\n{"name": NaN}\n'


def _inventories() -> Iterable[bytes]:
    return [
        *(options + b"\n" + _CSV for options in (b"", b"2", b"4", b"6c", b"cw", b"d2c", b"0", b"r2")),
        *(options + b"\n" + _JSON for options in (b"", b"nri", b"wc", b"24")),
        *(options + b"\n" + _BAD for options in (b"", b"s")),
        b'\n\xef\xbb\xbf{"name": {"a": 1}}\n[1]\n',
    ]


def _texts() -> Iterable[bytes]:
    token = to_token(Position(LOG_ID, {FLEET_0: 9, Partition(ZONES, 3): 15}))
    return [
        *(f"{word} {token}".encode() for word in ("position", "moment")),
        *(f"moment {text}".encode() for text in ("1700000000000", "2026-11-21T15:00:00+02:00", "2026-W47-1")),
        *(f"page {text}".encode() for text in ("", "0:a", "3:é", "12:")),
        *(f"cursor {text}".encode() for text in ("zones/3=15,fleet/0=9", "installs/11=0")),
        *(f"number {text}".encode() for text in ("", "0", "500", "501")),
        *(f"principal {text}".encode() for text in ("spiffe://example.org/operator/ann", "spiffe://x/plane/a")),
        *(f"{word} {text}".encode() for word in ("listener", "brokers") for text in ("a:1,[::1]:80", "127.0.0.1:0")),
        *(f"address {text}".encode() for text in ("10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1%eth0")),
        *(f"name {text}".encode() for text in ("src/n-1.x", "sim:x", "http://h:1/d", "text, free")),
        f"id {uuid7(T0, Issuer().rng)}".encode(),
        b"claimed ann",
        b"version latest",
        b"version 1",
        f"parent 1@{token}".encode(),
        b"listener a:" + b"9" * 5_000,
    ]


def _backup_records() -> Iterable[bytes]:
    written = BytesIO()
    for record in records_of(lifecycle())[:4]:
        write_record(written, record._replace(headers=(("traceparent", b"00-1-2-01"),) * (record.offset % 2)))
    return [written.getvalue()]


def _manifests() -> Iterable[bytes]:
    partitions = {
        "fleet/0": PartitionCopy(0, 3, 3, 300, bytes(16).hex(), T0),
        "zones/11": PartitionCopy(0, 0, 0, 0, "", 0),
    }
    fields = {"log_id": LOG_ID, "generation": 1, "parent": "", "partition_count": 12, "made_at_ms": T0}
    yield msgspec.json.encode(Manifest(format=1, partitions=partitions, **fields))  # type: ignore[arg-type]
    yield msgspec.json.encode(Manifest(format=1, partitions={}, **fields))  # type: ignore[arg-type]


def _agent_tables() -> Iterable[bytes]:
    table = EMPTY_TABLE
    for delta in _deltas():
        after = apply(table, 1, delta, capacity=99)
        assert isinstance(after, DeviceTable)
        table = after
        with TemporaryDirectory() as folder:
            FileTableStore(Path(folder) / "table", "dpu-1", "rack-1").save(table)
            yield (Path(folder) / "table").read_bytes()[HASH_BYTES:]


def _saved_rows() -> Iterable[bytes]:
    yield b""
    rows = first_rows(3)
    yield joined(Part(number, content) for number, content in rows)
    yield joined(Part(number, content[:-1]) for number, content in rows)


def _checkpoints() -> Iterable[bytes]:
    content = CheckpointContent(format=FORMAT, log_id=LOG_ID, generation=1, made_at_ms=T0, partitions={})
    yield msgspec.json.encode(content)
    yield b'{"statement": {}, "signature": "AAAA"}'


def _settings() -> Iterable[bytes]:
    return [
        b"DATA=/x\nLISTEN=127.0.0.1:1\nINSECURE=true\nSEED=1\n\n",
        b"KAFKA=a:1,b:2\nROLE=relay\n\nzones: z1,z2\npartitions: 3\ncalls_per_second: 1e3\n",
        b"\n\ndata: 2001-02-03\nhttp: '[::1]:80'\ntraces: http://h:4318/v1/traces\nunknown: {a: [1, 2]}\n",
        b"DATA=/x\n\nlisten: 0.0.0.0:1\ntls_cert: a\ntls_key: b\ntls_client_ca: c\ntrust_domain: example.org\n",
        b"\n\n- 1\n",
    ]


def _policies() -> Iterable[bytes]:
    return [
        b"name: web\naction: allow\npriority: 5\nprotocol: tcp\nports: [443, 8000-8080, {first: 1, last: 2}]\n"
        b"sources: {app: web}\nzones: {t: '1'}\n---\nname: other\naction: drop\n",
        b'[{"name": "a", "action": "allow"}, {"name": "b", "action": "drop", "ports": ["x"]}]',
        b"name: a\naction: allow\nports: [1-]\nwhy: 2001-23-00\n",
    ]


MAKERS: dict[str, Callable[[], Iterable[bytes]]] = {
    "agent-messages": _agent_messages,
    "relay-messages": _relay_messages,
    "command": _commands,
    "inventory": _inventories,
    "text": _texts,
    "backup-records": _backup_records,
    "backup-manifest": _manifests,
    "agent-table": _agent_tables,
    "saved-rows": _saved_rows,
    "checkpoint": _checkpoints,
    "settings": _settings,
    "policies": _policies,
}
