"""The stored inputs: one text file per target, one input per line as a bytes literal, so that diffs are readable."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def path_of(name: str) -> Path:
    """The path of a target's corpus."""
    return FOLDER / f"{name}.txt"


def load(name: str) -> list[bytes]:
    """The inputs of a target."""
    path = path_of(name)
    return [literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Store these as the inputs of a target, the shortest first."""
    lines = [repr(data) for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    path_of(name).write_text("".join(f"{line}\n" for line in lines))
