"""Records about visits to the devices of Ready DPUs, whose certificates are renewed."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from projections.zones.dpus.certificates import (
    AUTHORITY,
    CERTIFICATE_FACT,
    DAY_MS,
    ENDS_FACT,
    FAILURES_MAX,
    visit_ms,
)
from projections.zones.dpus.phases import READY
from tests.support.zones import DeliveredZones, ZonesPartition

ZONE = "certified"


def day(time_ms: int) -> str:
    """A day as the fact has it."""
    return f"{datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%d}"


def ends_in(log: ZonesPartition, days: int) -> dict[str, str]:
    """The facts of a certificate that ends in so many days."""
    return {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: day(log.now_ms + days * DAY_MS)}


def visits(log: DeliveredZones) -> None:
    """Visits that end in every way, and those that are refused."""
    log.limit(9, 9, zone=ZONE)
    for number, (bmc, facts) in enumerate(
        (
            ("redfish://a:443", ends_in(log, 365)),
            ("gnoi://b:9339", {CERTIFICATE_FACT: AUTHORITY}),
            ("simulated:c", ends_in(log, 1)),
            ("redfish://d:443", {CERTIFICATE_FACT: "0" * 64}),
            ("redfish://e:443", {ENDS_FACT: "9999-99-99"}),
            ("redfish://f:443", {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: ""}),
        )
    ):
        name = f"visited{number}"
        log.register(name, zone=ZONE, bmc=bmc)
        log.request(name, "provision", "image-1", zone=ZONE)
        while log.row(name).phase != READY:
            log.do_step(name, facts)
        log.start(name)
        log.request(name, "retry", zone=ZONE)
    for name in ("visited0", "visited1"):
        _go_to_visit(log, name)
        log.request(name, "pause", zone=ZONE)
        log.start(name)
        log.request(name, "resume", zone=ZONE)
        log.start(name, attempt=1)
        log.start(name)
        log.start(name, "p2")
        log.progress(name, "t", 50)
        log.fail(name, "device", attempt=1)
        log.fail(name, "transient", message="away")
        log.start(name)
        _go_to_visit(log, name)
        log.start(name)
        log.fail(name, "operator")
        log.request(name, "retry", zone=ZONE)
        log.start(name)
        log.fail(name, "lost")
        log.start(name)
        _go_to_visit(log, name)
        log.start(name)
        log.now_ms = log.row(name).deadline_ms
        log.expire(name, log.row(name).deadline_ms)
        _go_to_visit(log, name)
        log.start(name)
        log.succeed(name, ends_in(log, 365))
        log.succeed(name, ends_in(log, 400))
        log.start(name)
    for _ in range(FAILURES_MAX):
        _go_to_visit(log, "visited0")
        log.start("visited0")
        log.fail("visited0", "device")
    log.start("visited0")
    log.request("visited0", "retry", zone=ZONE)
    log.start("visited0")
    log.request("visited0", "provision", "image-2", zone=ZONE)
    log.succeed("visited0", ends_in(log, 365))
    _other_addresses(log)


def _other_addresses(log: DeliveredZones) -> None:
    """Addresses that change before, during and after visits, and a day before 1970."""
    for number, facts in enumerate(
        (
            ends_in(log, 1),
            {CERTIFICATE_FACT: "0" * 64, ENDS_FACT: day(log.now_ms)},
            {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: "1960-01-01"},
        )
    ):
        name = f"moved{number}"
        log.register(name, zone=ZONE, bmc="redfish://a:443")
        log.request(name, "provision", "image-1", zone=ZONE)
        while log.row(name).phase != READY:
            log.do_step(name, facts)
        log.start(name)
        log.register(name, zone=ZONE, bmc="redfish://b:443")
        log.succeed(name, ends_in(log, 365))
        log.now_ms += 15 * DAY_MS
        log.start(name)
        log.fail(name, "operator")
        log.request(name, "pause", zone=ZONE)
        log.request(name, "resume", zone=ZONE)
        log.register(name, zone=ZONE, bmc="rshim:n/h")
        log.request(name, "retry", zone=ZONE)
        log.request(name, "provision", "image-2", zone=ZONE)
        log.register(name, zone=ZONE, bmc="gnoi://c:9339")


def _go_to_visit(log: DeliveredZones, name: str) -> None:
    at_ms = visit_ms(name, log.row(name))
    assert at_ms is not None
    log.now_ms = max(log.now_ms, at_ms)


def some_visits(log: DeliveredZones, rng: Random) -> None:
    """Visits, failures and requests in any order."""
    names = [f"some{number}" for number in range(4)]
    for name in names:
        log.register(name, zone=ZONE, bmc=f"redfish://{name}:443")
        log.request(name, "provision", "image-1", zone=ZONE)
        while log.row(name).phase != READY:
            log.do_step(name, ends_in(log, rng.randrange(400)))
    for _ in range(400):
        row = log.row(name := rng.choice(names))
        if row.step_state == "running":
            if rng.random() < 0.5:
                log.succeed(name, rng.choice([{}, ends_in(log, 365), ends_in(log, 10), {ENDS_FACT: ""}]))
            else:
                log.fail(name, rng.choice(["transient", "device", "operator", "lost"]))
        elif row.step_state == "open":
            log.wait_for_backoff(name)
            log.start(name)
        elif rng.random() < 0.1:
            log.register(name, zone=ZONE, bmc=rng.choice(["redfish://a:443", "rshim:n/h", f"redfish://{name}:443"]))
        elif rng.random() < 0.2:
            request = rng.choice(["provision", "pause", "resume", "resume", "retry", "skip", "abort"])
            log.request(name, request, zone=ZONE)
        else:
            log.now_ms += rng.choice([0, DAY_MS // 2, 9 * DAY_MS])
            log.start(name)
