"""Annotations of an object in a plane without Kubernetes: those of its manifest, and those that edits have set.

A manifest states all annotations that it is about. An edit names the revision that it was made from: people answer by
edits what the plane asks them, and the plane asks by edits. A manifest that does not know of them removes none, as with
`kubectl apply`: otherwise a folder that is applied again would answer for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from projections.resources.state import Resource


class Stated(NamedTuple):
    """The annotations of an object, and the keys of those that edits have set."""

    annotations: dict[str, str]
    edited: tuple[str, ...]


def of_manifest(given: Mapping[str, str], known: Resource | None) -> Stated:
    """The annotations after a manifest is applied."""
    edited = () if known is None else tuple(key for key in known.edited if key not in given)
    kept = {key: known.annotations[key] for key in edited} if known is not None else {}
    return Stated(dict(sorted((kept | dict(given)).items())), edited)


def of_edit(given: Mapping[str, str], known: Resource) -> Stated:
    """The annotations after an edit that states all of them."""
    is_edited = {key for key in given if key in known.edited or given[key] != known.annotations.get(key)}
    return Stated(dict(given), tuple(sorted(is_edited)))
