"""The image: a container runs as an unprivileged user, on a read-only root."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from typing import Any

import pytest
import yaml
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.support.requirements import missing_requirement
from tests.support.wheelhouse import ROOT

HEALTHY_S = 60.0
LOCKED = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}


@pytest.fixture
def container(docker_host: str, image: str, monkeypatch: pytest.MonkeyPatch) -> DockerContainer:
    """A container of the image, without privileges and with a read-only root."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    return DockerContainer(image).with_tmpfs_mount("/tmp").with_kwargs(**LOCKED)


@pytest.mark.timeout(900)
def test_the_demo_runs_in_the_image(container: DockerContainer) -> None:
    sizes = "demo --nodes 50 --zones 2 --dpus-per-zone 3 --provision 1 --json"
    with container.with_command(sizes) as running:
        wrapped: Any = running.get_wrapped_container()
        ended = wrapped.wait(timeout=120)
        stdout, stderr = wrapped.logs(stderr=False).decode(), wrapped.logs(stdout=False).decode()
    assert ended["StatusCode"] == 0, stderr
    assert json.loads(stdout)["nodes"] == 50


@pytest.mark.timeout(900)
def test_a_plane_in_a_container_is_healthy_and_ends_cleanly(container: DockerContainer) -> None:
    with container as running:
        wrapped: Any = running.get_wrapped_container()
        until = time.monotonic() + HEALTHY_S
        while wrapped.health != "healthy":
            assert time.monotonic() < until, (wrapped.health, wrapped.logs().decode())
            time.sleep(0.5)
            wrapped.reload()
        assert wrapped.exec_run("dpuplane status").exit_code == 0
        assert wrapped.exec_run("id -u").output.strip() == b"10001"
        assert wrapped.exec_run("touch /opt/application/x").exit_code != 0
        wrapped.stop(timeout=10)
        wrapped.reload()
        assert wrapped.attrs["State"]["ExitCode"] == 0


def test_the_compose_file_is_valid() -> None:
    if shutil.which("docker-compose") is None:
        missing_requirement("docker-compose not found: apt-get install docker-compose")
    file = ROOT / "deploy" / "docker" / "compose.yaml"
    ran = subprocess.run(["docker-compose", "-f", file, "config"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_images_have_exact_versions_and_the_plane_waits_for_healthy_brokers() -> None:
    text = (ROOT / "deploy" / "docker" / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    images = [service["image"].partition(":-")[2].rstrip("}") for service in services.values()]
    base = re.search(r"^ARG BASE=(\S+)", (ROOT / "deploy" / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    others = {image for image in (*images, base[1]) if image != "dpuplane"}
    assert len(others) == 4
    for image in others:
        assert re.search(r":v?\d+\.\d+\.\d+(-[a-z]+)*$|@sha256:[0-9a-f]{64}$", image), f"{image} has no exact version"
    brokers = [name for name in services if name.startswith("kafka")]
    assert all("healthcheck" in services[name] for name in brokers)
    for role in ("api", "relay", "provisioner"):
        waits_for = {name: on["condition"] for name, on in services[role]["depends_on"].items()}
        assert waits_for == dict.fromkeys(brokers, "service_healthy")
