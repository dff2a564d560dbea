"""Python values as CEL writes them, and as a workflow stores them."""

from __future__ import annotations

import sys

from mulligan.flows.context import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Encodes what a step returns, and the same types when a flow is built. Loaded only if there is such a value.
_HINT = "make it in a step: what a step returns may be of any type that can be stored"


def literal(value: Any) -> str:
    """The value as a literal of CEL."""
    from mulligan.language import value_templates

    return value_templates.literal(plain(value))


def plain(value: Any) -> Any:
    """The value as JSON has it. What has no JSON is refused."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        found = {text_key(key): plain(inner) for key, inner in value.items()}
        if len(found) < len(value):
            refuse("value", "two keys of a mapping are the same text", hint="keys are texts: 1 and '1' are one key")
        return found
    return _plain_object(value)


def text_key(key: Any) -> str:
    """The key of a mapping as JSON has it, and as it is when a step returns the mapping."""
    if isinstance(key, str):
        return str(plain(key))
    found = plain(key)
    if isinstance(found, list | dict):
        refuse("value", f"the keys of a mapping are texts, and {key!r} is none", hint="write it as a text")
    return found if isinstance(found, str) else literal(found)


def _plain_object(value: Any) -> Any:
    if _is_a(value, "enum", "Enum"):
        return plain(value.value)
    if isinstance(value, str):
        return value[:]
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if _is_a(value, "datetime", "timedelta"):
        return value.total_seconds()  # as keys such as `timeout` take it; a parameter takes it, too
    import json

    from mulligan.values import encoding

    try:
        return json.loads(encoding.encode(value, _refuse_table, label="this value"))
    except encoding.ValueRefused as problem:
        reason = str(problem).partition("; return ")[0]
        refuse("value", f"a flow is built of plain values, and {reason}", hint=_HINT)


def _refuse_table() -> NoReturn:
    refuse("value", "a flow is built of plain values, and this value contains a table or an array", hint=_HINT)


def _is_a(value: Any, module: str, name: str) -> bool:
    """Whether it is of that class. Its module is not imported: without it, there is no such value."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)
