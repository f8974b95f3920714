"""The shape of the tree: limits of length, module docstrings, complete tables in the READMEs of folders, and no direct
use of clocks or randomness.
"""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "eventstore", "projections", "commands", "drivers", "deploy", "tests")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PAGE_LINE_MAX = 120
FORBIDDEN_CALLS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "uuid.uuid4",
    "uuid.uuid1",
    "random.random",
    "random.randint",
    "random.choice",
    "random.shuffle",
    "os.urandom",
    "asyncio.to_thread",
}


def sources(*packages: str) -> list[Path]:
    return sorted(
        path for package in packages for path in (ROOT / package).rglob("*.py") if not path.stem.endswith("_pb2")
    )


def named(paths: list[Path]) -> list[ParameterSet]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case ast.Name(id=name):
            return name
        case _:
            return ""


@pytest.mark.parametrize("path", named(sources(*PACKAGES)))
def test_files_and_functions_have_a_limited_length(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX, "the file is too long: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", named([path for path in sources(*PACKAGES) if path.stat().st_size]))
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", named(sources("schemas", "eventstore", "projections", "commands", "drivers")))
def test_time_and_chance_are_inputs(path: Path) -> None:
    calls = (dotted(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    assert not FORBIDDEN_CALLS.intersection(calls)


@pytest.mark.parametrize("package", ["schemas", "eventstore", "projections", "commands", "drivers", "deploy"])
def test_the_readme_of_a_folder_describes_each_of_its_modules(package: str) -> None:
    folder = ROOT / package
    table = (folder / "README.md").read_text().partition("\n## ")[0]
    named = [name for cell in re.findall(r"^\| (.+?) \| ", table, re.M) for name in re.findall(r"`([^`]+)`", cell)]
    present = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.stem != "__init__"}
    assert not {one for one in present if not any(is_described(one, name) for name in named)}
    assert not [name for name in named if not list(folder.glob(name))], "a name of the table that does not exist"


def is_described(module: str, name: str) -> bool:
    """Whether a name of a table means a module: its path, a pattern, or a folder above it."""
    return fnmatch(module, name) or (name.endswith("/") and module.startswith(name))


def pages() -> list[Path]:
    """The Markdown pages that people write: those of `deploy/reference` are generated."""
    found = [*ROOT.glob("*.md"), *(path for package in PACKAGES for path in (ROOT / package).rglob("*.md"))]
    return sorted(path for path in found if ROOT / "deploy" / "reference" not in path.parents)


@pytest.mark.parametrize("path", named(pages()))
def test_lines_of_a_page_have_a_limited_length(path: Path) -> None:
    """Outside of tables and code, which cannot be wrapped, and of lines without a space, such as a long link."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    assert not [line for line in lines if len(line) > PAGE_LINE_MAX and " " in line.strip()]
