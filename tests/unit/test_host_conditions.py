"""What DPUs wait for on their hosts, in conditions and in the chain of causes."""

from __future__ import annotations

from typing import Any

from projections.resources.conditions.causes import blocked_by, conditions_of
from projections.resources.conditions.world import World
from projections.resources.kinds import BFB, DPU, DPU_DEVICE, DPU_FLAVOR, DPU_NODE, DPU_NODE_MAINTENANCE, DPU_SET
from projections.resources.observation import Observation
from projections.resources.state import Resource
from projections.zones.dpus.phases import ERROR, PHASES, READY
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED, WAIT_FOR_NODE_EFFECT
from tests.support.derivations import Derived, device, key, row

HOLD = key(DPU_NODE_MAINTENANCE, "h1-hold")
NAME = key(DPU, "h1-d1")


def derived(**more: Resource) -> Derived:
    template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"hold": True}}}
    rows = {
        key(DPU_NODE, "h1"): row({"dpus": [{"name": "d1"}]}),
        key(DPU_DEVICE, "d1"): device("h1"),
        key(DPU_SET, "set"): row({"dpuTemplate": template}),
        key(BFB, "image"): row({}),
        key(DPU_FLAVOR, "flavor"): row({}),
    }
    return Derived(rows | more)


def maintenance(*, held: bool, requestor: Any = ("h1-d1",)) -> Resource:
    spec = {"dpuNodeName": "h1", "nodeEffect": {"hold": True}, "requestor": list(requestor)}
    return row(spec, annotations={WAIT_FOR_NODE_EFFECT: str(held).lower()})


def world(made: Derived, phase: str, message: str = "") -> World:
    seen = {key(BFB, "image"): Observation(is_ready=True), NAME: Observation(phase == "Ready", phase, message)}
    return World(made.state, made.derivation, seen)


def applied(made: World) -> tuple[str, str]:
    found = next(each for each in conditions_of(HOLD, made) if each.type == "NodeEffectApplied")
    return found.status, found.message


def test_a_held_maintenance_is_to_blame_for_its_dpu() -> None:
    made = world(derived(**{HOLD: maintenance(held=True)}), "Node Effect")
    text = f"DPUNodeMaintenance dpf/h1-hold is held until somebody removes its annotation {WAIT_FOR_NODE_EFFECT}"
    assert [(each.key, each.message) for each in blocked_by(key(DPU_SET, "set"), made)][-1] == (HOLD, text)
    assert conditions_of(NAME, made)[0].message == text
    assert applied(made) == ("False", text)


def test_an_effect_is_applied_once_a_dpu_has_got_further() -> None:
    made = derived(**{HOLD: maintenance(held=False)})
    status, message = applied(world(made, "Node Effect", "waits for the pods of the host to end"))
    assert (status, message) == (
        "False",
        "DPU dpf/h1-d1 is in phase Node Effect: waits for the pods of the host to end",
    )
    assert applied(world(made, "OS Installing")) == ("True", "")
    unread = derived(**{HOLD: maintenance(held=False, requestor="x")})
    assert applied(world(unread, "Ready")) == ("False", "DPUNodeMaintenance dpf/h1-hold is not applied yet")


def test_a_host_that_an_operator_must_reboot_is_to_blame_for_its_dpu() -> None:
    node = row({"dpus": [{"name": "d1"}]}, annotations={EXTERNAL_REBOOT_REQUIRED: "true"})
    made = world(derived(**{key(DPU_NODE, "h1"): node}), "Rebooting")
    text = f"DPUNode dpf/h1 must be rebooted, and then loses annotation {EXTERNAL_REBOOT_REQUIRED}"
    assert conditions_of(NAME, made)[0].message == text
    assert conditions_of(NAME, world(derived(), "Rebooting"))[0].message == "DPU dpf/h1-d1 is in phase Rebooting"


def test_a_host_is_as_unready_in_each_phase_of_its_dpu() -> None:
    """A write of the DPUNode in each phase of each DPU would double the writes of an installation."""
    node, made = key(DPU_NODE, "h1"), derived()
    under_way = [phase for phase in PHASES if phase not in (READY, ERROR)]
    found = {conditions_of(node, world(made, phase, f"in {phase}")) for phase in under_way}
    assert [conditions[0].message for conditions in found] == ["DPU dpf/h1-d1 is not ready yet"]
    for phase in under_way:
        (cause,) = blocked_by(node, world(made, phase))
        assert cause.message == f"DPU dpf/h1-d1 is in phase {phase}", "the DPU itself tells its phase"
    failed = conditions_of(node, world(made, ERROR, "no answer"))[0]
    assert failed.message == "DPU dpf/h1-d1 is in phase Error: no answer"
    assert conditions_of(node, world(made, READY))[0].holds
