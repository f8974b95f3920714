"""A history of a resources partition with every event and every refusal of its fold, and random events."""

from __future__ import annotations

from random import Random
from typing import Any

from eventstore.log import Record
from projections.field_checks import MAX_AHEAD_MS
from projections.resources.items import MAX_ANNOTATION_BYTES, MAX_SPEC_BYTES
from projections.resources.json_limits import DIGITS_MAX, NESTING_MAX
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS
from tests.support.resources import BFB, DPU_SET, EAST, DeliveredResources, bfb, dpu_set


def records() -> list[Record]:
    log = DeliveredResources()
    _malformed_ids(log)
    _malformed_columns(log)
    _objects(log)
    _reports(log)
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


def _reports(log: DeliveredResources) -> None:
    log.report(BFB, "image", bfb("1"), uid="u1", generation=2)
    log.report(BFB, "image", bfb("1"), uid="u1", generation=2)
    log.report(BFB, "image", bfb("0"), uid="u1", generation=1)
    log.report(BFB, "image", bfb("2"), uid="u2", generation=1, created_ms=2)
    log.apply(BFB, "image", bfb("3"), source=EAST)
    log.report(DPU_SET, "set", dpu_set("image"), uid="u3", generation=1)
    log.delete(BFB, "image", uid="u1", source=EAST)
    log.delete(BFB, "image", uid="u2", source=EAST)


def _some(log: DeliveredResources, rng: Random) -> None:
    for _ in range(200):
        name, other = (f"n{rng.randrange(4)}" for _ in range(2))
        match rng.randrange(5):
            case 0 | 1:
                log.apply(BFB, name, bfb(other), expected=rng.choice((-1, -1, 0, 1)))
            case 2:
                log.apply(DPU_SET, name, dpu_set(other))
            case 3:
                log.delete(BFB, name)
            case 4:
                log.delete(DPU_SET, name)
