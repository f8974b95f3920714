"""The first inputs of every target, written by the encoders of production.

python -m tests.fuzz.seeds        add the seeds to the corpus
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.fuzz import corpus, seeds_edges, seeds_log

MAKERS: dict[str, Callable[[], Iterable[bytes]]] = {**seeds_log.MAKERS, **seeds_edges.MAKERS}


def main() -> None:
    for name, make in MAKERS.items():
        corpus.keep(name, [*corpus.load(name), *make()])


if __name__ == "__main__":
    main()
