"""The output: a table by module, the survivors, and the score with its confidence interval."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.mutation.explained import Key
from tests.mutation.mutants import Mutant

_FATES = ("killed", "timeout", "types", "explained", "survived")
_SIGMAS_95 = 1.96


def settled(fates: Mapping[Mutant, str], refused: set[Mutant], why: Mapping[Key, str]) -> dict[Mutant, str]:
    """The fate of each mutant: one that survived the tests may be refused by mypy, or be explained."""
    final = {}
    for mutant, fate in fates.items():
        final[mutant] = fate
        if fate in ("survived", "unreached"):
            final[mutant] = "types" if mutant in refused else "explained" if mutant.key in why else "survived"
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
    """The share of noticed mutants: by a test, by a timeout, or by mypy."""
    noticed = counts["killed"] + counts["timeout"] + counts["types"]
    return noticed / max(noticed + counts["survived"], 1)


def interval(noticed: int, drawn: int) -> tuple[float, float]:
    """Wilson's interval at 95 %: the range of the score of all mutants, if so many of the sampled ones were noticed."""
    if not drawn:
        return (0.0, 1.0)
    share, square = noticed / drawn, _SIGMAS_95**2
    middle = (share + square / (2 * drawn)) / (1 + square / drawn)
    reach = _SIGMAS_95 / (1 + square / drawn) * math.sqrt(share * (1 - share) / drawn + square / (4 * drawn**2))
    return (middle - reach, middle + reach)


def shown(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.function}\n  - {mutant.was}\n  + {mutant.now}"
