"""Refuses what stands in a flow and means nothing there: `except` around a step, and `is None` of what a step returns.

The function of a flow runs once, before the run: no step fails in it, and a reference is never None. Python offers no
operator for either, so the source is looked at; what has no source is not.
"""

from __future__ import annotations

import linecache
import re

from mulligan.flows.context import Site, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence
    from typing import Any

# Most flows have none of these words, and no reason to be parsed.
_WORDS = re.compile(r"\bexcept\b|\bfinally\b|\bis\s+(?:not\s+)?None\b")
_PACKAGE = "mulligan"


def refuse_meaningless(function: Callable[..., Any], name: str) -> None:
    """Refuse the first such line of the function."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    if not _WORDS.search("".join(lines[code.co_firstlineno - 1 :])):
        return
    # Few flows need it.
    import ast

    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        # The first line of a function is that of its first decorator.
        if isinstance(node, ast.FunctionDef) and code.co_name == node.name and code.co_firstlineno == _first_line(node):
            _Reader(function, name).read(node.body)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


class _Reader:
    """Follows which names stand for values of the run, statement by statement."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        code = function.__code__
        self._name = name
        self._file = code.co_filename
        self._known = {**function.__globals__, **_enclosed(function)}
        self._references = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    def read(self, statements: list[ast.stmt]) -> None:
        import ast

        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if isinstance(statement, ast.Try | ast.TryStar) and self._calls_step(statement.body):
                self._refuse_try(statement)
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr):
                    self._check(part)
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                self._assign(targets, is_reference=self._is_reference(statement.value))
            for field in ("body", "orelse", "handlers", "finalbody"):
                for one in getattr(statement, field, []):
                    self.read(one.body if isinstance(one, ast.ExceptHandler) else [one])

    def _assign(self, targets: Sequence[ast.expr], *, is_reference: bool) -> None:
        import ast

        names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        self._references = self._references | names if is_reference else self._references - names

    def _check(self, expression: ast.expr) -> None:
        import ast

        for node in ast.walk(expression):
            if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
                continue
            other = node.comparators[0]
            if isinstance(other, ast.Constant) and other.value is None and self._is_reference(node.left):
                shown = ast.unparse(node.left)
                sign = "==" if isinstance(node.ops[0], ast.Is) else "!="
                message = f"'{shown}' has no value while the flow '{self._name}' is built, and is never None"
                hint = f"write step.options(when={shown} {sign} None)(…), or make it a @program, which has the value"
                self._refuse(node, message, hint)

    def _refuse_try(self, statement: ast.Try | ast.TryStar) -> None:
        if statement.handlers:
            message = f"an 'except' in the flow '{self._name}' catches no failure: its steps run later"
            hint = "write @STEP.handler or mulligan.route(…), or make it a @program, in which a failure is an exception"
            self._refuse(statement.handlers[0], message, hint)
        message = f"a 'finally' in the flow '{self._name}' runs before its steps"
        hint = f"write @{self._name}.end for what runs last, or make it a @program"
        self._refuse(statement.finalbody[0], message, hint)

    def _refuse(self, node: ast.AST, message: str, hint: str) -> None:
        refuse("meaningless", message, hint=hint, site=Site(self._file, node.lineno))  # type: ignore[attr-defined]

    def _calls_step(self, statements: list[ast.stmt]) -> bool:
        import ast

        nodes = (node for one in statements for node in ast.walk(one))
        return any(isinstance(node, ast.Call) and self._is_ours(node.func) for node in nodes)

    def _is_reference(self, node: ast.expr) -> bool:
        """Whether it stands for a value of the run."""
        import ast

        if isinstance(node, ast.Name):
            return node.id in self._references
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.NamedExpr):
            return self._is_reference(node.value)
        if isinstance(node, ast.Call):
            return self._is_ours(node.func) or (isinstance(node.func, ast.Attribute) and self._is_reference(node.func))
        return False

    def _is_ours(self, node: ast.expr) -> bool:
        """Whether what is called is a step, a flow, a program or a function of Mulligan."""
        import ast

        while isinstance(node, ast.Attribute | ast.Call):
            node = node.value if isinstance(node, ast.Attribute) else node.func
        if not isinstance(node, ast.Name) or node.id in self._references:
            return False
        found = self._known.get(node.id)
        module = getattr(found, "__name__" if isinstance(found, type(re)) else "__module__", "") or ""
        is_function = isinstance(module, str) and module.partition(".")[0] == _PACKAGE
        return is_function or hasattr(type(found), "__mulligan_workflow__") or hasattr(found, "__mulligan_function__")


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of the functions around it that it uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found
