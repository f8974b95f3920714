"""One fault of the catalog, with its cause in the tests."""

from __future__ import annotations

from typing import NamedTuple


class CatalogEntry(NamedTuple):
    """A fault. `by` lists its causes: `real: NAME` in `tests.faults.table`, `simulated: NAME` among the counts of
    simulations, or a test by its id. `lacks` names the part of the fault without a cause, with the reason.
    """

    number: int
    what: str
    by: tuple[str, ...] = ()
    lacks: str = ""
