"""Objects of users become commands of the log: policies, racks, and verdicts on holds, at a real API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET_0, ZONES
from schemas.events import Envelope, Event, HoldApproved, PolicySet, StagesRequested
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.api_server import CommandFailed
from tests.support.kubernetes.chart import VALUE_SETS, render
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.people import PATIENCE_S, People, condition, refused
from tests.support.kubernetes.requests import advance, get
from tests.support.kubernetes.statuses import joined
from tests.support.served import now_ms

USERS = "ann=ann,bob@example.org=bob,robert=bob,*@example.org=*"
PLANE = "plane"
LOGINS = ("ann", "bob@example.org", "robert", "cid@example.org", "eve")
ACCOUNT = "system:serviceaccount:argocd:sync"
DROP = {"action": "drop", "priority": 1, "sources": {"tier": "old"}}


@pytest.fixture
async def people(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[People]:
    await People.add(own_control_plane, (*LOGINS, PLANE))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(str(own_control_plane.kubeconfig())))
        found = People(own_control_plane, api, (*LOGINS, ACCOUNT))
        await found.grant(PLANE, edge_rules(tmp_path), PLANE)
        yield found


def edge_rules(folder: Path) -> list[Any]:
    """The rights that the Helm chart gives to the edge."""
    roles = [each for each in render(VALUE_SETS["Kafka, lab"], folder) if each["kind"] == "ClusterRole"]
    (rules,) = [role["rules"] for role in roles if role["metadata"]["name"].endswith("-kubernetes")]
    return list(rules)


@asynccontextmanager
async def edge(data: Path, people: People, **more: object) -> AsyncIterator[Plane]:
    flags: dict[str, object] = {
        "data": data,
        "kubeconfig": str(people.cluster.kubeconfig(PLANE)),
        "source": "east",
        "kubernetes_status": True,
        "kubernetes_users": USERS,
        **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
        **more,
    }
    async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=random.Random(3)) as plane:
        yield plane


def command(actor: str, subject: str = "") -> Envelope:
    return envelope(subject, actor, uuid7(now_ms(), random.Random()))


async def submit(plane: Plane, event: Event) -> Any:
    return (await plane.replica.submit(FLEET_0, b"", event, timeout_s=30.0)).outcome


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


def policies(plane: Plane) -> dict[str, str]:
    """The action of each policy in force, without the built-in one."""
    return {name: row.action for name, row in plane.states.fleet.policies.rows.items() if row.version}


def objects_of(plane: Plane) -> Any:
    """The edge that reads objects; None before the connection is open."""
    (edge,) = plane.parts.kubernetes
    return edge.objects


def is_unready(status: dict[str, Any]) -> bool:
    found = condition(status, "Ready")
    return found is not None and found["status"] == "False"


async def many_nodes(plane: Plane) -> None:
    """400 nodes, so that a policy that drops all of them is over its budget."""
    for first in (0, 200):
        event = joined(command("?ann", "z1"), first)
        await plane.replica.submit(plane.replica.partition_for(ZONES, "z1"), b"z1", event, timeout_s=30.0)
    await until(lambda: len(plane.states.fleet.members.rows) == 400)


async def open_hold(plane: Plane) -> int:
    await until(lambda: plane.states.fleet.holds.rows)
    (row,) = plane.states.fleet.holds.rows.values()
    return row.id


async def test_policies_and_racks_become_commands_of_the_users_who_wrote_them(tmp_path: Path, people: People) -> None:
    await people.prepare()
    kubectl = people.cluster.kubectl
    async with edge(tmp_path / "plane", people) as plane:
        await people.apply("ann", RULE_POLICY, "p", DROP)
        assert "operator/ann" in await people.accepted(RULE_POLICY, "p", "True", "Accepted")
        assert policies(plane) == {"p": "drop"}
        assert "condition met" in await kubectl("wait", "--for=condition=Ready", "rulepolicy/p", "--timeout=90s")
        await people.apply("ann", DPU_RACK, "z1", {"labels": {"row": "7"}, "parallelInstalls": 3})
        await people.accepted(DPU_RACK, "z1", "True", "Accepted")
        zone = plane.states.fleet.zones.rows["z1"]
        assert (dict(zone.labels), zone.parallel_installs) == ({"row": "7"}, 3)
        await people.apply("ann", DPU_RACK, "z1", {"attempts": {"transient": 900}})
        message = await people.accepted(DPU_RACK, "z1", "False", "Refused")
        assert message == "transient_attempts: 900 must be from -1 to 100"
        await people.apply("eve", RULE_POLICY, "q", DROP)
        message = await people.accepted(RULE_POLICY, "q", "False", "AuthorUnknown")
        assert message.startswith("metadata.annotations[dpuplane.io/author]: 'eve' must match a pattern")
        assert policies(plane) == {"p": "drop"}
        await kubectl("annotate", "rulepolicy", "q", "dpuplane.io/restate=1", f"--as={ACCOUNT}")
        assert f"kubernetes/east/{ACCOUNT}" in await people.accepted(RULE_POLICY, "q", "True", "Accepted")
        assert policies(plane) == {"p": "drop", "q": "drop"}


async def test_a_policy_with_stages_says_how_far_it_is_until_all_dpus_have_it(tmp_path: Path, people: People) -> None:
    await people.prepare()
    kubectl = people.cluster.kubectl
    async with edge(tmp_path / "plane", people) as plane:
        staging = {"stages": ["1", "row=7", "100%"], "bakeTimeSeconds": 3_600, "failureBudget": "5%"}
        await people.apply("ann", RULE_POLICY, "p", {**DROP, "staging": staging})
        assert "operator/ann" in await people.accepted(RULE_POLICY, "p", "True", "Accepted")
        await people.until(RULE_POLICY, "p", lambda status: "stage 1 of 3" in str(condition(status, "Ready")))
        staged = plane.states.fleet.staged
        assert staged is not None and policies(plane) == {}
        assert (staged.requested_by, staged.plan.stages) == ("operator/ann", ("1", "row=7", "100%"))
        assert (await submit(plane, StagesRequested(command("operator/dan"), "p", "undo"))).code == "done"
        await people.until(RULE_POLICY, "p", lambda status: "NotApplied" in str(condition(status, "Ready")))
        await people.apply("ann", RULE_POLICY, "p", {**DROP, "staging": {"stages": ["1", "100%"]}})
        assert "condition met" in await kubectl("wait", "--for=condition=Ready", "rulepolicy/p", "--timeout=90s")
        assert policies(plane) == {"p": "drop"}


async def test_two_people_other_than_the_author_approve_a_held_edit(tmp_path: Path, people: People) -> None:
    await people.prepare()
    async with edge(tmp_path / "plane", people) as plane:
        await many_nodes(plane)
        await people.apply("bob@example.org", RULE_POLICY, "p", {"action": "drop", "priority": 1})
        assert "hold 1" in await people.accepted(RULE_POLICY, "p", "True", "NeedsApproval")
        number = await open_hold(plane)
        assert plane.states.fleet.holds.rows[str(number)].requested_by == "operator/bob"
        for user in ("bob@example.org", "robert", "eve"):
            await people.judge(user, number)
        message = await people.accepted(HOLD, f"hold-{number}", "False", "VerdictRefused")
        await people.until(HOLD, f"hold-{number}", lambda status: "robert" in str(condition(status, "Accepted")))
        assert "spec.verdicts[bob@example.org].user: 'bob@example.org' requested this change" in message
        await people.judge("ann", number)
        await people.until(HOLD, f"hold-{number}", lambda status: status.get("approvedBy") == ["approver/ann"])
        row = plane.states.fleet.holds.rows[str(number)]
        by_certificate = await submit(plane, HoldApproved(command("operator/ann"), number, row.hash))
        assert by_certificate.code == "unchanged", "one person in Kubernetes and with a certificate"
        assert policies(plane) == {}
        await people.judge("cid@example.org", number)
        await until(lambda: policies(plane) == {"p": "drop"})
        kubectl = people.cluster.kubectl
        waited = await kubectl("wait", "--for=condition=Finished", f"hold/hold-{number}", "--timeout=90s")
        assert "condition met" in waited
        assert "condition met" in await kubectl("wait", "--for=condition=Ready", "rulepolicy/p", "--timeout=90s")


async def test_a_rejected_edit_is_not_stated_again_and_a_restart_states_nothing(tmp_path: Path, people: People) -> None:
    await people.prepare()
    async with edge(tmp_path / "plane", people) as plane:
        await many_nodes(plane)
        await people.apply("ann", RULE_POLICY, "p", {"action": "drop", "priority": 1})
        number = await open_hold(plane)
        await people.accepted(RULE_POLICY, "p", "True", "NeedsApproval")
        await people.judge("cid@example.org", number, "Reject")
        await until(lambda: not plane.states.fleet.holds.rows)
        await people.apply("ann", RULE_POLICY, "q", DROP)
        await people.accepted(RULE_POLICY, "q", "True", "Accepted")
        changed = PolicySet(command("operator/dan"), "q", 9, "allow", "any", [], {}, {})
        assert (await submit(plane, changed)).code == "done", "in an emergency, say"
        await people.until(RULE_POLICY, "q", is_unready)
        position = plane.replica.position(FLEET_0)
    async with edge(tmp_path / "plane", people) as plane:
        await until(lambda: objects_of(plane) and objects_of(plane).caches[RULE_POLICY].is_complete)
        await asyncio.sleep(3)
        assert objects_of(plane).stated.total() == 0
        assert policies(plane) == {"q": "allow"} and plane.replica.position(FLEET_0) == position
        await people.cluster.kubectl("annotate", "rulepolicy", "q", "dpuplane.io/restate=1", user="ann")
        await until(lambda: policies(plane) == {"q": "drop"})


async def test_a_deleted_object_leaves_its_policy_and_the_state_absent_deletes_it(
    tmp_path: Path, people: People
) -> None:
    await people.prepare()
    kubectl = people.cluster.kubectl
    async with edge(tmp_path / "plane", people) as plane:
        for name in ("p", "q"):
            await people.apply("ann", RULE_POLICY, name, DROP)
        await until(lambda: policies(plane) == {"p": "drop", "q": "drop"})
        await people.accepted(RULE_POLICY, "q", "True", "Accepted")
        await kubectl("delete", "rulepolicy", "p", user="ann")
        await people.apply("ann", RULE_POLICY, "q", {**DROP, "state": "Absent"})
        await until(lambda: policies(plane) == {"p": "drop"})
        assert "condition met" in await kubectl("wait", "--for=condition=Ready", "rulepolicy/q", "--timeout=90s")
        await asyncio.sleep(2)
        assert policies(plane) == {"p": "drop"}


async def test_nothing_is_read_while_an_admission_policy_is_missing(tmp_path: Path, people: People) -> None:
    await people.prepare(has_admission=False)
    async with edge(tmp_path / "plane", people) as plane:
        await people.apply("eve", RULE_POLICY, "p", DROP, author="ann")
        message = await people.accepted(RULE_POLICY, "p", "False", "AdmissionMissing")
        assert message.startswith("ValidatingAdmissionPolicy: authors.dpuplane.io is missing")
        assert policies(plane) == {}


async def test_the_author_of_a_spec_is_the_user_who_changed_it(people: People) -> None:
    await people.prepare(has_stamping=False)
    kubectl = people.cluster.kubectl
    wrong = "annotation dpuplane.io/author must be the author of this change, eve"
    assert wrong in await refused(people.apply("eve", RULE_POLICY, "p", DROP))
    assert wrong in await refused(people.apply("eve", RULE_POLICY, "p", DROP, author="ann"))
    await people.apply("ann", RULE_POLICY, "p", DROP, author="ann")
    for change in (
        ("patch", "rulepolicy", "p", "--type=merge", "-p", '{"spec":{"priority":2}}'),
        ("annotate", "rulepolicy", "p", "dpuplane.io/restate=1"),
        ("annotate", "rulepolicy", "p", "dpuplane.io/author-"),
        ("annotate", "rulepolicy", "p", "dpuplane.io/author=bob", "--overwrite"),
    ):
        assert wrong in await refused(kubectl(*change, user="eve"))
    await kubectl("label", "rulepolicy", "p", "team=network", user="eve")
    found = await get(people.api, RULE_POLICY.path(name="p"))
    found["metadata"]["annotations"]["dpuplane.io/author"] = "eve"
    await people.api.replace(RULE_POLICY.path(name="p", subresource="status"), {**found, "status": {"version": 1}})
    again = await get(people.api, RULE_POLICY.path(name="p"))
    assert again["metadata"]["annotations"]["dpuplane.io/author"] == "ann" and again["status"] == {"version": 1}
    await people.api.create(DPU_RACK.path(), rack("z1", {"zone": "z1"}))
    with pytest.raises(Exception, match="must be the author of this change, admin"):
        await people.api.create(DPU_RACK.path(), rack("z2", {"zone": "z2", "labels": {}}))


async def until_served(people: People) -> None:
    """Wait until a restarted API server serves writes of the plane's kinds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await people.apply("ann", DPU_RACK, "probe", {})
                return
            except CommandFailed:
                await asyncio.sleep(0.2)


def rack(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": DPU_RACK.api_version, "kind": DPU_RACK.name, "metadata": {"name": name}, "spec": spec}


async def test_the_author_is_filled_in_and_cannot_be_another(people: People) -> None:
    await people.prepare()
    kubectl = people.cluster.kubectl
    shown = ("get", "rulepolicy", "p", r"--output=jsonpath={.metadata.annotations.dpuplane\.io/author}")
    await people.apply("ann", RULE_POLICY, "p", DROP, author="bob")
    assert await kubectl(*shown) == "ann"
    for change in (("label", "rulepolicy", "p", "a=b"), ("annotate", "rulepolicy", "p", "dpuplane.io/author-")):
        await kubectl(*change, user="eve")
        assert await kubectl(*shown) == "ann"
    await people.apply("eve", RULE_POLICY, "p", {**DROP, "priority": 2})
    assert await kubectl(*shown) == "eve"


async def test_an_api_server_restored_from_a_backup_changes_no_policy(tmp_path: Path, people: People) -> None:
    await people.prepare()
    cluster = people.cluster
    async with edge(tmp_path / "plane", people) as plane:
        await people.apply("ann", RULE_POLICY, "p", DROP)
        await people.accepted(RULE_POLICY, "p", "True", "Accepted")
        await people.apply("eve", RULE_POLICY, "q", DROP)
        await people.accepted(RULE_POLICY, "q", "False", "AuthorUnknown")
        saved = cluster.save_etcd()
        await cluster.start()
        await until_served(people)
        await people.apply("ann", RULE_POLICY, "p", {"action": "allow", "priority": 5})
        await people.apply("ann", RULE_POLICY, "q", {"action": "allow", "priority": 6})
        await advance(people.api, RULE_POLICY.path(name="p"))
        await people.apply("ann", RULE_POLICY, "r", {"action": "allow", "priority": 7})
        await until(lambda: policies(plane) == dict.fromkeys(("p", "q", "r"), "allow"))
        for name in ("kube-apiserver", "etcd"):
            cluster.kill(name)
        cluster.restore_etcd(saved)
        await cluster.start()
        stated = objects_of(plane).stated.total()
        await people.accepted(RULE_POLICY, "q", "False", "RestoredFromBackup")
        await people.until(RULE_POLICY, "p", is_unready)
        assert objects_of(plane).stated.total() == stated
        assert policies(plane) == dict.fromkeys(("p", "q", "r"), "allow")
