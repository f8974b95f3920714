"""The pure modules, and the test files near each of them.

A pure module has no asynchronous function, and imports no library with effects outside the process. A test file is near
a module if it, or shared test code that it imports, imports the module directly or over few levels. A mutant that only
a distant test notices counts as unnoticed, because a maintainer would not look for the fault there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.mutation.mutants import ROOT

PACKAGES = ("schemas", "eventstore", "projections", "commands", "drivers")
CHECKERS = ("tests/simulation/checkers/*.py", "tests/simulation/model.py")
_IMPURE_LIBRARIES = {
    *("aiohttp", "aiokafka", "asyncio", "contextlib", "cryptography", "fastavro", "grpc", "grpc_health", "io"),
    *("grpc_reflection", "kubernetes_asyncio", "logging", "os", "pathlib", "prometheus_client", "rocksdict"),
    *("shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading"),
}
_TESTS = ("tests/unit/test_*.py", "tests/simulation/test_checkers*.py")
_FAR, _FARTHEST = 2, 6


def pure_modules() -> list[str]:
    """The paths of all modules that are mutated by default."""
    folders = (*(f"{package}/**/*.py" for package in PACKAGES), *CHECKERS)
    paths = (path for folder in folders for path in sorted(ROOT.glob(folder)))
    return [str(path.relative_to(ROOT)) for path in paths if not path.stem.endswith("_pb2") and _is_pure(path)]


def tests_near(paths: Iterable[str]) -> list[str]:
    """The test files near any of these modules. A module without a near test file gets its nearest ones."""
    files = sorted(path for pattern in _TESTS for path in ROOT.glob(pattern))
    near: set[Path] = set()
    for path in paths:
        module = _module(ROOT / path)
        tests_by_distance = (
            {test for test in files if module in _modules_within(test, far)} for far in range(_FAR, _FARTHEST)
        )
        near |= next(filter(None, tests_by_distance), set())
    return [str(path.relative_to(ROOT)) for path in sorted(near)]


def _is_pure(path: Path) -> bool:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    if any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes):
        return False
    outside = {name.partition(".")[0] for name in _imports(path)}
    return not outside & _IMPURE_LIBRARIES and any(isinstance(node, ast.FunctionDef) for node in nodes)


@cache
def _modules_within(test: Path, far: int) -> frozenset[str]:
    """The modules that a test file and its shared test code import, over at most `far` levels."""
    reached, front = {_module(test)}, {_module(test)}
    while front:
        front = {each for module in front for each in _imported(module) if each.startswith("tests.")} - reached
        reached |= front
    front = reached
    for _ in range(far):
        front = {each for module in front for each in _imported(module)} - reached
        reached = reached | front
    return frozenset(reached)


@cache
def _imported(module: str) -> frozenset[str]:
    folder = ROOT / module.replace(".", "/")
    paths = filter(Path.exists, (folder.with_suffix(".py"), folder / "__init__.py"))
    return frozenset(name for path in paths for name in _imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _module(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
