"""The Jinja2 sandbox of templates: undefined names, lookups, and limits of size."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from jinja2 import UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from mulligan.formats.noetl.runtime.answers import MISSING, look_up, to_json

TEXT_CHARS_MAX = 16 * 1024 * 1024
_POWER_MAX = 10_000
_NUMBER_BITS_MAX = 100_000


# -- what is undefined


class UnknownName(UndefinedError):
    """A name that does not exist at all: the template is wrong for all values."""


class Undefinable(Undefined):
    """An undefined name: only `is defined` and `default` work on it, at any depth."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__":
            raise AttributeError(name)
        return self

    def __getitem__(self, name: Any) -> Any:
        return self

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint.rstrip(".")
        return (
            f"'{self._undefined_name}' is not defined" if self._is_unknown else f"there is no '{self._undefined_name}'"
        )

    @property
    def _is_unknown(self) -> bool:
        return self._undefined_obj is missing

    def _fail_with_undefined_error(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise (UnknownName if self._is_unknown else self._undefined_exception)(self._undefined_message)

    __iter__: Any = _fail_with_undefined_error
    __str__: Any = _fail_with_undefined_error
    __len__: Any = _fail_with_undefined_error
    __eq__: Any = _fail_with_undefined_error
    __ne__: Any = _fail_with_undefined_error
    __bool__: Any = _fail_with_undefined_error
    __contains__: Any = _fail_with_undefined_error
    __hash__ = Undefined.__hash__


class Absent(Undefinable):
    """An undefined part of a condition: it equals null and is false. A name that does not exist is an error."""

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        self.__bool__()
        return other is None or isinstance(other, Absent)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        if self._is_unknown:
            self._fail_with_undefined_error()
        return False

    def __contains__(self, other: Any) -> bool:
        return bool(self)

    def __len__(self) -> int:
        return int(bool(self))

    def __iter__(self) -> Iterator[Any]:
        bool(self)
        return iter(())

    # All comparisons are false.
    __lt__: Any = __contains__
    __le__: Any = __contains__
    __gt__: Any = __contains__
    __ge__: Any = __contains__
    __hash__ = Undefined.__hash__


class Nothing(Absent):
    """The result, in `end`, of a step that did not run: null, and empty in a text."""

    __slots__ = ()

    def __str__(self) -> str:
        return ""


# -- the sandbox


class _Sandbox(ImmutableSandboxedEnvironment):
    """Looks up keys before methods, and refuses huge texts and numbers."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        found = look_up(obj, attribute)
        return super().getattr(obj, attribute) if found is MISSING else found

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = look_up(obj, argument) if isinstance(argument, str | int) else MISSING
        return super().getitem(obj, argument) if found is MISSING else found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _refuse_bomb(operator, left, right)
        return super().call_binop(context, operator, left, right)


def _refuse_bomb(operator: str, left: Any, right: Any) -> None:
    if operator == "**" and isinstance(right, int) and abs(right) > _POWER_MAX:
        raise SecurityError(f"the exponent {right} is too large")
    if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        # A power of a power could take hours.
        if bits > _NUMBER_BITS_MAX:
            raise SecurityError("the number is too large")
    if operator == "%" and isinstance(left, str) and re.search(r"%[^a-zA-Z%]*(?:\d{5}|\*)", left):
        raise SecurityError("the width of a format is too large")
    if operator == "*":
        sizes = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
        times = [side for side in (left, right) if isinstance(side, int)]
        if sizes and times and sizes[0] * times[0] > TEXT_CHARS_MAX:
            raise SecurityError(f"a value repeated {times[0]} times is too large")


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, indent=indent)


def _from_json(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str | bytes) else text


_FILTERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("tojson", "to_json"), _to_json),
    **dict.fromkeys(("fromjson", "from_json"), _from_json),
    "b64encode": lambda value: base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode(),
    "b64decode": lambda text: base64.b64decode(text).decode(),
}


def _sandbox(undefined: type[Undefined]) -> _Sandbox:
    made = _Sandbox(undefined=undefined, keep_trailing_newline=True, extensions=["jinja2.ext.do"])
    made.filters.update(_FILTERS)
    del made.globals["lipsum"]
    return made


VALUES, CONDITIONS = _sandbox(Undefinable), _sandbox(Absent)
