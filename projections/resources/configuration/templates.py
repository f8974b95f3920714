"""DPUFlavorTemplates: the flavor of a DPU from the values of its DPUDevice, as DPF renders it."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from projections.resources.go_templates.render import Fault, rendered
from projections.resources.json_limits import NESTING_MAX, fault_of_limits
from projections.resources.specs import JSON, Spec

_NODES_MAX = 20_000


class FlavorTemplateSpec(Spec, frozen=True):
    """The spec of a DPUFlavorTemplate. The resources are not templates: they replace those of the rendered flavor."""

    template: str = ""
    dpu_resources: JSON | None = None
    system_reserved_resources: JSON | None = None


def rendered_flavor(spec: FlavorTemplateSpec, values: JSON) -> JSON | Fault:
    """The spec of the DPUFlavor for a device with these values, or why there is none."""
    text = rendered(spec.template, values)
    if isinstance(text, Fault):
        return Fault(f"template: {text}")
    found = _parsed(text)
    if isinstance(found, Fault):
        return found
    flavor = found.get("spec", {})
    if not isinstance(flavor, dict):
        return Fault("template: the result must have an object as spec")
    stamped = {"dpuResources": spec.dpu_resources, "systemReservedResources": spec.system_reserved_resources}
    return flavor | {name: value for name, value in stamped.items() if value is not None}


def _parsed(text: str) -> JSON | Fault:
    """The object in YAML text. Aliases are refused: a short text with aliases can be an object of any size."""
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent):
                return Fault("template: the result has YAML aliases, which are not allowed")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > NESTING_MAX or number > _NODES_MAX:
                return Fault("template: the result is too large")
        found: Any = yaml.safe_load(text)
        encoded = msgspec.json.encode(found).decode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        return Fault(f"template: the result is not YAML{line}")
    if fault := fault_of_limits(encoded):
        return Fault(f"template: {fault}")
    decoded: Any = msgspec.json.decode(encoded)
    return decoded if isinstance(decoded, dict) else Fault("template: the result must be an object")
