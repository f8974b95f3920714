"""Verification compares the digests of replicas with a fresh fold, and explains each difference."""

from __future__ import annotations

import random

from deploy.composition.topics import TOPICS
from deploy.operations.audit.verification import ReplicaDigest, compare_devices, refold_log
from eventstore.avro.codec import encode
from eventstore.folding.origin import ensure_origin
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0, ZONES
from eventstore.replicas.lineage import Lineage
from projections.fleet.fold import FleetFold, FleetFold2
from projections.fleet.tables.zone_table import table
from projections.rules.rule import Held
from projections.zones.fold import ZonesFold
from schemas.events import DpuRegistered, FoldVersionUpgraded, PolicySet, PolicyStaged, StageDpusNamed, StageObserved
from tests.support.memory_log import Contents, MemoryLog

NOW_MS = 1_700_000_000_000


async def new_log() -> MemoryLog:
    log = MemoryLog(Contents(3), lambda: NOW_MS)
    await ensure_origin(log, "test", NOW_MS, random.Random(7))
    return log


async def test_a_digest_at_position_zero_is_not_compared() -> None:
    log = await new_log()
    fresh = await refold_log(log, [FleetFold(3)], [ReplicaDigest("r", FLEET_0, 0, bytes(16).hex())])
    assert (fresh.replica_digests, fresh.differences) == (0, ())


async def test_a_digest_is_compared_with_the_fold_at_its_position() -> None:
    log = await new_log()
    end = await log.end(FLEET_0)
    right = (await refold_log(log, [FleetFold(3)], [])).replayed.digests[FLEET_0][end]
    wrong = bytes(16).hex()
    replica_digests = [ReplicaDigest("good", FLEET_0, end, right), ReplicaDigest("bad", FLEET_0, end, wrong)]
    fresh = await refold_log(log, [FleetFold(3)], replica_digests)
    assert fresh.replica_digests == 2
    assert fresh.differences == (f"fleet/0 at {end}: bad has state {wrong}, the log {right}",)


async def test_a_partition_that_cannot_be_folded_differs() -> None:
    log = await new_log()
    raised = FoldVersionUpgraded(internal_envelope("fold", "test", NOW_MS), 9)
    await log.append(FLEET_0, b"fold", encode(raised))
    fresh = await refold_log(log, [FleetFold(3)], [])
    [difference] = fresh.differences
    assert difference.startswith("fleet/0 cannot be folded at 1: the log requires fold version 9")


async def test_a_dpu_is_equal_only_with_equal_epoch_version_and_digest() -> None:
    log = await new_log()
    for name in ("right", "digest", "epoch", "older", "away"):
        event = DpuRegistered(internal_envelope(name, "test", NOW_MS), "z1", name, name, "", "simulated:d")
        await log.append(TOPICS.partition_for(ZONES, "z1", 3), b"z1", encode(event))
    policy = PolicySet(internal_envelope("p", "test", NOW_MS), "p", 1, "drop", "any", [], {}, {})
    await log.append(FLEET_0, b"", encode(policy))
    fresh = await refold_log(log, [FleetFold(3), ZonesFold()], [])
    now = table(fresh.fleet, "z1")
    assert now.version
    right = Held(1, now.version, now.digest)
    held = {
        "right": right,
        "digest": right._replace(digest=b"x" * 16),
        "epoch": right._replace(epoch=2),
        "older": right._replace(version=now.version - 1),
    }
    found = compare_devices(fresh, Lineage(1, ()), {"z1": held})
    assert (found.equal, found.absent) == (1, ("away",))
    assert [difference.split()[1] for difference in found.differences] == ["digest", "epoch", "older"]


async def test_a_dpu_must_have_the_list_of_its_stage() -> None:
    log = await new_log()
    said = internal_envelope("p", "test", NOW_MS)
    for name in ("canary", "early", "late", "other"):
        event = DpuRegistered(internal_envelope(name, "test", NOW_MS), "z1", name, name, "", "simulated:d")
        await log.append(TOPICS.partition_for(ZONES, "z1", 3), b"z1", encode(event))
    await log.append(FLEET_0, b"", encode(FoldVersionUpgraded(said, FleetFold2.version)))
    await log.append(FLEET_0, b"", encode(PolicySet(said, "q", 1, "drop", "any", [], {}, {})))
    stages = ["50%", "100%"]
    await log.append(FLEET_0, b"", encode(PolicyStaged(said, "p", False, 2, "drop", "any", [], {}, {}, stages, 0, "0")))
    change = await log.end(FLEET_0)
    await log.append(FLEET_0, b"", encode(StageDpusNamed(said, change, 1, 4, ["z1", "z1"], ["canary", "late"])))
    await log.append(FLEET_0, b"", encode(StageObserved(said, change, 0, 4, 2, 0, [], [])))
    fresh = await refold_log(log, [FleetFold(3), FleetFold2(3), ZonesFold()], [])
    assert not fresh.differences
    before, after = (table(fresh.fleet, "z1", stage) for stage in (0, 1))
    assert after.version > before.version
    old, new = Held(1, before.version, before.digest), Held(1, after.version, after.digest)
    held = {"canary": new, "early": new, "late": old, "other": old}
    found = compare_devices(fresh, Lineage(1, ()), {"z1": held})
    assert found.equal == 2
    assert [difference.split()[1] for difference in found.differences] == ["early", "late"]
