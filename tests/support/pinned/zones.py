"""A history of a zones partition with every event and every refusal of its fold, and random events."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import asdict, replace

from eventstore.log import Record
from projections.field_checks import MAX_AHEAD_MS
from projections.zones.dpus.phases import DELETING, READY
from schemas.events import (
    MAX_FORWARD_ITEMS,
    MAX_ITEMS,
    DeadlinePassed,
    DpuRegistered,
    NodesChanged,
    NodesLeft,
    NodesSuperseded,
    SnapshotCompleted,
    StepProgressed,
    StepStarted,
    StepSucceeded,
    ZoneLimitsSet,
)
from tests.support.pinned.zone_networks import malformed_networks, shared_networks
from tests.support.pinned.zone_visits import some_visits, visits
from tests.support.zones import START_MS, ZONE, DeliveredZones, internal_envelope, nodes_joined, packed6

NET = 10 << 24


def records() -> list[Record]:
    log, rng = DeliveredZones(is_latest=True), Random(3)
    _crowd(log)
    _malformed_nodes(log)
    _nodes(log)
    _lists(log)
    _caused(log)
    _some_nodes(log, rng)
    _malformed_dpus(log)
    _line(log)
    _lifecycle(log)
    _other_cards(log)
    _some_dpus(log, rng)
    _agents(log)
    _some_agents(log, rng)
    _deleted_zones(log)
    _malformed_wants(log)
    _wants(log)
    _some_wants(log, rng)
    malformed_networks(log)
    shared_networks(log)
    visits(log)
    some_visits(log, rng)
    return log.delivered.records


def _deleted_zones(log: DeliveredZones) -> None:
    """Zones deleted with and without ordinals, limits and lists, and created again."""
    log.join("e/a", zone="e", address=NET + 90_000)
    log.complete(b"list", source="e", zone="e")
    for zone in ("no zone", "never-seen", "e"):
        log.delete_zone(zone)
    log.leave("e/a", zone="e")
    log.limit(2, 3, zone="e")
    log.delete_zone("e")
    log.delete_zone("e")
    log.leave("e/a", zone="e")
    log.limit(0, 0, zone="e")
    log.limit(0, 0, zone="never-seen")
    log.join("e/a", zone="e", address=NET + 90_000)
    log.register("e-dpu", zone="e")
    log.leave("e/a", zone="e")
    log.delete_zone("e")


def _crowd(log: DeliveredZones) -> None:
    """Nodes that join one by one, with each kind of record in between that ends a run."""
    for number in range(150):
        labels = {"app": ("web", "db")[number % 2], "rank": str(number // 40)} if number % 50 < 40 else None
        log.join(f"c{number}", zone=f"z{number % 3}", address=NET + number + 1, labels=labels)
    for number in range(40):
        log.join(f"s/{number}", created_ms=START_MS + number, uid=f"uid-{number}")
    for number in range(12):
        event = nodes_joined(log.envelope(), [f"six{number}"], address=NET + 4_000 + number)
        log.append(replace(event, addresses6=packed6(f"2001:db8::{number + 1:x}")))
    for count in (5, 20, 31):
        for number in range(count):
            event = nodes_joined(log.envelope(), [f"t/{count}-{number}"], address=NET + 5_000 + 50 * count + number)
            log.append(replace(event, created_ms=[number], uids=["u"], label_sets=[{"app": "web"}], label_index=[0]))
        log.complete(b"list", source="t", count=count)
        for number in range(count):
            log.join(f"v{count}-{number}")
        log.complete(b"list", source="t", count=count)
    log.now_ms += 59_700 - log.now_ms % 60_000  # the minute ends within the next run
    for number in range(700):
        log.join(f"m{number}" if number not in (90, 91, 300) else "c7", address=NET + 8_000 + number)
    log.now_ms += 20_000
    for number in range(300):
        log.join(f"w{number}" if number != 70 else "no name", address=NET + 10_000 + number)


def _malformed_nodes(log: DeliveredZones) -> None:
    two = nodes_joined(log.envelope(), ["a", "b"], address=7, created_ms=5, uid="u", labels={"app": "web"})
    late_ms = log.now_ms + 2 * MAX_AHEAD_MS
    many = [f"n{number}" for number in range(MAX_ITEMS + 1)]
    for event in (
        replace(two, zone="no zone"),
        replace(two, names=[]),
        replace(two, names=many),
        replace(two, names=["a", "-"]),
        replace(two, names=["a", "a"]),
        replace(two, uids=[]),
        replace(two, created_ms=[1, 2, 3]),
        replace(two, created_ms=[late_ms]),
        replace(two, created_ms=[-1]),
        replace(two, uids=["u\n"]),
        replace(two, label_index=[]),
        replace(two, label_index=[0, 0, 0]),
        replace(two, label_index=[1]),
        replace(two, label_sets=[{"-": "x"}]),
        replace(two, label_sets=[{"app": "x\n"}]),
        replace(two, label_sets=[{f"k{number}": "" for number in range(129)}]),
        replace(two, label_sets=[{"app": "x" * 250, "n": str(number)} for number in range(1_100)]),
        replace(two, addresses4=b"123"),
        replace(two, addresses4=bytes((127, 0, 0, 1, 10, 0, 0, 1))),
        replace(two, addresses4=bytes((10, 0, 0, 1)) * 2),
        replace(two, addresses6=b"123"),
        replace(two, addresses6=packed6("2001:db8::1") * 2),
        replace(two, addresses6=packed6("::1") + bytes(16)),
        replace(two, addresses6=packed6("::ffff:10.0.0.1") + bytes(16)),
    ):
        log.append(replace(event, envelope=log.envelope()))
        log.append(NodesChanged(**asdict(event) | {"envelope": log.envelope()}))
    for left in ([], ["a", "a"], ["b\n"]):
        log.leave(*left)


def _nodes(log: DeliveredZones) -> None:
    log.join("a", "b", "k/c", created_ms=5, uid="u", address=NET + 20_000, labels={"app": "web", "tier": "1"})
    log.join("a", "b", "k/c", created_ms=5, uid="u", address=NET + 20_000, labels={"app": "web", "tier": "1"})
    log.join("a", "b", created_ms=4, uid="t", address=9)
    log.join("a", "d", created_ms=4, uid="t", address=9)
    log.join("a", zone="z2", created_ms=6, uid="v", address=NET + 20_100)
    log.join("b", created_ms=5, uid="v", address=NET + 20_101)
    log.change("x", address=9)
    log.change("a", address=9)
    log.change("b", address=9, created_ms=5, uid="w")
    log.change("b", address=NET + 20_102, created_ms=5, uid="v")
    log.change("b", address=NET + 20_102)
    log.leave("x", "d", "b", created_ms=4, uid="t")
    log.leave("x")
    log.leave("x", zone="never-seen")
    log.leave("k/c", "b")
    log.join("b", address=NET + 20_103)
    log.forwarded(log.end - 3)
    log.forwarded(log.end - 9)
    log.forwarded(log.end + 1)


def _lists(log: DeliveredZones) -> None:
    log.join("l/a", "l/b", "l/c", address=NET + 21_000)
    for list_hash, source, zone, count in (
        (b"", "l", ZONE, 1),
        (b"x" * 65, "l", ZONE, 1),
        (b"x", "l", ZONE, -1),
        (b"x", "l", ZONE, 11),
        (b"x", "no source", ZONE, 1),
        (b"x", "l", "no zone", 1),
        (b"one", "l", ZONE, 3),
    ):
        log.complete(list_hash, source=source, zone=zone, count=count)
    log.append(NodesLeft(log.envelope(), ZONE, ["l/a"], [], [], True, b""))
    log.leave("l/a", list_hash=b"two")
    log.change("l/b", address=NET + 21_010)
    log.leave("l/a", "l/b", list_hash=b"one")
    older = replace(log.envelope(), command_id="", issued_at_ms=log.now_ms - 1_000)
    log.append(SnapshotCompleted(older, ZONE, "l", 2, b"old", 0, 2, False))
    log.complete(b"two", source="l", count=2)
    log.complete(b"empty", source="l", count=0, total=0)
    log.complete(b"two", source="l", count=2, version=-1)
    log.complete(b"back", source="l", count=2, version=7, restored=True)
    log.leave("l/b", "l/c", list_hash=b"back")
    log.complete(b"none", source="l", zone="z2", count=0, version=8)
    log.complete(b"two", source="l", count=2, version=9)
    log.leave("l/b", "l/c", list_hash=b"two")


def _caused(log: DeliveredZones) -> None:
    log.join("m/a", "m/b", zone="z2", created_ms=7, uid="u")
    for columns in (
        ([ZONE], ["m/a"], [7], []),
        ([ZONE] * (MAX_FORWARD_ITEMS + 1), ["m/a"] * (MAX_FORWARD_ITEMS + 1), [7] * 2_001, ["u"] * 2_001),
        (["z2", "z2", ZONE], ["m/a", "m/b", "a"], [7, 6, 9], ["u", "u", "u"]),
    ):
        mark = log.state.fleet_mark
        log.append(NodesSuperseded(internal_envelope("fleet", log.now_ms), mark, mark + 2, *columns, log.end))
    log.append(NodesSuperseded(internal_envelope("fleet", log.now_ms), 0, 2, [], [], [], [], log.end))
    late = ([ZONE], ["m/c"], [7], ["u"])
    log.join("m/c", zone=ZONE, created_ms=7, uid="u")
    log.append(NodesSuperseded(internal_envelope("fleet", log.now_ms), mark + 2, mark + 4, *late, log.end - 1))
    log.limit(5, 5, zone="no zone")
    log.limit(2, 3)
    log.append(
        ZoneLimitsSet(internal_envelope("z2", log.now_ms), log.state.fleet_mark, log.state.fleet_mark, "z2", 1, 1)
    )
    log.limit(-1, 2)


def _some_nodes(log: DeliveredZones, rng: Random) -> None:
    for _ in range(250):
        names = rng.sample([f"r{number}" for number in range(12)] + ["s/1", "s/2", "c1"], rng.choice([1, 1, 1, 3]))
        zone = rng.choice([ZONE, ZONE, "z2"])
        incarnation = {"created_ms": rng.randrange(1, 4), "uid": rng.choice("uv")} if rng.random() < 0.6 else {}
        match rng.randrange(5):
            case 0 | 1:
                labels = {"app": rng.choice(["web", "db"])}
                log.join(*names, address=NET + 30_000 + rng.randrange(99), labels=labels, zone=zone, **incarnation)  # type: ignore[arg-type]
            case 2:
                log.change(names[0], address=NET + 30_000 + rng.randrange(99), zone=zone, **incarnation)  # type: ignore[arg-type]
            case 3:
                log.leave(*names, list_hash=rng.choice([b"", b"", b"h"]), zone=zone, **incarnation)  # type: ignore[arg-type]
            case 4:
                log.complete(rng.choice([b"h", b"g"]), source=rng.choice(["", "s"]), zone=zone)
                log.forwarded(log.end - rng.randrange(20))


def _malformed_dpus(log: DeliveredZones) -> None:
    good = DpuRegistered(log.envelope(), ZONE, "d", "n", "s", "sim:x")
    for changes in ({"zone": "-"}, {"dpu": ""}, {"node": "no node"}, {"serial": "s\n"}, {"bmc_address": "s\n"}):
        log.append(replace(good, envelope=log.envelope(), **changes))
    log.register("d", node="n", serial="s")
    log.register("d", zone="z2")
    log.request("e", "pause")
    log.request("d", "explode")
    log.request("d", "pause", "image-1")
    log.request("d", "provision", "image\n")
    log.request("d", "provision")
    log.request("d", "retry")
    log.limit(2, 5)
    log.request("d", "provision", "image-1")
    log.register("d", node="m")
    about = (ZONE, "d", log.row("d").phase, log.row("d").attempt + 1)
    log.start("d", "")
    log.start("d", "p\n")
    log.start("d", attempt=99)
    log.request("d", "pause")
    log.start("d")
    log.request("d", "resume")
    log.start("d")
    log.start("d", "p2")
    said = internal_envelope("d", log.now_ms)
    for event in (
        StepStarted(said, ZONE, "d", READY, 1, "p1"),
        StepStarted(said, "z2", "d", READY, 1, "p1"),
        StepProgressed(said, *about, "t\n", 1),
        StepProgressed(said, *about, "t", 101),
        StepSucceeded(said, *about, {str(number): "" for number in range(17)}),
        StepSucceeded(said, *about, {"a": "b\n"}),
        StepSucceeded(said, *about, {"a\n": "b"}),
        DeadlinePassed(said, "other", 1),
        DeadlinePassed(internal_envelope("e", log.now_ms), "step", 1),
    ):
        log.append(event)
    log.progress("d", "task-1", 50)
    log.succeed("d", attempt=1)
    log.fail("d", "spite")
    log.expire("d", 1)
    log.expire("d", log.row("d").deadline_ms)
    log.fail("d", message="two\nlines")
    log.start("d")
    log.wait_for_backoff("d")
    log.start("d")
    log.now_ms = log.row("d").deadline_ms
    log.expire("d", log.row("d").deadline_ms)


def _line(log: DeliveredZones) -> None:
    """DPUs that wait for an install slot, or for a node that may be drained."""
    for number in range(6):
        log.register(f"q{number}", zone="z2", node=f"q{number // 2}", serial=f"s{number}")
    log.limit(2, 1, zone="z2")
    for number in range(6):
        log.request(f"q{number}", "provision", "image-1", zone="z2")
    log.request("q5", "pause", zone="z2")
    log.request("q4", "abort", zone="z2")
    log.start("q0")
    log.fail("q0", "operator")
    log.start("q1")
    log.fail("q1", "device")
    log.request("q3", "provision", "image-2", zone="z2")
    log.limit(0, 0, zone="z2")
    log.request("q0", "retry", zone="z2")
    log.request("q5", "resume", zone="z2")


def _lifecycle(log: DeliveredZones) -> None:
    log.wait_for_backoff("d")
    log.start("d")
    log.do_step("d") if log.row("d").step_state == "open" else log.succeed("d", {"boot_id": "1"})
    log.register("d", node="n", serial="t")
    log.request("d", "retry")
    log.do_until("d", "DPU Config")
    log.start("d")
    log.succeed("d", {"image": "other"})
    log.wait_for_backoff("d")
    log.do_until("d", READY)
    log.request("d", "provision", "image-2")
    log.request("d", "skip")
    log.start("d")
    log.fail("d", "lost")
    log.request("d", "abort")
    log.do_step("d")
    log.request("d", "delete")
    log.request("d", "delete")
    log.register("d", node="n", serial="v")
    log.request("d", "abort")
    log.request("d", "delete")
    log.do_step("d")


def _other_cards(log: DeliveredZones) -> None:
    """DPUs in Error, each with a message that the fold itself sets."""
    for name, facts in (("f0", {"serial": "t"}), ("f1", {"image": "other"}), ("f2", {})):
        log.register(name, zone="z3", node=name, serial="s")
        log.request(name, "provision", "image-1", zone="z3")
        log.do_until(name, "DPU Config")
        while log.row(name).phase == "DPU Config":
            log.wait_for_backoff(name)
            log.start(name)
            if facts:
                log.succeed(name, facts)
            else:
                log.now_ms = log.row(name).deadline_ms
                log.expire(name, log.row(name).deadline_ms)


def _some_dpus(log: DeliveredZones, rng: Random) -> None:
    names = [f"e{number}" for number in range(6)]
    requests = ["provision"] * 6 + ["pause", "resume", "resume", "retry", "retry", "skip", "abort", "delete"]
    for _ in range(700):
        name = rng.choice(names)
        log.now_ms += rng.choice([0, 0, 0, 1_000, 60_000])
        row = log.state.dpus.rows.get(name)
        if row is None or rng.random() < 0.03:
            log.register(name, node=f"h{rng.randrange(3)}", serial=rng.choice(["", "s", "t"]))
        elif rng.random() < 0.03:
            log.limit(rng.randrange(4), rng.randrange(4))
        elif row.step_state == "idle" or rng.random() < 0.08:
            request = rng.choice(requests)
            log.request(name, request, rng.choice(["", "i1", "i2"]) if request == "provision" else "")
        elif row.step_state == "open":
            log.wait_for_backoff(name)
            log.start(name, rng.choice(["p1", "p2"]))
        elif rng.random() < 0.7 or row.phase == DELETING:
            log.succeed(name, rng.choice([{}, {}, {}, {"serial": row.serial, "image": row.image}, {"image": "i3"}]))
        elif rng.random() < 0.2:
            log.now_ms = max(log.now_ms, row.deadline_ms)
            log.expire(name, row.deadline_ms)
        else:
            log.progress(name, f"task-{rng.randrange(9)}", rng.randrange(100))
            log.fail(name, rng.choice(["transient", "transient", "device", "operator", "lost"]))


def _agents(log: DeliveredZones) -> None:
    """Statements that node agents may and may not make."""
    net = NET + 40_000
    for networks, keys in ((["10.0.0.1/8"], []), (["10.0.0.0/8"] * 65, []), ([], ["-"]), ([], ["k"] * 129)):
        log.limit(-1, -1, zone="y", networks=networks, keys=keys)
    log.limit(-1, -1, zone="y", networks=["10.0.0.0/8", "fd00::/8"], keys=["role", "more"])
    log.join("p", "q", zone="y", address=net, labels={"trust": "low"})
    for actor, zone in (("node-agent/p", "nowhere"), ("node-agent/p", ZONE), ("node-agent/o", "y")):
        log.actor = actor
        log.join(actor.partition("/")[2], zone=zone, address=net + 2)
    log.actor = "node-agent/p"
    log.join("p", zone="y", labels={"trust": "high"})
    log.join("p", zone="y", labels={"role": "web", "trust": "low"})
    log.join("p", zone="y", labels={"role": "db"}, address=net)
    log.join("p", zone="y", address=net + 9)
    log.change("p", zone="y", address=net + 9)
    log.leave("p", zone="y")
    log.actor = "node-agent/o"
    log.join("o", zone="y", address=11 << 24)
    log.change("o", zone="y", address=net + 3)
    log.leave("o", zone="y")
    log.actor = "?test"
    log.join("p", zone="y", labels={f"k{number}": "" for number in range(127)})
    log.actor = "node-agent/p"
    log.join("p", zone="y", labels={"role": "", "more": ""})
    log.actor = "?test"


def _some_agents(log: DeliveredZones, rng: Random) -> None:
    for _ in range(200):
        name = rng.choice("opqu")
        log.actor = rng.choice(["?test", f"node-agent/{name}", f"node-agent/{name}"])
        if rng.random() < 0.15:
            log.leave(name, zone="y")
            continue
        labels = {key: rng.choice("12") for key in ("role", "trust") if rng.random() < 0.4}
        event = nodes_joined(log.envelope(), [name], zone="y", labels=labels, address=NET + 41_000 + rng.randrange(4))
        if rng.random() < 0.5:
            event = replace(event, addresses6=packed6(f"fd00::{rng.randrange(1, 4)}"))
        log.append(event if rng.random() < 0.7 else NodesChanged(**asdict(event)))
    log.actor = "?test"


def _malformed_wants(log: DeliveredZones) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"dpus": []},
        {"dpus": [f"w{number}" for number in range(MAX_ITEMS + 1)]},
        {"dpus": ["w0", "w0"]},
        {"dpus": ["no dpu"]},
        {"zones": []},
        {"cause_partition": -1},
        {"objects": ["o\n"]},
        {"zones": ["no zone"]},
        {"nodes": ["no node"]},
        {"serials": ["s\n"]},
        {"bmc_addresses": ["s\n"]},
        {"images": ["i\n"]},
        {"from_offset": 7},
        {"from_offset": 0, "to_offset": -1},
    )
    for fields in wrong:
        names = fields.get("dpus", ["w0"])
        log.append(replace(log.wanted("w0"), **({"dpus": names} | fields)))


def _wants(log: DeliveredZones) -> None:
    zone = "w"
    log.limit(2, 2, zone=zone)
    log.want("w0", "w1", "w2", "w3", zone=zone)
    log.want("w0", "w1", zone=zone, from_offset=log.state.wanted_before(0), to_offset=log.state.wanted_before(0))
    log.want("w0", zone=zone, object_="other/DPU.p/dpf/w0")
    log.want("w0", zone="", object_="other/DPU.p/dpf/w0")
    log.want("w0", zone="w2")
    log.register("w0", zone=zone)
    log.register("by-hand", zone=zone)
    log.want("by-hand", zone=zone)
    log.want("absent", zone="")
    log.want("w0", zone=zone, image="i2", serials=["s"], nodes=["other"])
    log.do_until("w0", READY)
    log.want("w0", zone=zone, image="i2", serials=["s"], nodes=["other"], bmc_addresses=["simulated:x"])
    log.want("w0", zone=zone, image="i3", serials=["s"], nodes=["other"])
    log.want("w0", zone=zone, image="i2", serials=["s"], nodes=["other"])
    log.want("w0", zone=zone, image="i2", serials=["t"], nodes=["other"])
    log.request("w0", "delete", zone=zone)
    log.want("w0", zone=zone, image="i4")
    log.want("w0", zone="")
    log.want("w0", zone=zone, image="i5")
    log.start("w0")
    log.succeed("w0")
    log.want("w1", "w2", zone="")
    log.start("w1")
    log.succeed("w1")


def _some_wants(log: DeliveredZones, rng: Random) -> None:
    names = [f"v{number}" for number in range(5)]
    for _ in range(300):
        log.now_ms += rng.choice([0, 0, 1_000, 60_000])
        row = log.state.dpus.rows.get(name := rng.choice(names))
        if row is None or rng.random() < 0.25:
            zone = rng.choice(["w", "w", "w", "w2", ""])
            some = rng.sample(names, rng.choice([1, 1, 3]))
            log.want(*some, zone=zone, image=rng.choice(["", "i1", "i2"]), serials=[rng.choice(["", "s"])])
        elif row.step_state == "idle" or rng.random() < 0.05:
            request = rng.choice(["provision", "pause", "resume", "retry", "skip", "abort", "delete"])
            log.request(name, request, zone=row.zone)
        elif row.step_state == "open":
            log.wait_for_backoff(name)
            log.start(name)
        elif rng.random() < 0.8:
            log.succeed(name)
        else:
            log.fail(name, rng.choice(["transient", "device", "operator", "lost"]))
