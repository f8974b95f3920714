"""Packaging: locks with hashes, version bounds, the license, and an image built from a clone in one step."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.wheelhouse import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = ROOT / "deploy" / "locks"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(.*(?:\n    .*)*)", re.MULTILINE)
INTERNALS = ("aiohttp", "aiokafka", "rocksdict")
"""Libraries whose undocumented attributes are read, or whose file formats are relied on."""


def pins(lock: str) -> dict[str, str]:
    return {normal(name): pinned for name, pinned, _ in _PIN.findall((LOCKS / lock).read_text())}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", ["build.txt", "runtime.txt", "dev.txt"])
def test_every_line_of_a_lock_has_a_hash(lock: str) -> None:
    text = (LOCKS / lock).read_text()
    found = _PIN.findall(text)
    assert len(found) == sum(1 for line in text.splitlines() if line and not line.startswith((" ", "#")))
    assert [name for name, _, rest in found if "--hash=sha256:" not in rest] == []


def test_the_locks_satisfy_the_dependencies() -> None:
    more = [*PROJECT["optional-dependencies"]["dev"], *PROJECT["optional-dependencies"]["bench"]]
    for lock, lines in (("runtime.txt", PROJECT["dependencies"]), ("dev.txt", [*PROJECT["dependencies"], *more])):
        locked = pins(lock)
        for requirement in map(Requirement, lines):
            if requirement.name != PROJECT["name"]:
                pinned = locked.get(normal(requirement.name), "")
                assert requirement.specifier.contains(pinned), f"{lock}: {requirement} and {pinned}: run `make lock`"
    assert pins("runtime.txt").items() <= pins("dev.txt").items()
    assert pins("build.txt").items() <= pins("dev.txt").items()


def test_the_tests_run_with_the_locked_versions() -> None:
    for name in (requirement.name for requirement in map(Requirement, PROJECT["dependencies"])):
        assert version(name) == pins("dev.txt")[normal(name)], name


@pytest.mark.parametrize("library", INTERNALS)
def test_a_library_whose_internals_are_used_has_an_upper_bound(library: str) -> None:
    (found,) = (each for each in map(Requirement, PROJECT["dependencies"]) if each.name == library)
    assert "<" in {each.operator for each in found.specifier}


def test_the_license_and_the_changelog_exist() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[(Unreleased|{re.escape(PROJECT['version'])})\]", changes, re.MULTILINE)


def test_compose_pins_its_images_and_waits_for_health() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text())["services"]
    assert len(services) == 9
    for name, service in services.items():
        image = re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"])
        assert image == "dpuplane" or re.fullmatch(r"[\w/-]+:v?\d+\.\d+\.\d+", image), f"{name}: {image} is not pinned"
        assert "healthcheck" in service or image == "dpuplane", f"{name}: only the plane's image brings a health check"
        assert all(wait["condition"] == "service_healthy" for wait in service.get("depends_on", {}).values())
    assert "HEALTHCHECK" in (ROOT / "deploy" / "docker" / "Dockerfile").read_text()


def test_an_image_is_one_step_from_a_clone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(LOCKS, tmp_path / "deploy" / "locks")
    ran = subprocess.run(["make", "--dry-run", "image"], cwd=tmp_path, capture_output=True, text=True, check=True)
    steps = [
        "-m venv .venv",
        "install --require-hashes --requirement deploy/locks/build.txt --requirement deploy/locks/runtime.txt",
        "download --require-hashes --requirement deploy/locks/runtime.txt",
        "wheel --no-deps --no-build-isolation --wheel-dir dist/wheels .",
        "docker build --file deploy/docker/Dockerfile",
    ]
    places = [ran.stdout.find(step) for step in steps]
    assert -1 not in places and places == sorted(places), ran.stdout
    assert "deploy/locks/dev.txt" not in ran.stdout, "an image must not contain the dependencies of tests"
