"""The compose file, started with images built on this machine: a test machine may be unable to pull images.

Grafana is left out because neither pip nor apt provides it.
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
SERVICES = ("kafka-1", "kafka-2", "kafka-3", "api", "relay", "provisioner", "decisions", "prometheus")
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
    for name in ("prometheus", "promtool"):
        shutil.copy(prometheus.executable(name), context / name)
    build(docker_host, PROMETHEUS, context, IMAGES / "prometheus.Dockerfile", root_image)
    return PROMETHEUS


class Composed:
    """The running services of compose.yaml."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def compose(self, *arguments: str) -> str:
        command = ("docker-compose", "--project-name", PROJECT, "--file", str(COMPOSE), *arguments)
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def address(self, service: str, port: int) -> str:
        """The published address of a service's port."""
        return self.compose("port", service, str(port)).strip()


@contextmanager
def composed(docker_host: str, **images: str) -> Iterator[Composed]:
    """Start the services on free ports; on exit remove their containers, volumes and network."""
    if shutil.which("docker-compose") is None:
        missing_requirement("docker-compose not found: apt-get install docker-compose")
    ports = dict(zip(PORTS, map(str, ports_for(len(PORTS), None)), strict=True))
    plane = Composed({**os.environ, "DOCKER_HOST": docker_host, **ports, **images})
    try:
        plane.compose("up", "--detach", *SERVICES)
        yield plane
    except BaseException:
        for service in reversed(SERVICES):  # readers begin at the end of the output
            print(plane.compose("logs", "--no-color", "--tail", "30", service))
        print(plane.compose("ps"))
        raise
    finally:
        plane.compose("down", "--volumes", "--timeout", "5")
