"""Functions that run for a step: handlers, undo, recovery scripts, the end. They get what happened as an argument."""

from __future__ import annotations

from mulligan.flows.context import refuse
from mulligan.flows.parameters import Parameters, site_of
from mulligan.flows.source import action_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Callback:
    """A function that Mulligan calls with what happened. Called directly, it is the plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.__mulligan_function__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def plain_function(value: Any) -> Callable[..., Any] | None:
    """The function of a step, of a callback, or the function itself; None for anything that is none."""
    function = getattr(value, "fn", value)
    return function if callable(function) and hasattr(function, "__code__") else None


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
    command: dict[str, Any] = {"python": action_for(function)}
    if args:
        command["args"] = args
    return command
