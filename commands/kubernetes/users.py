"""Kubernetes users as principals of the log.

The rule of two approvers counts persons, and a person may have both a Kubernetes user and a certificate. So a person
has one name, as in certificates. A list of patterns maps users to these names. Specs and verdicts of a user that
matches no pattern are not accepted. For example, the pattern `*@example.org=*` gives the user `ann@example.org` the
name `ann`. This user and the holder of any certificate with the name `ann` are one person.

A service account is not a person. It can be the author of a spec, under its own name: for example, a program may copy
objects from a repository. The admission policy accepts no verdict of a service account.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from projections.field_checks import check_name, quoted
from projections.fleet.withdrawals.principals import APPROVER, OPERATOR, Principal
from schemas.resources.author_admission import AUTHOR

MAX_PATTERNS = 1_000
_ANY = "*"
_SYSTEM = "system:"
_SERVICE_ACCOUNT = "system:serviceaccount:"


class _Pattern(NamedTuple):
    prefix: str
    suffix: str
    is_any: bool
    name: str

    def match(self, user: str) -> str | None:
        """The name of the principal; None if the pattern does not match the user."""
        if not self.is_any:
            return self.name if user == self.prefix else None
        if not (user.startswith(self.prefix) and user.endswith(self.suffix)):
            return None
        found = user[len(self.prefix) : len(user) - len(self.suffix)]
        return self.name.replace(_ANY, found) if found else None


class UserNames:
    """Maps users to the names of principals. The first pattern that matches a user decides."""

    def __init__(self, source: str, patterns: Sequence[_Pattern] = ()) -> None:
        self._source = source
        self._patterns = patterns

    def author(self, user: str) -> str | None:
        """The actor of an edit by this user, as the log names it; None if the user cannot be an author."""
        if user.startswith(_SERVICE_ACCOUNT):
            return f"kubernetes/{self._source}/{user}"
        return self._principal(OPERATOR, user)

    def approver(self, user: str) -> str | None:
        """The actor of a verdict by this user; None if the user cannot be an approver."""
        return self._principal(APPROVER, user)

    def fault(self, field: str, user: str) -> str:
        """One sentence that says why this user is not accepted."""
        if not user:
            return f"{field}: '' must be the user who changed the spec; change it, or the annotation to submit it again"
        return f"{field}: {quoted(user)} must match a pattern of the setting kubernetes_users, with a valid name"

    def _principal(self, role: str, user: str) -> str | None:
        if user.startswith(_SYSTEM):
            return None
        name = next((name for pattern in self._patterns if (name := pattern.match(user)) is not None), None)
        return None if name is None or check_name("name", name) is not None else str(Principal(role, name))


AUTHOR_FIELD = f"metadata.annotations[{AUTHOR}]"


def parse_users(source: str, text: str) -> UserNames | str:
    """Parse a setting such as `*@example.org=*,root=ops`. Returns one sentence if the setting is invalid."""
    patterns = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        user, equals, name = part.rpartition("=")
        prefix, star, suffix = user.partition(_ANY)
        if not equals or not user or _ANY in suffix or name.count(_ANY) > len(star):
            return (
                f"kubernetes_users: {quoted(part)} must be USER=NAME, with at most one '*' in USER, and in NAME only"
                " if USER has it"
            )
        fault = check_name("kubernetes_users: name", name.replace(_ANY, "x"))
        if fault is not None:
            return fault
        patterns.append(_Pattern(prefix, suffix, bool(star), name))
    if len(patterns) > MAX_PATTERNS:
        return f"kubernetes_users: {len(patterns)} patterns must be at most {MAX_PATTERNS}"
    return UserNames(source, patterns)
