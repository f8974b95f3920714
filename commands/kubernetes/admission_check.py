"""Whether the admission policies that the edge relies on are in force, as the plane defines them.

Without them, anybody who may write an object could name another user as its author, or as an approver. So the edge
reads neither specs nor verdicts before it has seen each policy and its binding with exactly the expected rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.author_admission import author_binding, author_policy
from schemas.resources.hold_admission import hold_binding, hold_policy

_ROOT = "/apis/admissionregistration.k8s.io/v1"
_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_DEFAULTS: Mapping[str, Any] = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
}
"""Default values that the API server fills in. None of them narrows the objects that a policy applies to."""


async def missing_policy(api: KubernetesApi) -> str:
    """One sentence about the first policy or binding that is missing or differs; empty if all are in force. Raises
    ApiError."""
    for wanted in (author_policy(), author_binding(), hold_policy(), hold_binding()):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        try:
            found = json.loads(await api.get(f"{_ROOT}/{_PLURALS[kind]}/{name}"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return f"{kind}: {name} is missing; apply deploy/kubernetes/admission"
        if not _is_same(wanted["spec"], found.get("spec")):
            return f"{kind}: {name} differs from deploy/kubernetes/admission of this version of the plane; apply it"
    return ""


def _is_same(wanted: Any, found: Any) -> bool:
    """Whether two specs are the same, except for defaults that the API server fills in."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or not wanted.keys() <= found.keys():
            return False
        added = found.keys() - wanted.keys()
        return all(name in _DEFAULTS and found[name] == _DEFAULTS[name] for name in added) and all(
            _is_same(part, found[name]) for name, part in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_is_same(*pair) for pair in zip(wanted, found, strict=True))
        )
    return bool(wanted == found)
