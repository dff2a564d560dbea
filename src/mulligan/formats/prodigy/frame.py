"""What surrounds the steps of every workflow: its environment, its worktree, and the merge at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.formats.prodigy.context import Context, StepSlots, TranslatedSteps
from mulligan.formats.prodigy.environment import ENVIRONMENT_STEP, Environment
from mulligan.formats.prodigy.keys import format_seconds
from mulligan.formats.prodigy.repository import Worktree, end_run, open_run_worktree, report_worktree
from mulligan.formats.prodigy.steps import translate_steps
from mulligan.formats.prodigy.variables import ARGUMENTS, mentions
from mulligan.formats.translation import literal, made, mapping
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source

SHELL = "sh"
# Prodigy's commands for Claude look at this variable: with it they ask no questions.
_AUTOMATION = {"PRODIGY_AUTOMATION": "true"}
_READS_ARGUMENTS = re.compile(re.escape(ARGUMENTS))


def wrap_steps(
    form: Fields,
    *,
    context: Context,
    environment: Environment,
    body: Callable[[Worktree], TranslatedSteps],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The top-level keys that the environment needs, and all steps. `body` makes the workflow's own steps."""
    at = form.node
    repeated = {name: environment.commands[name].text for name in sorted(environment.repeated)}
    inside = msgspec.structs.replace(context, env=environment.expressions, env_commands=repeated)
    run = open_run_worktree(inside, at)
    computed = _compute_variables(environment, run)
    done = body(run)
    later = [*done.commands, *_merge_steps(form, run, done.context)]
    # Their handlers and the commands of items inherit the variables that are computed.
    for step in [*later, *_edge_targets(context)] if environment.late_env else ():
        step["env"] = {**environment.late_env, **(step.get("env") or {})}
    steps = [run.command, *computed, *later]
    env = {**_AUTOMATION, **environment.env} if _has_agent([*steps, *_edge_targets(context)]) else environment.env
    head = {
        "name": at.get("name"),
        "description": at.get("description"),
        "inputs": environment.inputs,
        "secrets": environment.secrets or None,
        "defaults": {"shell": SHELL, "strict": False, "env": env or None},
        "end": report_worktree(run, at),
    }
    return head, steps


_COMPUTE = "mulligan.formats.prodigy.runtime:compute_variables"


def _compute_variables(environment: Environment, run: Worktree) -> list[dict[str, Any]]:
    """The step that computes variables of the environment by commands, if there are any."""
    if not environment.commands:
        return []
    slot = run.context.slots.take(ENVIRONMENT_STEP)
    assert slot.name == ENVIRONMENT_STEP, "it is taken right after the worktree"
    commands = {name: made(literal(node.text), node) for name, node in environment.commands.items()}
    first = next(iter(environment.commands.values()))
    call = made({"call": _COMPUTE}, first)
    return [{"step": slot.name, "python": call, "args": {"commands": commands}, "cwd": run.context.cwd}]


def _edge_targets(context: Context) -> list[dict[str, Any]]:
    assert isinstance(context.slots, StepSlots)
    return context.slots.edge_targets


def _has_agent(tree: Any) -> bool:
    """Whether an agent is called anywhere in these steps."""
    if isinstance(tree, dict):
        return "agent" in tree or any(map(_has_agent, tree.values()))
    return isinstance(tree, list) and any(map(_has_agent, tree))


def _merge_steps(form: Fields, run: Worktree, context: Context) -> list[dict[str, Any]]:
    """The merge step, or the merge steps of the file, which work in the worktree of the run."""
    steps = step_list(form.at("merge"), "merge", context.source) if "merge" in form else None
    if steps is None or not steps.items:
        if steps is not None:
            message = "'merge' has no steps: the branch is merged as without it"
            context.source.warn("prodigy", message, form.key("merge"))
        return [end_run(run, form.node, is_merged=False)]
    own, merge = translate_steps(steps, context).commands, form["merge"]
    timeout = merge.get("timeout") if isinstance(merge, Fields) else None
    return [*with_timeout(own, timeout), end_run(run, form.at("merge"), is_merged=True)]


def step_list(node: Node, key: str, source: Source) -> Sequence:
    """The steps of a phase: the list itself, or its `commands`."""
    inner = node.get("commands") if isinstance(node, Mapping) else node
    if isinstance(inner, Sequence):
        return inner
    message = f"'{key}' has no steps, a list of steps is expected"
    raise source.refuse("type", message, inner or node)


def with_timeout(steps: list[dict[str, Any]], seconds: float | None) -> list[dict[str, Any]]:
    """The steps, each with this timeout unless it has its own."""
    if seconds is None:
        return steps
    return [
        step if "timeout" in step or "map" in step else {**step, "timeout": format_seconds(seconds)} for step in steps
    ]


def build_workflow(head: dict[str, Any], steps: list[dict[str, Any]], context: Context, at: Node) -> Mapping:
    """The translated workflow: `head`, the steps in order, then the steps that only an edge leads to."""
    tree = {**head, "inputs": None}
    inputs, end = head["inputs"], tree.pop("end")
    in_order = [*add_needs(steps), *_edge_targets(context)]
    tree |= {"order": "sequential", "steps": [mapping(step, first_node(step, at)) for step in in_order], "end": end}
    whole = mapping(tree, at)
    if mentions(whole, _READS_ARGUMENTS):
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
        if isinstance(value, Scalar | Sequence | Mapping):
            return value
    return otherwise
