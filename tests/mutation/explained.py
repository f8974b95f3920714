"""Equivalent mutants, whose change no caller can observe, with the reason. They are listed in `survivors.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.mutants import Mutant

_FILE = Path(__file__).with_name("survivors.toml")
Key = tuple[str, str, str, str]


def reasons() -> dict[Key, str]:
    """The reason for each equivalent mutant, by its key. One reason may cover several changes of a line."""
    found: dict[Key, str] = {}
    for path, functions in tomllib.loads(_FILE.read_text()).items():
        for function, entries in functions.items():
            for entry in entries:
                assert entry["why"], f"{path}: {function}: no reason is given"
                for now in entry["now"]:
                    found[path, function, entry["was"], now] = entry["why"]
    return found


def stale_explanations(known: Iterable[Key], mutants: Iterable[Mutant]) -> list[Key]:
    """Explanations that match no mutant, for the modules of these mutants."""
    keys = {mutant.key for mutant in mutants}
    paths = {mutant.path for mutant in mutants}
    return sorted(key for key in known if key[0] in paths and key not in keys)
