"""Matrix values in a step: `matrix.NAME` is replaced by a constant in every expression.

A step is read once. `binder` finds the fields that depend on the values; only those are rebuilt for each combination,
and all steps of the matrix share the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.model.workflow import Expression, Template
from mulligan.language.cel.cel_tokens import Token, tokens
from mulligan.language.cel.cel_tokens import literal as string_value
from mulligan.language.expressions import as_text
from mulligan.language.value_templates import literal

Values = dict[str, Any]
Binder = Callable[[Values], Any]


def binder(value: Any) -> Binder | None:
    """A function that builds `value` for a combination of matrix values, or None if it is the same for all."""
    if isinstance(value, Template):
        return _template_binder(value)
    if isinstance(value, Expression):
        return _expression_binder(value)
    if isinstance(value, msgspec.Struct):
        return _struct_binder(value)
    if isinstance(value, dict):
        return _dict_binder(value)
    return _tuple_binder(value) if isinstance(value, tuple) and value else None


def _expression_binder(expression: Expression) -> Binder | None:
    if "matrix" not in expression.reads:
        return None
    reads = tuple(name for name in expression.reads if name != "matrix")
    pieces = _pieces(expression.source)

    def bind(values: Values) -> Expression:
        source = "".join(piece if isinstance(piece, str) else literal(values[piece[0]]) for piece in pieces)
        return msgspec.structs.replace(expression, source=source, reads=reads)

    return bind


def _template_binder(template: Template) -> Binder | None:
    binders = [(part, None if isinstance(part, str) else binder(part)) for part in template.parts]
    if not any(bind for _, bind in binders):
        return None
    is_text = len(binders) > 1

    def bind(values: Values) -> Template:
        return Template(tuple(_bound_part(part, bind_part, values, is_text) for part, bind_part in binders))

    return bind


def _bound_part(part: Any, bind: Binder | None, values: Values, is_text: bool) -> Any:
    """A part of a template with its values. A plain `matrix.NAME` becomes text instead of an expression."""
    if bind is None:
        return part
    pieces = _pieces(part.source)
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        value = values[pieces[0][0]]
        if is_text or isinstance(value, str):
            return as_text(value)
    return bind(values)


def _struct_binder(struct: msgspec.Struct) -> Binder | None:
    binders = {name: found for name in struct.__struct_fields__ if (found := binder(getattr(struct, name)))}
    if not binders:
        return None
    return lambda values: msgspec.structs.replace(struct, **{name: bind(values) for name, bind in binders.items()})


def _dict_binder(mapping: dict[str, Any]) -> Binder | None:
    binders = {key: found for key, value in mapping.items() if (found := binder(value))}
    if not binders:
        return None
    return lambda values: {**mapping, **{key: bind(values) for key, bind in binders.items()}}


def _tuple_binder(items: tuple[Any, ...]) -> Binder | None:
    binders = [binder(item) for item in items]
    if not any(binders):
        return None
    return lambda values: tuple(bind(values) if bind else item for item, bind in zip(items, binders, strict=True))


@lru_cache(maxsize=4096)
def _pieces(source: str) -> tuple[str | tuple[str], ...]:
    """The source split at each `matrix.NAME`, which becomes a tuple of the name."""
    found = tokens(source)
    pieces: list[str | tuple[str]] = []
    position = 0
    for index, token in enumerate(found):
        if token.text == "matrix" and token.kind == "name" and (index == 0 or found[index - 1].text != "."):
            name, end = _member(found, index)
            if name:
                pieces += [source[position : token.offset], (name,)]
                position = end
    pieces.append(source[position:])
    return tuple(piece for piece in pieces if piece)


def _member(found: list[Token], index: int) -> tuple[str, int]:
    """The name after `matrix`, as `.name` or `["name"]`, and where it ends."""
    after = found[index + 1 : index + 4]
    if len(after) > 1 and after[0].text == "." and after[1].kind == "name":
        return after[1].text, after[1].offset + len(after[1].text)
    if len(after) > 2 and after[0].text == "[" and after[1].kind == "string":
        return str(string_value(after[1])), after[2].offset + 1
    return "", 0
