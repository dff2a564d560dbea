"""The source of a function of a notebook cell or an interactive session, with everything that it uses.

There is no file to take as a whole, and the cells do much that a step does not need. So the text is put together: the
function, the functions and classes of the session that it uses, the imports, and constants that can be written down.
"""

from __future__ import annotations

import ast
import builtins
import copyreg
import dataclasses
import linecache
import os
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from mulligan.flows.functions import (
    MAIN,
    defining_code,
    find,
    is_same,
    plain_function,
    refuse_function,
    written_function,
)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

FUTURE_ANNOTATIONS = 0x1000000  # `inspect.CO_FUTURE_ANNOTATIONS` is not there
_FUTURE = "from __future__ import annotations\n"
# What repr writes as Python reads it.
_LITERALS = (type(None), bool, int, str, bytes, complex, type(Ellipsis))
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")}
CONSTANT_CHARS_MAX = 64 * 1024
_NESTED_MAX = 20
_HINT = "create it inside the function, let a step return it, or put both into a module"


def action_for_cell(function: Any) -> dict[str, str]:
    """What stands under `python:` for a function of a cell: its source is pinned with the run."""
    cells = _Cells(function)
    name = cells.add_function(function)
    return {"call": f"{MAIN}:{name}", "source": cells.text()}


class _Inexpressible(Exception):
    """A value cannot be written as source. Has the part that cannot, if it is inside another value."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Cells:
    """Collects the source for one step. What is used stands before what uses it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        # The value that each name stands for.
        self._bound: dict[str, Any] = {}
        self._imports: dict[str, None] = {}
        self._parts: list[str] = []
        self._has_future = False

    def text(self) -> str:
        imports = "".join(f"{line}\n" for line in self._imports)
        return (_FUTURE if self._has_future else "") + imports + "".join(f"\n{part}\n" for part in self._parts)

    def add_function(self, function: Any) -> str:
        """Add a function of the session; return the name of its definition."""
        code = defining_code(function)
        if code is None or not isinstance(function, FunctionType):
            kind = type(function).__name__
            refuse_function(f"a step calls a function, and this is a {kind}", self._root, "write a function with 'def'")
        node, lines = _function_node(code.co_filename, code.co_name, code.co_firstlineno)
        if node is None:
            message = f"the source of '{function.__name__}' is not available"
            refuse_function(message, function, "define it in a file or in a notebook cell, not by 'exec'")
        inner = written_function(function)
        if not self._bind(node.name, inner):
            return node.name
        names = {**inner.__globals__, **_closure(inner, self._root)}
        self._has_future |= bool(code.co_flags & FUTURE_ANNOTATIONS)
        self._add_definition(node, lines, names)
        return node.name

    def _add_class(self, kind: type) -> str:
        node, lines = _class_node(kind)
        if node is None:
            refuse_function(f"the source of the class '{kind.__qualname__}' is not available", self._root, _HINT)
        if self._bind(node.name, kind):
            self._add_definition(node, lines, vars(sys.modules[MAIN]))
        return node.name

    def _add_definition(self, node: _Definition, lines: list[str], names: Mapping[str, Any]) -> None:
        text = _definition_text(node, lines, names)
        for name, is_evaluated, attributes in _used_names(text, self._has_future):
            if name in names:
                self._add_used(name, names[name], node.name, attributes, is_evaluated=is_evaluated)
        self._parts.append(text)

    def _add_used(self, name: str, value: Any, user: str, attributes: Iterable[str], *, is_evaluated: bool) -> None:
        if name == user and name in self._bound:
            return  # it calls itself
        if getattr(builtins, name, None) is value:
            return
        try:
            self._add_value(name, value, attributes)
        except _Inexpressible as found:
            if not is_evaluated:
                return  # it stands in an annotation that nobody reads
            kind = _type_name(found.value)
            inside = "" if found.value is value else f" with a {kind} inside"
            shown = _type_name(value) if inside else kind
            message = f"'{user}' uses '{name}', a {shown}{inside}, which cannot be written as source"
            refuse_function(message, self._root, _HINT)

    def _add_value(self, name: str, value: Any, attributes: Iterable[str]) -> None:
        if isinstance(value, ModuleType):
            self._add_module(name, value, attributes)
            return
        plain = plain_function(value)
        if _is_definition(plain) and plain.__module__ == MAIN:
            defined = self._add_class(plain) if isinstance(plain, type) else self.add_function(plain)
            if defined != name and self._bind(name, written_function(plain)):
                self._parts.append(f"{name} = {defined}")
            if plain is not value:
                self._parts.append(f"{name}.fn = {name}")  # a step may call the function of another one
            return
        if (where := _importable(value) or _import_by_name(name, value)) is not None:
            if self._bind(name, value):
                module, original = where
                renamed = "" if original == name else f" as {name}"
                self._imports[f"from {module} import {original}{renamed}"] = None
            return
        written = self._expression(value)
        if len(written) > CONSTANT_CHARS_MAX:
            raise _Inexpressible(value)
        if self._bind(name, value):
            self._parts.append(f"{name} = {written}")

    def _add_module(self, name: str, module: ModuleType, attributes: Iterable[str]) -> None:
        if module.__name__ == MAIN or sys.modules.get(module.__name__) is not module:
            raise _Inexpressible(module)
        if self._bind(name, module):
            whole = module.__name__
            self._imports[f"import {whole}" if whole == name else f"import {whole} as {name}"] = None
        for dotted in attributes:  # `import package.module` makes `package.module.function` work
            if isinstance(sys.modules.get(f"{module.__name__}.{dotted}"), ModuleType):
                self._imports[f"import {module.__name__}.{dotted} as _"] = None

    def _expression(self, value: Any, depth: int = 0) -> str:
        """The value as an expression. _Inexpressible if there is none."""
        kind = type(value)
        if depth > _NESTED_MAX:
            raise _Inexpressible(value)
        if kind in _LITERALS:
            return repr(value)
        if kind is float:
            return repr(value) if value - value == 0 else f'float("{value}")'
        if kind in _BRACKETS and (value or kind is not set):
            left, right = _BRACKETS[kind]
            inner = ", ".join(self._expression(each, depth + 1) for each in value)
            return f"{left}{inner}{',' if kind is tuple and len(value) == 1 else ''}{right}"
        if kind is dict:
            pairs = (f"{self._expression(k, depth + 1)}: {self._expression(v, depth + 1)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
        if _is_definition(value) or isinstance(value, BuiltinFunctionType):
            return self._reference(value)
        if dataclasses.is_dataclass(value):
            given = (field for field in dataclasses.fields(value) if field.init)
            written = (f"{field.name}={self._expression(getattr(value, field.name), depth + 1)}" for field in given)
            return f"{self._reference(kind)}({', '.join(written)})"
        return self._reduced(value, depth)

    def _reduced(self, value: Any, depth: int) -> str:
        """The call that makes the value, as `copy` would make it: a path, a date, a compiled pattern, a logger."""
        try:
            reduced = (
                copyreg.dispatch_table[type(value)](value)
                if type(value) in copyreg.dispatch_table
                else value.__reduce_ex__(4)
            )
        except Exception:  # the value may be of any class
            raise _Inexpressible(value) from None
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or type(value).__module__
            return self._import_as_private(module, reduced, value)
        make, args, *rest = reduced
        if any(part is not None for part in rest) or args == (object,):
            raise _Inexpressible(value)
        return f"{self._reference(make)}({', '.join(self._expression(each, depth + 1) for each in args)})"

    def _reference(self, value: Any) -> str:
        """An expression for a class or a function."""
        if _is_definition(value) and value.__module__ == MAIN:
            return self._add_class(value) if isinstance(value, type) else self.add_function(value)
        if getattr(builtins, name := getattr(value, "__name__", ""), None) is value:
            return str(name)
        if value is type(None):
            return "type(None)"
        if (where := _importable(value)) is None:
            raise _Inexpressible(value)
        return self._import_as_private(*where, value)

    def _import_as_private(self, module: str, name: str, value: Any) -> str:
        if _get(module, name) is not value:
            raise _Inexpressible(value)
        alias = f"_{module.replace('.', '_')}_{name}"
        self._imports[f"from {module} import {name} as {alias}"] = None
        return alias

    def _bind(self, name: str, value: Any) -> bool:
        """Whether the name is new. Refuse a name that stands for two things."""
        if name not in self._bound:
            self._bound[name] = value
            return True
        if self._bound[name] is not value:
            message = f"'{name}' stands for two different things in what '{self._root.__name__}' uses"
            refuse_function(message, self._root, "rename one of them, or put the functions into a module")
        return False


def _closure(function: FunctionType, root: Any) -> dict[str, Any]:
    """The variables of an enclosing function that it uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            refuse_function(f"'{function.__name__}' uses '{name}', which has no value yet", root, "define it first")
    return found


def _function_node(file: str, name: str, line: int) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, list[str]]:
    """The definition that starts at the line, decorators included, and the lines of its file or cell."""
    lines = linecache.getlines(file)
    for node in _definitions("".join(lines)):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if first == line and node.name == name and not isinstance(node, ast.ClassDef):
            return node, lines
    return None, lines


def _class_node(kind: type) -> tuple[ast.ClassDef | None, list[str]]:
    """The definition of a class, and the lines of its cell: that of its methods, otherwise the last one of its name."""
    methods = [code for each in vars(kind).values() if (code := defining_code(each)) is not None]
    places = {code.co_filename: code.co_firstlineno for code in methods if code.co_filename in linecache.cache}
    main_file = getattr(sys.modules[MAIN], "__file__", None)
    others = [main_file] if main_file else [name for name in reversed(linecache.cache) if not os.path.exists(name)]
    for file in [*places, *others]:
        lines = linecache.getlines(file)
        for node in reversed(list(_definitions("".join(lines)))):
            if not isinstance(node, ast.ClassDef) or node.name != kind.__name__:
                continue
            if file not in places or node.lineno <= places[file] <= (node.end_lineno or node.lineno):
                return node, lines
    return None, []


def _definitions(text: str) -> Iterator[_Definition]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, _Definition))


def _definition_text(node: _Definition, lines: list[str], names: Mapping[str, Any]) -> str:
    """The definition as it was written, without our decorators."""
    kept = [each for each in node.decorator_list if not _is_ours(each, names)]
    if node.col_offset:
        # Within a block: moving it to the left by hand would change texts of several lines.
        node.decorator_list = kept
        return ast.unparse(node)
    decorators = "".join(f"@{ast.unparse(each)}\n" for each in kept)
    return decorators + "".join(lines[node.lineno - 1 : node.end_lineno]).rstrip()


def _is_ours(decorator: ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether it is `@step`, `@mulligan.step(…)`, `@fetch.handler` and the like."""
    while isinstance(decorator, ast.Call | ast.Attribute):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    value = names.get(decorator.id) if isinstance(decorator, ast.Name) else None
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == "mulligan"
    marks = ("__mulligan_function__", "__mulligan_workflow__")
    modules = (getattr(value, "__module__", None), type(value).__module__)
    return any(hasattr(value, mark) for mark in marks) or any(
        isinstance(module, str) and module.partition(".")[0] == "mulligan" for module in modules
    )


def _used_names(text: str, has_future: bool) -> Iterator[tuple[str, bool, list[str]]]:
    """The global names that a definition uses; whether its execution reads them; and what follows each after a dot."""
    tree = ast.parse(text)
    dotted: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (chain := _chain(node)):
            dotted.setdefault(chain[0], set()).update(".".join(chain[1:end]) for end in range(2, len(chain) + 1))
    evaluated = dict.fromkeys(_global_names(symtable.symtable((_FUTURE if has_future else "") + text, MAIN, "exec")))
    for name in {**evaluated, **dict.fromkeys(_annotation_names(tree))}:
        yield name, name in evaluated, sorted(dotted.get(name, ()))


def _chain(node: ast.expr) -> list[str]:
    """`a.b.c` as its words; nothing for other expressions."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return [node.id, *reversed(words)] if isinstance(node, ast.Name) else []


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _global_names(child)


def _annotation_names(tree: ast.AST) -> Iterator[str]:
    """The names in annotations, also in those that are texts."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if not isinstance(annotation, ast.expr):
                continue
            for inner in ast.walk(annotation):
                if isinstance(inner, ast.Name):
                    yield inner.id
                elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield from _names_in_text(inner.value)


def _names_in_text(annotation: str) -> list[str]:
    try:
        return [node.id for node in ast.walk(ast.parse(annotation, mode="eval")) if isinstance(node, ast.Name)]
    except (SyntaxError, ValueError):
        return []


def _is_definition(value: Any) -> bool:
    """Whether it is a function or a class. A type such as `list[int]` only looks like a class."""
    return issubclass(type(value), FunctionType | type)


def _importable(value: Any) -> tuple[str, str] | None:
    """The module and name under which a function or class is imported."""
    plain = plain_function(value)
    module, name = getattr(plain, "__module__", None), getattr(plain, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == MAIN or not name.isidentifier():
        return None
    return (module, name) if is_same(find(module, name), plain) else None


def _import_by_name(name: str, value: Any) -> tuple[str, str] | None:
    """The module from which an object was imported, such as `environ` from `os`: one that has it under that name."""
    if isinstance(value, (*_LITERALS, float, list, dict, tuple, set)):
        return None
    first = type(value).__module__
    names = [first, *(each for each in list(sys.modules) if each != first)]
    return next(((each, name) for each in names if each != MAIN and _get(each, name) is value), None)


def _get(module: str, name: str) -> Any:
    found = sys.modules.get(module)
    try:
        return vars(found).get(name, _NOTHING) if isinstance(found, ModuleType) else _NOTHING
    except Exception:  # a module may be replaced by anything
        return _NOTHING


_NOTHING = object()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
