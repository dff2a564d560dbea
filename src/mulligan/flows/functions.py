"""Functions as Python knows them: under which name they are found, and where they were written."""

from __future__ import annotations

from importlib import import_module
from types import CodeType

from mulligan.flows import context
from mulligan.flows.context import Site

# `typing` itself is not imported: a step whose module imports `mulligan` should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAIN = "__main__"
# The longest chain of decorators that is followed.
_WRAPPED_MAX = 100
_DECORATOR_LINES_MAX = 40


def plain_function(function: Any) -> Any:
    """The function that an object such as a `Step` stands for."""
    return getattr(function, "__mulligan_function__", function)


def find(module: str, name: str) -> Any:
    """The plain function that `module:name` leads to; None if it leads nowhere."""
    try:
        found: Any = import_module(module)
    except Exception:  # a module may raise anything
        return None
    return lookup(found, name)


def lookup(module: Any, name: str) -> Any:
    """The plain function under a dotted name."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return plain_function(module)


def written_function(function: Any) -> Any:
    """The function below its decorators, as far as they say what they wrap."""
    for _ in range(_WRAPPED_MAX):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return function


def is_same(one: Any, other: Any) -> bool:
    """Whether both are one function, which a step and its changed copies may wrap each for itself."""
    return one is other or getattr(one, "__wrapped__", one) is getattr(other, "__wrapped__", other)


def defining_code(function: Any) -> CodeType | None:
    """The code that was written as this function. None if it was not written in Python."""
    code = getattr(written_function(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def refuse(message: str, function: Any, hint: str) -> NoReturn:
    """Raise a LanguageError that points at the function."""
    code = defining_code(function)
    context.refuse("function", message, hint=hint, site=_definition_site(code) if code else None)


def _definition_site(code: CodeType) -> Site:
    """The line with `def`, below the decorators."""
    getline = import_module("linecache").getline
    for line in range(code.co_firstlineno, code.co_firstlineno + _DECORATOR_LINES_MAX):
        if getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return Site(code.co_filename, line)
    return Site(code.co_filename, code.co_firstlineno)
