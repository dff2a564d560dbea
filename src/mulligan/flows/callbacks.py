"""Functions that run for a step: handlers, undo, recovery scripts, the end. They get what happened as an argument."""

from __future__ import annotations

from mulligan.flows.context import refuse
from mulligan.flows.functions import FunctionWrapper, definition_site, plain_function
from mulligan.flows.parameters import Parameters
from mulligan.flows.source import action_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Callback(FunctionWrapper):
    """A function that Mulligan calls with what happened. Called directly, it is the plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.__mulligan_function__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def as_callback(function: Callable[..., Any]) -> Callback:
    refuse_workflow(function, "a callback")
    return function if isinstance(function, Callback) else Callback(function)


def refuse_workflow(value: Any, what: str) -> None:
    """Refuse a program or a flow: no step can call it like a function."""
    if hasattr(value, "__mulligan_workflow__"):
        message = f"{what} is a plain function, and '{value.name}' is a whole workflow"
        refuse("function", message, hint=f"call it in the flow: {value.__name__}(…)", word=value.__name__)


def is_function(value: Any) -> bool:
    """Whether a step can call it: a function, a step or a callback."""
    return hasattr(plain_function(value), "__code__")


def command_for(value: Any, what: str, *, given: dict[str, Any], first: str = "") -> dict[str, Any]:
    """A command that calls the function with `given` values by the names of its parameters.

    The first parameter that no value has the name of gets the expression `first`.
    """
    refuse_workflow(value, what)
    function = plain_function(value)
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
            refuse("arguments", message, hint=f"there are {known}", word=name, site=definition_site(function))
    command: dict[str, Any] = {"python": action_for(function)}
    if args:
        command["args"] = args
    return command
