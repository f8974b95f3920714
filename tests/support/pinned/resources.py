"""A history of a resources partition with every event and every refusal of its fold, and random events."""

from __future__ import annotations

from random import Random
from typing import Any

from eventstore.log import Record
from projections.field_checks import MAX_AHEAD_MS
from projections.resources.items import MAX_ANNOTATION_BYTES, MAX_OBSERVATION_BYTES, MAX_SPEC_BYTES
from projections.resources.json_limits import DIGITS_MAX, NESTING_MAX
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS
from tests.support.pinned.network_stages import add_network_stages
from tests.support.pinned.rollouts import add_rollouts
from tests.support.resources import BFB, DPU, DPU_SET, EAST, DeliveredResources, bfb, dpu_set


def records() -> list[Record]:
    log = DeliveredResources()
    _malformed_ids(log)
    _malformed_columns(log)
    _objects(log)
    _reports(log)
    _observations(log)
    _placements(log)
    add_rollouts(log)
    add_network_stages(log)
    _some(log, Random(3))
    return log.delivered.records


def _malformed_ids(log: DeliveredResources) -> None:
    two = ["a", "b"]
    wrong: tuple[dict[str, Any], ...] = (
        {"source": "a b"},
        {"names": []},
        {"names": [f"n{number}" for number in range(MAX_ITEMS + 1)]},
        {"names": ["A"]},
        {"names": ["a", "a"]},
        {"kinds": ["bfb"]},
        {"kinds": []},
        {"namespaces": ["-"]},
        {"namespaces": [], "names": two},
    )
    for columns in wrong:
        kinds, names = columns.pop("kinds", [BFB]), columns.pop("names", ["a"])
        log.append(log.applied(BFB, names, [bfb("1")], kinds=kinds, **columns))
        log.append(log.deleted(kinds, names, **columns))
        log.append(log.observed(BFB, names, ["{}"], kinds=kinds, **columns))
        log.append(log.placed(names, ["z"], kinds=kinds, **columns))
    log.append(log.deleted([BFB], two, uids=["u"] * 3))
    log.append(log.deleted([BFB], two, uids=["\n"]))


def _malformed_columns(log: DeliveredResources) -> None:
    late_ms = log.now_ms + 2 * MAX_AHEAD_MS
    wrong: tuple[dict[str, Any], ...] = (
        {"specs": []},
        {"specs": ["{}"] * 3},
        {"specs": ["[]"]},
        {"specs": ["{"]},
        {"specs": [f'{{"a":{"1" * (DIGITS_MAX + 1)}}}']},
        {"specs": ['{"a":' * (NESTING_MAX + 1) + "1" + "}" * (NESTING_MAX + 1)]},
        {"specs": ["{" + " " * MAX_SPEC_BYTES + "}"]},
        {"names": ["a", "b"], "specs": ["{" + " " * (MAX_COMMAND_BYTES // 2) + "}"]},
        {"uids": ["\n"]},
        {"uids": ["u"], "generations": [0]},
        {"created_ms": [late_ms]},
        {"deleted_ms": [-1]},
        {"expected_generations": [-2]},
        {"expected_revisions": [-2]},
        {"resource_versions": [-1]},
        {"labels": [{"a b": ""}]},
        {"annotations": [{"a b": ""}]},
        {"annotations": [{"a": "x" * MAX_ANNOTATION_BYTES}]},
    )
    for columns in wrong:
        given = {"names": ["a"], "specs": [bfb("1")]} | columns
        log.append(log.applied(BFB, given.pop("names"), given.pop("specs"), **given))


def _objects(log: DeliveredResources) -> None:
    log.apply(BFB, "image", bfb("1"), expected=1)
    log.apply(BFB, "image", bfb("1"), expected=0, labels=[{"a": "b"}], annotations=[{"dpu.nvidia.com/c": "line\n"}])
    log.apply(BFB, "image", bfb("1"))
    log.apply(BFB, "image", bfb("1"), expected=0)
    log.apply(BFB, "image", bfb("2"), expected=1)
    log.apply(DPU_SET, "set", dpu_set("image"))
    log.apply(DPU_SET, "other", dpu_set("image"))
    log.delete(BFB, "image", uid="another")
    log.delete(BFB, "image")
    log.delete(BFB, "image")
    log.apply(BFB, "image", bfb("3"))
    log.apply(DPU_SET, "other", dpu_set("none"))
    log.append(log.deleted([DPU_SET], ["set", "absent"]))
    log.delete(BFB, "absent")
    log.append(log.applied(BFB, ["a", "b"], [bfb("1"), bfb("2")]))
    log.append(log.applied(BFB, ["a", "b"], [bfb("1"), bfb("3")], expected_generations=[1]))
    log.append(log.applied(BFB, ["a", "b"], [bfb("2")], expected_generations=[1]))
    log.apply(BFB, "a", bfb("2"), expected_revisions=[log.revision(BFB, "a")], annotations=[{"d": "e"}])
    log.apply(BFB, "a", bfb("2"), annotations=[{"c": "of a manifest"}])
    log.apply(BFB, "a", bfb("2"), annotations=[{"d": "of a manifest"}])
    log.apply(BFB, "a", bfb("2"))
    log.apply(BFB, "a", bfb("2"), expected_revisions=[0])
    log.apply(BFB, "absent", bfb("2"), expected_revisions=[0])


def _reports(log: DeliveredResources) -> None:
    log.report(BFB, "image", bfb("1"), uid="u1", generation=2)
    log.report(BFB, "image", bfb("1"), uid="u1", generation=2)
    log.report(BFB, "image", bfb("0"), uid="u1", generation=1)
    log.report(BFB, "image", bfb("2"), uid="u2", generation=1, created_ms=2)
    log.report(BFB, "image", bfb("3"), uid="u2", generation=1, created_ms=2, version=9)
    log.report(BFB, "image", bfb("4"), uid="u2", generation=1, created_ms=2, version=8)
    log.report(BFB, "image", bfb("4"), uid="u2", generation=1, created_ms=2, version=8, expected=1)
    log.apply(BFB, "image", bfb("3"), source=EAST)
    log.report(DPU_SET, "set", dpu_set("image"), uid="u3", generation=1)
    log.delete(BFB, "image", uid="u1", source=EAST)
    log.delete(BFB, "image", uid="u2", source=EAST)


def _observations(log: DeliveredResources) -> None:
    two = ["a", "b"]
    wrong: tuple[dict[str, Any], ...] = (
        {"observations": []},
        {"observations": ["[]"]},
        {"observations": ['{"ready":1}']},
        {"observations": ['{"message":["a"]}']},
        {"observations": ['{"a":' * (NESTING_MAX + 1) + "1" + "}" * (NESTING_MAX + 1)]},
        {"observations": ["{" + " " * MAX_OBSERVATION_BYTES + "}"]},
        {"names": [f"n{n}" for n in range(20)], "observations": ["{" + " " * (MAX_OBSERVATION_BYTES - 9) + "}"] * 20},
        {"names": two, "uids": ["u"] * 3},
        {"names": two, "uids": ["\n"]},
        {"names": two, "resource_versions": [1] * 3},
        {"resource_versions": [-1]},
    )
    for columns in wrong:
        given: dict[str, Any] = {"names": ["a"], "observations": ["{}"]} | columns
        log.append(log.observed(BFB, given.pop("names"), given.pop("observations"), **given))
    log.observe(BFB, "absent", "")
    log.observe(BFB, "a", '{"ready":true}', uids=["u"])
    log.observe(BFB, "a", '{"ready":true}', uids=["u"])
    log.observe(BFB, "a", '{"ready":false,"phase":"Error","message":"gone"}', uids=["u"], source="east.dpf.tenant")
    log.append(log.observed(BFB, two, ['{"ready":true}']))
    log.observe(BFB, "a", "", uids=["other"])
    log.observe(BFB, "a", "")
    for text, version in (('{"a":1}', 5), ('{"a":2}', 4), ("", 4), ('{"a":1}', 6), ('{"a":1}', 0), ("", 0)):
        log.observe(BFB, "a", text, resource_versions=[version])
    for first, last in ((0, 5), (0, 6), (5, 5), (5, 4), (5, 9), (9, 9)):
        phase = f'{{"phase":"Ready","since":{last}}}'
        log.observe(BFB, "a", phase, cause_partition=3, from_offset=first, to_offset=last)


def _placements(log: DeliveredResources) -> None:
    log.append(log.placed(["a", "b"], ["z", "z", "z"]))
    log.append(log.placed(["a"], ["no zone"]))
    for zone in ("", "z1", "z1", "z2", "", "", "z2", "z1", ""):
        log.place("d", "e", zone=zone)
        log.place("d", zone=zone)
    for first, last, seen in ((0, 1, 1), (1, 1, log.delivered.end), (1, 2, 2**40)):
        cause = {"cause_partition": 4, "from_offset": first, "to_offset": last, "seen_offset": seen}
        log.observe(DPU, "d", "", **cause)
        log.place("d", zone="z2")


def _some(log: DeliveredResources, rng: Random) -> None:
    for _ in range(200):
        name, other = (f"n{rng.randrange(4)}" for _ in range(2))
        match rng.randrange(6):
            case 0 | 1:
                log.apply(BFB, name, bfb(other), expected=rng.choice((-1, -1, 0, 1)))
            case 2:
                log.apply(DPU_SET, name, dpu_set(other))
            case 3:
                log.delete(BFB, name)
            case 4:
                log.delete(DPU_SET, name)
            case 5:
                text = rng.choice(("", '{"ready":true}', '{"ready":false}'))
                log.observe(BFB, name, text, resource_versions=[rng.randrange(9)])
