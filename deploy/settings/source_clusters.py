"""Lists of source clusters in flags and settings: [NAME=]FILE|in-cluster,..."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from projections.field_checks import PATH_QUOTED, check_zone, quoted


class SourceCluster(NamedTuple):
    """A Kubernetes cluster whose Nodes join: its name, and a kubeconfig file or `in-cluster`."""

    name: str
    kubeconfig: str


def parse_source_clusters(text: str, default_name: str) -> tuple[SourceCluster, ...]:
    """The source clusters of a list. A cluster without a name gets the default one. Raises ValueError.

    Two clusters of one name would remove each other's nodes. One cluster under two names would join each Node twice.
    """
    found = tuple(_parse(part, default_name) for part in map(str.strip, text.split(",")) if part)
    if text and not found:
        raise ValueError(f"kubeconfig: {quoted(text)} must name a cluster, or be omitted")
    if (name := _repeated([each.name for each in found])) is not None:
        raise ValueError(
            f"kubeconfig: {quoted(name)} names two clusters; give each a name of its own, as NAME=FILE,"
            " or by the setting source"
        )
    if (file := _repeated([each.kubeconfig for each in found])) is not None:
        raise ValueError(f"kubeconfig: {quoted(file, PATH_QUOTED)} is given twice; a cluster must have one name")
    return found


def _parse(part: str, default_name: str) -> SourceCluster:
    name, equals, kubeconfig = part.partition("=")
    if not equals or "/" in name:  # the path of a file may contain =
        return SourceCluster(default_name, part)
    if fault := check_zone("kubeconfig", name):
        raise ValueError(f"{fault}, in NAME=FILE")
    if not kubeconfig:
        raise ValueError(f"kubeconfig: {quoted(part)} must be NAME=FILE, or NAME=in-cluster")
    return SourceCluster(name, kubeconfig)


def _repeated(values: list[str]) -> str | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)
