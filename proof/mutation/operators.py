"""What can be changed in a piece of code: for a node of its tree, the nodes that may replace it.

A change is small, valid Python, and different: what the tests cannot distinguish is either a gap in them
or no change at all. Left alone are docstrings, annotations, assertions (they speak to the type checker), imports,
and what only guards the programmer (`frozen=True`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

MARK = "XX"

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_SIBLINGS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that may replace this one."""
    make = _OPERATORS.get(type(node))
    for new in make(node) if make is not None else ():
        yield ast.fix_missing_locations(ast.copy_location(new, node))


def removal(statement: ast.stmt) -> ast.stmt | None:
    """Return what replaces a removed statement; None if the code would not be valid without it."""
    if isinstance(statement, ast.Expr):
        is_yield = isinstance(statement.value, ast.Yield | ast.YieldFrom)
        # A generator without a yield would be none any more: it still is one, and yields nothing.
        gone = ast.Expr(ast.YieldFrom(ast.Tuple([], ast.Load()))) if is_yield else ast.Pass()
    elif _is_removable(statement):
        gone = ast.Pass()
    else:
        return None
    return ast.fix_missing_locations(ast.copy_location(gone, statement))


def _is_removable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    if isinstance(statement, ast.Return):
        return statement.value is None
    return isinstance(statement, ast.AugAssign | ast.Delete | ast.Raise | ast.Continue | ast.Break)


def negation(test: ast.expr) -> ast.expr | None:
    """A condition turned round; None where the changes of its parts do that already."""
    if isinstance(test, ast.BoolOp | ast.Constant) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        return None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return None
    return ast.fix_missing_locations(ast.copy_location(ast.UnaryOp(ast.Not(), test), test))


def without_row(table: ast.Dict, index: int) -> ast.Dict:
    """A table that lacks one of its rows."""
    keys, values = list(table.keys), list(table.values)
    del keys[index], values[index]
    return ast.copy_location(ast.Dict(keys, values), table)


def _changed(node: Any, **fields: Any) -> Any:
    """The same node with other fields; its children are shared, and never written to."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _constant(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant(MARK + value)
    elif isinstance(value, bytes):
        yield ast.Constant(MARK.encode() + value)


def _joined(node: ast.JoinedStr) -> Iterator[ast.expr]:
    yield ast.JoinedStr([ast.Constant(MARK), *node.values])


def _compare(node: ast.Compare) -> Iterator[ast.expr]:
    for index, op in enumerate(node.ops):
        other = _BOUNDARY.get(type(op)) or _OPPOSITE[type(op)]
        yield _changed(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])


def _bool_op(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for index in range(len(node.values)):
        left = [*node.values[:index], *node.values[index + 1 :]]
        yield left[0] if len(left) == 1 else _changed(node, values=left)


def _unary_op(node: ast.UnaryOp) -> Iterator[ast.expr]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield copy.copy(node.operand)


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None:
        yield _changed(node, op=other())


def _call(node: ast.Call) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Name) and node.func.id in _SIBLINGS:
        sibling = ast.Name(_SIBLINGS[node.func.id], ast.Load())
        keywords = [] if sibling.id == "list" else node.keywords
        yield _changed(node, func=ast.copy_location(sibling, node.func), keywords=keywords)
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield _changed(node, keywords=[*node.keywords[:index], *node.keywords[index + 1 :]])


def _slice(node: ast.Slice) -> Iterator[ast.expr]:
    for bound in ("lower", "upper", "step"):
        if getattr(node, bound) is not None:
            yield _changed(node, **{bound: None})


def _return(node: ast.Return) -> Iterator[ast.stmt]:
    """Nothing instead of something; what is as good as nothing is changed as the constant that it is."""
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield ast.Return(ast.Constant(None))


def _if(node: ast.If | ast.While | ast.IfExp) -> Iterator[ast.AST]:
    turned = negation(node.test)
    if turned is not None:
        yield _changed(node, test=turned)


def _comprehension(node: ast.comprehension) -> Iterator[ast.AST]:
    for index in range(len(node.ifs)):
        yield _changed(node, ifs=[*node.ifs[:index], *node.ifs[index + 1 :]])


def _handler(node: ast.ExceptHandler) -> Iterator[ast.AST]:
    yield _changed(node, body=[ast.Raise()])


_OPERATORS: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Constant: _constant,
    ast.JoinedStr: _joined,
    ast.Compare: _compare,
    ast.BoolOp: _bool_op,
    ast.UnaryOp: _unary_op,
    ast.BinOp: _arithmetic,
    ast.AugAssign: _arithmetic,
    ast.Call: _call,
    ast.Slice: _slice,
    ast.Return: _return,
    ast.If: _if,
    ast.While: _if,
    ast.IfExp: _if,
    ast.comprehension: _comprehension,
    ast.ExceptHandler: _handler,
}
