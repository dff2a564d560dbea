"""Values with placeholders: as JSON with bindings, as CEL expressions, as templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Expression, Template
from mulligan.language.expressions import Placeholder
from mulligan.language.scope import Scope, check_placeholder, placeholders_in, read_template
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, plain, refuse_not_json

PLACEHOLDER = "${}"
_ESCAPED = lazy_regex(r'[\\"\x00-\x1f\x7f]')


def read_value(node: Node, scope: Scope, bindings: dict[str, Template]) -> Any:
    """The JSON value of `node`. A text with placeholders becomes a marker that names an entry of `bindings`."""
    refuse_not_json(node, scope.source)
    return _read_value(node, scope, bindings)


def _read_value(node: Node, scope: Scope, bindings: dict[str, Template]) -> Any:
    if isinstance(node, Sequence):
        return [_read_value(item, scope, bindings) for item in node.items]
    if isinstance(node, Mapping):
        if PLACEHOLDER in node.entries:
            raise scope.source.refuse("name", f"'{PLACEHOLDER}' cannot be a key", node.key(PLACEHOLDER))
        return {key: _read_value(value, scope, bindings) for key, (_, value) in node.entries.items()}
    if not isinstance(node.value, str) or "${" not in node.value:
        return node.value
    found = read_template(node, scope)
    if not any(isinstance(part, Expression) for part in found.parts):
        return "".join(str(part) for part in found.parts)
    name = f"b{len(bindings)}"
    bindings[name] = found
    return {PLACEHOLDER: name}


def refuse_placeholders(node: Node, label: str, scope: Scope) -> None:
    """Refuse placeholders in `node`: the action evaluates its texts, and would evaluate the values too."""
    if isinstance(node, Sequence):
        inner: Iterable[Node] = node.items
    elif isinstance(node, Mapping):
        inner = (value for _, value in node.entries.values())
    else:
        inner = ()
        for part in placeholders_in(node, scope) if isinstance(node.value, str) and "${" in node.value else ():
            if isinstance(part, Placeholder):
                message = f"{label} is evaluated by the action, and a value in it would be evaluated, too"
                hint = "pass it under another key; for the characters themselves write '$${'"
                raise scope.source.refuse_in("plugin", message, node, part.offset, part.length, hint=hint)
    for one in inner:
        refuse_placeholders(one, label, scope)


def literal(value: Any) -> str:
    """The value as a CEL literal."""
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", value) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )


def value_expression(node: Node, scope: Scope) -> Expression:
    """A list or mapping as one expression; each text in it is plain or a single placeholder."""
    refuse_not_json(node, scope.source)
    reads: dict[str, None] = {}
    source = _expression_source(node, scope, reads)
    return Expression(source, tuple(reads))


def _expression_source(node: Node, scope: Scope, reads: dict[str, None]) -> str:
    if isinstance(node, Sequence):
        return "[" + ", ".join(_expression_source(item, scope, reads) for item in node.items) + "]"
    if isinstance(node, Mapping):
        entries = (
            f"{literal(key)}: {_expression_source(value, scope, reads)}" for key, (_, value) in node.entries.items()
        )
        return "{" + ", ".join(entries) + "}"
    return _scalar_source(node, scope, reads) if node.is_text and "${" in node.text else literal(plain(node))


def _scalar_source(node: Scalar, scope: Scope, reads: dict[str, None]) -> str:
    parts = placeholders_in(node, scope)
    if not any(isinstance(part, Placeholder) for part in parts):
        return literal("".join(map(str, parts)))
    if len(parts) > 1 or not isinstance(parts[0], Placeholder):
        message = "inside a list or mapping, a text must be plain or a single '${…}'"
        raise scope.source.refuse("expression", message, node, hint="join texts with '+' inside the '${…}'")
    expression = check_placeholder(parts[0], node, scope)
    reads.update(dict.fromkeys(expression.reads))
    return f"({expression.source})"


def value_template(node: Node, scope: Scope) -> Template:
    """Any value as a template that keeps its type."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return read_template(node, scope)
    return Template((value_expression(node, scope),))
