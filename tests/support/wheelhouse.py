"""The plane and its dependencies as wheels, built from a copy of the tree as a release would be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("commands", "deploy", "drivers", "eventstore", "projections", "schemas")
FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels: those named in deploy/locks/runtime.txt, and the wheel of the tree."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    tree, wheels = folder / "tree", folder / "wheels"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, tree)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", wheels)
    lock = ROOT / "deploy" / "locks" / "runtime.txt"
    subprocess.run([*pip, "--require-hashes", "--requirement", lock], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", tree], check=True)
    return wheels
