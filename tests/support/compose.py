"""The compose file brought up, with images made here of what is on this machine: none can be pulled everywhere.

Grafana is left out: nothing that pip or apt brings has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.kafka.brokers import ports_for
from deploy.kafka.jars import cache_folder, java, kafka_jars
from tests.support import prometheus
from tests.support.docker import build
from tests.support.requirements import missing_requirement
from tests.support.wheelhouse import ROOT

IMAGES = Path(__file__).parent / "images"
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
SERVICES = ("kafka-1", "kafka-2", "kafka-3", "api", "relay", "provisioner", "prometheus")
PORTS = ("API_PORT", "HTTP_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
PROJECT = "dpuplane-test"
KAFKA, PROMETHEUS = "dpuplane-test-kafka", "dpuplane-test-prometheus"


@pytest.fixture(scope="session")
def kafka_image(docker_host: str, root_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    context = tmp_path_factory.mktemp("kafka-image")
    shutil.copytree(java().parents[1], context / "opt" / "java", symlinks=True)
    shutil.copytree(kafka_jars(cache_folder(os.environ)), context / "opt" / "kafka")
    shutil.copy(IMAGES / "kafka_entry.py", context / "opt")
    build(docker_host, KAFKA, context, IMAGES / "kafka.Dockerfile", root_image)
    return KAFKA


@pytest.fixture(scope="session")
def prometheus_image(docker_host: str, root_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    context = tmp_path_factory.mktemp("prometheus-image")
    shutil.copy(prometheus.executable("prometheus"), context / "prometheus")
    build(docker_host, PROMETHEUS, context, IMAGES / "prometheus.Dockerfile", root_image)
    return PROMETHEUS


class Composed:
    """What compose.yaml describes, running."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def compose(self, *arguments: str) -> str:
        command = ("docker-compose", "--project-name", PROJECT, "--file", str(COMPOSE), *arguments)
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def address(self, service: str, port: int) -> str:
        """Where a port of a service is published."""
        return self.compose("port", service, str(port)).strip()


@contextmanager
def composed(docker_host: str, **images: str) -> Iterator[Composed]:
    """Bring it up, on ports that are free; take it down with its volumes and its network at the end."""
    if shutil.which("docker-compose") is None:
        missing_requirement("docker-compose not found: apt-get install docker-compose")
    ports = dict(zip(PORTS, map(str, ports_for(len(PORTS), None)), strict=True))
    plane = Composed({**os.environ, "DOCKER_HOST": docker_host, **ports, **images})
    try:
        plane.compose("up", "--detach", *SERVICES)
        yield plane
    except BaseException:
        for service in reversed(SERVICES):  # what is read first stands last
            print(plane.compose("logs", "--no-color", "--tail", "30", service))
        print(plane.compose("ps"))
        raise
    finally:
        plane.compose("down", "--volumes", "--timeout", "5")
