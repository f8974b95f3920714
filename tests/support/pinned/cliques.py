"""A history of a cliques partition with every event and every refusal of its fold, and random events."""

from __future__ import annotations

from random import Random

from eventstore.log import Record
from projections.cliques.state import MAX_CAPACITY
from projections.field_checks import MAX_AHEAD_MS
from schemas.events import MAX_ITEMS, Envelope, IndicesClaimed, IndicesReleased, SessionOpened
from tests.support.cliques import START_MS, DeliveredCliques


def records() -> list[Record]:
    log = DeliveredCliques()
    log.now_ms = START_MS + 1_000
    _malformed(log)
    _members(log)
    _pods(log)
    _sessions(log)
    _line(log)
    _some(log, Random(3))
    return log.delivered.records


def _malformed(log: DeliveredCliques) -> None:
    for domain, clique in (("a b", "c"), ("d", "")):
        log.domain, log.clique = domain, clique
        log.claim("n", "u")
        log.release("n")
        log.resize(3)
        log.ready("n")
        log.open_session("n", "s")
        log.expire_session("n", "s")
    log.domain, log.clique = "d", "c"
    log.claim("", "u")
    log.claim("n", "u\n")
    log.claim("n", "u", created_ms=log.now_ms + 2 + MAX_AHEAD_MS)
    log.claim("n", "u", requested_index=-2)
    for address in ("10.0.0", "fe80::1%eth0", "127.0.0.1", "::ffff:10.0.0.1", "ff02::1"):
        log.claim("n", "u", address=address)
    for capacity in (0, MAX_CAPACITY + 1):
        log.resize(capacity)
    log.claim("n", "u", requested_index=18)
    none: tuple[list[str], list[int]] = [], []
    said = Envelope("id", "d/c", "test", 0)
    for nodes in ([], [f"n{number}" for number in range(MAX_ITEMS + 1)], ["n", "m", "n"]):
        log.append(IndicesClaimed(said, "d", "c", nodes, none[0], none[1], none[0], none[1]))
        log.append(IndicesReleased(said, "d", "c", nodes, []))
    large = [f"{'n' * 200}-{number}" for number in range(MAX_ITEMS)]
    log.append(IndicesReleased(said, "d", "c", large, ["u" * 128] * MAX_ITEMS))
    two = ["n", "m"]
    log.append(IndicesClaimed(said, "d", "c", two, ["10.0.0.1"], none[1], none[0], none[1]))
    log.append(IndicesClaimed(said, "d", "c", two, none[0], [1, 2, 3], none[0], none[1]))


def _members(log: DeliveredCliques) -> None:
    log.fill(5)
    log.resize(4)
    log.release("n4")
    log.release("n4")
    log.resize(4)
    log.resize(4)
    log.claim("n0", "u0", address="10.0.0.1")
    log.claim("n0", "u0", address="2001:DB8:0::1")
    log.claim("x", "ux", requested_index=0)
    log.claim("n0", "u0", requested_index=3)
    log.claim("n0", "u0", requested_index=0)
    log.claim("n0", "v0", requested_index=7)
    log.release("n1", "other")
    log.ready("n1", uid="other")
    log.release("n1", "u1")
    log.claim("n0", "u0", requested_index=1)
    log.claim("n1", "w1", address="2001:db8::1", created_ms=log.now_ms + 50)
    log.claim("n2", "u2", clique="c2")
    log.claim("n2", "v2", clique="c2", address="10.0.0.3", requested_index=5)
    log.claim("n3", "older", created_ms=5)


def _pods(log: DeliveredCliques) -> None:
    """Statements at one time, late statements, and pods created within one second."""
    now = log.now_ms = log.now_ms + 100
    log.claim("p", "u", issued_ms=now - 50, address="10.1.0.1", internal=True)
    log.claim("p", "u", issued_ms=now - 60, address="10.1.0.2", internal=True)
    log.claim("p", "u", issued_ms=now - 50, address="10.1.0.3", internal=True)
    log.release("p", "u", issued_ms=now - 70, internal=True)
    log.ready("p", issued_ms=now - 60)
    log.ready("p", issued_ms=now - 40)
    log.claim("p", "t", created_ms=now - 50, issued_ms=now - 90, internal=True)
    log.claim("p", "t", created_ms=now - 50, issued_ms=now - 10, internal=True)
    log.release("p", "t", issued_ms=now - 5, internal=True)
    log.claim("p", "t", created_ms=now - 50, issued_ms=now - 8, internal=True)
    log.claim("p", "t", created_ms=now - 50)
    log.claim("n")
    log.claim("n")


def _sessions(log: DeliveredCliques) -> None:
    log.open_session("p", "")
    log.open_session("p", "s\n")
    log.append(SessionOpened(Envelope("", "", "test", 0), "d", "c", "p", "t", "s", "edge\n"))
    log.open_session("p", "s1")
    log.open_session("p", "s1")
    log.open_session("p", "s0", issued_ms=log.now_ms - 50)
    log.ready("p")
    log.expire_session("p", "s0")
    log.expire_session("p", "s1")
    log.expire_session("p", "s1")
    log.ready("p")
    log.ready("p", ready=False)
    log.open_session("p", "s2")
    log.ready("p")


def _line(log: DeliveredCliques) -> None:
    log.clique = "l"
    log.resize(1)
    for name in ("a", "b", "c", "e"):
        log.claim(name, f"u-{name}", address="10.2.0.1")
    log.ready("b")
    log.claim("c", "u-c", requested_index=0)
    log.claim("b", "v-b")
    log.release("c")
    log.release("a", "u-a")
    log.claim("a", "v-a", created_ms=log.now_ms + 100)
    log.resize(3)


def _some(log: DeliveredCliques, rng: Random) -> None:
    for _ in range(600):
        log.now_ms += rng.choice([0, 0, 10, 1_000])
        log.clique = rng.choice(["c1", "c1", "c2"])
        node, uid = f"r{rng.randrange(7)}", rng.choice(["", "u", "v", "w"])
        row = log.state.member(f"d/{log.clique}", node)
        known = row.uid if row is not None else uid
        issued_ms = log.now_ms - rng.randrange(3)
        nodes = [node, *rng.sample([f"s{number}" for number in range(5)], 2)]
        match rng.randrange(11):
            case 0 | 1 | 2 | 3:
                address = rng.choice(["", f"10.3.0.{rng.randrange(1, 6)}"])
                created_ms = rng.choice([0, START_MS + rng.randrange(5)])
                requested_index = rng.choice([-1, -1, -1, rng.randrange(5)])
                is_internal = rng.random() < 0.5
                log.claim(
                    node,
                    uid,
                    address=address,
                    created_ms=created_ms,
                    requested_index=requested_index,
                    internal=is_internal,
                    issued_ms=issued_ms,
                )
            case 4:
                log.release(node, rng.choice(["", known, uid]), internal=rng.random() < 0.5, issued_ms=issued_ms)
            case 5:
                log.resize(rng.randrange(1, 6))
            case 6:
                log.ready(node, rng.random() < 0.7, known, issued_ms=issued_ms)
            case 7:
                log.open_session(node, rng.choice("st"), known, issued_ms=issued_ms)
            case 8:
                log.expire_session(node, rng.choice("st"))
            case 9:
                hosts = rng.sample(range(1, 8), len(nodes))
                created_ms = rng.choice([0, START_MS + rng.randrange(5)])
                claims = [
                    (name, uid, f"10.3.0.{host}", created_ms, rng.choice([-1, -1, 2]))
                    for name, host in zip(nodes, hosts, strict=True)
                ]
                log.claim_all(*claims, internal=rng.random() < 0.5, issued_ms=issued_ms)
            case 10:
                log.release_all(
                    *((name, rng.choice(["", uid])) for name in nodes), internal=rng.random() < 0.5, issued_ms=issued_ms
                )
