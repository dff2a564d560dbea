"""Prodigy's `on_exit_code`: what runs for an exit code, and stands in for the step.

In a list of steps it is a step of its own that a failure edge leads to. In an item there are no edges: there it is the
handler, which asks for the code. For exit code 0 it is what runs after a success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mulligan.formats.prodigy.captures import captured_names
from mulligan.formats.prodigy.handlers import handling
from mulligan.formats.prodigy.places import Place, Steps
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Node, Scalar
from mulligan.language.shapes import Fields

Command: TypeAlias = "Callable[[Node, Place, Translation], Any]"


def exits(
    form: Fields, keys: dict[str, Any], place: Place, translation: Translation, command: Command
) -> dict[str, Any]:
    """The keys of a step that its `on_exit_code` changes."""
    steps: dict[str, Node] = form.get("on_exit_code", {})
    said: dict[str, Any] = {}
    failing = {code: step for code, step in steps.items() if int(code)}
    if "0" in steps:
        extra = command(steps["0"], handling(place), translation).commands
        said["on_success"] = [*(keys.get("on_success") or ()), *extra]
    if failing and isinstance(place.row, Steps):
        names = captured_names(form)
        said["next"] = [_edge(int(code), step, names, place, translation, command) for code, step in failing.items()]
    elif failing:
        said["on_failure"] = _asked(failing, keys, place, translation, command)
    return said


def _edge(
    code: int, step: Node, names: list[str], place: Place, translation: Translation, command: Command
) -> dict[str, Any]:
    """An edge to a step of its own, which stands behind all others: nothing else leads there."""
    assert isinstance(place.row, Steps)
    said = {"error.exit_code": "failure.exit_code", "error.message": "failure.message", "error.step": "failure.step"}
    said |= {"error.timestamp": "failure.timestamp", "shell.output": "failure.message"}
    said |= dict.fromkeys(names, "failure.message")
    steps = command(step, place.knowing(said), translation).commands
    if len(steps) > 1:
        message = "what runs for an exit code is one command, and this is more"
        raise translation.source.refuse("prodigy", message, step, hint="leave out 'commit_required'")
    place.row.aside += steps
    return {"to": steps[0]["step"], "on": "failure", "exit_codes": [code], "then": "continue"}


def _asked(
    failing: dict[str, Node], keys: dict[str, Any], place: Place, translation: Translation, command: Command
) -> dict[str, Any]:
    """A handler that looks at the exit code; only the shell can."""
    node = next(iter(failing.values()))
    if keys.get("on_failure"):
        message = "within an item a step has 'on_failure' or 'on_exit_code', not both"
        raise translation.source.refuse("prodigy", message, node)
    cases = "".join(f"{code})\n{_script(step, place, translation, command)}\n;;\n" for code, step in failing.items())
    return {"shell": made(f'case "$MULLIGAN_RETURN_CODE" in\n{cases}*) exit 1 ;;\nesac', node)}


def _script(step: Node, place: Place, translation: Translation, command: Command) -> str:
    found = command(step, handling(place), translation).commands
    script = found[0].get("shell") if len(found) == 1 and set(found[0]) == {"shell"} else None
    if not isinstance(script, Scalar):
        message = "within an item only a plain shell command can run for an exit code"
        raise translation.source.refuse("prodigy", message, step, hint="use 'on_failure'")
    return script.text
