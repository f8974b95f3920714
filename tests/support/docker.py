"""A Docker daemon for the tests, and a Debian root with Python to build on: a test machine may be unable to pull
images.

Needs root, dockerd and debootstrap. A test is skipped with the reason where one is missing; CI installs them. The
Debian root is stored in the cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker  # type: ignore[import-untyped]
import pytest

from deploy.kafka.jars import cache_folder
from tests.support.requirements import missing_requirement
from tests.support.wheelhouse import ROOT

RELEASE = "bookworm"
BASE = "dpuplane-test-base"
IMAGE = "dpuplane-test"
START_S = 90.0


def _why_not() -> str:
    if os.geteuid() != 0:
        return "a Docker daemon needs root"
    missing = [program for program in ("dockerd", "debootstrap", "docker") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found: apt-get install docker.io debootstrap"
    return "" if sys.version_info[:2] == (3, 11) else f"the wheels must be for the Python of Debian {RELEASE}, 3.11"


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """The socket of a daemon started by the tests. The daemon has no network and changes nothing on the host."""
    if why := _why_not():
        missing_requirement(why)
    folder = Path(tempfile.mkdtemp(prefix="dpuplane-docker-"))  # a Unix socket path has at most 107 bytes
    host = f"unix://{folder}/docker.sock"
    folders = ("--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "docker.pid")
    network = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false")
    with (folder / "output.txt").open("wb") as output:
        daemon = subprocess.Popen(["dockerd", "-H", host, *folders, *network], stdout=output, stderr=output)
    try:
        _await_daemon(host, daemon, folder / "output.txt")
        yield host
    finally:
        daemon.terminate()
        daemon.wait(START_S)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def root_image(docker_host: str) -> str:
    """A Debian with Python, as an image."""
    environment = {**os.environ, "DOCKER_HOST": docker_host}
    with _root().open("rb") as root:
        subprocess.run(["docker", "import", "-", BASE], stdin=root, env=environment, check=True)
    return BASE


@pytest.fixture(scope="session")
def image(docker_host: str, root_image: str, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of the plane, built from its Dockerfile."""
    context = tmp_path_factory.mktemp("context")
    shutil.copytree(wheelhouse, context / "dist" / "wheels")
    shutil.copytree(ROOT / "deploy" / "docker", context / "deploy" / "docker")
    build(docker_host, IMAGE, context, context / "deploy" / "docker" / "Dockerfile", root_image)
    return IMAGE


def build(docker_host: str, tag: str, context: Path, file: Path, root_image: str) -> None:
    """Build an image on the Debian root, without a network."""
    environment = {**os.environ, "DOCKER_HOST": docker_host, "DOCKER_BUILDKIT": "0"}
    flags = ("--quiet", "--network", "none", "--build-arg", f"BASE={root_image}", "--tag", tag, "--file", file)
    subprocess.run(["docker", "build", *flags, context], env=environment, check=True)


def _await_daemon(host: str, daemon: subprocess.Popen[bytes], output: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            docker.DockerClient(base_url=host).ping()
            return
        except docker.errors.DockerException:
            if daemon.poll() is not None or time.monotonic() > until:
                missing_requirement(
                    f"dockerd does not run here: {output.read_text(errors='replace').splitlines()[-1:]}"
                )
            time.sleep(0.1)


def _root() -> Path:
    """A Debian with Python, as a tar file."""
    kept = cache_folder(os.environ) / f"debian-{RELEASE}-python.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="dpuplane-root-") as folder:
            subprocess.run(
                ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", RELEASE, folder],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            fresh = kept.with_suffix(f".{os.getpid()}")
            subprocess.run(["tar", "-C", folder, "--exclude=./var/cache/apt", "-cf", fresh, "."], check=True)
            fresh.rename(kept)
    return kept
