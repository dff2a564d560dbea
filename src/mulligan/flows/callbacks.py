"""Functions that run for a step: handlers, undo, recovery scripts, the end. They get what happened as an argument."""

from __future__ import annotations

import sys
from functools import wraps
from types import FunctionType

from mulligan.flows.context import refuse
from mulligan.flows.parameters import Parameters, site_of
from mulligan.flows.source import action_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FAILURE = "Failure"
# The module that has the class of a failure. Only a function that takes one needs it.
_FAILURE_MODULE = "mulligan.flows.failure"

# Where a function keeps what stands for it, so that there is one such object however many steps are made of it.
_ADAPTER = "__mulligan_adapter__"


class Callback:
    """A function that Mulligan calls with what happened. Called directly, it is the plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.__mulligan_function__ = with_failures(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def with_failures(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its parameters of the type `Failure` made from what the run recorded."""
    annotations = getattr(function, "__annotations__", {})
    names = [name for name, annotation in annotations.items() if _is_failure(annotation) and name != "return"]
    if not names:
        return function
    if _ADAPTER in function.__dict__:
        return function.__dict__[_ADAPTER]  # type: ignore[no-any-return]
    module = _FAILURE_MODULE

    def call(*args: Any, **kwargs: Any) -> Any:
        make = __import__(module, fromlist=["Failure"]).Failure.made_from
        for name in names:
            if isinstance(kwargs.get(name), dict):
                kwargs[name] = make(kwargs[name])
        return function(*args, **kwargs)

    # With the names of the user's module, in which other annotations are resolved.
    made = wraps(function)(FunctionType(call.__code__, function.__globals__, closure=call.__closure__))
    made.__annotations__ = {name: one for name, one in annotations.items() if name not in names}
    function.__dict__[_ADAPTER] = made
    return made


def _is_failure(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split("|")[0].strip() in (_FAILURE, f"mulligan.{_FAILURE}")
    return getattr(annotation, "__module__", "") == _FAILURE_MODULE and annotation.__name__ == _FAILURE


def plain_function(value: Any) -> Callable[..., Any] | None:
    """The function of a step, of a callback, or the function itself; None for anything that is none."""
    function = getattr(value, "fn", value)
    return function if callable(function) and hasattr(function, "__code__") else None


def _imported_as(value: Any, function: Callable[..., Any]) -> Any:
    """What a worker finds under the name of the function: the function itself, or what stands for it."""
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return function if found is function else value


def command_for(value: Any, what: str, *, given: dict[str, Any], first: str = "") -> dict[str, Any]:
    """A command that calls the function with `given` values by the names of its parameters.

    The first parameter that no value has the name of gets the expression `first`.
    """
    function = plain_function(value)
    assert function is not None
    parameters = Parameters(function, f"'{function.__name__}'")
    args: dict[str, Any] = {}
    for name in parameters.names:
        if name in given:
            args[name] = given[name]
        elif first:
            args[name], first = f"${{{first}}}", ""
        elif name in parameters.required:
            known = ", ".join(given) or "no other values"
            message = f"{what} '{function.__name__}' has the parameter '{name}', and there is no value of that name"
            refuse("arguments", message, hint=f"there are {known}", word=name, site=site_of(function))
    command: dict[str, Any] = {"python": action_for(_imported_as(value, function))}
    if args:
        command["args"] = args
    return command
