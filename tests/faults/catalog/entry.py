"""One fault of the catalog, with its cause in the tests."""

from __future__ import annotations

from typing import NamedTuple

NO_KUBERNETES = "there is no Kubernetes edge yet"


class CatalogEntry(NamedTuple):
    """A fault. `by` is its cause: `real: NAME` from the table of this lane, `simulated: NAME` from the counts of a
    batch of simulations, or a test by its id. `lacks` is the part without a cause, with the reason.
    """

    number: int
    what: str
    by: tuple[str, ...] = ()
    lacks: str = ""
