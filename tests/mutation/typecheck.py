"""Finds unnoticed mutants that mypy refuses. They count as noticed, because CI runs mypy before any test.

mypy reads a copy of the module, in which all mutants follow the function that they change.
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


class _MypyMessage(msgspec.Struct):
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
        messages = _mypy([*shadows, *of_path])
    return {
        owners[each.file, each.line]
        for each in messages
        if each.severity == "error" and (each.file, each.line) in owners
    }


def side_by_side(source: str, mutants: Sequence[Mutant]) -> tuple[str, dict[int, Mutant]]:
    """The source with each mutant after its function, under a new name, and the mutant of each added line."""
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


def _mypy(arguments: Sequence[str]) -> list[_MypyMessage]:
    command = [sys.executable, "-m", "mypy", "--output", "json", "--cache-dir", str(_CACHE), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"mypy could not check the mutants: {ended.stdout}{ended.stderr}")
    return [msgspec.json.decode(line, type=_MypyMessage) for line in ended.stdout.splitlines() if line.startswith("{")]
