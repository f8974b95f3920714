"""`dpuplane policies`: rules that allow or deny nodes access to the DPUs of zones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from deploy.cli.changes.staging import COMMANDS, staging_of, staging_options
from deploy.cli.fleet.dry_runs import dry_run_option, finish_dry_run
from deploy.cli.fleet.rules import ports_text
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import POLICY
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.options import command_options, list_all_pages, list_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.results import finish, merged_result
from deploy.settings.validation_errors import error_sentence, kind_of
from deploy.settings.yaml_text import CHARACTERS_MAX, NotYaml, documents_of
from projections.field_checks import quoted
from projections.rules.policies import fault_of_policy
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope, PolicySet

_MAX_DOCUMENTS = 1_000
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch


def _port_range(value: object) -> object:
    """A port range, such as `443` or `"8000-8080"`, as a pair."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, value)
    if isinstance(value, str):
        first, dash, last = value.partition("-")
        if _NUMBER(first) and (_NUMBER(last) or not dash):
            return (int(first), int(last or first))
    if isinstance(value, Mapping) and set(value) == {"first", "last"}:
        return (value["first"], value["last"])
    raise ValueError("must be a port, or FIRST-LAST")


class PolicyDocument(BaseModel):
    """One policy in a file: the fields of PolicySpec, with ports as text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    action: str
    priority: int = 0
    protocol: str = "any"
    ports: list[Annotated[tuple[int, int], BeforeValidator(_port_range)]] = Field(default_factory=list)
    sources: dict[str, str] = Field(default_factory=dict)
    zones: dict[str, str] = Field(default_factory=dict)

    def event(self) -> PolicySet:
        """The policy as an event, so that the plane's own checks can validate it."""
        ports = [port for pair in self.ports for port in pair]
        return PolicySet(Envelope("", self.name, "", 0), **{**self.model_dump(), "ports": ports})

    def message(self) -> pb.PolicySpec:
        ports = [pb.PortRange(first=first, last=last) for first, last in self.ports]
        return pb.PolicySpec(**{**self.model_dump(), "ports": ports})


_TABLE = Table(
    lambda policy: policy.name,
    (
        Column("name", lambda policy: policy.name),
        Column("priority", lambda policy: policy.priority),
        Column("action", lambda policy: policy.action),
        Column("protocol", lambda policy: policy.protocol),
        Column("ports", lambda policy: ports_text(policy.ports)),
        Column("sources", lambda policy: out.labels_text(policy.sources)),
        Column("zones", lambda policy: out.labels_text(policy.zones)),
        Column("version", lambda policy: policy.version, wide=True),
    ),
)


@click.group()
def policies() -> None:
    """List, apply and delete policies: which nodes may reach the DPUs of which zones. `default` (all nodes, all zones)
    is built in.

    Example: dpuplane policies apply policy.yaml
    """


for _command in COMMANDS:
    policies.add_command(_command)


@policies.command("list")
@list_options
def list_policies(*, client: Client, output: Output, limit: int | None) -> None:
    """List policies, in the order in which they apply.

    Example: dpuplane policies list
    """
    wanted = pb.ListPoliciesRequest()
    found = list_all_pages(client, "ListPolicies", wanted, pb.ListPoliciesResponse, "policies", limit=limit)
    output.print_list(found, found.policies, _TABLE)


@policies.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@staging_options
@dry_run_option
@command_options
def apply(
    *,
    client: Client,
    output: str,
    file: Path,
    dry_run: bool,
    stages: str | None,
    bake_time: float,
    failure_budget: str,
) -> None:
    """Set the policies of a YAML or JSON file: one or more documents, each a policy or a list of policies.

    \b
    A policy: {name: web, action: allow, priority: 10, protocol: tcp, ports: [443, 8000-8080],
               sources: {tier: web}, zones: {row: "7"}}

    With --dry-run each policy is evaluated by itself, against the present policies. With --stages the file has one
    policy, whose change reaches the DPUs of one stage after the other.

    Example: dpuplane policies apply policy.yaml --stages 1,10%,100%
    """
    documents, staging = read_policies(_text_of(file), str(file)), staging_of(stages, bake_time, failure_budget)
    if staging is not None and len(documents) > 1:
        raise click.UsageError("--stages needs a file with one policy: one change is staged at a time")
    answers = [
        (
            [document.name],
            client.command(
                "SetPolicy", pb.SetPolicyRequest(policy=document.message(), staging=staging, dry_run=dry_run)
            ),
        )
        for document in documents
    ]
    if dry_run:
        finish_dry_run(answers, output)
    finish(merged_result(answers), output)


@policies.command()
@click.argument("name", type=POLICY)
@staging_options
@dry_run_option
@command_options
def delete(
    *, client: Client, output: str, name: str, dry_run: bool, stages: str | None, bake_time: float, failure_budget: str
) -> None:
    """Delete a policy. Deleting `default` restores the built-in one.

    Example: dpuplane policies delete web
    """
    staging = staging_of(stages, bake_time, failure_budget)
    answer = client.command("DeletePolicy", pb.DeletePolicyRequest(name=name, staging=staging, dry_run=dry_run))
    if dry_run:
        finish_dry_run([([name], answer)], output)
    finish(answer, output)


def _text_of(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            text: str = stream.read(CHARACTERS_MAX + 1)  # a device has no end
    except UnicodeDecodeError as error:
        raise Refused(f"{file}: byte {error.start + 1} is not UTF-8") from error
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error
    if len(text) > CHARACTERS_MAX:
        raise Refused(f"{file}: must be at most {CHARACTERS_MAX} characters")
    return text


def read_policies(text: str, file: str) -> list[PolicyDocument]:
    """The policies of a file. Raises Refused, so that no policy of a file with a fault is applied."""
    try:
        documents = documents_of(text)
    except NotYaml as error:
        raise Refused(f"{file}: must be YAML or JSON: {error}") from error
    raw = [item for document in documents for item in (document if isinstance(document, list) else [document])]
    raw = [item for item in raw if item is not None]
    if not 1 <= len(raw) <= _MAX_DOCUMENTS:
        raise Refused(f"{file}: {len(raw)} policies must be from 1 to {_MAX_DOCUMENTS}")
    found = [_policy(item, number, file) for number, item in enumerate(raw, 1)]
    names = [policy.name for policy in found]
    for name in names:
        if names.count(name) > 1:
            raise Refused(
                f"{file}: name: {quoted(name)} is given {names.count(name)} times; a file must name a policy once"
            )
    return found


def _policy(raw: Any, number: int, file: str) -> PolicyDocument:
    if not isinstance(raw, Mapping):
        raise Refused(f"{file}: policy {number}: must be a mapping of fields, and is {kind_of(raw)}")
    try:
        policy = PolicyDocument.model_validate(dict(raw))
    except ValidationError as error:
        raise Refused(f"{file}: policy {number}: {error_sentence(error.errors()[0])}") from error
    fault = fault_of_policy(policy.event())
    if fault is not None:
        raise Refused(f"{file}: policy {number}: {fault}")
    return policy
