"""Hashes of the code that a Python step runs: its function, and what that uses of the project's own modules.

Nothing is imported: modules are found as files below the folders that a step imports from, and parsed. A statement at
the top of a module is a *part*. A function, a class, an import or an assignment counts if its name is used by what
counts; all other statements of a module do, since they run when it is imported, and with them those of the modules that
it imports. Where names cannot be followed (`import *`, a module that is passed on as a value, `globals()`, `eval`), the
whole module counts. A definition or an assignment that nothing uses counts as well where importing it calls, decorates
with, or inherits from what is of the project: it may register itself. A part is compared as its tree: comments,
formatting and docstrings do not matter. What is installed does not count, nor what is imported by a name that is
computed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import cache_from_source
from typing import Any

import msgspec

from mulligan.worker.outputs.code_files import Code, stamp_of

# What makes the names of a module impossible to follow.
_DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__", "import_module"})
# What imports a module by its name, which may stand beside it.
_IMPORTERS = frozenset({"__import__", "import_module"})
_OWN = "mulligan"
_EVERYTHING = "*"
_HASH_CHARS = 16
_NAME, _ANNOTATION, _ANNOTATION_CHARS_MAX = re.compile(r"[^\W\d]\w*"), re.compile(r"[\w.\[\], |]+"), 200

_MAIN_GUARD = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def digest_call(call: str, folders: list[str], sources: dict[str, str]) -> dict[str, Any]:
    """`code_of`, as a child is called."""
    found: dict[str, Any] = msgspec.to_builtins(code_of(call, folders, sources))
    return found


def code_of(call: str, folders: Sequence[str], sources: Mapping[str, str]) -> Code:
    """The code of `module:name`. `sources` are the texts of modules that are no files; `folders` those to import from.

    Paths in its parts are relative to those folders, so that they are the same in another checkout.
    """
    modules = _Modules(folders, sources)
    module, _, name = call.partition(":")
    return Code(_Closure(modules).parts_of(module, name), modules.files)


# A module, what is taken from it ("" for itself), and the name that is bound.
_Import = tuple[str, str, str]


class _Part:
    """A statement at the top of a module. What it uses is only looked for if it counts: most parts do not."""

    def __init__(self, node: ast.stmt, package: str) -> None:
        self._node, self._package = node, package
        is_definition = isinstance(node, _DEFINITIONS)
        self.binds = (node.name,) if isinstance(node, _DEFINITIONS) else tuple(dict.fromkeys(_bound_by(node)))
        self.title = ", ".join(self.binds) or "what runs when it is imported"
        # What runs when the module is imported, whoever uses it.
        self.is_effect = not (is_definition or isinstance(node, _IMPORTS) or _is_plain(node))
        self.imports: list[_Import] = [] if is_definition else list(_imports_in(ast.walk(node), package))

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        # Walked once: walking costs more than parsing.
        return list(ast.walk(self._node))

    @cached_property
    def late_imports(self) -> list[_Import]:
        """Those in functions, which run when they are called."""
        return list(_imports_in(self._nodes, self._package)) if isinstance(self._node, _DEFINITIONS) else []

    @cached_property
    def uses(self) -> frozenset[tuple[str, ...]]:
        """The names that it reads, each with the attributes that follow it."""
        return frozenset(_uses(self._nodes))

    @cached_property
    def runs(self) -> frozenset[str]:
        """The names that may change what others see when the module is imported, of a part that is no effect by itself.

        Those of decorators, of what is called, and of the bases and the keywords of classes.
        """
        return frozenset() if isinstance(self._node, _IMPORTS) else frozenset(_run_by(self._node))

    @cached_property
    def words(self) -> frozenset[str]:
        """Strings that may be names: of annotations, or for `getattr`."""
        return frozenset(name for text in self.texts for name in _names_in(text))

    @cached_property
    def texts(self) -> frozenset[str]:
        """Its strings."""
        values = (one.value for one in self._nodes if isinstance(one, ast.Constant))
        return frozenset(one for one in values if isinstance(one, str))

    @cached_property
    def text(self) -> str:
        """What it is compared by."""
        for one in self._nodes:
            if isinstance(one, _DEFINITIONS) and ast.get_docstring(one, clean=False) is not None:
                one.body = one.body[1:] or [ast.Pass()]
        return ast.dump(self._node)


class _Module:
    """The parts of a module. One that cannot be parsed has a single part: its text."""

    def __init__(self, name: str, shown: str, text: str | bytes, *, is_package: bool) -> None:
        self.name, self.shown = name, shown
        self.package = name if is_package else name.rpartition(".")[0]
        try:
            nodes = ast.parse(text).body
            ours = {alias.asname or alias.name for node in nodes for alias in _aliases_of_ours(node)}
            self.parts = [_Part(_without_ours(node, ours), self.package) for node in nodes if not _is_nothing(node)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.parts = [_Part(ast.Expr(ast.Tuple([ast.Constant(text)], ast.Load())), self.package)]
        self.by_name: dict[str, list[int]] = {}
        for index, part in enumerate(self.parts):
            for name_bound in part.binds:
                self.by_name.setdefault(name_bound, []).append(index)
        # The modules of which it imports everything.
        self.starred = [other for part in self.parts for other, taken, _ in part.imports if taken == _EVERYTHING]
        counts: Counter[str] = Counter()
        # A name that is bound twice has a part for each.
        self.titles = []
        for part in self.parts:
            counts[part.title] += 1
            self.titles.append(f"{shown}: {part.title}{f' ({counts[part.title]})' * (counts[part.title] > 1)}")


class _Modules:
    """Modules by name, as far as they are files below the folders, or given as text."""

    def __init__(self, folders: Sequence[str], sources: Mapping[str, str]) -> None:
        self._folders = folders
        self.files: dict[str, tuple[int, ...] | None] = {}
        self._found: dict[str, _Module | None] = {
            name: _Module(name, name, text, is_package=False) for name, text in sources.items()
        }

    def find(self, name: str) -> _Module | None:
        if name not in self._found:
            self._found[name] = self._read(name)
        return self._found[name]

    def has(self, name: str) -> bool:
        return self.find(name) is not None

    def _read(self, name: str) -> _Module | None:
        path = name.replace(".", "/")
        for folder in self._folders:
            for ending in ("/__init__.py", ".py"):
                file = os.path.join(folder, path + ending)
                text = self._text(file)
                if text is not None:
                    return _Module(name, path + ending, text, is_package=ending != ".py")
        return None

    def _text(self, file: str) -> bytes | None:
        self.files[file] = stamp = stamp_of(file)
        if stamp is None or not os.path.isfile(file):
            return None
        try:
            _remove_outdated_bytecode(file, stamp)
            with open(file, "rb") as opened:
                return opened.read()
        except OSError:
            return None


def _remove_outdated_bytecode(file: str, stamp: tuple[int, ...]) -> None:
    """Remove what Python has compiled from an earlier text of this file that it takes for the present one.

    It compares whole seconds and sizes: of two versions that were written in one second, it may run the first.
    """
    compiled = cache_from_source(file)
    with suppress(OSError):
        if os.stat(compiled).st_mtime_ns < stamp[-1]:
            os.unlink(compiled)


class _Closure:
    """What counts, from one name on. Iterative, since modules may use each other in circles and in long chains."""

    def __init__(self, modules: _Modules) -> None:
        self._modules = modules
        self._parts: dict[str, str] = {}
        self._seen: set[tuple[str, int]] = set()
        self._imported: set[str] = set()
        self._todo: list[tuple[str, tuple[str, ...]]] = []
        self._wanted: set[tuple[str, tuple[str, ...]]] = set()

    def parts_of(self, module: str, name: str) -> dict[str, str]:
        self._want(module, tuple(name.split(".")) if name else (_EVERYTHING,))
        while self._todo:
            self._reach(*self._todo.pop())
        return self._parts

    def _want(self, module: str, path: tuple[str, ...]) -> None:
        if (module, path) not in self._wanted:
            self._wanted.add((module, path))
            self._todo.append((module, path))

    def _reach(self, name: str, path: tuple[str, ...]) -> None:
        """Count what `path` is in a module, and what is run to import it."""
        module = self._modules.find(name)
        self._import(name)
        if not path:
            return
        indexes = module.by_name.get(path[0]) if module is not None else None
        if indexes is None and path[0] != _EVERYTHING and self._modules.has(below := f"{name}.{path[0]}"):
            self._want(below, path[1:] or (_EVERYTHING,))
            return
        if module is None:
            return
        if indexes is None:
            self._reach_starred(module, path)
        for index in range(len(module.parts)) if indexes is None else indexes:
            self._count(module, index, path)

    def _reach_starred(self, module: _Module, path: tuple[str, ...]) -> None:
        for other in module.starred:
            self._want(other, path)

    def _import(self, name: str) -> None:
        """Count what runs when a module is imported: of it, and of the packages that it is in."""
        steps = name.split(".")
        for above in (".".join(steps[: count + 1]) for count in range(len(steps))):
            module = None if above in self._imported else self._modules.find(above)
            self._imported.add(above)
            if module is None:
                continue
            for index, part in enumerate(module.parts):
                if part.is_effect or any(self._is_own(module, name) for name in part.runs):
                    self._count(module, index, ())
                for other, taken, _ in part.imports:
                    self._want(other, ())
                    if taken not in ("", _EVERYTHING) and self._modules.has(f"{other}.{taken}"):
                        self._want(f"{other}.{taken}", ())

    def _is_own(self, module: _Module, name: str) -> bool:
        """Whether a name of a module is of the project, so that to call it may change what others see."""
        for index in module.by_name.get(name, ()):
            part = module.parts[index]
            taken = [one for one in part.imports if one[2] == name]
            if not taken or any(self._modules.has(other) for other, _, _ in taken):
                return True
        return False

    def _count(self, module: _Module, index: int, path: tuple[str, ...]) -> None:
        part = module.parts[index]
        self._follow(part.imports, path)
        if (module.name, index) in self._seen:
            return
        self._seen.add((module.name, index))
        text = part.text.encode(errors="surrogateescape")
        self._parts[module.titles[index]] = hashlib.sha256(text).hexdigest()[:_HASH_CHARS]
        self._follow(part.late_imports, ())
        for use in part.uses:
            self._follow([one for one in part.late_imports if one[2] == use[0]], use)
        named = {name for use in part.uses for name in (use[0], use[-1])}
        if not _DYNAMIC.isdisjoint(named):
            self._want(module.name, (_EVERYTHING,))
        if not _IMPORTERS.isdisjoint(named):
            for other in part.texts:
                if all(name.isidentifier() for name in other.split(".")) and self._modules.has(other):
                    self._want(other, (_EVERYTHING,))
        for use in part.uses:
            if use[0] in module.by_name:
                self._want(module.name, use)
            else:
                self._reach_starred(module, use)
        for word in part.words:
            if word in module.by_name:
                self._want(module.name, (word,))

    def _follow(self, imports: Iterable[_Import], path: tuple[str, ...]) -> None:
        """Count what imports take from modules, for the use of one of their names, or of all of them."""
        for other, taken, bound in imports:
            if path and path[0] not in (bound, _EVERYTHING):
                continue
            if taken:
                self._want(other, (taken, *path[1:]))
                if taken != _EVERYTHING and self._modules.has(f"{other}.{taken}"):
                    # `from . import impl` binds a module of its own package.
                    self._want(f"{other}.{taken}", path[1:] or (_EVERYTHING,) if path else ())
            elif path[:1] == (bound,):
                # `import a.b` binds `a`, and is followed by `.b`.
                rest = path[1:] or (_EVERYTHING,)
                self._want(bound if other.startswith(f"{bound}.") else other, rest)
            else:
                self._want(other, ())


def _names_in(text: str) -> list[str]:
    """The names in a string that may be one, or an annotation: `list[Row] | None`."""
    return _NAME.findall(text) if len(text) <= _ANNOTATION_CHARS_MAX and _ANNOTATION.fullmatch(text) else []


def _aliases_of_ours(node: ast.stmt) -> list[ast.alias]:
    """What a statement takes from `mulligan`: a decorator of ours is no code of the step."""
    if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == _OWN:
        return node.names
    return [one for one in node.names if one.name.split(".")[0] == _OWN] if isinstance(node, ast.Import) else []


def _is_nothing(node: ast.stmt) -> bool:
    """Whether it does nothing where it is imported."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or (isinstance(node, ast.If) and not node.orelse and _is_main_guard(node.test))


def _without_ours(node: ast.stmt, ours: set[str]) -> ast.stmt:
    if isinstance(node, _DEFINITIONS):
        node.decorator_list = [one for one in node.decorator_list if _root_of(one) not in ours]
    return node


def _root_of(value: ast.expr) -> str:
    """The name with which an expression begins; "" for none."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.Call):
            value = value.func
        elif isinstance(value, ast.Attribute | ast.Subscript | ast.Starred):
            value = value.value
        else:
            return ""
    return value.id


def _run_by(node: ast.AST) -> Iterator[str]:
    """The roots of the names that a statement calls when it is run, without the bodies of functions."""
    todo = [node]
    while todo:
        one = todo.pop()
        called: list[ast.expr] = []
        inside: Iterable[ast.AST] = ast.iter_child_nodes(one)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            called = one.decorator_list
            inside = (*called, one.args)
        elif isinstance(one, ast.Lambda):
            inside = (one.args,)
        elif isinstance(one, ast.ClassDef):
            called = [*one.decorator_list, *one.bases, *(keyword.value for keyword in one.keywords)]
        elif isinstance(one, ast.Call):
            called = [one.func, *one.args]
        elif isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            called = [one.value]
        yield from filter(None, map(_root_of, called))
        todo.extend(inside)


def _is_main_guard(test: ast.expr) -> bool:
    return ast.dump(test) == _MAIN_GUARD


def _is_plain(node: ast.stmt) -> bool:
    """Whether it assigns to names and does nothing else."""
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name)
    targets = [inner for one in node.targets for inner in _flat(one)] if isinstance(node, ast.Assign) else [node]
    return all(isinstance(one, ast.Name) for one in targets)


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _flat(one)
    else:
        yield target


def _bound_by(node: ast.stmt) -> Iterator[str]:
    """The names that a statement may bind at the top of its module."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            yield one.id
        elif isinstance(one, ast.alias) and one.name != _EVERYTHING:
            yield one.asname or one.name.split(".")[0]
        elif isinstance(one, _DEFINITIONS):
            yield one.name


def _uses(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    """The names that some nodes read, each with the attributes that follow it. A node stands before those in it."""
    read: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            if id(node) not in read:
                yield (node.id,)
        elif isinstance(node, ast.Attribute) and id(node) not in read:
            names, below = [node.attr], node.value
            while isinstance(below, ast.Attribute):
                read.add(id(below))
                names.append(below.attr)
                below = below.value
            if isinstance(below, ast.Name):
                read.add(id(below))
                yield (below.id, *reversed(names))


def _imports_in(nodes: Iterable[ast.AST], package: str) -> Iterator[_Import]:
    """The imports among some nodes: a module, what is taken from it ("" for itself), and the name that is bound."""
    for one in nodes:
        if isinstance(one, ast.Import):
            for alias in one.names:
                yield alias.name, "", alias.asname or alias.name.split(".")[0]
        elif isinstance(one, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - one.level + 1] if one.level else []
            module = ".".join([*filter(None, above), *filter(None, [one.module])])
            for alias in one.names:
                yield module, alias.name, alias.asname or alias.name
