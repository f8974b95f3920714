"""Rollouts and allocations for the history of a resources partition: every event, and every refusal of its fold."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from projections.resources import kinds
from projections.resources.rollouts.decide import MAX_ADVANCED
from projections.resources.rollouts.rows import DIGEST_MODULUS
from projections.sizes import MAX_BAKE_MS, MAX_WAVES
from schemas.events import MAX_ITEMS, DpusAllocated, RolloutAdvanced, RolloutPlanned, RolloutRequested
from tests.support.resources import EAST, LOCAL, NAMESPACE, DeliveredResources
from tests.support.rollouts import PLAIN, RollingFleet, plan_in_kubernetes

_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
_VALID: dict[str, Any] = {
    "source": LOCAL,
    "namespace": NAMESPACE,
    "name": "other",
    "deployment": "",
    "position": 0,
    "template": "{}",
    "stated": "{}",
    "strategy": "RollingUpdate",
    "max_unavailable": "1",
    "waves": ["100%"],
    "bake_ms": 0,
    "failure_budget": "",
    "is_paused": False,
    "digest": 0,
    "dpus": ["d"],
    "identities": ["one/1"],
    "wave_numbers": [0],
    "groups": [0],
}


def add_rollouts(log: DeliveredResources) -> None:
    for name in ("set", "other"):
        log.delete(kinds.DPU_SET, name)
    fleet = RollingFleet(6, log=log, waves="1,50%", bake_time="1s", failure_budget="0")
    fleet.apply_set("one", strategy=_ROLLING)
    fleet.settle()
    _malformed_plans(log)
    _malformed_others(log)
    _rollouts(fleet)
    _allocations(fleet)
    log.delete(kinds.DPU_SET, "set")
    fleet.plan()
    _deviating_plans(fleet)
    _held(fleet)


def _malformed_plans(log: DeliveredResources) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"source": "a b"},
        {"name": "A"},
        {"namespace": ""},
        {"deployment": "A"},
        {"strategy": "Recreate"},
        {"max_unavailable": "101%"},
        {"failure_budget": "many"},
        {"waves": []},
        {"waves": ["1"] * (MAX_WAVES + 1)},
        {"bake_ms": MAX_BAKE_MS + 1},
        {"digest": DIGEST_MODULUS},
        {"template": "{" + " " * 10_000 + "}"},
        {"stated": "["},
        {"template": '{"bfb":5}'},
        {"template": '{"bfb":true}'},
        {"dpus": [f"d{number}" for number in range(MAX_ITEMS + 1)]},
        {"identities": []},
        {"dpus": ["d"] * 2, "identities": ["i"] * 2, "wave_numbers": [0] * 2, "groups": [0] * 2},
        {"dpus": ["D"]},
        {"identities": ["i" * 256]},
        {"wave_numbers": [1]},
        {"groups": [-1]},
        {"position": -1},
        {"position": 2**40},
        {"name": "absent", "position": 1},
    )
    for fields in wrong:
        log.append(RolloutPlanned(PLAIN, **(_VALID | fields)))


def _deviating_plans(fleet: RollingFleet) -> None:
    """Plans with another strategy than their DPUSet states, and the end of a rollout without DPUs."""
    fleet.annotations = {"dpuplane.io/rollout-waves": "1"}
    fleet.log.apply(kinds.DPU_SET, "empty", json.dumps({"dpuNodeSelector": {"matchLabels": {"pool": "none"}}}))
    fleet.plan("empty")
    for fields in ({"max_unavailable": "2"}, {"strategy": "RollingUpdate"}):
        plan: dict[str, Any] = {"name": "empty", "position": fleet.log.delivered.end, "strategy": "OnDelete"}
        plan |= {column: [] for column in ("dpus", "identities", "wave_numbers", "groups")}
        fleet.log.append(RolloutPlanned(PLAIN, **(_VALID | plan | fields)))
    unusable: tuple[tuple[str, dict[str, str]], ...] = (
        ('{"strategy":{"rollingUpdate":{"maxUnavailable":"many"}}}', {}),
        ("{}", {"dpuplane.io/rollout-waves": ",".join(["1"] * (MAX_WAVES + 1))}),
        ("{}", {"dpuplane.io/rollout-other": "1"}),
    )
    for spec, given in unusable:
        fleet.log.apply(kinds.DPU_SET, "empty", spec, annotations=[given])
        fleet.log.append(RolloutPlanned(PLAIN, **(_VALID | {"name": "empty", "position": fleet.log.delivered.end})))
    fleet.log.delete(kinds.DPU_SET, "empty")


def _malformed_others(log: DeliveredResources) -> None:
    for namespaces, names in (
        ([], []),
        ([NAMESPACE] * (MAX_ADVANCED + 1), [f"s{number}" for number in range(MAX_ADVANCED + 1)]),
        ([NAMESPACE], ["A"]),
        ([NAMESPACE] * 2, ["set"] * 2),
    ):
        log.append(RolloutAdvanced(PLAIN, LOCAL, namespaces, names))
    log.append(RolloutAdvanced(PLAIN, LOCAL, [NAMESPACE], ["absent"]))
    requested = RolloutRequested(log.envelope(), LOCAL, kinds.DPU_SET, NAMESPACE, "set", "pause", 0)
    for fields in ({"kind": kinds.BFB}, {"verb": "stop"}, {"revision": 1}, {"name": "absent"}, {"name": "A"}):
        log.append(replace(requested, envelope=log.envelope(), **fields))
    allocated = DpusAllocated(PLAIN, LOCAL, 0, [NAMESPACE], ["d"], ["dpf/c"])
    many: dict[str, Any] = {"names": [], "namespaces": [], "clusters": []}
    twice: dict[str, Any] = {"names": ["d"] * 2, "namespaces": [NAMESPACE] * 2, "clusters": ["dpf/c"] * 2}
    wrong: tuple[dict[str, Any], ...] = (many, twice, {"clusters": []}, {"names": ["D"]}, {"clusters": ["c"]})
    wrong = (*wrong, {"position": 2**40})
    for columns in wrong:
        log.append(replace(allocated, **columns))


def _rollouts(fleet: RollingFleet) -> None:
    fleet.request("undo")
    fleet.request("undo", 9)
    old = fleet.log.delivered.end
    fleet.apply_set("two", strategy=_ROLLING)
    fleet.plan(position=old)
    fleet.plan()
    fleet.advance()
    (first,) = fleet.hand_over()
    fleet.install(first, fails=True)
    fleet.advance()
    for verb in ("resume", "resume", "pause", "pause", "resume"):
        fleet.request(verb)
    fleet.install(first)
    fleet.advance()
    fleet.pass_time(2)
    fleet.advance()
    for dpu in fleet.hand_over():
        fleet.install(dpu, fails=True)
    fleet.advance()
    fleet.request("undo")
    fleet.request("undo", 2)
    fleet.request("undo", 1)
    fleet.log.delete(kinds.BFB, "one")
    fleet.settle()
    fleet.request("undo", 1)
    fleet.annotations["dpuplane.io/rollout-paused"] = "true"
    fleet.apply_set("two", strategy=_ROLLING)
    fleet.plan()
    fleet.request("resume")
    fleet.annotations.pop("dpuplane.io/rollout-paused")
    fleet.apply_set("three", strategy={"type": "OnDelete"})
    fleet.plan()
    fleet.log.apply(kinds.BFB, "one", json.dumps({"url": "http://images/one.bfb"}))
    fleet.log.observe(kinds.BFB, "one", '{"ready":true}')
    for _ in range(2):
        fleet.log.append(fleet.log.deleted([kinds.DPU], ["h00-d00"]))
    _deleted_in_kubernetes(fleet.log)
    fleet.log.append(fleet.log.deleted([kinds.DPU], ["h00-d00", "h01-d01"]))
    fleet.log.delete(kinds.DPU_DEVICE, "d05")
    fleet.plan()


def _deleted_in_kubernetes(log: DeliveredResources) -> None:
    """The deletions of two objects of one DPU: of one with its wanted image, and of one that is released by it."""
    plan_in_kubernetes(log, "one/1")
    for _ in range(2):
        log.delete(kinds.DPU, "d", uid="first", source=EAST)
    log.observe(kinds.DPU, "d", '{"ready":true,"installed":"one/1"}', source=EAST)
    plan_in_kubernetes(log, "two/1")
    log.delete(kinds.DPU, "d", uid="first", source=EAST)
    log.delete(kinds.DPU, "d", uid="second", source=EAST)


def _allocations(fleet: RollingFleet) -> None:
    log = fleet.log
    for name, spec in (("c1", {"type": "static", "maxNodes": 1}), ("c2", {"type": "static"})):
        log.apply(kinds.DPU_CLUSTER, name, json.dumps(spec))
    fleet.allocate("h00-d00", "c1")
    log.observe(kinds.DPU_CLUSTER, "c1", '{"ready":true}')
    log.observe(kinds.DPU_CLUSTER, "c2", '{"ready":true}')
    fleet.allocate("h00-d00", "c1", position=0)
    fleet.allocate("h00-d00", "absent")
    fleet.allocate("h00-d00", "c1")
    fleet.allocate("h00-d00", "c2")
    fleet.allocate("h01-d01", "c1")
    names = ["h01-d01", "h02-d02"]
    log.append(DpusAllocated(PLAIN, LOCAL, log.delivered.end, [NAMESPACE] * 2, names, ["dpf/c2", "dpf/c1"]))
    fleet.allocate("h01-d01", "")
    fleet.allocate("absent", "")
    log.observe(kinds.DPU, "h05-d05", "")
    fleet.allocate("h05-d05", "c2")
    fleet.allocate("h05-d05", "")
    log.delete(kinds.DPU_CLUSTER, "c1")
    fleet.allocate("h00-d00", "c2")
    fleet.allocate("h04-d04", "c1")
    _clusters_in_deletion(fleet)


def _clusters_in_deletion(fleet: RollingFleet) -> None:
    """A cluster is kept for a DPU that is observed; another DPU moves on, and the cluster of the last one leaves."""
    log = fleet.log
    log.apply(kinds.DPU_CLUSTER, "c3", json.dumps({"type": "static"}))
    log.observe(kinds.DPU_CLUSTER, "c3", '{"ready":true}')
    fleet.allocate("h06-d06", "c3")
    log.delete(kinds.DPU_CLUSTER, "c3")
    fleet.allocate("h06-d06", "c2")


def _held(fleet: RollingFleet) -> None:
    """A rollout that stays held, with each part of the sentence about it."""
    fleet.annotations = {"dpuplane.io/rollout-failure-budget": "1"}
    for image in ("one", "two"):
        fleet.apply_set(image, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}})
        fleet.plan()
        fleet.advance()
        for number, dpu in enumerate(fleet.hand_over()):
            fleet.install(dpu, fails=image == "two" and number < 4)
        fleet.advance()
