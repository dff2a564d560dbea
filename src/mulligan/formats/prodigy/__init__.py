"""Prodigy's files: regular workflows in all their forms, and MapReduce. What their steps run is in `runtime`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.prodigy.workflow import RECORDS, translate

__all__ = ["RECORDS", "translate"]

# Converted files and stored runs may call functions of `runtime` by their former modules and names.
_FORMER_NAMES = {
    "changes": {"since": "changes_since", "found": "find_outputs"},
    "files": {"write": "write_file"},
    "listing": {"items": "list_items"},
    "setup_outputs": {"captured": "capture_variables"},
    "validation": {"judge": "judge_completion", "check": "run_checks"},
    "worktrees": {"say_where": "report_worktree"},
}


class _FormerModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        names = _FORMER_NAMES[self.__name__.rpartition(".")[2]]
        return getattr(import_module(f"{__name__}.runtime"), names.get(name, name))


for _name in _FORMER_NAMES:
    sys.modules[f"{__name__}.{_name}"] = _FormerModule(f"{__name__}.{_name}")


def __getattr__(name: str) -> Any:
    """Load the reader on demand: a worker that runs a step does not need it."""
    if name in __all__:
        return getattr(__import__("mulligan.formats.prodigy.workflow", fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.formats.prodigy' has no attribute '{name}'")
