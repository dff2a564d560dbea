"""Python values as CEL writes them, and as a workflow stores them."""

from __future__ import annotations

import sys

from mulligan.flows.context import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Types of the standard library whose text the receiving step reads back by its annotation. Their modules are not
# imported here: a value of such a type exists only if the user has imported it.
_TEXTS = (("pathlib", "PurePath"), ("decimal", "Decimal"), ("uuid", "UUID"))
_ISO = (("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"))


def literal(value: Any) -> str:
    """The value as a literal of CEL."""
    value = plain(value)
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04x}" if c in '\\"\x7f' or c < " " else c for c in value) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def plain(value: Any) -> Any:
    """The value as JSON has it. What has no JSON is refused."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value)]
    return _plain_object(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        refuse("value", f"the keys of a mapping are texts, and {key!r} is none", hint="write it as a text")
    return str(key)


def _plain_object(value: Any) -> Any:
    if _is_one_of(value, (("enum", "Enum"),)):
        return plain(value.value)
    if isinstance(value, str):
        return value[:]
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if _is_one_of(value, (("datetime", "timedelta"),)):
        return value.total_seconds()
    if _is_one_of(value, _ISO):
        return value.isoformat()
    if _is_one_of(value, _TEXTS):
        return str(value)
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in type(value).__dataclass_fields__}
    if hasattr(type(value), "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in type(value).__struct_fields__}
    if hasattr(type(value), "model_fields") and hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    hint = "make it in a step: what a step returns may be of any type that can be stored"
    refuse("value", f"a flow is built of plain values, and this is a {type(value).__name__}", hint=hint)


def _is_one_of(value: Any, kinds: tuple[tuple[str, str], ...]) -> bool:
    found = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return any(kind is not None and isinstance(value, kind) for kind in found)
