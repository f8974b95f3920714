"""The edge that reads objects of users: each spec once, each verdict under one person, whatever fails between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.fold_versions import FoldVersions
from commands.kubernetes.admission_check import missing_policy
from commands.kubernetes.object_edge import CHECK_S, ObjectEdge
from commands.kubernetes.users import UserNames, parse_users
from eventstore.errors import LogUnavailable
from eventstore.log import FLEET_0
from projections.kubernetes.object_events import ObjectEvent, Regarding
from projections.kubernetes.statements import Statement, StatementTable, acceptance
from projections.rules.policies import DEFAULT
from schemas.events import (
    Event,
    HoldApproved,
    HoldRejected,
    PolicyDeleted,
    PolicySet,
    ZoneUpdated,
)
from schemas.kubernetes.api import NOT_FOUND, ApiError
from schemas.kubernetes.objects import Custom, Metadata
from schemas.resources.author_admission import AUTHOR, RESTATE, author_binding, author_policy
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.hold_admission import hold_binding, hold_policy
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.statuses import joined
from tests.support.memory_plane import Plane, plane

USERS = "ann=ann,robert=bob,*@example.org=*"
DROP = {"action": "drop", "priority": 1, "sources": {"tier": "old"}}
ADMISSION: tuple[dict[str, Any], ...] = (author_policy(), author_binding(), hold_policy(), hold_binding())


class Admission:
    """The part of an API server that has the admission policies, with the defaults that it fills in."""

    def __init__(self) -> None:
        self.is_away = False
        self.items = {(item["kind"], item["metadata"]["name"]): json.loads(json.dumps(item)) for item in ADMISSION}
        for item in self.items.values():
            if "matchConstraints" in item["spec"]:
                item["spec"]["matchConstraints"] |= {"matchPolicy": "Equivalent", "namespaceSelector": {}}
                item["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = "*"

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if self.is_away:
            raise ApiError(0, "Unreachable", "connection refused")
        plural, name = path.rsplit("/", 2)[1:]
        kind = "ValidatingAdmissionPolicy" + ("" if plural.endswith("policies") else "Binding")
        found = self.items.get((kind, name))
        if found is None:
            raise ApiError(NOT_FOUND, "NotFound", f"{name} not found")
        return json.dumps(found).encode()


class Objects:
    """An edge over a plane in memory, and the objects that users wrote."""

    def __init__(self, made: Plane) -> None:
        self.plane = made
        self.admission = Admission()
        self.statements = StatementTable()
        users = parse_users("east", USERS)
        assert isinstance(users, UserNames)
        replica = made.replicas["r1"]
        api: Any = self.admission
        self.reported: list[ObjectEvent] = []
        self.edge = ObjectEdge(
            replica,
            "east",
            api,
            users,
            self.statements,
            versions=FoldVersions(replica, None, made.now_ms),
            now_ms=made.now_ms,
            rng=made.rng(),
            report=self.reported.append,
        )
        self.items: dict[tuple[str, str], Custom] = {}
        self._version = 10
        made.spawn("r1", self.edge.run())
        self.complete()

    def complete(self, *, went_back: bool = False) -> None:
        for kind, cache in self.edge.caches.items():
            cache.list_began()
            for (plural, _), item in self.items.items():
                if plural == kind.plural:
                    cache.present(item)
            cache.list_completed(went_back=went_back)

    def put(
        self, kind: Kind, name: str, spec: Mapping[str, Any], *, by: str = "ann", restate: str = "", stated: str = ""
    ) -> None:
        """An object is written, and watched."""
        self._version += 1
        annotations = {AUTHOR: by} | ({RESTATE: restate} if restate else {})
        about = Metadata(name, uid=name, resource_version=str(self._version), generation=1, annotations=annotations)
        status = {"stated": stated} if stated else {}
        item = Custom(about, msgspec.Raw(json.dumps(spec).encode()), msgspec.Raw(json.dumps(status).encode()))
        self.items[kind.plural, name] = item
        self.edge.caches[kind].present(item)

    def said(self, kind: Kind, name: str) -> tuple[str, str]:
        """The reason and the message of the statement of an object."""
        found = self.statements.get(kind.plural, name)
        return (found.reason, found.message) if found is not None else ("", "")

    def count(self, *kinds: type[Event]) -> int:
        return sum(self.plane.count(FLEET_0, kind) for kind in kinds)

    @property
    def policies(self) -> dict[str, int]:
        """The priority of each policy, without the built-in one."""
        rows = self.plane.fleet().policies.rows.items()
        return {name: row.priority for name, row in rows if name != DEFAULT}

    async def hold(self) -> int:
        """A policy of ann that is held; the number of the hold."""
        for first in (0, 200):
            await self.plane.submit("z1", joined(self.plane.command("z1"), first))
        await self.plane.until(lambda: len(self.plane.fleet().members.rows) == 400)
        self.put(RULE_POLICY, "p", {"action": "drop", "priority": 1})
        await self.plane.until(lambda: bool(self.plane.fleet().holds.rows))
        (row,) = self.plane.fleet().holds.rows.values()
        return row.id

    def judge(self, number: int, *verdicts: tuple[str, str], seen: str = "") -> None:
        row = self.plane.fleet().holds.rows.get(str(number))
        seen = seen or (row.hash.hex() if row is not None else "ab")
        entries = [{"user": user, "verdict": verdict, "hash": seen} for user, verdict in verdicts]
        self.put(HOLD, f"hold-{number}", {"verdicts": entries})


pytestmark = pytest.mark.virtual_clock


async def test_a_policy_is_stated_by_its_author_and_once() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(RULE_POLICY, "p", DROP)
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)
        await asyncio.sleep(1)
        statement = objects.statements.get(RULE_POLICY.plural, "p")
        assert statement is not None and statement.is_accepted and "operator/ann" in statement.message
        objects.put(RULE_POLICY, "p", DROP, stated=statement.stated)
        objects.complete()
        await asyncio.sleep(5 * CHECK_S)
        assert objects.count(PolicySet) == 1
        assert objects.statements.get(RULE_POLICY.plural, "p") is None, "the status of the object shows it"


async def test_a_policy_that_another_command_changed_stays_changed_until_it_is_stated_again() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(RULE_POLICY, "p", DROP)
        await made.until(lambda: objects.policies == {"p": 1})
        event = PolicySet(made.command("p", "dan"), "p", 7, "drop", "any", [], {"tier": "old"}, {})
        await made.replicas["r1"].submit(FLEET_0, b"", event, timeout_s=5)
        objects.complete()
        await asyncio.sleep(5 * CHECK_S)
        assert objects.policies == {"p": 7} and objects.count(PolicySet) == 2
        objects.put(RULE_POLICY, "p", DROP, restate="1")
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)


async def test_a_policy_is_deleted_by_its_state_and_never_by_the_absence_of_its_object() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        for name in ("p", "q"):
            objects.put(RULE_POLICY, name, DROP)
        await made.until(lambda: objects.policies == {"p": 1, "q": 1})
        objects.edge.caches[RULE_POLICY].deleted(objects.items.pop((RULE_POLICY.plural, "p")))
        objects.items.clear()
        objects.complete()
        await asyncio.sleep(3 * CHECK_S)
        assert objects.policies == {"p": 1, "q": 1}
        objects.put(RULE_POLICY, "q", {**DROP, "state": "Absent"})
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)
        objects.put(RULE_POLICY, "q", {**DROP, "state": "Absent"}, restate="1")
        objects.put(RULE_POLICY, DEFAULT, {**DROP, "state": "Absent"})
        await asyncio.sleep(2)
        assert objects.count(PolicyDeleted) == 1, "neither is there"
        assert objects.said(RULE_POLICY, DEFAULT)[0] == "Accepted"


async def test_a_rack_states_the_fields_that_it_has() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(DPU_RACK, "z0", {})
        objects.put(DPU_RACK, "other", {"zone": "Z_1"})
        await asyncio.sleep(1)
        assert objects.count(ZoneUpdated) == 0, "the plane made these objects"
        objects.put(DPU_RACK, "other", {"zone": "Z_1", "labels": {"row": "7"}, "attempts": {"device": 4}})
        await made.until(lambda: "Z_1" in made.fleet().zones.rows, timeout_s=2)
        objects.put(DPU_RACK, "other", {"zone": "Z_1", "parallelInstalls": 3, "agentNetworks": ["10.0.0.0/8"]})
        await made.until(lambda: made.fleet().zones.rows["Z_1"].parallel_installs == 3, timeout_s=2)
        row = made.fleet().zones.rows["Z_1"]
        assert (row.labels, row.attempt_limits.device, row.agent_networks) == ({"row": "7"}, 4, ("10.0.0.0/8",))
        objects.put(DPU_RACK, "other", {"zone": "Z_1", "labels": {"row": "7"}, "parallelInstalls": 3})
        await asyncio.sleep(1)
        assert objects.count(ZoneUpdated) == 2, "the last spec is in force already"


async def test_a_refused_spec_is_reported_and_not_repeated() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(DPU_RACK, "z1", {"attempts": {"transient": 900}})
        await made.until(lambda: objects.said(DPU_RACK, "z1")[0] == "Refused", timeout_s=2)
        assert objects.said(DPU_RACK, "z1")[1] == "transient_attempts: 900 must be from -1 to 100"
        objects.complete()
        await asyncio.sleep(5 * CHECK_S)
        assert objects.count(ZoneUpdated) == 1
        (event,) = objects.reported
        assert event.regarding == Regarding(DPU_RACK.api_version, "DPURack", "z1", "z1")
        assert (event.reason, event.is_warning) == ("Refused", True)


async def test_the_spec_of_a_user_who_is_no_principal_does_not_count() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        for name, user in (("p", "eve"), ("q", ""), ("r", "system:admin"), ("s", "a b@example.org")):
            objects.put(RULE_POLICY, name, DROP, by=user)
        objects.put(RULE_POLICY, "t", DROP, by="system:serviceaccount:argocd:sync")
        await made.until(lambda: objects.policies == {"t": 1}, timeout_s=2)
        await asyncio.sleep(2 * CHECK_S)
        assert objects.policies == {"t": 1}
        assert {objects.said(RULE_POLICY, name)[0] for name in "pqrs"} == {"AuthorUnknown"}
        assert objects.said(RULE_POLICY, "q")[1].startswith("metadata.annotations[dpuplane.io/author]: '' must be")


async def test_two_persons_other_than_the_author_release_a_hold() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        number = await objects.hold()
        objects.judge(
            number, ("ann", "Approve"), ("eve", "Approve"), ("robert", "Approve"), ("bob@example.org", "Approve")
        )
        await made.until(lambda: objects.said(HOLD, f"hold-{number}")[0] == "VerdictRefused", timeout_s=2)
        row = made.fleet().holds.rows[str(number)]
        assert [name.partition("/")[2] for name in row.approvals] == ["bob"], "two users of one person"
        message = objects.said(HOLD, f"hold-{number}")[1]
        assert "spec.verdicts[ann].user: 'ann' requested this change" in message and "'eve' must match" in message
        await asyncio.sleep(3 * CHECK_S)
        assert objects.count(HoldApproved) == 1, "no refusal was appended, and nothing twice"
        objects.judge(number, ("robert", "Approve"), ("cid@example.org", "Approve"))
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)
        assert objects.count(HoldApproved) == 2


async def test_a_verdict_on_another_change_does_not_count_and_a_rejection_goes_first() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        number = await objects.hold()
        objects.judge(number, ("cid@example.org", "Reject"), seen="ab12")
        await made.until(lambda: objects.said(HOLD, f"hold-{number}")[0] == "VerdictRefused", timeout_s=2)
        assert "must be the present hash of the hold" in objects.said(HOLD, f"hold-{number}")[1]
        objects.judge(
            number, ("bob@example.org", "Approve"), ("cid@example.org", "Approve"), ("dan@example.org", "Reject")
        )
        await made.until(lambda: not made.fleet().holds.rows, timeout_s=2)
        await asyncio.sleep(3 * CHECK_S)
        assert objects.policies == {} and objects.count(HoldApproved) == 0 and objects.count(HoldRejected) == 1
        assert objects.count(PolicySet) == 1, "a rejected edit is not stated again"


async def test_an_edit_that_waits_is_not_stated_again_by_another_edge() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        first = Objects(made)
        await first.hold()
        assert [(each.regarding.name, each.reason) for each in first.reported] == [("p", "NeedsApproval")]
        other = Objects(made)
        other.put(RULE_POLICY, "p", {"action": "drop", "priority": 1})
        await made.until(lambda: other.said(RULE_POLICY, "p")[0] == "Accepted", timeout_s=2)
        assert other.count(PolicySet) == 1


async def test_nothing_counts_while_an_admission_policy_is_missing_or_differs() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        del objects.admission.items["ValidatingAdmissionPolicyBinding", author_binding()["metadata"]["name"]]
        objects.put(RULE_POLICY, "p", DROP)
        await made.until(lambda: objects.said(RULE_POLICY, "p")[0] == "AdmissionMissing", timeout_s=2)
        await asyncio.sleep(2 * CHECK_S)
        assert objects.policies == {}
        objects.admission.items = Admission().items
        await asyncio.sleep(3 * CHECK_S)
        assert objects.policies == {}, "no policy vouches for the author of this spec"
        objects.put(RULE_POLICY, "p", DROP, restate="1")
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)


async def test_an_api_server_that_is_away_for_an_hour_is_logged_few_times(caplog: pytest.LogCaptureFixture) -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.admission.is_away = True
        objects.put(RULE_POLICY, "p", DROP)
        await asyncio.sleep(3_600)
        assert 1 <= caplog.text.count("admission policies not read, retrying") <= 5
        objects.admission.is_away = False
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=5)


async def test_a_verdict_stated_while_an_admission_policy_was_missing_never_counts() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        number, name = await objects.hold(), author_binding()["metadata"]["name"]
        missing = objects.admission.items.pop(("ValidatingAdmissionPolicyBinding", name))
        await asyncio.sleep(2 * CHECK_S)
        forged = (("bob@example.org", "Approve"), ("cid@example.org", "Approve"))
        objects.judge(number, *forged)
        await made.until(lambda: objects.said(HOLD, f"hold-{number}")[0] == "AdmissionMissing", timeout_s=2)
        objects.admission.items["ValidatingAdmissionPolicyBinding", name] = missing
        await asyncio.sleep(3 * CHECK_S)
        objects.judge(number, *forged, ("dan@example.org", "Approve"))
        await made.until(lambda: objects.count(HoldApproved) == 1, timeout_s=2)
        await asyncio.sleep(2 * CHECK_S)
        assert objects.policies == {} and objects.count(HoldApproved) == 1
        assert "spec.verdicts[bob@example.org]" in objects.said(HOLD, f"hold-{number}")[1]
        objects.judge(number, ("dan@example.org", "Approve"))
        await asyncio.sleep(1)
        objects.judge(number, ("dan@example.org", "Approve"), ("cid@example.org", "Approve"))
        await made.until(lambda: objects.policies == {"p": 1}, timeout_s=2)


@pytest.mark.parametrize("item", ADMISSION, ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
async def test_a_weaker_admission_policy_is_found(item: Mapping[str, Any]) -> None:
    admission, key = Admission(), (item["kind"], item["metadata"]["name"])
    api: Any = admission
    assert await missing_policy(api) == ""
    changes: list[dict[str, Any]] = [
        {"failurePolicy": "Ignore"},
        {"matchConditions": [{"name": "a", "expression": "false"}]},
        {"validationActions": ["Audit"]},
        {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}},
        {"matchConstraints": {"resourceRules": []}},
    ]
    for change in changes:
        broken = Admission()
        broken.items[key]["spec"] |= change
        weak: Any = broken
        assert item["metadata"]["name"] in await missing_policy(weak)


async def test_a_restored_api_server_states_no_spec_of_its_backup() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(RULE_POLICY, "p", {**DROP, "priority": 5})
        await made.until(lambda: objects.policies == {"p": 5})
        objects.put(RULE_POLICY, "p", DROP)
        old = objects.items[RULE_POLICY.plural, "p"]
        objects.edge.caches[RULE_POLICY].objects.clear()
        objects.edge.caches[RULE_POLICY].present(objects.items[RULE_POLICY.plural, "p"])
        objects.items[RULE_POLICY.plural, "p"] = old
        objects.complete(went_back=True)
        await asyncio.sleep(3 * CHECK_S)
        assert objects.policies == {"p": 5} and objects.said(RULE_POLICY, "p")[0] == "RestoredFromBackup"
        objects.put(RULE_POLICY, "p", {**DROP, "priority": 2})
        await made.until(lambda: objects.policies == {"p": 2}, timeout_s=2)


@pytest.mark.parametrize("seed", range(20))
async def test_any_order_of_objects_failures_and_other_commands_converges(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each content of an object is stated once, and the last one is in force unless another command came later."""
    draws = Random(seed)
    async with plane() as made:
        await made.start("r1", "api")
        objects, replica = Objects(made), made.replicas["r1"]
        submit, wanted, contents = replica.submit, dict[str, int](), set[tuple[str, int]]()

        async def flaky(*arguments: Any, **more: Any) -> Any:
            fate = draws.random()
            if fate < 0.2:
                raise LogUnavailable("the log is away")
            answer = await submit(*arguments, **more)
            if fate < 0.4:
                raise LogUnavailable("the answer is lost")
            return answer

        monkeypatch.setattr(replica, "submit", flaky)
        for _ in range(40):
            name, priority = draws.choice("pqr"), draws.randrange(1, 1_000)
            match draws.randrange(4):
                case 0:
                    objects.complete()
                case 1 if name in wanted:
                    await made.until(lambda: objects.policies == wanted, timeout_s=60)
                    event = PolicySet(made.command(name, "dan"), name, priority, "drop", "any", [], {"tier": "old"}, {})
                    await submit(FLEET_0, b"", event, timeout_s=5)
                    wanted[name] = priority
                case _:
                    if (name, priority) not in contents:
                        objects.put(RULE_POLICY, name, {**DROP, "priority": priority})
                        contents.add((name, priority))
                        wanted[name] = priority
            await asyncio.sleep(draws.choice((0, 0, 0.1, 2)))
        await made.until(lambda: objects.policies == wanted, timeout_s=60)
        settled = objects.count(PolicySet)
        objects.complete()
        await asyncio.sleep(3 * CHECK_S)
        assert objects.count(PolicySet) == settled and objects.policies == wanted


@pytest.mark.parametrize("text", ["ann", "ann=", "=ann", "a*b*=x", "ann=*", "*=*/*", "*=a b"])
def test_an_invalid_pattern_of_users_is_refused(text: str) -> None:
    assert str(parse_users("east", text)).startswith("kubernetes_users: ")


def test_users_are_principals_by_the_first_pattern_that_matches() -> None:
    users = parse_users("east", " root=ops, *@example.org=*,dev-*=dev ,")
    assert isinstance(users, UserNames)
    assert users.author("root") == "operator/ops" and users.approver("ann@example.org") == "approver/ann"
    assert users.approver("dev-1") == users.approver("dev-2") == "approver/dev"
    assert users.author("system:serviceaccount:a:b") == "kubernetes/east/system:serviceaccount:a:b"
    for user in ("", "eve", "@example.org", "system:serviceaccount:a:b", "system:admin@example.org"):
        assert users.approver(user) is None


STATEMENTS = st.builds(
    Statement, st.integers(1, 3), st.sampled_from(["", "aa", "bb"]), st.booleans(), st.sampled_from("RS"), st.just("m")
)


@given(st.lists(STATEMENTS, min_size=1, max_size=6))
def test_writers_with_different_statements_end_with_one(statements: list[Statement]) -> None:
    """Replicas that write in turns come to rest: the status of the newest generation, of a spec that was decided."""
    written: dict[str, Any] = {}
    newest = max((each.generation, each.stated != "") for each in statements)
    for statement in statements * 2:
        found = acceptance(statement, written)
        written = {"stated": found.stated, "conditions": list(found.conditions)}
    (condition,) = written["conditions"]
    assert condition["observedGeneration"] == newest[0]
    assert acceptance(None, written) == (written["stated"], (condition,))
