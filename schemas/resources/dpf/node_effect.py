"""The effect that work on a DPU has on its host: the part that DPUSet, DPU, DPUDeployment and DPUNodeMaintenance share.

Release 24.10 writes `drain: {automaticNodeReboot: true}`, later releases `drain: true`. A structural schema has no
unions, and CEL cannot read a field without a type, so an enum states the five values, and `oneOf` that exactly one
effect is given. An effect that is false or empty is none, as in DPF: `drain: true, noEffect: false` is one effect.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.types import StringMap, Time
from schemas.resources.model import Model

EFFECTS = ("taint", "noEffect", "customLabel", "drain", "customAction", "hold")

_DRAINS = [True, False, {}, {"automaticNodeReboot": True}, {"automaticNodeReboot": False}]
_DRAIN = {
    "enum": _DRAINS,
    "x-kubernetes-preserve-unknown-fields": True,
}
_DRAINED = {"drain": {"automaticNodeReboot": True}}

_GIVEN: dict[str, dict[str, Any]] = {
    "taint": {},
    "noEffect": {"enum": [True]},
    "customLabel": {"minProperties": 1},
    "drain": {"enum": [value for value in _DRAINS if value is not False]},
    "customAction": {"minLength": 1},
    "hold": {"enum": [True]},
}
"""What an effect's value must be, so that it counts."""
_EXACTLY_ONE: dict[str, Any] = {
    "oneOf": [
        {"required": [name]} | ({"properties": {name: limits}} if (limits := _GIVEN[name]) else {}) for name in EFFECTS
    ]
}

DRAINED: dict[str, Any] = {DEFAULT: _DRAINED}
"""The default of release 24.10, which later releases do not have: there the field is required."""


class Taint(Model):
    """A taint of a node."""

    key: str
    """The key of the taint."""
    value: str | None = None
    """The value of the taint."""
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""
    time_added: Time | None = None
    """The time at which the taint was added."""


class NodeAction(Model):
    """The effect on the host while a DPU is worked on: exactly one."""

    model_config = ConfigDict(json_schema_extra=_EXACTLY_ONE)

    taint: Taint | None = None
    """Taint the node."""
    no_effect: bool | None = None
    """Leave the node as it is."""
    custom_label: StringMap | None = None
    """Label the node."""
    drain: Annotated[bool | dict[str, bool] | None, WithJsonSchema(_DRAIN)] = None
    """Drain the node through a NodeMaintenance. Release 24.10 states in it whether the host is rebooted after."""
    custom_action: str | None = None
    """Run the pod of this ConfigMap, and wait for its end."""
    hold: bool | None = None
    """Wait until somebody removes the annotation wait-for-external-nodeeffect."""
    force: bool = False
    """Begin at once: without the wait for other DPUs of the host, and beyond the limit of unavailable nodes."""


class NodeEffect(NodeAction):
    """The effect on the host, and when it is applied again."""

    apply_on_label_change: bool = False
    """Whether a change of the labels of a DPU that is ready has the effect, too."""
    node_maintenance_additional_requestors: Annotated[list[str] | None, Field()] = None
    """Further requestors of the NodeMaintenance that drains the node."""
