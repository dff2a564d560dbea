"""The error of a function that needs a step. Standard library only, like `step_context`."""

from __future__ import annotations


class NotInStep(RuntimeError):
    """The function needs a step that runs."""

    def __init__(self, function: str) -> None:
        super().__init__(
            f"mulligan.{function}() was called outside of a step; in a test, call it through a run, "
            "or pass its value to the function as an argument"
        )
