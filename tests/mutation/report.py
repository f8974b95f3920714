"""The output: a table by module, the survivors, and the score with its confidence interval."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.mutation.explained import Key
from tests.mutation.mutants import Mutant

_FATES = ("killed", "timeout", "types", "explained", "survived")
_SIGMAS_95 = 1.96


def settled(fates: Mapping[Mutant, str], refused: set[Mutant], reasons: Mapping[Key, str]) -> dict[Mutant, str]:
    """The final result of each mutant: a survivor of the tests may be refused by mypy or explained as equivalent."""
    final = {}
    for mutant, fate in fates.items():
        final[mutant] = fate
        if fate in ("survived", "unreached"):
            final[mutant] = "types" if mutant in refused else "explained" if mutant.key in reasons else "survived"
    return final


def table(final: Mapping[Mutant, str]) -> str:
    by_path: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, fate in final.items():
        by_path[mutant.path][fate] += 1
    width = max(map(len, [*by_path, "module"]))
    lines = [f"{'module':{width}} mutants {' '.join(f'{fate:>9}' for fate in _FATES)}   score"]
    for path, counts in [*sorted(by_path.items()), ("all", sum(by_path.values(), Counter()))]:
        numbers = " ".join(f"{counts[fate]:>9,}" for fate in _FATES)
        lines.append(f"{path:{width}} {counts.total():>7,} {numbers} {score(counts):>6.1%}")
    return "\n".join(lines)


def score(counts: Mapping[str, int]) -> float:
    """The share of mutants that a test, a timeout or mypy notices."""
    noticed = counts["killed"] + counts["timeout"] + counts["types"]
    return noticed / max(noticed + counts["survived"], 1)


def interval(noticed: int, drawn: int) -> tuple[float, float]:
    """Wilson's 95 % interval for the score of all mutants, from the number of noticed ones in a sample."""
    if not drawn:
        return (0.0, 1.0)
    share, square = noticed / drawn, _SIGMAS_95**2
    middle = (share + square / (2 * drawn)) / (1 + square / drawn)
    half_width = _SIGMAS_95 / (1 + square / drawn) * math.sqrt(share * (1 - share) / drawn + square / (4 * drawn**2))
    return (middle - half_width, middle + half_width)


def shown(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.function}\n  - {mutant.was}\n  + {mutant.now}"
