"""An action of somebody else's: the function that its package names. Runs in a warm child."""

from __future__ import annotations

import importlib
from typing import Any

from mulligan import StepError


def run(call: str, package: str, args: dict[str, Any]) -> Any:
    """What the function returns. INPUT_INVALID where this worker does not have it."""
    module, _, path = call.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not _is_within(error.name or "", module):
            raise  # the plugin is here, and something that it needs is not
        raise _missing(call, package) from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise _missing(call, package)
    return found(**args)


def _is_within(missing: str, module: str) -> bool:
    """Whether it is the module itself that is missing, or a package that it is in."""
    return f"{module}.".startswith(f"{missing}.")


def _missing(call: str, package: str) -> StepError:
    message = f"this worker does not have '{call}' of '{package}': install it where the worker runs"
    return StepError("INPUT_INVALID", f"{message} (pip install '{package}')", retryable=False)
