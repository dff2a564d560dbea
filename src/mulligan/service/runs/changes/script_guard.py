"""Refuses to start a run from the top level of a file that workers execute: each of them would start it again.

Workers execute a module to get its functions, as `multiprocessing` does. So a script starts its run under
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem

# A local variable of this name marks a function that is loading the user's code.
LOADING = "__mulligan_loading__"
_MODULE = "<module>"
_HINT = "put it under 'if __name__ == \"__main__\":'"


def refuse_start_while_loading(workflow: Workflow) -> None:
    """Refuse a run that is started while its file is loaded for its functions, or that would be.

    A script whose source is pinned is refused before its run exists, and not by its first step.
    """
    frames = list(_frames())
    module = next((frame for frame in frames if frame.f_code.co_name == _MODULE), None)
    if module is None:
        return
    if any(LOADING in frame.f_locals for frame in frames):
        raise _refusal(module, "the file starts a run while it is loaded")
    if module.f_globals.get("__name__") == "__main__" and _is_executed(workflow, module) and not _is_guarded(module):
        raise _refusal(module, "the script starts a run at its top level, which workers execute to get its functions")


def refuse_publication_while_loading() -> None:
    """Refuse to publish a file while it is loaded to be published."""
    frames = list(_frames())
    module = next((frame for frame in frames if frame.f_code.co_name == _MODULE), None)
    if module is not None and any(LOADING in frame.f_locals for frame in frames):
        raise _refusal(module, "the file is published while it is loaded")


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_executed(workflow: Workflow, frame: FrameType) -> bool:
    """Whether a worker executes the script for a step: its source is pinned, or it runs as `python -m`."""
    path = os.path.abspath(frame.f_code.co_filename)
    spec = frame.f_globals.get("__spec__")
    called = f"{spec.name}:" if spec is not None else "\0"
    for step in workflow.steps:
        params = step.action.params if step.action is not None else {}
        if "source" in params and os.path.abspath(params.get("file", "")) == path:
            return True
        if isinstance(call := params.get("call"), str) and call.startswith(called):
            return True
    return any(_is_executed(child, frame) for child in workflow.children.values())


def _is_guarded(frame: FrameType) -> bool:
    """Whether the statement that the module executes is under `if __name__ == "__main__":`."""
    import ast
    import linecache

    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return True
    return any(
        isinstance(inner, ast.Name) and inner.id == "__name__"
        for node in tree.body
        if isinstance(node, ast.If) and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
        for inner in ast.walk(node.test)
    )


def _refusal(frame: FrameType, message: str) -> LanguageError:

    import linecache

    file, line = frame.f_code.co_filename, frame.f_lineno
    shown = linecache.getline(file, line).rstrip("\n")
    indent = len(shown) - len(shown.lstrip())
    problem = Problem("language.script", message, file, line, indent + 1, max(1, len(shown.strip())), shown, _HINT)
    return LanguageError([problem])
