"""The console script before the command line is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_interrupt_during_the_imports_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    python_path = os.pathsep.join((str(tmp_path), str(ROOT)))
    ran = subprocess.run(
        [sys.executable, "-c", "from deploy.console import main; main()"],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_the_console_script_is_this_function() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    entry = EntryPoint("dpuplane", scripts["dpuplane"], "console_scripts").load()
    assert (entry.__module__, entry.__name__) == ("deploy.console", "main")
