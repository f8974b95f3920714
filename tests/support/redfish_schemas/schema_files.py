"""The schemas of DMTF and NVIDIA for the validator, from a pinned crate that cargo fetches into the cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from deploy.kafka.jars import cache_folder
from tests.support.requirements import missing_requirement

HERE = Path(__file__).parent
CRATE = "nv-redfish-schema-0.22.1"
FETCH_S = 240.0
_FOLDERS = ("redfish-csdl", "oem/nvidia")


def schema_folder() -> Path:
    """A folder with the schema files. They are fetched if the cache lacks them."""
    root = cache_folder(os.environ) / "redfish-schemas"
    files = root / CRATE
    if files.is_dir():
        return files
    if (cargo := shutil.which("cargo")) is None:
        missing_requirement("cargo not found: https://rustup.rs")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not files.is_dir():
            command = [cargo, "fetch", "--locked", "--manifest-path", str(HERE / "Cargo.toml")]
            home = root / "cargo"
            subprocess.run(command, check=True, timeout=FETCH_S, env=os.environ | {"CARGO_HOME": str(home)})
            (crate,) = home.glob(f"registry/src/*/{CRATE}")
            fresh = root / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            for folder in _FOLDERS:
                for path in sorted((crate / folder).rglob("*.xml")):
                    shutil.copy(path, fresh)
            fresh.rename(files)
    return files
