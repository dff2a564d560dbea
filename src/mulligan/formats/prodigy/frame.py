"""What surrounds the steps of every workflow: its environment, its worktree, and the merge at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.formats.prodigy.context import Context, StepSlots
from mulligan.formats.prodigy.environment import Environment
from mulligan.formats.prodigy.keys import format_seconds
from mulligan.formats.prodigy.repository import Worktree, close_run, merge_run, open_run_worktree, report_worktree
from mulligan.formats.prodigy.steps import TranslatedSteps, translate_steps
from mulligan.formats.prodigy.variables import ARGUMENTS, mentions
from mulligan.formats.translation import Translation, mapping
from mulligan.language.nodes import Mapping, Node, Sequence
from mulligan.language.shapes import Fields

SHELL = "sh"
_ARGUMENTS = re.compile(re.escape(ARGUMENTS))


def wrap_steps(
    form: Fields | None,
    *,
    at: Node,
    context: Context,
    environment: Environment,
    body: Callable[[Worktree], TranslatedSteps],
    translation: Translation,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The top-level keys that the environment needs, and all steps. `body` makes the workflow's own steps."""
    run = open_run_worktree(msgspec.structs.replace(context, env=environment.expressions), at, translation)
    done = body(run)
    steps = [run.command, *done.commands, *_merge_steps(form, at, run, done.context, translation)]
    head = {
        "inputs": environment.inputs,
        "secrets": environment.secrets or None,
        "defaults": {"shell": SHELL, "strict": False, "env": environment.env or None},
        "end": report_worktree(run, at, translation),
    }
    return head, steps


def _merge_steps(
    form: Fields | None, at: Node, run: Worktree, context: Context, translation: Translation
) -> list[dict[str, Any]]:
    """The merge step, or the merge steps of the file, which work in the worktree of the run."""
    if form is None or "merge" not in form:
        return [merge_run(run, at, translation)]
    node, merge = form.at("merge"), form["merge"]
    steps = step_list(node, "merge", translation)
    if not steps.items:
        translation.warn("prodigy", "'merge' has no steps: the branch is merged as without it", form.key("merge"))
        return [merge_run(run, at, translation)]
    own = translate_steps(steps, context, translation).commands
    timeout = merge.get("timeout") if isinstance(merge, Fields) else None
    return [*with_timeout(own, timeout), close_run(run, node, translation)]


def step_list(node: Node, key: str, translation: Translation) -> Sequence:
    """The steps of a phase: the list itself, or its `commands`."""
    inner = node.get("commands") if isinstance(node, Mapping) else node
    if isinstance(inner, Sequence):
        return inner
    message = f"'{key}' has no steps, a list of steps is expected"
    raise translation.source.refuse("type", message, inner or node)


def with_timeout(steps: list[dict[str, Any]], seconds: float | None) -> list[dict[str, Any]]:
    """The steps, each with this timeout unless it has its own."""
    if seconds is None:
        return steps
    return [
        step if "timeout" in step or "map" in step else {**step, "timeout": format_seconds(seconds)} for step in steps
    ]


def build_workflow(head: dict[str, Any], steps: list[dict[str, Any]], context: Context, at: Node) -> Mapping:
    """The translated workflow: `head`, the steps in order, then the steps that only an edge leads to."""
    assert isinstance(context.slots, StepSlots)
    inputs = head.get("inputs") or {}
    tree = {"name": None, "description": None, **head, "inputs": None}
    end = tree.pop("end")
    in_order = [*add_needs(steps), *context.slots.edge_targets]
    tree |= {"order": "sequential", "steps": [mapping(step, first_node(step, at)) for step in in_order], "end": end}
    whole = mapping(tree, at)
    if mentions(whole, _ARGUMENTS):
        inputs = {**inputs, "args": {"default": "", "description": "what Prodigy calls --args"}}
    return mapping({**tree, "inputs": inputs or None}, at)


def add_needs(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add `needs` to the steps after a condition.

    A skipped step does not hold up the next one. But it is also skipped if a step before it failed, so the next step
    needs the last step without a condition as well.
    """
    certain: list[Any] = []
    doubtful: list[Any] = []
    found = []
    for step in steps:
        found.append({**step, "needs": [*certain, *doubtful]} if doubtful and "needs" not in step else step)
        if "when" in step:
            doubtful.append({"step": step["step"], "on": "success_or_skipped"})
        else:
            certain, doubtful = [step["step"]], []
    return found


def first_node(step: dict[str, Any], otherwise: Node) -> Node:
    """The position of a step: its first node from the file."""
    for value in step.values():
        if isinstance(value, dict):
            return first_node(value, otherwise)
        if not isinstance(value, str | bool | int | float | list | None):
            result: Node = value
            return result
    return otherwise
