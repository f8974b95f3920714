"""All mutants of a module: every change of a function by mutmut's operators, as the new source of that function.

mutmut's own runner starts pytest for each mutant, which took three seconds per mutant. Here the code object of a mutant
replaces that of its function in a fork of a process that has loaded everything (`runner`), which takes a few hundredths
of a second. Constants outside functions are not mutated, because they are evaluated before the fork. Assertions and
`strict=` of `zip` are not mutated either: no test can make them fail.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

ROOT = Path(__file__).parents[2]
# Functions with these decorators are called at each access, so their mutants take effect as those of others do.
_PLAIN_DECORATORS = {"property", "cached_property", "staticmethod", "classmethod"}
_STRICT = re.compile(r",? ?(strict=\w*)?")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function. The lines that differ, `was` and `now`, identify it independently of line numbers."""

    path: str
    function: str
    lines: tuple[int, int]
    line: int
    text: str
    was: str
    now: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.path, self.function, self.was, self.now)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def compiled(self) -> CodeType | None:
        """The code object of the changed function; None if the changed source is not valid Python."""
        source = (ROOT / self.path).read_text().splitlines(keepends=True)
        first, last = self.lines
        changed = "".join([*source[: first - 1], self.text, *source[last:]])
        try:
            return _find(compile(changed, str(ROOT / self.path), "exec"), self.function)
        except SyntaxError:
            return None


class _Changes(MutationVisitor):
    """mutmut's visitor, extended to functions with plain decorators such as `property`, and without assertions and
    imports.
    """

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and node.decorators:
            names = {getattr(each.decorator, "value", "") for each in node.decorators}
            return not names <= _PLAIN_DECORATORS
        if isinstance(node, cst.Assert | cst.ImportFrom | cst.Import):
            return True
        return super()._skip_node_and_children(node)


def mutants_of(path: str) -> list[Mutant]:
    """Every mutant of a module, in the order of the source. Of mutants with the same changed lines, only the first is
    kept.
    """
    source = (ROOT / path).read_text()
    wrapper = MetadataWrapper(cst.parse_module(source))
    visitor = _Changes(mutation_operators, IgnoredCode(set(), set(), set()), None)
    module = wrapper.visit(visitor)
    positions = wrapper.resolve(PositionProvider)
    names = dict(_functions(module))
    found: dict[tuple[str, str, str, str], Mutant] = {}
    for mutation in visitor.mutations:
        function = mutation.contained_by_top_level_function
        if not isinstance(function, cst.FunctionDef) or function not in names:
            continue
        first = positions[function.decorators[0] if function.decorators else function].start.line
        lines = (first, positions[function].end.line)
        before = "".join(source.splitlines(keepends=True)[first - 1 : lines[1]])
        at = positions.get(mutation.original_node)
        text = at and _spliced(module, mutation, before, at, first)
        text = text or _rendered(module, _replaced(function, mutation), names[function].count("."))
        was, now = _difference(before, text)
        if _STRICT.sub("", was) != _STRICT.sub("", now):
            mutant = Mutant(path, names[function], lines, at.start.line if at else first, text, was, now)
            found.setdefault(mutant.key, mutant)
    return list(found.values())


def _spliced(module: cst.Module, mutation: Mutation, before: str, at: CodeRange, first: int) -> str | None:
    """The source of the function with the node replaced in place; None if the position of the node is not exact."""
    lines = before.splitlines(keepends=True)
    start = sum(map(len, lines[: at.start.line - first])) + at.start.column
    end = sum(map(len, lines[: at.end.line - first])) + at.end.column
    if start == end or before[start:end] != module.code_for_node(mutation.original_node):
        return None
    return before[:start] + module.code_for_node(mutation.mutated_node) + before[end:]


def _functions(module: cst.Module) -> Iterator[tuple[cst.FunctionDef, str]]:
    for node in module.body:
        if isinstance(node, cst.FunctionDef):
            yield node, node.name.value
        elif isinstance(node, cst.ClassDef) and isinstance(node.body, cst.IndentedBlock):
            for member in node.body.body:
                if isinstance(member, cst.FunctionDef):
                    yield member, f"{node.name.value}.{member.name.value}"


def _replaced(function: cst.FunctionDef, mutation: Mutation) -> cst.FunctionDef:
    return cst.ensure_type(function.deep_replace(mutation.original_node, mutation.mutated_node), cst.FunctionDef)


def _difference(before: str, after: str) -> tuple[str, str]:
    diff = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[3:]
    was, now = ([line[1:].strip() for line in diff if line[0] == sign] for sign in "-+")
    return " | ".join(was), " | ".join(now)


def _rendered(module: cst.Module, function: cst.FunctionDef, depth: int) -> str:
    return textwrap.indent(module.code_for_node(function.with_changes(leading_lines=[])), "    " * depth)


def _find(code: CodeType, qualname: str) -> CodeType | None:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_qualname == qualname:
                return const
            if qualname.startswith(f"{const.co_qualname}."):
                return _find(const, qualname)
    return None
