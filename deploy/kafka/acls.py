"""The Kafka ACLs of each role, topic by topic: the minimum for its processes.

Every role may describe every topic of the log and its settings: a process checks with them that the log is complete.
Beyond this, a role may write the topics of its events and read the topics that it folds. No role may delete a topic or
records, or alter a setting; only the role that accepts commands may create a log. Topics are named literally: a prefix
would include the topics of other planes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from eventstore.log import CLIQUES, DECISIONS, FLEET, INSTALLS, REPLICAS, TOPICS, ZONES

AclRole = Literal["all", "api", "relay", "provisioner", "reader"]
ROLES: tuple[str, ...] = get_args(AclRole)
"""The roles of processes, and `reader`: commands that read the log themselves (verify, history, backup ...)."""

Operation = Literal["Describe", "DescribeConfigs", "Read", "Write", "Create"]

_READ: Mapping[str, Sequence[str]] = {
    "api": TOPICS,
    "relay": (ZONES, FLEET, REPLICAS),
    "provisioner": (ZONES, FLEET, REPLICAS),
    "reader": TOPICS,
}
"""Every role that folds also reads fleet: its first record identifies the log."""

_WRITTEN: Mapping[str, Sequence[str]] = {
    "api": (ZONES, CLIQUES, FLEET, DECISIONS, REPLICAS),
    "relay": (INSTALLS, REPLICAS),
    "provisioner": (ZONES, REPLICAS),
    "reader": (),
}
_MAKES_LOG = frozenset({"api"})


class Grant(NamedTuple):
    """Some operations on some topics, by the topics' short names."""

    topics: tuple[str, ...]
    operations: tuple[Operation, ...]


def grants_of(role: str) -> list[Grant]:
    """All grants of a role."""
    parts = ("api", "relay", "provisioner") if role == "all" else (role,)
    makes: tuple[Operation, ...] = () if _MAKES_LOG.isdisjoint(parts) else ("Create",)
    grants = [Grant(TOPICS, ("Describe", "DescribeConfigs", *makes))]
    read = tuple(topic for topic in TOPICS if any(topic in _READ[part] for part in parts))
    written = tuple(topic for topic in TOPICS if any(topic in _WRITTEN[part] for part in parts))
    return [*grants, Grant(read, ("Read",)), *([Grant(written, ("Write",))] if written else [])]


def arguments_of(role: str, principal: str, topic_prefix: str) -> Iterator[list[str]]:
    """The arguments of kafka-acls.sh that grant a role to a principal, without the connection options."""
    for grant in grants_of(role):
        arguments = ["--add", "--allow-principal", principal]
        for operation in grant.operations:
            arguments += ["--operation", operation]
        for topic in grant.topics:
            arguments += ["--topic", f"{topic_prefix}.{topic}"]
        yield arguments


def commands_of(role: str, principal: str, topic_prefix: str, bootstrap: str, command_config: str) -> Iterator[str]:
    """The same grants as shell commands."""
    where = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
    where += ["--command-config", command_config] if command_config else []
    for arguments in arguments_of(role, principal, topic_prefix):
        yield shlex.join([*where, *arguments])
