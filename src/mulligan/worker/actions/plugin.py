"""An action of another package: call the function that the package names. Runs in a warm child."""

from __future__ import annotations

import importlib
from typing import Any

from mulligan import StepError


def run(call: str, package: str, args: dict[str, Any]) -> Any:
    """Return what the function returns. INPUT_INVALID if this worker does not have it."""
    module, _, path = call.partition(":")
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not _is_within(error.name or "", module):
            raise  # the plugin is installed, and one of its dependencies is not
        raise _missing(call, package) from None
    for name in path.split("."):
        target = getattr(target, name, None)
    if not callable(target):
        raise _missing(call, package)
    return target(**args)


def _is_within(missing: str, module: str) -> bool:
    """Whether the module itself is missing, or a package that contains it."""
    return f"{module}.".startswith(f"{missing}.")


def _missing(call: str, package: str) -> StepError:
    message = f"this worker does not have '{call}' of '{package}': install it where the worker runs"
    return StepError("INPUT_INVALID", f"{message} (pip install '{package}')", retryable=False)
