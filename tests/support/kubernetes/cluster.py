"""One etcd and one kube-apiserver on the loopback, with RBAC and bearer tokens, and controllers that a test adds.

No controller runs by default: nothing collects garbage, and a namespace is never deleted to its end. etcd does not sync
its files, which only a crash of the machine could tell.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.child_programs import ChildPrograms, free_ports
from tests.support.kubernetes.api_server import ADMIN, HOST, READY_S, ApiServer
from tests.support.kubernetes.build import program

SERVICE_RANGE = "10.0.0.0/24"
POD_RANGE = "10.128.0.0/9"
LEASE_S = 40
"""Duration of the lease of a Node, as kubelets have it; kwok renews it every quarter of this time."""
CLIENT_LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""Writes per second of a program, above its default of 20 to 50: pods come by the hundred."""


class ControlPlane(ApiServer):
    """A control plane whose processes a test may stop, start again, and set back to an earlier etcd."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd_port, self._peer_port = free_ports(HOST, 3)
        self.url = f"https://{HOST}:{self.port}"
        self.tokens = {ADMIN: secrets.token_hex(16)}
        self.client_authority: Path | None = None
        """An authority whose client certificates are accepted. The API server reads it when it starts."""
        folder.mkdir(parents=True, exist_ok=True)
        self._programs = ChildPrograms(folder)
        self._signing_key = folder / "service-accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self._signing_key), "2048"], check=True, capture_output=True, timeout=60
        )

    def add_user(self, name: str) -> None:
        """A user with a token and no rights of its own. The API server reads its users when it starts."""
        self.tokens[name] = secrets.token_hex(16)

    async def start(self) -> None:
        """Start what does not run. Returns when the API server is ready."""
        self.start_etcd()
        self.start_api_server()
        await self.ready()

    def start_etcd(self) -> None:
        client, peer = self.etcd_url, f"http://{HOST}:{self._peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--watch-progress-notify-interval=5s",  # as kubeadm has it; without, a quiet collection has no bookmarks
            "--log-level=error",
        )

    def start_api_server(self) -> None:
        tokens = self.folder / "tokens.csv"
        lines = [
            f"{token},{name},{name}" + (',"system:masters"' if name == ADMIN else "")
            for name, token in self.tokens.items()
        ]
        tokens.write_text("\n".join(lines) + "\n")
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self.port}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._signing_key}",
            f"--service-account-key-file={self._signing_key}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",  # as kubeadm has it
            *([f"--client-ca-file={self.client_authority}"] if self.client_authority is not None else []),
        )

    def start_controllers(self, controllers: str) -> None:
        """Run kube-controller-manager with these controllers, such as `garbage-collector-controller`."""
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig(ADMIN)}",
            f"--controllers={controllers}",
            f"--service-account-private-key-file={self._signing_key}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            *CLIENT_LIMITS,
        )

    def start_scheduler(self) -> None:
        """Run kube-scheduler, which assigns pods to Nodes."""
        self._run(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig(ADMIN)}",
            "--leader-elect=false",
            "--secure-port=0",
            *CLIENT_LIMITS,
        )

    def start_kwok(self, *stages: Path) -> None:
        """Run kwok, which plays the kubelets of all Nodes: their leases, and what these files of stages say."""
        self._run(
            "kwok",
            f"--kubeconfig={self.kubeconfig(ADMIN)}",
            "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={LEASE_S}",
            f"--cidr={POD_RANGE}",
            "--v=WARN",
            *(f"--config={path}" for path in stages),
        )

    async def ready(self) -> None:
        """Wait until the API server answers that it is ready."""
        async with asyncio.timeout(READY_S), self.session() as session:
            while True:
                self._programs.raise_if_ended()
                try:
                    async with session.get(f"{self.url}/readyz") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    def credentials(self, user: str) -> Mapping[str, Any]:
        return {"token": self.tokens[user]}

    def headers(self, user: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    def serving_certificate(self) -> tuple[Path, Path]:
        certs = self.folder / "certs"
        return certs / "apiserver.crt", certs / "apiserver.key"

    def kill(self, name: str) -> None:
        """Kill a program of the control plane; `start` starts it again."""
        self._programs.kill(name)

    def save_etcd(self) -> Path:
        """A copy of etcd's data, taken while etcd and the API server are stopped."""
        for name in ("kube-apiserver", "etcd"):
            self.kill(name)
        saved = self.folder / f"etcd-{secrets.token_hex(4)}"
        shutil.copytree(self.folder / "etcd", saved)
        return saved

    def restore_etcd(self, saved: Path) -> None:
        """Set etcd back to a copy; both programs must be stopped."""
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(saved, self.folder / "etcd")

    async def compact_etcd(self) -> None:
        """Remove all earlier versions from etcd, as the API server does every five minutes."""
        gateway = f"{self.etcd_url}/v3/kv"
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.post(f"{gateway}/range", json={"key": "AA=="}) as response:
                revision = (await response.json())["header"]["revision"]
            async with session.post(f"{gateway}/compaction", json={"revision": revision, "physical": True}):
                pass

    def stop(self) -> None:
        """End all programs, the last one started first."""
        self._programs.stop()

    @property
    def etcd_url(self) -> str:
        """Where etcd serves clients, and its metrics."""
        return f"http://{HOST}:{self._etcd_port}"

    @property
    def pids(self) -> list[int]:
        return self._programs.pids

    def cpu_seconds(self, name: str) -> float:
        """The processor time that a program has used, of user and kernel."""
        return self._programs.cpu_seconds(name)

    def _run(self, name: str, *arguments: str) -> None:
        self._programs.start(name, str(program(name)), *arguments)
