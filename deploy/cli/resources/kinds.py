"""Kinds of objects by the names that kubectl takes, and objects as arguments: KIND NAME... or KIND/NAME..."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import click

from projections.field_checks import quoted
from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind


class Named(NamedTuple):
    """An object that an argument names. The name is empty for all objects of the kind."""

    kind: Kind
    name: str = ""


def full_kind(kind: Kind) -> str:
    """A kind as the API names it."""
    return f"{kind.name}.{kind.group}"


def object_name(kind: Kind, name: str) -> str:
    """An object as kubectl names it: KIND.GROUP/NAME in lower case."""
    return f"{kind.name.lower()}.{kind.group}/{name}"


def names_of(kind: Kind) -> tuple[str, ...]:
    """The names that a user may give a kind, in lower case."""
    single, group = kind.name.lower(), kind.group
    qualified = (f"{single}.{group}", f"{kind.plural}.{group}", f"{kind.plural}.{kind.version}.{group}")
    return (single, kind.plural, *kind.short_names, *qualified)


def find_kind(text: str) -> Kind:
    """The kind that a user names. Raises UsageError."""
    wanted = text.lower()
    found = next((kind for kind in KINDS if wanted in names_of(kind)), None)
    if found is not None:
        return found
    close = difflib.get_close_matches(wanted, [name for kind in KINDS for name in names_of(kind)[:2]], n=1)
    meant = f"did you mean {close[0]}?" if close else f"the kinds are {', '.join(kind.name for kind in KINDS)}"
    raise click.UsageError(f"unknown kind {quoted(text)}: {meant}")


def find_kinds(text: str) -> list[Kind]:
    """The kinds that a user names, as kubectl takes them: KIND, KIND,KIND or `all`. Raises UsageError."""
    if text.lower() == "all":
        return list(KINDS)
    return list(dict.fromkeys(find_kind(part) for part in text.split(",")))


def named_objects(words: Sequence[str]) -> list[Named]:
    """The objects of the arguments `KIND`, `KIND NAME...` or `KIND/NAME...`; KIND may be several. Raises UsageError."""
    if not words:
        raise click.UsageError("KIND: must be given, for example dpusets")
    if "" in words:
        raise click.UsageError("KIND, NAME: must not be empty")
    if any("/" in word for word in words):
        return [_slashed(word) for word in words]
    kind, *names = words
    if names and kind.lower() == "all":
        raise click.UsageError("NAME: must not be given with all kinds")
    found = find_kinds(kind)
    return [Named(each, name) for each in found for name in names] or [Named(each) for each in found]


def _slashed(word: str) -> Named:
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise click.UsageError(f"{quoted(word)} must be KIND/NAME, because another argument is")
    return Named(find_kind(kind), name)
