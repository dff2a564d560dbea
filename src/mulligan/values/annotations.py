"""What annotations and types of values are called, and what is refused, without importing `typing`.

A warm child asks for every step whether a function has annotations beyond JSON types, and nearly all answers are no.
"""

from __future__ import annotations

import types

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PLAIN_TYPES = (str, int, float, bool, type(None), object, list, dict)
PLAIN_WORDS = frozenset("str int float bool None object list dict Any List Dict Optional Union typing t".split())
_NO_PUNCTUATION = str.maketrans("[],|.\"'", "       ")


class ArgumentRefused(Exception):
    """An argument that cannot be given to the function; the message says which and why."""


class ArtifactUnreadable(Exception):
    """An artifact that an argument refers to is gone or damaged; the message says which."""


def has_typed_parameters(function: Callable[..., Any]) -> bool:
    """Whether an annotation of a parameter may name a type that JSON does not have."""
    try:
        annotations = function.__annotations__
        return any(not _is_plain(annotation) for name, annotation in annotations.items() if name != "return")
    except AttributeError:
        return False  # a class, or a function that is written in C
    except Exception:
        return True  # from Python 3.14 on annotations are evaluated when they are read


def _is_plain(annotation: Any) -> bool:
    if annotation is None or annotation in PLAIN_TYPES:
        return True
    if isinstance(annotation, str):
        # JSON has no keys but strings.
        is_keyed = annotation.count("ict[") != annotation.count("ict[str,")
        return not is_keyed and PLAIN_WORDS.issuperset(annotation.translate(_NO_PUNCTUATION).split())
    if type(annotation).__name__ == "UnionType":
        return all(map(_is_plain, annotation.__args__))
    if isinstance(annotation, types.GenericAlias):
        is_keyed = annotation.__origin__ is dict and annotation.__args__[:1] != (str,)
        return annotation.__origin__ in (list, dict) and not is_keyed and all(map(_is_plain, annotation.__args__))
    return False


_NAMES = {"str": str, "int": int, "float": float, "bool": bool, "None": None, "list": list, "dict": dict, "Any": object}


def is_surely_annotated(function: Callable[..., Any], result: object) -> bool:
    """Whether a result certainly is what the function is annotated with, or has no annotation: nearly always."""
    try:
        hint = function.__annotations__["return"]
    except (AttributeError, KeyError):
        return True
    except Exception:
        return False  # from Python 3.14 on annotations are evaluated when they are read
    return _surely_fits(result, _NAMES.get(hint, hint) if isinstance(hint, str) else hint)


def _surely_fits(value: object, hint: Any) -> bool:
    if hint is None or value is None:
        return value is hint or hint is object or (type(hint).__name__ == "UnionType" and type(None) in hint.__args__)
    if hint is object or type(value) is hint:
        return hint in PLAIN_TYPES
    if not isinstance(hint, types.GenericAlias) or type(value) is not hint.__origin__:
        return False
    if type(value) is list:
        return all(_surely_fits(one, hint.__args__[0]) for one in value)
    if type(value) is dict and hint.__args__[0] is str:
        return all(type(key) is str and _surely_fits(one, hint.__args__[1]) for key, one in value.items())
    return False


class TableUnreadable(Exception):
    """A file that this interpreter cannot read as what is wanted; the message says why."""


def type_name(kind: type) -> str:
    """Return the name under which a type is recorded: `pandas.DataFrame`, wherever the library defines it."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
