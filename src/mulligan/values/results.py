"""Check what a function has returned against its return annotation.

An annotation is read as a type checker reads it, only kinder where JSON is: a tuple is a list, an object with the right
fields is a dataclass. What cannot be checked here (a protocol, a type variable, a name that exists for type checkers
only, the annotation of a decorated function) is left alone.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from mulligan.values.annotations import TableUnreadable, type_name
from mulligan.values.decoding import (
    UNIONS,
    Misfit,
    compile_type,
    hints_of_class,
    result_hint,
    show,
    unwrap_type,
)
from mulligan.values.encoding import REFERENCE_ATTRIBUTE

# What such a function yields is its progress, so its annotation says nothing about its result.
_GENERATORS = ("Generator", "Iterator", "Iterable", "AsyncGenerator", "AsyncIterator", "AsyncIterable")
_ANYTHING = (Any, object, typing.NoReturn, getattr(typing, "Never", Any))
_MODULES = re.compile(r"(?<![\w'])(?:\w+\.|<locals>\.)+")
# More elements are not looked at: they are rows of the same kind.
ELEMENTS_MAX = 100_000
RESULT = "the result"


class ResultMisfit(Exception):
    """What a function has returned is not what it is annotated with; the message says both."""


def check_result(function: Callable[..., Any], result: object) -> None:
    """Raise ResultMisfit if the result is not what the function is annotated with."""
    if hasattr(function, "__wrapped__"):
        return  # a decorator may have changed the result, and has copied the annotation
    hint = result_hint(function)
    origin = typing.get_origin(hint) or hint
    code = getattr(function, "__code__", None)
    is_generator = code is not None and code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    if is_generator and getattr(origin, "__name__", "") in _GENERATORS:
        return
    try:
        misfit = _misfit(result, hint)
    except RecursionError:
        return  # it is nested too deep to be stored
    if misfit is not None:
        raise ResultMisfit(f"{RESULT} does not fit '-> {_words(hint)}': {RESULT}{misfit.path} {misfit.reason}")


def _misfit(value: Any, hint: Any) -> Misfit | None:
    """Why a value does not fit a type; None if it does, or if nobody can say."""
    hint = unwrap_type(hint)
    if hint in _ANYTHING or hasattr(type(value), REFERENCE_ATTRIBUTE):
        return None
    if hint is None or hint is type(None):
        return None if value is None else Misfit("null", value)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        fits = any(isinstance(value, type(one)) and value == one for one in args) or _is_convertible(value, hint)
        return None if fits else Misfit(f"one of {', '.join(map(show, args))}", value)
    if origin in UNIONS:
        found = [_misfit(value, one) for one in args]
        if None in found:
            return None
        deepest = max((one for one in found if one is not None), key=lambda one: len(one.path))
        return deepest if deepest.path else Misfit(_words(hint), value)
    kind = origin or hint
    if not isinstance(kind, type):
        return None
    if hint is float and type(value) in (int, float):
        return None
    return _misfit_of_class(value, kind, args, hint)


def _misfit_of_class(value: Any, kind: type, args: tuple[Any, ...], hint: Any) -> Misfit | None:
    is_json_list = isinstance(value, (list, tuple)) and issubclass(kind, (list, tuple))
    try:
        is_instance = isinstance(value, kind) or is_json_list
    except TypeError:
        is_instance = not hasattr(kind, "__required_keys__")  # a protocol is left alone
    if hasattr(kind, "__required_keys__") and isinstance(value, dict):
        missing = sorted(kind.__required_keys__ - value.keys())
        hints = hints_of_class(kind)
        lacking = Misfit("", reason=f"lacks '{missing[0]}'") if missing else None
        return lacking or _first((f".{name}", one, hints[name]) for name, one in value.items() if name in hints)
    if not is_instance:
        return None if _is_convertible(value, hint) else Misfit(_expected(hint, kind), value)
    if kind is tuple and args and args[-1] is not ...:
        if len(value) != len(args):
            return Misfit(f"a list of {len(args)} values", value)
        return _first((f"[{at}]", one, arg) for at, (one, arg) in enumerate(zip(value, args)))  # noqa: B905
    if args and isinstance(value, Mapping) and len(args) == 2:
        keys = (("", key, args[0]) for key in value)
        return _first(keys) or _first((f"[{key!r}]", one, args[1]) for key, one in value.items())
    if args and isinstance(value, (list, tuple, Set)):
        return _first((f"[{at}]", one, args[0]) for at, one in enumerate(value))
    if hasattr(kind, "__dataclass_fields__") and not args:
        hints = hints_of_class(kind)
        return _first(
            (f".{name}", getattr(value, name), hints[name])
            for name, field in kind.__dataclass_fields__.items()
            if name in hints and field._field_type.name == "_FIELD" and hasattr(value, name)
        )
    return None


def _first(parts: Iterable[tuple[str, Any, Any]]) -> Misfit | None:
    """The first part that does not fit: its path, its value, its type."""
    for number, (path, value, hint) in enumerate(parts):
        if number >= ELEMENTS_MAX:
            return None
        misfit = _misfit(value, hint)
        if misfit is not None:
            return misfit.within(path)
    return None


def _is_convertible(value: Any, hint: Any) -> bool:
    """Whether it is what is stored for such a value: an object for a dataclass, a text for a date."""
    number = getattr(value, "item", None)
    if type_name(type(value)).startswith("numpy.") and callable(number) and getattr(value, "ndim", 0) == 0:
        value = number()
    try:
        compile_type(hint).convert(value)
    except (Misfit, TableUnreadable):
        return False
    except Exception:
        return True  # a class of the user's that cannot be made of it is not for us to judge
    return True


def _expected(hint: Any, kind: type) -> str:
    try:
        compile_type(hint).convert(_Nothing())
    except Misfit as misfit:
        # The words that an argument is refused with.
        if misfit.expected:
            return misfit.expected
    except Exception:  # noqa: S110
        pass
    return f"a {type_name(kind)}" if kind.__module__ != "builtins" else _words(hint)


def _words(hint: Any) -> str:
    """An annotation as its author has written it, without the modules."""
    if hint is None or hint is type(None):
        return "None"
    return _MODULES.sub("", inspect.formatannotation(hint))


class _Nothing:
    """Fits no type."""
