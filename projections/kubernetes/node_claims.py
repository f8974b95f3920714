"""Claims of maintenances on a node, as patches of the Node: cordoned, tainted or labelled, and put back afterwards.

An annotation names the maintenance that has the claim, and what was there before it. So a late call of an earlier
maintenance lifts nothing of a later one, and a node that an operator cordoned before stays cordoned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from projections.resources.host_effects import CUSTOM_LABEL, DRAIN, TAINT, Effect

JSON = dict[str, Any]

ON_NODE = frozenset((DRAIN, TAINT, CUSTOM_LABEL))
"""The effects that change the Node itself."""
_PREFIX = "dpuplane.io/host-"


class NodeClaim(NamedTuple):
    """What a maintenance does to its host. The uid tells a maintenance from a later one of the same name."""

    name: str
    namespace: str
    uid: str
    effect: Effect


def claim_annotation(claim: NodeClaim) -> str:
    """The annotation of a Node that states the claim."""
    return _PREFIX + claim.effect.kind.lower()


def holder_of(node: Mapping[str, Any], claim: NodeClaim) -> str:
    """The uid of the maintenance whose claim for this kind of effect a node has; empty if none has one."""
    return _holder(node, claim)[0]


def patch_to_claim(node: Mapping[str, Any], claim: NodeClaim) -> JSON | None:
    """The merge patch that gives a maintenance its claim on a node; None if the node is as claimed."""
    holder, before = _holder(node, claim)
    if not holder:
        before = _present(node, claim.effect)
    patch = _to_effect(node, claim.effect)
    if holder == claim.uid and patch is None:
        return None
    value = msgspec.json.encode({"maintenance": claim.uid, "before": before}).decode()
    return _merged(patch or {}, {"metadata": {"annotations": {claim_annotation(claim): value}}}, _version(node))


def patch_to_lift(node: Mapping[str, Any], claim: NodeClaim) -> JSON | None:
    """The merge patch that puts a node back as it was; None if the maintenance has no claim on it."""
    holder, before = _holder(node, claim)
    if holder != claim.uid:
        return None
    patch = _to_restore(node, claim.effect, before)
    return _merged(patch, {"metadata": {"annotations": {claim_annotation(claim): None}}}, _version(node))


def _holder(node: Mapping[str, Any], claim: NodeClaim) -> tuple[str, Any]:
    text = (node["metadata"].get("annotations") or {}).get(claim_annotation(claim), "")
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        found = {}
    return (str(found.get("maintenance", "")), found.get("before")) if isinstance(found, dict) else ("", None)


def _present(node: Mapping[str, Any], effect: Effect) -> Any:
    """The part of a node that an effect changes."""
    if effect.kind == DRAIN:
        return bool(node["spec"].get("unschedulable"))
    if effect.kind == TAINT:
        return next((each for each in _taints(node) if _is_same_taint(each, effect.settings)), None)
    labels = node["metadata"].get("labels") or {}
    return {key: labels.get(key) for key in effect.settings}


def _to_effect(node: Mapping[str, Any], effect: Effect) -> JSON | None:
    if effect.kind == DRAIN:
        return None if node["spec"].get("unschedulable") else {"spec": {"unschedulable": True}}
    if effect.kind == TAINT:
        found = _present(node, effect)
        if found is not None and found.get("value") == effect.settings.get("value"):
            return None
        taint = {key: effect.settings[key] for key in ("key", "value", "effect") if effect.settings.get(key)}
        return {"spec": {"taints": [*_other_taints(node, effect), taint]}}
    labels = node["metadata"].get("labels") or {}
    missing = {key: value for key, value in effect.settings.items() if labels.get(key) != value}
    return {"metadata": {"labels": missing}} if missing else None


def _to_restore(node: Mapping[str, Any], effect: Effect, before: Any) -> JSON:
    if effect.kind == DRAIN:
        return {} if before else {"spec": {"unschedulable": None}}
    if effect.kind == TAINT:
        taints = _other_taints(node, effect)
        return {"spec": {"taints": [*taints, before] if isinstance(before, dict) else taints}}
    kept = before if isinstance(before, dict) else {}
    return {"metadata": {"labels": {key: kept.get(key) for key in effect.settings}}}


def _taints(node: Mapping[str, Any]) -> list[JSON]:
    return node["spec"].get("taints") or []


def _other_taints(node: Mapping[str, Any], effect: Effect) -> list[JSON]:
    return [each for each in _taints(node) if not _is_same_taint(each, effect.settings)]


def _is_same_taint(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one.get("key"), one.get("effect")) == (other.get("key"), other.get("effect"))


def _version(node: Mapping[str, Any]) -> JSON:
    """The version in a patch: the API server refuses the patch if the node has changed since it was read."""
    version = node["metadata"].get("resourceVersion")
    return {"metadata": {"resourceVersion": version}} if version else {}


def _merged(*patches: JSON) -> JSON:
    merged: JSON = {}
    for patch in patches:
        for key, value in patch.items():
            earlier = merged.get(key)
            merged[key] = _merged(earlier, value) if isinstance(earlier, dict) and isinstance(value, dict) else value
    return merged
