"""Mutants that live on because they change nothing that anybody could see, each with the reason: `survivors.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.mutants import Mutant

_FILE = Path(__file__).with_name("survivors.toml")
Key = tuple[str, str, str, str]


def reasons() -> dict[Key, str]:
    """Why each is no fault of the tests, by what names it. A reason may stand for several changes of one function."""
    found: dict[Key, str] = {}
    for path, functions in tomllib.loads(_FILE.read_text()).items():
        for function, entries in functions.items():
            for entry in entries:
                assert entry["why"], f"{path}: {function}: no reason is given"
                for now in entry["now"]:
                    found[path, function, entry["was"], now] = entry["why"]
    return found


def outlived(known: Iterable[Key], mutants: Iterable[Mutant]) -> list[Key]:
    """Explanations of what is no mutant any more, of the modules that these mutants are of."""
    keys = {mutant.key for mutant in mutants}
    paths = {mutant.path for mutant in mutants}
    return sorted(key for key in known if key[0] in paths and key not in keys)
