"""An API server as a test uses it: sessions, kubeconfigs and kubectl of its users."""

from __future__ import annotations

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.kubernetes.build import program

READY_S = 150.0
HOST = "127.0.0.1"
ADMIN = "admin"
"""The user with all rights."""
MADE_BY_TESTS = "dpuplane.io/test"
"""A label of the Nodes that tests make. Tests delete no other Nodes."""


class CommandFailed(Exception):
    """A program of the control plane, or kubectl, failed; the message is its last output."""


class ApiServer(ABC):
    """An API server, and a folder for files about it."""

    folder: Path
    url: str

    @abstractmethod
    def credentials(self, user: str) -> Mapping[str, Any]:
        """The credentials of a user, as in a kubeconfig."""

    @abstractmethod
    def headers(self, user: str) -> Mapping[str, str]:
        """The headers that authenticate a user."""

    @abstractmethod
    def serving_certificate(self) -> tuple[Path, Path]:
        """The certificate, and its key, of a proxy in front of the server."""

    def client_context(self) -> ssl.SSLContext:
        """How to connect to the server."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def session(self, user: str = ADMIN) -> aiohttp.ClientSession:
        """An HTTP session of a user."""
        connector = aiohttp.TCPConnector(ssl=self.client_context())
        return aiohttp.ClientSession(headers=self.headers(user), connector=connector)

    def kubeconfig(self, user: str = ADMIN, *, server: str | None = None) -> Path:
        """A kubeconfig file of a user, for this API server or a proxy before it."""
        cluster = {"server": server or self.url, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": dict(self.credentials(user))}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path = self.folder / f"{user}-{'proxied' if server else 'direct'}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))
        return path

    async def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str = "") -> str:
        """The output of kubectl. Raises CommandFailed with its error output."""
        child = await asyncio.create_subprocess_exec(
            str(program("kubectl")),
            f"--kubeconfig={self.kubeconfig(user)}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.folder)},
        )
        async with asyncio.timeout(READY_S):
            output, errors = await child.communicate(stdin.encode())
        if child.returncode:
            raise CommandFailed(errors.decode().strip())
        return output.decode()
