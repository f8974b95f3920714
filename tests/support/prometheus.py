"""The distribution's Prometheus and promtool."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml

from tests.support.certs import CertFiles
from tests.support.requirements import missing_requirement

INSTALL = "apt-get install -y -qq --no-install-recommends prometheus"
INSTALL_TIMEOUT_S = 240
READY_S = 90.0


@cache
def executable(name: str) -> str:
    """The path of the program. It is installed from the distribution's packages if possible; otherwise the test is
    skipped.
    """
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(f"apt-get update -qq && {INSTALL}", shell=True, check=False, timeout=INSTALL_TIMEOUT_S)
    found = shutil.which(name)
    if found is None:
        missing_requirement(f"no {name} on this machine; `{INSTALL}` (as root) makes it available")
    return found


class Checked(NamedTuple):
    """The result of promtool."""

    status: int
    output: str


def promtool(*arguments: str, stdin: bytes = b"") -> Checked:
    """Run promtool to its end."""
    command = [executable("promtool"), *arguments]
    ran = subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return Checked(ran.returncode, ran.stdout.decode())


class Prometheus:
    """A running Prometheus and its query API."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._address = address
        self._session = session

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of a response of its API."""
        async with self._session.get(f"http://{self._address}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
            assert response.status == 200 and answer["status"] == "success", (path, parameters, answer)
            return answer["data"]

    async def series(self, query: str) -> list[Any]:
        """The current series of a query."""
        found: list[Any] = (await self.ask("query", query=query))["result"]
        return found


@asynccontextmanager
async def scraping(folder: Path, address: str, cert_files: CertFiles, rules: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes a process of the plane every second, with a certificate, and evaluates these rules."""
    configuration = folder / "prometheus.yaml"
    job = {
        "job_name": "dpuplane",
        "scheme": "https",
        "tls_config": {
            "cert_file": str(cert_files.cert),
            "key_file": str(cert_files.key),
            "ca_file": str(cert_files.ca),
        },
        "static_configs": [{"targets": [address], "labels": {"plane": "tested"}}],
    }
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration.write_text(yaml.safe_dump({"global": every, "rule_files": [str(rules)], "scrape_configs": [job]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = (
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={own}",
    )
    with (folder / "prometheus.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(executable("prometheus"), *arguments, stdout=log, stderr=log)
    try:
        async with aiohttp.ClientSession() as session:
            await _until_ready(session, own)
            yield Prometheus(own, session)
    finally:
        child.terminate()
        await child.wait()


async def _until_ready(session: aiohttp.ClientSession, address: str) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                async with session.get(f"http://{address}/-/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
