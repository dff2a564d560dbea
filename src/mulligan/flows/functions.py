"""Functions as Python knows them: under which name they are found, and where they were written."""

from __future__ import annotations

from importlib import import_module
from types import CodeType

from mulligan.flows.context import Site, refuse

# `typing` itself is not imported: a step whose module imports `mulligan` should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAIN = "__main__"
# The longest chain of decorators that is followed.
_WRAPPED_MAX = 100
_DECORATOR_LINES_MAX = 40


class FunctionWrapper:
    """An object that stands for a function, `fn`: it has its names and its docstring."""

    __name__: str
    __qualname__: str

    def __init__(self, function: Any) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function


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


def refuse_function(message: str, function: Any, hint: str) -> NoReturn:
    """Raise a LanguageError that points at the function."""
    refuse("function", message, hint=hint, site=definition_site(function))


def definition_site(function: Any) -> Site | None:
    """The line with `def`, below the decorators. None if it was not written in Python."""
    code = defining_code(function)
    if code is None:
        return None
    import linecache

    getline = linecache.getline
    for line in range(code.co_firstlineno, code.co_firstlineno + _DECORATOR_LINES_MAX):
        if getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return Site(code.co_filename, line)
    return Site(code.co_filename, code.co_firstlineno)
