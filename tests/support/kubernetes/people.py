"""Users of an API server who write objects of the plane, each with a token of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import yaml

from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources import KINDS
from schemas.resources.author_admission import author_binding, author_policy, stamping_binding, stamping_policy
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.hold_admission import hold_binding, hold_policy
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.api_server import ADMIN, CommandFailed
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create, get, install, until_allowed

ADMISSION = "/apis/admissionregistration.k8s.io/v1/"
RBAC = "/apis/rbac.authorization.k8s.io/v1/"
PATIENCE_S = 120.0
RULES = (
    {"apiGroups": [HOLD.group], "resources": [DPU_RACK.plural, RULE_POLICY.plural], "verbs": ["*"]},
    {"apiGroups": [HOLD.group], "resources": [HOLD.plural], "verbs": ["get", "list", "watch", "update", "patch"]},
)


class People:
    """Users with the rights of operators and approvers."""

    def __init__(self, cluster: ControlPlane, api: KubernetesApi, users: Iterable[str]) -> None:
        self.cluster = cluster
        self.api = api
        self.users = tuple(users)

    @staticmethod
    async def add(cluster: ControlPlane, users: Iterable[str]) -> None:
        """Give users a token. The API server is started again for it."""
        for user in users:
            cluster.add_user(user)
        cluster.kill("kube-apiserver")
        await cluster.start()

    async def prepare(self, *, has_admission: bool = True, has_stamping: bool = True) -> None:
        """Install definitions, rights, and the admission policies. Returns when the policies are enforced."""
        await install(self.api, *map(definition, KINDS))
        await self.grant("people", RULES, *self.users)
        if has_admission:
            await self.admit(has_stamping=has_stamping)

    async def grant(self, role_name: str, rules: Iterable[Any], *users: str) -> None:
        """Give these rights to users. Returns when the API server knows it."""
        name = {"metadata": {"name": role_name}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **name["metadata"]}
        rules = list(rules)
        await create(self.api, RBAC + "clusterroles", {**name, "rules": rules})
        subjects = [{"kind": "User", "name": user} for user in users]
        await create(self.api, RBAC + "clusterrolebindings", {**name, "roleRef": role, "subjects": subjects})
        await until_allowed(self.api, rules, *users)

    async def admit(self, *, has_stamping: bool = True) -> None:
        items = [hold_policy(), hold_binding(), author_policy(), author_binding()]
        if has_stamping:
            items += [stamping_policy(), stamping_binding()]
        for item in items:
            plural = item["kind"].lower().replace("policy", "policies").replace("policiesbinding", "policybindings")
            await create(self.api, ADMISSION + plural, item)
        await self._until_enforced(has_stamping=has_stamping)

    async def apply(self, user: str, kind: Kind, name: str, spec: Mapping[str, Any], **annotations: str) -> None:
        """Apply an object as this user."""
        about = {"name": name, "annotations": {f"{HOLD.group}/{key}": value for key, value in annotations.items()}}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, "spec": dict(spec)}
        await self.cluster.kubectl("apply", "--filename=-", user=user, stdin=yaml.safe_dump(body))

    async def judge(self, user: str, hold: int, verdict: str = "Approve") -> None:
        """State a verdict on the hold as it is now, as this user."""
        seen = (await self.until(HOLD, f"hold-{hold}", lambda status: bool(status.get("hash"))))["hash"]
        entry = {"user": user, "verdict": verdict, "hash": seen}
        body = {"apiVersion": HOLD.api_version, "kind": HOLD.name, "metadata": {"name": f"hold-{hold}"}}
        text = yaml.safe_dump({**body, "spec": {"verdicts": [entry]}})
        await self.cluster.kubectl(
            "apply", "--server-side", f"--field-manager={user}", "--filename=-", user=user, stdin=text
        )

    async def until(self, kind: Kind, name: str, holds: Any) -> dict[str, Any]:
        """The status of an object once it is as wanted."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    status: dict[str, Any] = (await get(self.api, kind.path(name=name))).get("status") or {}
                except ApiError as error:
                    assert error.status in (0, 404, 503), error
                    status = {}
                if holds(status):
                    return status
                await asyncio.sleep(0.1)

    async def accepted(self, kind: Kind, name: str, status: str, reason: str) -> str:
        """The message of the condition Accepted once it has this status and reason."""

        def find(found: Mapping[str, Any]) -> str | None:
            each = condition(found, "Accepted")
            return each["message"] if each and (each["status"], each["reason"]) == (status, reason) else None

        found = await self.until(kind, name, lambda given: find(given) is not None)
        return find(found) or ""

    async def _until_enforced(self, *, has_stamping: bool) -> None:
        """Wait until the API server has compiled the policies: it refuses a new hold with a verdict, and fills in the
        author or refuses a wrong one."""
        verdict = {"user": "nobody", "verdict": "Approve", "hash": "ab"}
        about = {} if has_stamping else {f"{HOLD.group}/author": "nobody"}
        async with asyncio.timeout(PATIENCE_S):
            while await self._author_of_probe(HOLD, {"verdicts": [verdict]}, {}) is not None:
                await asyncio.sleep(0.1)
            wanted = ADMIN if has_stamping else None
            while await self._author_of_probe(RULE_POLICY, {"action": "drop"}, about) != wanted:
                await asyncio.sleep(0.1)

    async def _author_of_probe(self, kind: Kind, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> str | None:
        """The author of a new object, which is deleted again; None if the API server refuses the object."""
        about = {"name": "probe", "annotations": dict(annotations)}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, "spec": dict(spec)}
        try:
            found = await create(self.api, kind.path(), body)
        except ApiError as error:
            return None if error.status == 403 else "not ready"
        await self.api.delete(kind.path(name="probe"), uid=found["metadata"]["uid"])
        author: str = found["metadata"].get("annotations", {}).get(f"{HOLD.group}/author", "")
        return author


def condition(status: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), None)


async def refused(call: Any) -> str:
    """The error of a kubectl call that the API server refuses."""
    try:
        await call
    except CommandFailed as error:
        return str(error)
    raise AssertionError("the API server admitted it")


@asynccontextmanager
async def person_and_plane(cluster: ControlPlane, plane: str, rules: list[Any]) -> AsyncIterator[People]:
    """A cluster with one person, `ann`, and a user for the plane with these rights; definitions and policies are
    installed."""
    await People.add(cluster, ("ann", plane))
    async with connect(str(cluster.kubeconfig())) as api:
        found = People(cluster, api, ("ann",))
        await found.grant(plane, rules, plane)
        await found.prepare()
        yield found
