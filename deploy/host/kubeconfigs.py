"""Checks of the kubeconfig files in the settings, before a process creates or opens a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deploy.settings.source_clusters import SourceCluster
from drivers.kubernetes.client import IN_CLUSTER
from eventstore.errors import FatalError
from projections.field_checks import PATH_QUOTED, quoted


def check_kubeconfigs(clusters: Iterable[SourceCluster]) -> None:
    """Raise FatalError that names the setting, the file and its cluster, unless all files can be read.

    An API server that does not respond is no fault of the settings: its edge waits for it.
    """
    for cluster in clusters:
        if cluster.kubeconfig == IN_CLUSTER:
            continue
        try:
            with Path(cluster.kubeconfig).expanduser().open("rb"):
                pass
        except (OSError, RuntimeError) as error:  # expanduser raises RuntimeError for an unknown user
            why = getattr(error, "strerror", None) or str(error)
            file = quoted(cluster.kubeconfig, PATH_QUOTED)
            raise FatalError(f"kubeconfig: {file} of source {quoted(cluster.name)} cannot be read: {why}") from error
