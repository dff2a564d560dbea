"""How a worker gets the function of a step: by its module and name."""

from __future__ import annotations

from mulligan.flows.context import refuse
from mulligan.flows.parameters import site_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def action_for(function: Callable[..., Any]) -> dict[str, Any]:
    """The keys of `python` that run this function: `{"call": "module:name"}`."""
    call = f"{function.__module__}:{function.__qualname__}"
    if function.__module__ == "__main__" or "<" in call:
        hint = "put it at the top of a module that is not run as a script"
        if function.__module__.startswith("<"):  # see `language.python_file_process`
            hint = "call mulligan from the folder of this file, or from one above it"
        message = f"workers cannot import the function '{function.__qualname__}'"
        refuse("function", message, hint=hint, word=function.__qualname__, site=site_of(function))
    return {"call": call}
