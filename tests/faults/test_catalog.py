"""The catalog names every fault once, and its references exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.catalog import CatalogEntry, known, printed
from tests.faults.table import FAULTS
from tests.simulation.figures import MUST_HAPPEN

TREE = Path(__file__).parents[2]


def test_every_fault_is_there_once_and_says_what_makes_it_happen_or_why_nothing_does() -> None:
    assert [fault.number for fault in known()] == list(range(1, 97))
    assert not [fault for fault in known() if not fault.by and not fault.lacks]


@pytest.mark.parametrize("fault", known(), ids=lambda fault: str(fault.number))
def test_what_makes_a_fault_happen_is_there(fault: CatalogEntry) -> None:
    assert not [reference for reference in fault.by if not _is_there(reference)]


def test_every_real_fault_makes_those_of_its_numbers_happen() -> None:
    by_number = {fault.number: fault for fault in known()}
    for fault in FAULTS.values():
        assert not [number for number in fault.numbers if not by_number[number].by]
    named = {reference.removeprefix("real: ") for fault in known() for reference in fault.by}
    assert FAULTS.keys() <= named, "a fault that the catalog does not know of"


def test_it_is_printed_with_a_line_for_each() -> None:
    numbers = [line.split()[0] for line in printed().splitlines()[:-1] if line[:3].strip().isdigit()]
    assert numbers == [str(number) for number in range(1, 97)]


def _is_there(reference: str) -> bool:
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
