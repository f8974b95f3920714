"""The catalog names every fault once, and its references exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.catalog import CatalogEntry, all_entries, catalog_table
from tests.faults.table import FAULTS
from tests.simulation.figures import MUST_HAPPEN

TREE = Path(__file__).parents[2]


def test_the_catalog_has_each_fault_once_with_a_cause_or_a_reason() -> None:
    assert [fault.number for fault in all_entries()] == list(range(1, 97))
    assert not [fault for fault in all_entries() if not fault.by and not fault.lacks]


@pytest.mark.parametrize("fault", all_entries(), ids=lambda fault: str(fault.number))
def test_the_causes_of_a_fault_exist(fault: CatalogEntry) -> None:
    assert not [reference for reference in fault.by if not _exists(reference)]


def test_every_fault_on_real_processes_is_in_the_catalog() -> None:
    by_number = {fault.number: fault for fault in all_entries()}
    for fault in FAULTS.values():
        assert not [number for number in fault.numbers if not by_number[number].by]
    named = {reference.removeprefix("real: ") for fault in all_entries() for reference in fault.by}
    assert FAULTS.keys() <= named, "a fault is missing in the catalog"


def test_the_printed_catalog_has_a_line_for_each_fault() -> None:
    numbers = [line.split()[0] for line in catalog_table().splitlines()[:-1] if line[:3].strip().isdigit()]
    assert numbers == [str(number) for number in range(1, 97)]


def _exists(reference: str) -> bool:
    kind, _, name = reference.partition(": ")
    if kind == "real":
        return name in FAULTS
    if kind == "simulated":
        return name in MUST_HAPPEN
    path, _, test = reference.partition("::")
    return test in _functions(TREE / path)


def _functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
