"""Checks of the kubeconfig files in the settings, before a process creates or opens a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deploy.settings.source_clusters import SourceCluster
from drivers.kubernetes.client import IN_CLUSTER, connect
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from eventstore.errors import FatalError
from projections.field_checks import PATH_QUOTED, quoted


async def check_kubeconfigs(clusters: Iterable[SourceCluster]) -> None:
    """Raise FatalError that names the setting, the file and its cluster, unless all files and the credentials that they
    name can be used.

    An API server that does not respond is no fault of the settings: its edge waits for it.
    """
    for cluster in clusters:
        about = f"kubeconfig: {quoted(cluster.kubeconfig, PATH_QUOTED)} of source {quoted(cluster.name)}"
        try:
            _check_readable(cluster)
        except (OSError, RuntimeError) as error:  # expanduser raises RuntimeError for an unknown user
            why = getattr(error, "strerror", None) or str(error)
            raise FatalError(f"{about} cannot be read: {why}") from error
        try:
            async with connect(cluster.kubeconfig):
                pass
        except KubeconfigInvalid as error:
            raise FatalError(f"{about} cannot be used: {error.why}") from error


def _check_readable(cluster: SourceCluster) -> None:
    if cluster.kubeconfig != IN_CLUSTER:
        with Path(cluster.kubeconfig).expanduser().open("rb"):
            pass
