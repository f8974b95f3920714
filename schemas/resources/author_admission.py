"""The admission policies for the author of a spec: the user who changed it last, in an annotation.

A change over a budget waits for two people other than its author, so the plane must know the author of each spec that
it reads. No field of an object names that user: clients choose the names in `metadata.managedFields`. Therefore, a
ValidatingAdmissionPolicy compares the annotation with the user that the API server authenticated, on every change of
the spec or of the annotation. A MutatingAdmissionPolicy fills in the annotation; API servers before 1.36 have no such
policy, and users then write the annotation themselves.

A user who changes a spec becomes the author of all of it. A change over its budget still needs three people: the last
author, and two others who approve it.
"""

from __future__ import annotations

from typing import Any

from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.kinds import GROUP, VERSION
from schemas.resources.rule_policy import RULE_POLICY

AUTHOR = f"{GROUP}/author"
"""The annotation with the user name of the author."""
RESTATE = f"{GROUP}/restate"
"""The annotation that asks the plane to apply an unchanged spec again. Its value must be new, for example the time."""
NAME = f"authors.{GROUP}"

_API_VERSION = "admissionregistration.k8s.io/v1"


def _annotation(of: str, name: str) -> str:
    return f"{of}.metadata.?annotations[?'{name}'].orValue('')"


_VARIABLES = [
    {"name": "user", "expression": "request.userInfo.username"},
    {"name": "author", "expression": _annotation("object", AUTHOR)},
    {"name": "earlier", "expression": f"oldObject == null ? '' : {_annotation('oldObject', AUTHOR)}"},
    # The plane creates racks with no field or with the zone only: such a spec states nothing.
    {
        "name": "isChanged",
        "expression": (
            "oldObject == null ? object.spec.exists(field, field != 'zone') : object.spec != oldObject.spec || "
            f"{_annotation('object', RESTATE)} != {_annotation('oldObject', RESTATE)}"
        ),
    },
]


def _constraints() -> dict[str, Any]:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [DPU_RACK.plural, RULE_POLICY.plural],
    }
    return {"resourceRules": [rule]}


def _policy(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    common = {"failurePolicy": "Fail", "matchConstraints": _constraints(), "variables": _VARIABLES}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": NAME}, "spec": common | spec}


def author_policy() -> dict[str, Any]:
    """The ValidatingAdmissionPolicy."""
    validation = {
        "expression": (
            "!variables.isChanged && variables.author == variables.earlier || variables.author == variables.user"
        ),
        "messageExpression": f"'annotation {AUTHOR} must be the author of this change, ' + variables.user",
        "message": f"annotation {AUTHOR} must be the author of this change",
        "reason": "Forbidden",
    }
    return _policy("ValidatingAdmissionPolicy", {"validations": [validation]})


def author_binding() -> dict[str, Any]:
    """The binding of the ValidatingAdmissionPolicy to every rack and policy."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }


def stamping_policy() -> dict[str, Any]:
    """The MutatingAdmissionPolicy. An unchanged spec keeps its author, also when a client drops the annotation."""
    stamped = "variables.isChanged ? variables.user : variables.earlier"
    annotations = f"({stamped}) == '' ? {{}} : {{'{AUTHOR}': {stamped}}}"
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": f"Object{{metadata: Object.metadata{{annotations: {annotations}}}}}"},
    }
    return _policy("MutatingAdmissionPolicy", {"mutations": [mutation], "reinvocationPolicy": "IfNeeded"})


def stamping_binding() -> dict[str, Any]:
    """The binding of the MutatingAdmissionPolicy to every rack and policy."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME},
    }
