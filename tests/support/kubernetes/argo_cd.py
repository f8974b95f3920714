"""Argo CD's own controllers at a real API server: the application controller and the repo server, with their cache.

They have no page and no API of their own. The repo server renders charts with the tests' helm.
"""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from schemas.kubernetes.api import KubernetesApi
from tests.support.child_programs import ChildPrograms, free_ports
from tests.support.kubernetes.api_server import HOST
from tests.support.kubernetes.build import module_folder, program
from tests.support.kubernetes.requests import create

READY_S = 60.0
_MODULE = "github.com/argoproj/argo-cd/v3"
_LABELS = {"app.kubernetes.io/part-of": "argocd"}


def definitions() -> list[dict[str, Any]]:
    """The definitions of Applications and AppProjects, as they are released with the controllers."""
    folder = module_folder("argocd", _MODULE) / "manifests" / "crds"
    return [yaml.safe_load((folder / f"{name}-crd.yaml").read_text()) for name in ("application", "appproject")]


async def make_settings(api: KubernetesApi, namespace: str, repository: str) -> None:
    """The objects that Argo CD reads its settings from, with a repository of charts whose certificate it accepts."""
    about: dict[str, Any] = {"labels": _LABELS}
    settings = {"timeout.reconciliation": "10s", "resource.exclusions": ""}
    await create(
        api,
        f"/api/v1/namespaces/{namespace}/configmaps",
        {"metadata": {"name": "argocd-cm", **about}, "data": settings},
    )
    fields = {"type": "helm", "url": repository, "name": "charts", "insecure": "true"}
    kind = {"argocd.argoproj.io/secret-type": "repository"}
    for name, labels, data in (
        ("argocd-secret", _LABELS, {"server.secretkey": "c2VjcmV0"}),
        ("charts", _LABELS | kind, {key: base64.b64encode(value.encode()).decode() for key, value in fields.items()}),
    ):
        body = {"metadata": {"name": name, "labels": labels}, "data": data}
        await create(api, f"/api/v1/namespaces/{namespace}/secrets", body)


class ArgoCD:
    """Argo CD in one namespace of the cluster of a kubeconfig, while the context lasts."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str) -> None:
        self._folder, self._kubeconfig, self._namespace = folder, kubeconfig, namespace
        self._programs = ChildPrograms(folder)
        self._ports = free_ports(HOST, 4)

    async def __aenter__(self) -> Self:
        for name in ("ssh", "tls", "gnupg", "plugins", "tmp", "home"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "ssh" / "ssh_known_hosts").touch()
        redis, repo_server, *metrics = self._ports
        cache = f"{HOST}:{redis}"
        self._run("redis", str(program("redis")), cache)
        self._run(
            "argocd-repo-server",
            str(program("argocd")),
            f"--redis={cache}",
            f"--address={HOST}",
            f"--port={repo_server}",
            f"--metrics-port={metrics[0]}",
            "--disable-tls",
        )
        try:
            await self._listening(redis, repo_server)
            self._run(
                "argocd-application-controller",
                str(program("argocd")),
                f"--redis={cache}",
                f"--repo-server={HOST}:{repo_server}",
                "--repo-server-plaintext",
                f"--metrics-port={metrics[1]}",
                f"--kubeconfig={self._kubeconfig}",
                f"--namespace={self._namespace}",
            )
        except BaseException:
            self._programs.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._programs.stop()

    async def _listening(self, *ports: int) -> None:
        async with asyncio.timeout(READY_S):
            for port in ports:
                while True:
                    self._programs.raise_if_ended()
                    try:
                        _, writer = await asyncio.open_connection(HOST, port)
                    except OSError:
                        await asyncio.sleep(0.1)
                        continue
                    writer.close()
                    break

    def _run(self, name: str, *command: str) -> None:
        folder = self._folder
        environment = {
            "ARGOCD_BINARY_NAME": name,
            "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
            "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
            "ARGOCD_GNUPGHOME": str(folder / "gnupg"),
            "ARGOCD_PLUGINSOCKFILEPATH": str(folder / "plugins"),
            "ARGOCD_GPG_ENABLED": "false",
            "TMPDIR": str(folder / "tmp"),
            "HOME": str(folder / "home"),
            "PATH": f"{program('helm').parent}:{os.environ.get('PATH', '')}",
        }
        self._programs.start(name, *command, environment=environment)
