"""The functions that steps name in `call`: those of today, and those that older files and stored runs name."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from mulligan.formats.prodigy import runtime
from mulligan.formats.prodigy.runtime import git, items, outputs, worktrees
from mulligan.plugins import MOVED_CALLS


@pytest.mark.parametrize(
    ("former", "function"),
    [
        ("changes:since", git.changes_since),
        ("changes:found", git.find_outputs),
        ("files:write", outputs.write_file),
        ("listing:items", items.list_items),
        ("setup_outputs:captured", outputs.capture_variables),
        ("validation:judge", outputs.judge_completion),
        ("validation:check", outputs.run_checks),
        ("worktrees:open_run", worktrees.open_run),
        ("worktrees:merge_item", worktrees.merge_item),
        ("worktrees:say_where", worktrees.report_worktree),
    ],
)
def test_a_former_name_still_leads_to_its_function(former: str, function: Any) -> None:
    module, _, name = MOVED_CALLS[f"mulligan.formats.prodigy.{former}"].partition(":")

    assert getattr(import_module(module), name) is function


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = runtime.no_such_function


def test_a_worker_that_calls_a_function_does_not_load_the_reader() -> None:
    program = (
        "import sys, mulligan.formats.prodigy.runtime as runtime\n"
        "runtime.write_file\n"
        "print([name for name in sys.modules if name.startswith('mulligan.language')])"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
