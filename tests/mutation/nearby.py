"""The pure modules, and the test files near each of them that should notice its faults.

Pure means: no asynchronous function, and no library with effects outside the process. Near means: the test, or shared
code of tests, imports the module or one of its importers. A mutant that only a far test notices counts as unnoticed,
since nobody would look for the fault there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.mutation.mutants import ROOT

PACKAGES = ("schemas", "eventstore", "projections", "commands", "drivers")
JUDGES = ("tests/simulation/checkers/*.py", "tests/simulation/model.py")
_REACH_OUT = {
    *("aiohttp", "aiokafka", "asyncio", "contextlib", "cryptography", "fastavro", "grpc", "grpc_health", "io"),
    *("grpc_reflection", "kubernetes_asyncio", "logging", "os", "pathlib", "prometheus_client", "rocksdict"),
    *("shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading"),
}
_TESTS = ("tests/unit/test_*.py", "tests/simulation/test_checkers*.py")
_FAR, _FARTHEST = 2, 6


def pure_modules() -> list[str]:
    """Paths of all modules that are mutated by default."""
    folders = (*(f"{package}/**/*.py" for package in PACKAGES), *JUDGES)
    paths = (path for folder in folders for path in sorted(ROOT.glob(folder)))
    return [str(path.relative_to(ROOT)) for path in paths if not path.stem.endswith("_pb2") and _is_pure(path)]


def tests_near(paths: Iterable[str]) -> list[str]:
    """The test files near any of these modules; the nearest ones for a module without a near one."""
    files = sorted(path for pattern in _TESTS for path in ROOT.glob(pattern))
    near: set[Path] = set()
    for path in paths:
        module = _module(ROOT / path)
        within = ({test for test in files if module in _within(test, far)} for far in range(_FAR, _FARTHEST))
        near |= next(filter(None, within), set())
    return [str(path.relative_to(ROOT)) for path in sorted(near)]


def _is_pure(path: Path) -> bool:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    if any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes):
        return False
    outside = {name.partition(".")[0] for name in _imports(path)}
    return not outside & _REACH_OUT and any(isinstance(node, ast.FunctionDef) for node in nodes)


@cache
def _within(test: Path, far: int) -> frozenset[str]:
    """Modules that a test file imports through shared code of tests, and their imports, up to `far` levels."""
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
