"""The Kafka ACLs of each role, topic by topic: the minimum for its processes.

Every role may describe every topic of the log and the topic's settings, by which a process checks that the log is
complete.
Beyond this, a role may write the topics of its events and read the topics that it folds. No role may delete a topic or
records, or alter a setting; only the role that accepts commands may create a log. Topics are named literally: a prefix
would include the topics of other planes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from deploy.composition.roles import ALL_ROLES, ROLES, creates_log, roles_named
from deploy.composition.topics import READER
from eventstore.topics import TopicTable

GRANTED_ROLES = (ALL_ROLES, *ROLES, READER)

Operation = Literal["Describe", "DescribeConfigs", "Read", "Write", "Create"]


class Grant(NamedTuple):
    """Some operations on some topics, by the topics' short names."""

    topics: tuple[str, ...]
    operations: tuple[Operation, ...]


def grants_of(topics: TopicTable, role: str) -> list[Grant]:
    """All grants of a role on these topics."""
    roles = set(roles_named(role))
    makes: tuple[Operation, ...] = ("Create",) if role != READER and creates_log(roles) else ()
    grants = [Grant(topics.names, ("Describe", "DescribeConfigs", *makes))]
    read = tuple(spec.name for spec in topics if spec.readers & roles)
    written = tuple(spec.name for spec in topics if spec.writers & roles)
    return [*grants, Grant(read, ("Read",)), *([Grant(written, ("Write",))] if written else [])]


def arguments_of(topics: TopicTable, role: str, principal: str, topic_prefix: str) -> Iterator[list[str]]:
    """The arguments of kafka-acls.sh that grant a role to a principal, without the connection options."""
    for grant in grants_of(topics, role):
        arguments = ["--add", "--allow-principal", principal]
        for operation in grant.operations:
            arguments += ["--operation", operation]
        for topic in grant.topics:
            arguments += ["--topic", f"{topic_prefix}.{topic}"]
        yield arguments


def commands_of(grants: Iterable[Sequence[str]], bootstrap: str, command_config: str) -> Iterator[str]:
    """Shell commands that run kafka-acls.sh with these arguments."""
    where = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
    where += ["--command-config", command_config] if command_config else []
    for arguments in grants:
        yield shlex.join([*where, *arguments])
