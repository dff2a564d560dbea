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
# What pydantic shows of a secret.
_SECRET_SHOWN = "**********"
_ORDERED = (str, int, float)
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
        found = {text_key(key): plain(inner) for key, inner in value.items()}
        if len(found) < len(value):
            refuse("value", "two keys of a mapping are the same text", hint="keys are texts: 1 and '1' are one key")
        return found
    if isinstance(value, set | frozenset):
        # In an order that does not depend on the process.
        items = [plain(item) for item in value]
        return sorted(items, key=lambda item: (type(item).__name__, item if isinstance(item, _ORDERED) else str(item)))
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
        fields = type(value).__dataclass_fields__.values()
        return {one.name: plain(getattr(value, one.name)) for one in fields if one._field_type.name == "_FIELD"}
    # As a step would return it: with the names and tags that its class gives to JSON.
    if hasattr(type(value), "__struct_fields__"):
        return plain(sys.modules["msgspec"].to_builtins(value, str_keys=True, enc_hook=plain))
    if hasattr(type(value), "model_fields") and hasattr(value, "model_dump"):
        found = plain(value.model_dump(mode="json", by_alias=True, round_trip=True, fallback=plain))
        if _SECRET_SHOWN in str(found):
            hint = 'declare it and give it to the step that needs it: mulligan.secret("token", env="API_TOKEN")'
            refuse("value", f"a secret in a {type(value).__name__} would be stored as asterisks", hint=hint)
        return found
    hint = "make it in a step: what a step returns may be of any type that can be stored"
    refuse("value", f"a flow is built of plain values, and this is a {type(value).__name__}", hint=hint)


def _is_one_of(value: Any, kinds: tuple[tuple[str, str], ...]) -> bool:
    found = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return any(kind is not None and isinstance(value, kind) for kind in found)
