"""Faults of the Kubernetes API."""

from __future__ import annotations

from tests.faults.catalog.entry import NO_KUBERNETES, CatalogEntry

_EMPTY = "tests/unit/test_nodes.py::test_an_empty_snapshot_is_refused"
_GONE = "tests/unit/test_withdrawals.py::test_a_withdrawal_over_budget_changes_no_verdict_until_two_principals_approve"
_WITNESS = "tests/unit/test_nodes.py::test_a_snapshot_proves_nothing_about_later_changes"
_UID = "tests/unit/test_nodes.py::test_a_newer_incarnation_replaces_the_node_and_an_older_one_is_refused"
_FOLDS = f"only the handling by the folds is tested:  {NO_KUBERNETES}"

KUBERNETES = (
    CatalogEntry(65, "a conflict on a write", lacks=NO_KUBERNETES),
    CatalogEntry(66, "a watch or a page has expired", lacks=NO_KUBERNETES),
    CatalogEntry(67, "too many requests, server errors, late commits", lacks=NO_KUBERNETES),
    CatalogEntry(68, "a timeout after the server has applied it", lacks=NO_KUBERNETES),
    CatalogEntry(69, "a watch that stops sending events", lacks=NO_KUBERNETES),
    CatalogEntry(70, "a watch with gaps, duplicates, reordering", (_WITNESS, _UID), lacks=_FOLDS),
    CatalogEntry(71, "an empty list", (_EMPTY,), lacks=_FOLDS),
    CatalogEntry(72, "an incomplete list", (_GONE,), lacks=_FOLDS),
    CatalogEntry(73, "all replicas list at once", lacks=NO_KUBERNETES),
    CatalogEntry(74, "a resource definition is deleted, or its webhook down", lacks=NO_KUBERNETES),
    CatalogEntry(75, "an object is re-created under its name", (_UID,), lacks=_FOLDS),
    CatalogEntry(76, "a finalizer that never ends", lacks=NO_KUBERNETES),
    CatalogEntry(77, "generations change faster than they are applied", lacks=NO_KUBERNETES),
    CatalogEntry(78, "another controller writes our field", lacks=NO_KUBERNETES),
    CatalogEntry(79, "a token expires, permissions are revoked", lacks=NO_KUBERNETES),
    CatalogEntry(80, "the API server goes back in time", lacks=NO_KUBERNETES),
    CatalogEntry(81, "our webhook times out", lacks=NO_KUBERNETES),
)
