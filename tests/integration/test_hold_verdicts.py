"""Verdicts on holds at a real API server: people state them under their own names only, and one person is one vote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError
from schemas.resources.crds import definition
from schemas.resources.hold import HOLD
from schemas.resources.hold_admission import NAME, hold_binding, hold_policy
from tests.support.kubernetes.api_server import ADMIN, CommandFailed
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get, install, until_allowed

ADMISSION = "/apis/admissionregistration.k8s.io/v1/"
RBAC = "/apis/rbac.authorization.k8s.io/v1/"
RULES = [{"apiGroups": [HOLD.group], "resources": [HOLD.plural], "verbs": ["get", "list", "watch", "update", "patch"]}]
HASH = "ab12"
ENFORCED_S = 120.0


@pytest.fixture
async def hold(cluster: Cluster) -> AsyncIterator[str]:
    """The name of a new hold, with the admission policy in force and two approvers, ann and bob."""
    await _prepare(cluster)
    yield cluster.prefix
    for path in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        found = await get(cluster.api, f"{ADMISSION}{path}/{NAME}")
        await cluster.api.delete(f"{ADMISSION}{path}/{NAME}", uid=found["metadata"]["uid"])
    await _until_enforced(cluster, wanted=False)  # the policy of the next test must not be taken for this one


async def test_users_who_authenticate_approve_under_their_own_names(own_control_plane: ControlPlane) -> None:
    """With tokens of their own; the other tests impersonate users, which admission sees as the same."""
    for user in ("ann", "bob", "eve"):
        own_control_plane.add_user(user)
    own_control_plane.kill("kube-apiserver")
    await own_control_plane.start()
    async with connect(str(own_control_plane.kubeconfig())) as api:
        cluster = Cluster(own_control_plane, api, "hold-7")
        await _prepare(cluster)
    await _apply(cluster, "hold-7", "ann", _verdict("ann"), has_token=True)
    for user in ("ann", "bob"):
        with pytest.raises(CommandFailed, match=f"a verdict must be under the name of its author, {user}"):
            await _apply(cluster, "hold-7", user, _verdict("eve"), has_token=True)
    with pytest.raises(CommandFailed, match='User "eve" cannot patch resource "holds"'):
        await _apply(cluster, "hold-7", "eve", _verdict("eve"), has_token=True)
    await _apply(cluster, "hold-7", "bob", _verdict("bob"), has_token=True)
    names = "{.spec.verdicts[*].user}"
    assert await own_control_plane.kubectl("get", "hold", "hold-7", f"--output=jsonpath={names}") == "ann bob"


async def test_two_people_approve_under_their_own_names(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    await _apply(cluster, hold, "bob", _verdict("bob"))
    assert await _verdicts(cluster, hold) == {"ann": "Approve", "bob": "Approve"}


async def test_one_person_is_never_two(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    with pytest.raises(CommandFailed, match="a verdict must be under the name of its author, ann"):
        await _apply(cluster, hold, "ann", _verdict("ann"), _verdict("bob"))
    with pytest.raises(CommandFailed, match="Duplicate value"):
        await _replace(cluster, hold, "ann", [_verdict("ann"), _verdict("ann", "Reject")])
    assert await _verdicts(cluster, hold) == {"ann": "Approve"}


async def test_a_person_changes_and_removes_their_own_verdict_only(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    await _apply(cluster, hold, "bob", _verdict("bob"))
    for others in ([_verdict("bob")], [_verdict("ann", "Reject"), _verdict("bob")], []):
        with pytest.raises(CommandFailed, match=r"the verdict of another person must not|under the name of its author"):
            await _replace(cluster, hold, "bob", others)
    await _replace(cluster, hold, "bob", [_verdict("ann"), _verdict("bob", "Reject")])
    assert await _verdicts(cluster, hold) == {"ann": "Approve", "bob": "Reject"}
    await _replace(cluster, hold, "ann", [_verdict("bob", "Reject")])
    assert await _verdicts(cluster, hold) == {"bob": "Reject"}


async def test_an_entry_moved_to_another_name_is_refused(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    moved = [{"op": "replace", "path": "/spec/verdicts/0/user", "value": "bob"}]
    with pytest.raises(CommandFailed, match="a verdict must be under the name of its author, ann"):
        await cluster.plane.kubectl("patch", "hold", hold, "--as=ann", "--type=json", "-p", json.dumps(moved))


async def test_the_field_manager_does_not_make_another_person(cluster: Cluster, hold: str) -> None:
    with pytest.raises(CommandFailed, match="a verdict must be under the name of its author, ann"):
        await _apply(cluster, hold, "ann", _verdict("bob"), manager="bob")


async def test_who_has_no_right_to_approve_is_refused(cluster: Cluster, hold: str) -> None:
    with pytest.raises(CommandFailed, match='User "eve" cannot patch resource "holds"'):
        await _apply(cluster, hold, "eve", _verdict("eve"))


async def test_the_account_of_the_plane_cannot_approve_even_with_the_right(cluster: Cluster, hold: str) -> None:
    account, namespace = "dpuplane-kubernetes", cluster.namespace
    await create(cluster.api, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}})
    await _bind(
        cluster, f"{cluster.prefix}-approver", {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    )
    user = f"system:serviceaccount:{namespace}:{account}"
    with pytest.raises(CommandFailed, match="a verdict must be of a person"):
        await _apply(cluster, hold, user, _verdict(user))
    with pytest.raises(CommandFailed, match="a verdict must be under the name of its author"):
        await _apply(cluster, hold, user, _verdict("ann"))


async def test_who_may_create_holds_cannot_decide_about_them(cluster: Cluster, hold: str) -> None:
    with pytest.raises(ApiError, match="a new hold must have no verdicts"):
        await cluster.api.create(HOLD.path(), {**_hold(f"{hold}-2"), "spec": {"verdicts": [_verdict("admin")]}})


async def test_a_status_and_labels_are_written_beside_verdicts_of_others(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    status = {"state": "Open", "hash": HASH, "logPosition": {"generation": 1, "fleet": 7}, "approvedBy": ["ann"]}
    await cluster.api.patch(HOLD.path(name=hold, subresource="status"), {"status": status}, "merge")
    await cluster.plane.kubectl("label", "hold", hold, "team=network", "--as=bob")
    found = await get(cluster.api, HOLD.path(name=hold))
    assert found["status"] == status
    assert found["metadata"]["labels"] == {"team": "network"}
    assert await _verdicts(cluster, hold) == {"ann": "Approve"}


async def test_a_status_update_cannot_change_verdicts(cluster: Cluster, hold: str) -> None:
    await _apply(cluster, hold, "ann", _verdict("ann"))
    found = await get(cluster.api, HOLD.path(name=hold))
    forged = {**found, "spec": {"verdicts": [_verdict("ann"), _verdict("bob")]}, "status": {"hash": HASH}}
    await cluster.api.replace(HOLD.path(name=hold, subresource="status"), forged)
    assert await _verdicts(cluster, hold) == {"ann": "Approve"}


@pytest.mark.parametrize(
    "fault", [{"hash": "XYZ"}, {"hash": ""}, {"verdict": "approve"}, {"user": ""}, {"user": "a\nb"}]
)
async def test_a_malformed_verdict_is_refused(cluster: Cluster, hold: str, fault: dict[str, str]) -> None:
    with pytest.raises(CommandFailed, match=r"is invalid|Invalid value|Unsupported value"):
        await _apply(cluster, hold, "ann", {**_verdict("ann"), **fault})


async def _prepare(cluster: Cluster) -> None:
    """Install the definition and the policy, and make a hold and two approvers."""
    await install(cluster.api, definition(HOLD))
    for path, item in (
        ("validatingadmissionpolicies", hold_policy()),
        ("validatingadmissionpolicybindings", hold_binding()),
    ):
        await create(cluster.api, ADMISSION + path, item)
    name = f"{cluster.prefix}-approver"
    await create(cluster.api, RBAC + "clusterroles", {"metadata": {"name": name}, "rules": RULES})
    await _bind(cluster, name, *({"kind": "User", "name": user} for user in ("ann", "bob")))
    await _until_enforced(cluster)
    await cluster.api.create(HOLD.path(), _hold(cluster.prefix))


def _hold(name: str) -> dict[str, Any]:
    return {"apiVersion": HOLD.api_version, "kind": HOLD.name, "metadata": {"name": name}}


def _verdict(user: str, verdict: str = "Approve") -> dict[str, str]:
    return {"user": user, "verdict": verdict, "hash": HASH}


async def _bind(cluster: Cluster, role: str, *subjects: dict[str, str]) -> None:
    body = {
        "metadata": {"generateName": f"{role}-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }
    await create(cluster.api, RBAC + "clusterrolebindings", body)
    for each in subjects:
        is_account = each["kind"] == "ServiceAccount"
        name = f"system:serviceaccount:{each['namespace']}:{each['name']}" if is_account else each["name"]
        await until_allowed(cluster.api, RULES, name)


async def _until_enforced(cluster: Cluster, *, wanted: bool = True) -> None:
    """Wait until the API server enforces the policy, or no longer does: it then refuses a new hold with a verdict."""
    forged = {**_hold(f"{cluster.prefix}-probe"), "spec": {"verdicts": [_verdict("nobody")]}}
    async with asyncio.timeout(ENFORCED_S):
        while True:
            try:
                found = await create(cluster.api, HOLD.path(), forged)
            except ApiError as error:
                assert error.status == 403, error
                is_enforced = True
            else:
                await cluster.api.delete(HOLD.path(name=forged["metadata"]["name"]), uid=found["metadata"]["uid"])
                is_enforced = False
            if is_enforced == wanted:
                return
            await asyncio.sleep(0.1)


async def _apply(
    cluster: Cluster, hold: str, user: str, *verdicts: dict[str, str], manager: str = "", has_token: bool = False
) -> None:
    """State verdicts as a person does it: server-side apply, which leaves the entries of others."""
    who = [] if has_token else [f"--as={user}"]
    body = {**_hold(hold), "spec": {"verdicts": list(verdicts)}}
    await cluster.plane.kubectl(
        "apply", "--server-side", f"--field-manager={manager or 'person'}-{user.rpartition(':')[2]}", *who,
        "--filename=-", user=user if has_token else ADMIN, stdin=yaml.safe_dump(body),
    )  # fmt: skip


async def _replace(cluster: Cluster, hold: str, user: str, verdicts: list[dict[str, str]]) -> None:
    """Set the whole list, as an older or a malicious client may do it."""
    body = {"spec": {"verdicts": verdicts}}
    await cluster.plane.kubectl("patch", "hold", hold, f"--as={user}", "--type=merge", "-p", json.dumps(body))


async def _verdicts(cluster: Cluster, hold: str) -> dict[str, str]:
    found = await get(cluster.api, HOLD.path(name=hold))
    return {each["user"]: each["verdict"] for each in found["spec"]["verdicts"]}
