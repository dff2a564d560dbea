"""The mutants of a module: every change of every function, table and default in it, each with its own name."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .operators import removal, replacements, without_row

_TEXT_CHARS_MAX = 110
# Options of a struct that change only what a programmer may do to it.
_GUARDS = {"frozen", "gc", "weakref", "cache_hash", "kw_only", "order", "eq"}
# Default values are evaluated when a function is defined: a separate unit.
DEFAULTS = " (defaults)"
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Unit(NamedTuple):
    """A function, a method, or another statement of a module: what is changed and judged as one."""

    name: str
    node: ast.stmt
    first: int
    last: int
    # Made when the module is imported: a change of it is seen by a process that imports it, and by no other.
    is_fixed: bool

    @property
    def digest(self) -> str:
        return _digest(self.node)


@cache
def _digest(node: ast.stmt) -> str:
    """Of a statement as it is when this is first asked: a mutant is put into the tree of a process of its own."""
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:16]


class Mutant(NamedTuple):
    """One change: in the tree of its module, `field` of `parent` (its `at`-th, if it is a list) becomes `new`."""

    module: str
    unit: Unit
    change: str
    lines: range
    parent: ast.AST
    field: str
    at: int | None
    new: ast.AST

    @property
    def name(self) -> str:
        return f"{self.unit.name}: {self.change}"

    def swap(self, new: ast.AST) -> ast.AST:
        """Put a node into the mutant's place in the tree; the one that was there is given back."""
        if self.at is None:
            old = getattr(self.parent, self.field)
            setattr(self.parent, self.field, new)
        else:
            children = getattr(self.parent, self.field)
            old, children[self.at] = children[self.at], new
        result: ast.AST = old
        return result


class Source:
    """A module that is read: its tree, its units and its mutants."""

    def __init__(self, path: Path, module: str) -> None:
        self.path = path
        self.module = module
        self.tree = ast.parse(path.read_text())
        self.units = list(_units(self.tree))

    def mutants(self) -> list[Mutant]:
        return [mutant for unit in self.units for mutant in _told_apart(_Walk(self.module, unit).found())]


def _units(tree: ast.Module) -> Iterator[Unit]:
    for index, statement in enumerate(tree.body):
        if not _is_docstring(tree, index):
            yield from _units_of(statement, "")


def _units_of(statement: ast.stmt, inside: str) -> Iterator[Unit]:
    if isinstance(statement, Definition):
        yield _unit(
            inside + statement.name, statement, is_fixed=bool(statement.decorator_list) and _is_cached(statement)
        )
        if statement.args.defaults or any(statement.args.kw_defaults):
            yield _unit(f"{inside}{statement.name}{DEFAULTS}", statement, is_fixed=True)
    elif isinstance(statement, ast.ClassDef):
        yield _unit(inside + statement.name, statement, is_fixed=True)
        for child in statement.body:
            if isinstance(child, Definition | ast.ClassDef):
                yield from _units_of(child, f"{inside}{statement.name}.")
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.If | ast.For | ast.Expr):
        yield _unit(_assigned(statement) or f"line {statement.lineno}", statement, is_fixed=True)


def _is_cached(function: Definition) -> bool:
    return any("cache" in ast.unparse(decorator) for decorator in function.decorator_list)


def _assigned(statement: ast.stmt) -> str:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return ", ".join(ast.unparse(target) for target in targets if target is not None)


def _unit(name: str, node: ast.stmt, is_fixed: bool) -> Unit:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return Unit(name, node, first, node.end_lineno or node.lineno, is_fixed)


class _Walk:
    """One walk over a unit, which remembers the way from its root: what a change reads like depends on where it is."""

    def __init__(self, module: str, unit: Unit) -> None:
        self.module = module
        self.unit = unit
        self.above: list[ast.AST] = []
        self.texts: dict[int, str] = {}

    def found(self) -> Iterator[Mutant]:
        node = self.unit.node
        if isinstance(node, Definition):
            yield from self._field(node, "args" if self.unit.name.endswith(DEFAULTS) else "body")
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node)
        else:
            yield from self._fields(node)

    def _class(self, node: ast.ClassDef) -> Iterator[Mutant]:
        self.above.append(node)
        for keyword in node.keywords:
            if keyword.arg not in _GUARDS:
                yield from self._child(keyword, "value", None, keyword.value)
        for index, statement in enumerate(node.body):
            if not isinstance(statement, Definition | ast.ClassDef) and not _is_docstring(node, index):
                yield from self._child(node, "body", index, statement)
        self.above.pop()

    def _fields(self, node: ast.AST) -> Iterator[Mutant]:
        for field in node._fields:
            if (type(node), field) not in _LEFT_ALONE:
                yield from self._field(node, field)

    def _field(self, parent: ast.AST, field: str) -> Iterator[Mutant]:
        self.above.append(parent)
        value = getattr(parent, field)
        if isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST) and not (field == "body" and _is_docstring(parent, index)):
                    yield from self._child(parent, field, index, child)
        elif isinstance(value, ast.AST):
            yield from self._child(parent, field, None, value)
        self.above.pop()

    def _child(self, parent: ast.AST, field: str, index: int | None, child: ast.AST) -> Iterator[Mutant]:
        if _is_left_alone(child):
            return
        for new in self._instead(child):
            yield self._mutant(parent, field, index, child, new)
        if isinstance(child, ast.JoinedStr):
            yield from self._values(child)
        else:
            yield from self._fields(child)

    def _instead(self, child: ast.AST) -> Iterator[ast.AST]:
        yield from replacements(child)
        if isinstance(child, ast.stmt) and not isinstance(self.unit.node, ast.ClassDef | ast.Assign | ast.AnnAssign):
            gone = removal(child)
            if gone is not None:
                yield gone
        if isinstance(child, ast.Dict) and self.unit.is_fixed and len(child.keys) > 1:
            for row in range(len(child.keys)):
                yield without_row(child, row)

    def _values(self, joined: ast.JoinedStr) -> Iterator[Mutant]:
        """Change what is in the braces of an f-string; the text around it is changed as a whole."""
        self.above.append(joined)
        for value in joined.values:
            if isinstance(value, ast.FormattedValue):
                yield from self._child(value, "value", None, value.value)
        self.above.pop()

    def _mutant(self, parent: ast.AST, field: str, index: int | None, child: ast.AST, new: ast.AST) -> Mutant:
        mutant = Mutant(self.module, self.unit, "", self._lines(child), parent, field, index, new)
        return mutant._replace(change=self._change(mutant, child))

    def _lines(self, child: ast.AST) -> range:
        """The lines that are run if the change is met: those of its statement, without what is in its blocks."""
        statement = next(
            (n for n in (child, *reversed(self.above)) if isinstance(n, ast.stmt | ast.ExceptHandler)), child
        )
        blocks = [part for name in ("body", "orelse", "handlers", "finalbody") for part in getattr(statement, name, ())]
        first, last = _lines_of(statement)
        if blocks and not isinstance(statement, ast.ExceptHandler):
            last = max(first, min(part.lineno for part in blocks) - 1)
        return range(first, last + 1)

    def _change(self, mutant: Mutant, child: ast.AST) -> str:
        """Before and after, as much around it as fits into a line."""
        around: Any = child
        for node in (mutant.parent, *reversed(self.above)):
            if (isinstance(node, ast.stmt) and not _is_simple(node)) or len(self._text(node)) > _TEXT_CHARS_MAX:
                break
            around = node
        before = self._text(around)
        if around is child:
            return _difference(before, _said(mutant.new))
        mutant.swap(mutant.new)
        after = _said(around)
        mutant.swap(child)
        return f"{before} -> {after}"

    def _text(self, node: ast.AST) -> str:
        if id(node) not in self.texts:
            self.texts[id(node)] = _said(node)
        return self.texts[id(node)]


_LEFT_ALONE = {
    (ast.AnnAssign, "annotation"),
    (ast.arg, "annotation"),
    (ast.FunctionDef, "returns"),
    (ast.FunctionDef, "decorator_list"),
    (ast.ExceptHandler, "type"),
    (ast.FormattedValue, "format_spec"),
}


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "TypeVar"):
        return True
    return isinstance(node, ast.Assert | ast.Import | ast.ImportFrom)


def _is_docstring(parent: ast.AST, index: int) -> bool:
    if index or not isinstance(parent, Definition | ast.ClassDef | ast.Module):
        return False
    first = parent.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)


def _lines_of(node: Any) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _is_simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body")


def _said(node: ast.AST) -> str:
    """The code of a node in one line; of one with blocks, its head."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    if isinstance(node, ast.ExceptHandler):
        return f"except {ast.unparse(node.type) if node.type else ''}: {_said(node.body[0])}"
    if isinstance(node, ast.comprehension):
        return ast.unparse(node).strip()
    return " ".join(ast.unparse(node).split())


def _difference(before: str, after: str) -> str:
    """Of long texts the part in which they begin to differ, with a little before it."""
    same = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    start = max(0, same - _TEXT_CHARS_MAX // 3) if max(len(before), len(after)) > _TEXT_CHARS_MAX else 0
    return " -> ".join(_cut(text, start) for text in (before, after))


def _cut(text: str, start: int) -> str:
    end = start + _TEXT_CHARS_MAX
    return f"{'… ' if start else ''}{text[start:end]}{' …' if len(text) > end else ''}"


def _told_apart(mutants: Iterator[Mutant]) -> Iterator[Mutant]:
    """Two changes of one function that read the same are numbered; one that changes nothing is none."""
    seen: Counter[str] = Counter()
    for mutant in mutants:
        before, _, after = mutant.change.partition(" -> ")
        if before == after:
            continue
        seen[mutant.change] += 1
        times = seen[mutant.change]
        yield mutant if times == 1 else mutant._replace(change=f"{mutant.change} #{times}")
