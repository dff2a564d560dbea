"""The error of a function that needs a step. Standard library only, like `step_context`."""

from __future__ import annotations

import os


def is_program() -> bool:
    """Whether this is the process of a program. It runs inline steps, too, and has no files of a step."""
    return "MULLIGAN_PROGRAM" in os.environ


class NotInStep(RuntimeError):
    """The function needs a step that runs."""

    def __init__(self, function: str) -> None:
        where = "outside of a step; in a test, call it through a run, or pass its value to the function as an argument"
        if is_program():
            where = "in a program, or in an inline step of one; do it in a step of its own"
        super().__init__(f"mulligan.{function}() was called {where}")
