"""What stands around the steps of every workflow of Prodigy's: its environment, its worktree, the merge at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.formats.prodigy.durations import spelled
from mulligan.formats.prodigy.environment import Environment
from mulligan.formats.prodigy.isolation import Opened, closed, merged, opened, told
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.steps import Translated, commands
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node, Sequence
from mulligan.language.shapes import Fields

SHELL = "sh"


def framed(
    form: Fields | None,
    at: Node,
    place: Place,
    surroundings: Environment,
    body: Callable[[Opened], Translated],
    translation: Translation,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the environment puts at the top of our file, and all steps: `body` makes the workflow's own."""
    run = opened(msgspec.structs.replace(place, env=surroundings.expressions), at, translation)
    done = body(run)
    steps = [run.command, *done.commands, *_merging(form, at, run, done.place, translation)]
    head = {
        "inputs": surroundings.inputs,
        "secrets": surroundings.secrets or None,
        "defaults": {"shell": SHELL, "strict": False, "env": surroundings.env or None},
        "end": told(run, at, translation),
    }
    return head, steps


def _merging(
    form: Fields | None, at: Node, run: Opened, place: Place, translation: Translation
) -> list[dict[str, Any]]:
    """Our own step, or those of the file in its place: they work where the run did."""
    if form is None or "merge" not in form:
        return [merged(run, at, translation)]
    node = form.at("merge")
    own = timed(commands(step_list(node, "merge", translation), place, translation).commands, _limit(form["merge"]))
    return [*own, closed(run, node, translation)]


def _limit(merge: Any) -> float | None:
    limit: float | None = merge.get("timeout") if isinstance(merge, Fields) else None
    return limit


def step_list(node: Node, key: str, translation: Translation) -> Sequence:
    """The steps of a phase: the list itself, or its `commands`."""
    inner = node.get("commands") if isinstance(node, Mapping) else node
    if isinstance(inner, Sequence) and inner.items:
        return inner
    message = f"'{key}' has no steps in it, a list of them is expected"
    raise translation.source.refuse("type", message, inner or node)


def timed(steps: list[dict[str, Any]], seconds: float | None) -> list[dict[str, Any]]:
    """The steps, each with this time unless it says so itself."""
    if seconds is None:
        return steps
    return [step if "timeout" in step or "map" in step else {**step, "timeout": spelled(seconds)} for step in steps]
