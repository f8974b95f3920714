"""Holding what replicas claim against a fresh fold: which claims count, and what is said of one that differs."""

from __future__ import annotations

import random

from deploy.audit.verification import Claim, fold_afresh
from eventstore.folding.origin import establish
from eventstore.log import FLEET_0
from projections.fleet.fold import FleetFold
from tests.support.memory_log import Contents, MemoryLog

NOW_MS = 1_700_000_000_000


async def new_log() -> MemoryLog:
    log = MemoryLog(Contents(3), lambda: NOW_MS)
    await establish(log, "test", NOW_MS, random.Random(7))
    return log


async def test_a_replica_that_has_saved_nothing_claims_nothing() -> None:
    log = await new_log()
    fresh = await fold_afresh(log, [FleetFold(3)], [Claim("r", FLEET_0, 0, bytes(16).hex())])
    assert (fresh.claims, fresh.differences) == (0, ())


async def test_a_claim_is_held_against_the_fold_at_its_position() -> None:
    log = await new_log()
    end = await log.end(FLEET_0)
    right = (await fold_afresh(log, [FleetFold(3)], [])).replayed.digests[FLEET_0][end]
    wrong = bytes(16).hex()
    claims = [Claim("good", FLEET_0, end, right), Claim("bad", FLEET_0, end, wrong)]
    fresh = await fold_afresh(log, [FleetFold(3)], claims)
    assert fresh.claims == 2
    assert fresh.differences == (f"fleet/0 at {end}: bad has state {wrong}, the log {right}",)
