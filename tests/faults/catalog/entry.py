"""One fault of the catalog: what it is, and what makes it happen."""

from __future__ import annotations

from typing import NamedTuple

NO_KUBERNETES = "there is no Kubernetes edge yet"


class CatalogEntry(NamedTuple):
    """A fault. `by` is what makes it happen: `real: NAME` of the table of this lane, `simulated: NAME` of what a batch
    of simulations must have met, or a test by its id. `lacks` is what of it nothing makes happen, and why.
    """

    number: int
    what: str
    by: tuple[str, ...] = ()
    lacks: str = ""
