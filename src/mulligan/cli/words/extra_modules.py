"""Modules of commands that need an extra of the package, which has the name of the command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mulligan.errors import ServerUnusable


def load_for(command: str, module: str) -> Any:
    """The module. `ServerUnusable` says what to install if a library of the extra is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mulligan"):
            raise
        raise ServerUnusable(
            f"`mulligan {command}` needs '{error.name}', which is not installed",
            hint=f"pip install 'mulligan[{command}]'",
        ) from None
