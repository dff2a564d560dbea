"""Prodigy's `on_failure`, in every form, as a handler of ours.

Its documents disagree with each other, and its four executors with its documents. This is what is promised here:

| form | what runs | then | still failing |
|---|---|---|---|
| `true` | nothing | the failure is ignored | the workflow goes on |
| `false` | nothing | | the workflow fails |
| a text, a list of texts or of steps | each in turn | the step is recovered | fails |
| `{commands, strategy}` | the commands | by the strategy | fails, unless `fail_workflow: false` |
| `{shell}`, `{claude}` | the command | the step is recovered | fails, unless `fail_workflow: false` |
| the same, `max_attempts`, `max_retries` or `retry_original` | the command | the step's own runs again | goes on (a) |
| `{claude}` in a regular workflow | the command | as with `max_attempts: 3` | goes on (a) |

(a) Unless `fail_workflow: true`. In an item, in `reduce` and in `merge` it fails, unless `fail_workflow: false`.

`max_attempts` counts all runs of the step's command, `max_retries` those after the first. A strategy: `recovery` and
`fallback` complete the step; `cleanup` leaves the failure as it is; `custom` is `recovery`, since what its commands
decide Prodigy does not ask either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mulligan.formats.prodigy.captures import said_by_agent
from mulligan.formats.prodigy.commits import committing
from mulligan.formats.prodigy.durations import spelled
from mulligan.formats.prodigy.forms import require
from mulligan.formats.prodigy.joining import joined
from mulligan.formats.prodigy.keys import HANDLER_FORMS
from mulligan.formats.prodigy.places import Place, Unread
from mulligan.formats.prodigy.variables import filled
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence
from mulligan.language.shapes import Fields

# One step of Prodigy's as commands of ours: what handlers nest.
Translate: TypeAlias = "Callable[[Node, Place, Translation], list[dict[str, Any]]]"

REGULAR_ATTEMPTS = 3
# What a command that failed leaves to its handler. Its output is in the message: see `steps`.
ERROR_VARIABLES = {
    "error.message": "error.message",
    "error.exit_code": "error.exit_code",
    "error.step": "error.step",
    "error.timestamp": "error.timestamp",
    "shell.output": "error.message",
    "last.output": "error.message",
    "test.output": "error.message",
    "test.exit_code": "error.exit_code",
    "test.attempt": "error.attempt",
}


class Handled(NamedTuple):
    """Our `on_failure`, and the variables that the handler captures: each as a field of the step's output."""

    on_failure: dict[str, Any] | None = None
    continue_on_error: bool = False
    captured: tuple[str, ...] = ()


def handler(
    node: Node, place: Place, translation: Translation, translate: Translate, names: Iterable[str] = ()
) -> Handled:
    """What becomes of an `on_failure`; `names` are the variables that would have had the output of the step."""
    form = HANDLER_FORMS.read(node, "'on_failure'", translation.source)
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Handled(continue_on_error=node.value)
    inner = handling(place).knowing(dict.fromkeys(names, "error.message"))
    if not isinstance(form, Fields):
        if isinstance(node, Sequence) and not node.items:
            raise translation.source.refuse("type", "'on_failure' is an empty list", node, hint="write 'false'")
        return Handled({"commands": command_list(node, inner, translation, translate)})
    return _mapping(form, inner, place, translation, translate)


def handling(place: Place) -> Place:
    """The place of a handler's commands."""
    return msgspec.structs.replace(place.knowing(ERROR_VARIABLES), row=Unread(), is_regular=False, is_watched=False)


def command_list(node: Node, place: Place, translation: Translation, translate: Translate) -> list[dict[str, Any]]:
    """One command or several, in any form that Prodigy has for them."""
    nodes = joined(node, translation, is_handlers=True) if isinstance(node, Sequence) else [node]
    found: list[dict[str, Any]] = []
    for each in nodes:
        with translation.source.noting:
            found += translate(each, place, translation)
    return found


def _mapping(form: Fields, inner: Place, place: Place, translation: Translation, translate: Translate) -> Handled:
    require(form, *form.node.entries, translation=translation)
    commands = _commands(form, inner, translation, translate)
    if form.get("commit_required"):
        commands = committing(commands, form.node)
    rerun = _reruns(form, place)
    said: dict[str, Any] = {"commands": commands, "strategy": _strategy(form), "rerun": rerun or None}
    if "timeout" in form:
        said["timeout"] = spelled(form["timeout"])
    if "capture" in form:
        said["capture"] = {name: _captured(form, name, inner) for name in form["capture"]}
    if form.get("handler_failure_fatal"):
        said["handler_failure_fatal"] = True
    goes_on = not form.get("fail_workflow", not rerun or not place.is_in_steps)
    return Handled(said if commands else None, goes_on, tuple(form.get("capture", ())))


def _commands(form: Fields, inner: Place, translation: Translation, translate: Translate) -> list[dict[str, Any]]:
    """The commands of a mapping: `commands`, else `shell` and then `claude`."""
    other = next((key for key in ("shell", "claude", "on_failure", "on_success") if key in form), "")
    if "commands" in form and other:
        message = f"'{other}' stands beside 'commands', and belongs to them"
        raise translation.source.refuse("prodigy", message, form.key(other), hint="move it into 'commands'")
    if "commands" in form:
        return command_list(form.at("commands"), inner, translation, translate)
    found: list[dict[str, Any]] = []
    kinds = [kind for kind in ("shell", "claude") if kind in form]
    for kind in kinds:
        found += translate(_alone(form.node, kind, is_last=kind == kinds[-1]), inner, translation)
    if "on_success" in form:
        found += command_list(form.at("on_success"), inner, translation, translate)
    if not found and "fail_workflow" not in form:
        message = "the handler has no command"
        hint = "add 'shell', 'claude' or 'commands'"
        raise translation.source.refuse("prodigy", message, form.node, hint=hint)
    return found


def _alone(node: Mapping, kind: str, *, is_last: bool) -> Mapping:
    """A step that is this one key of the mapping; the last one has its handler."""
    step = Mapping(node.entries[kind][0].line, node.entries[kind][0].column)
    step.entries[kind] = node.entries[kind]
    if is_last and "on_failure" in node.entries:
        step.entries["on_failure"] = node.entries["on_failure"]
    return step


def _reruns(form: Fields, place: Place) -> int:
    """How often the step's own command runs again after the handler."""
    if _strategy(form) not in (None, "recovery"):
        return 0
    if "max_retries" in form:
        return int(form["max_retries"])
    if "max_attempts" in form:
        return max(int(form["max_attempts"]) - 1, 1 if form.get("retry_original") else 0)
    if "retry_original" in form:
        return 1 if form["retry_original"] else 0
    is_debugged = place.is_regular and "claude" in form and "shell" not in form
    return REGULAR_ATTEMPTS - 1 if is_debugged else 0


def _strategy(form: Fields) -> str | None:
    strategy: str | None = form.get("strategy")
    return None if strategy in ("recovery", "custom") else strategy


def _captured(form: Fields, name: str, inner: Place) -> str:
    """What a variable of the handler holds: its output, unless an expression says more."""
    node = form["capture"][name]
    text = filled(node.text, inner)
    is_expression = text.startswith("${") and text.endswith("}") and text.count("${") == 1
    return text[2:-1] if is_expression else said_by_agent("output")
