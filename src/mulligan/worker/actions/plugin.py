"""Actions of plugins: the function that the workflow names. Runs in a warm child."""

from __future__ import annotations

import importlib
from typing import Any

from mulligan import StepError
from mulligan.plugins import MOVED_CALLS


def run(call: str, package: str, args: dict[str, Any]) -> Any:
    """Call the function with `args`. INPUT_INVALID where this worker does not have it."""
    module, _, path = MOVED_CALLS.get(call, call).partition(":")
    try:
        function: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the plugin is installed, and one of its dependencies is not
        raise _missing(call, package) from None
    for name in path.split("."):
        function = getattr(function, name, None)
    if not callable(function):
        raise _missing(call, package)
    return function(**args)


def _missing(call: str, package: str) -> StepError:
    message = f"this worker does not have '{call}' of '{package}': install it where the worker runs"
    return StepError("INPUT_INVALID", f"{message} (pip install '{package}')", retryable=False)
