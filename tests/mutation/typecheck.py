"""Unnoticed mutants that mypy refuses: CI runs mypy before any test.

All mutants of a module are placed beside the function that they change, in a copy that mypy reads instead of the
module.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.mutation.mutants import ROOT, Mutant

_CACHE = ROOT / ".mypy_cache" / "mutants"


class _Complaint(msgspec.Struct):
    file: str
    line: int
    severity: str


def refused_by_types(mutants: Iterable[Mutant]) -> set[Mutant]:
    of_path: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        of_path[mutant.path].append(mutant)
    if not of_path:
        return set()
    owners: dict[tuple[str, int], Mutant] = {}
    with tempfile.TemporaryDirectory() as folder:
        shadows: list[str] = []
        for number, (path, of_this) in enumerate(of_path.items()):
            text, lines = side_by_side((ROOT / path).read_text(), of_this)
            owners |= {(path, line): mutant for line, mutant in lines.items()}
            shadow = Path(folder) / f"{number}.py"
            shadow.write_text(text)
            shadows += ["--shadow-file", path, str(shadow)]
        complaints = _mypy([*shadows, *of_path])
    return {
        owners[each.file, each.line]
        for each in complaints
        if each.severity == "error" and (each.file, each.line) in owners
    }


def side_by_side(source: str, mutants: Sequence[Mutant]) -> tuple[str, dict[int, Mutant]]:
    """The source with each mutant behind its function, under a name of its own; and the mutant of each line."""
    after: defaultdict[int, list[tuple[Mutant, list[str]]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        name = mutant.function.rpartition(".")[2]
        renamed = re.sub(rf"\bdef {name}\b", f"def {name}__mutant_{number}", mutant.text, count=1)
        after[mutant.lines[1]].append((mutant, renamed.splitlines()))
    text: list[str] = []
    owners: dict[int, Mutant] = {}
    for number, line in enumerate(source.splitlines(), start=1):
        text.append(line)
        for mutant, lines in after.get(number, []):
            owners |= {len(text) + at: mutant for at in range(1, len(lines) + 1)}
            text += lines
    return "\n".join(text) + "\n", owners


def _mypy(arguments: Sequence[str]) -> list[_Complaint]:
    command = [sys.executable, "-m", "mypy", "--output", "json", "--cache-dir", str(_CACHE), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"mypy could not look at the mutants: {ended.stdout}{ended.stderr}")
    return [msgspec.json.decode(line, type=_Complaint) for line in ended.stdout.splitlines() if line.startswith("{")]
