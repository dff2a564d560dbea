"""What translated steps run in a worker: worktrees, changes in Git, lists of items, files and checks.

A step names a function as `mulligan.formats.prodigy.runtime:NAME`. Its module is loaded when it is called.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    **dict.fromkeys(("changes_since", "find_outputs", "remember_head"), "git"),
    **dict.fromkeys(("list_items", "map_results"), "items"),
    **dict.fromkeys(("capture_variables", "judge_completion", "read_streams", "run_checks", "write_file"), "outputs"),
    "compute_variables": "environment",
    "check_parameters": "parameters",
    **dict.fromkeys(("begin_iteration", "end_iteration", "list_inputs"), "iterations"),
    **dict.fromkeys(("close_run", "merge_item", "merge_run", "open_item", "open_run", "report_worktree"), "worktrees"),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
