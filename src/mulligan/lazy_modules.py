"""Modules that are imported when they are first used, so that a command does not wait for what it does not use."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

_names: list[str] = []


class LazyModule:
    """A module that is imported when something in it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        _names.append(name)

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def import_lazy_modules() -> None:
    """Import them all now: for a process that will use most of them, in several threads."""
    for name in _names:
        import_module(name)
