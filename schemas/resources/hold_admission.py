"""The admission policy for the verdicts of holds: a person gives a verdict under their own name only.

The API server compares `user` of each entry with the user that it authenticated. So one person cannot approve as two,
and cannot change or remove the verdict of another person. The right to create holds includes no right to decide about
them: a new hold must have no verdicts. Service accounts and other users of the system are not people. The schema of
Hold requires one entry per user and the form of the hash. Updates of `status` do not pass this policy, and cannot
change `spec`.

A user who may impersonate others can approve under their names, so approvers must not have this right.
"""

from __future__ import annotations

from typing import Any

from schemas.resources.hold import HOLD

NAME = f"verdicts.{HOLD.plural}.{HOLD.group}"

_FORBIDDEN = "Forbidden"


def hold_policy() -> dict[str, Any]:
    """The ValidatingAdmissionPolicy."""
    rule = {
        "apiGroups": [HOLD.group],
        "apiVersions": [HOLD.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [HOLD.plural],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "variables": [
                {"name": "user", "expression": "request.userInfo.username"},
                {"name": "verdicts", "expression": "object.?spec.?verdicts.orValue([])"},
                {
                    "name": "earlier",
                    "expression": "oldObject == null ? [] : oldObject.?spec.?verdicts.orValue([])",
                },
                {
                    "name": "stated",
                    "expression": "variables.verdicts.filter(v, !variables.earlier.exists(e, e == v))",
                },
            ],
            "validations": [
                {
                    "expression": "oldObject != null || size(variables.verdicts) == 0",
                    "message": "a new hold must have no verdicts",
                    "reason": _FORBIDDEN,
                },
                {
                    "expression": "variables.stated.all(v, v.user == variables.user)",
                    "messageExpression": "'a verdict must be under the name of its author, ' + variables.user",
                    "message": "a verdict must be under the name of its author",
                    "reason": _FORBIDDEN,
                },
                {
                    "expression": "size(variables.stated) == 0 || !variables.user.startsWith('system:')",
                    "message": "a verdict must be of a person, not of a service account or another user of the system",
                    "reason": _FORBIDDEN,
                },
                {
                    "expression": (
                        "variables.earlier.all(e, e.user == variables.user || variables.verdicts.exists(v, v == e))"
                    ),
                    "message": "the verdict of another person must not be changed or removed",
                    "reason": _FORBIDDEN,
                },
            ],
        },
    }


def hold_binding() -> dict[str, Any]:
    """The binding of the policy to every hold."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }
