"""The specs of policies in source clusters: the log has what users wrote, under their names, and the last spec of each
object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from eventstore.log import FLEET_0
from projections.fleet.withdrawals.principals import OPERATOR, Principal
from schemas.events import PolicyDeleted, PolicySet
from schemas.resources.rule_policy import RULE_POLICY
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Step
from tests.simulation.history import FinalObject, ServerRestored, SpecCommitted

Found = Iterator[str]

Content = tuple[Any, ...] | None
"""What a spec sets; None deletes the policy."""
DOMAIN = "@example.org"
"""The domain of the users that the plane knows; the rest of their name is that of the principal."""


def check_authors(run: Evidence) -> Found:
    """I30: each spec that an edge appends is one that its cluster committed before, under the name of its author."""
    committed = run.history.of(SpecCommitted)
    for step in _of_edges(run) if committed else ():
        event, at_s = step.event, run.appended_s(step.partition, step.record.offset)
        assert isinstance(event, PolicySet | PolicyDeleted)
        if not any(
            spec.name == event.name
            and spec.at_s <= at_s
            and _content(spec.spec) == _stated(event)
            and _principal(spec.author) == event.envelope.actor
            for spec in committed
        ):
            where = f"{step.partition}@{step.record.offset}"
            yield f"{where}: {event.envelope.actor} did not write {_stated(event)} as {event.name}"


def check_last(run: Evidence) -> Found:
    """I30, at rest: the last spec of each object is in the log since its commit, or the folds have it. It applies to
    names that no other command sets, and not after a restore of the API server.
    """
    if run.history.of(ServerRestored):
        return
    last = {spec.name: spec for spec in run.history.of(SpecCommitted)}
    appended: defaultdict[str, list[tuple[float, Content]]] = defaultdict(list)
    others: set[str] = set()
    for step in run.steps[FLEET_0]:
        if isinstance(step.event, PolicySet | PolicyDeleted):
            if step.event.envelope.command_id in run.sent:
                others.add(step.event.name)
            elif step.answer is not None and step.answer.outcome.code != "refused":
                at_s = run.appended_s(step.partition, step.record.offset)
                appended[step.event.name].append((at_s, _stated(step.event)))
    for item in run.history.of(FinalObject):
        spec = last.get(item.name)
        if item.kind != RULE_POLICY.plural or item.name in others or spec is None or not _principal(spec.author):
            continue
        row, wanted, records = run.fleet.policies.rows.get(item.name), _content(spec.spec), appended[item.name]
        folded = None if row is None else (row.priority, row.action, row.protocol)
        is_taken = any(at_s >= spec.at_s and content == wanted for at_s, content in records)
        if not is_taken and wanted not in (folded, *(content for _, content in records[-1:])):
            yield f"policy {item.name} has the spec {wanted} since {spec.at_s:.1f} s, and the folds have {folded}"


def _of_edges(run: Evidence) -> Iterator[Step]:
    """The records of policies that no client sent."""
    for step in run.steps[FLEET_0]:
        if isinstance(step.event, PolicySet | PolicyDeleted) and step.event.envelope.command_id not in run.sent:
            yield step


def _principal(user: str) -> str:
    """The principal of a user; empty if the plane does not know the user."""
    return str(Principal(OPERATOR, user.removesuffix(DOMAIN))) if user.endswith(DOMAIN) else ""


def _content(spec: Mapping[str, Any]) -> Content:
    return None if spec["state"] == "Absent" else (spec["priority"], spec["action"], spec["protocol"])


def _stated(event: PolicySet | PolicyDeleted) -> Content:
    return None if isinstance(event, PolicyDeleted) else (event.priority, event.action, event.protocol)
