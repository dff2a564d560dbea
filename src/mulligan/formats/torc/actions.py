"""Actions: commands that run when something has happened to the workflow, or to some of its jobs.

Each is a step that never fails the run. What runs when all is over is part of `end`, which also runs when the run was
cancelled, and once more in every round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mulligan.formats.torc.commands import literal_shell
from mulligan.formats.torc.job import Job
from mulligan.formats.torc.needs import FEW, Groups
from mulligan.formats.torc.reading import Torc
from mulligan.formats.torc.records import ACTION
from mulligan.formats.translation import made, mapping, scalar
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, describe
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import quote_list

_STARTS = ("on_workflow_start", "on_worker_start")
_ENDS = ("on_worker_complete", "on_workflow_complete")
_FOR_A_CLUSTER = (
    *("scheduler", "scheduler_type", "num_allocations"),
    *("start_one_worker_per_node", "max_parallel_jobs", "persistent"),
)
# Torc sets no limit; ours for an end, five minutes, is for one that looks back.
_END_TIMEOUT = "1h"
_ENTER = 'mkdir -p "$TORC_OUTPUT_DIR" && cd "$TORC_OUTPUT_DIR"'
# A warning fails nothing, and is shown.
_WARNING = '{"code": "ACTION_FAILED", "severity": "warning", "message": "a command failed of%s"}'
_WARN = f'[ -z "$failed" ] || printf \'{_WARNING}\' "$failed" > "$MULLIGAN_ERROR"'


class _Action:
    """An action whose commands run here: what triggers it, and the step it becomes."""

    def __init__(self, form: Fields, step: str) -> None:
        self.form = form
        self.trigger: str = form["trigger_type"]
        self.commands: tuple[str, ...] = tuple(map(literal_shell, form["commands"]))
        self.step = step
        self.jobs: tuple[Job, ...] = ()

    @property
    def at(self) -> Node:
        return self.form.at("commands")


def add(torc: Torc) -> None:
    """Make steps of the actions of the workflow."""
    actions = _read(torc)
    if torc.source.problems or not actions:
        return
    groups = Groups(torc.names.taken)
    started = _add_starts([action for action in actions if action.trigger in _STARTS], torc)
    for action in actions:
        if action.trigger == "on_jobs_ready":
            torc.after.append(_step(action, _before_jobs(action, started, groups)))
        elif action.trigger == "on_jobs_complete":
            torc.after.append(_step(action, _named(action.jobs, "always", groups, action.at)))
    ends = [action for action in actions if action.trigger in _ENDS]
    if ends:
        torc.end = _end(sorted(ends, key=lambda action: _ENDS.index(action.trigger)))


# -- reading


def _read(torc: Torc) -> list[_Action]:
    node: Node | None = torc.form.get("actions")
    if node is None:
        return []
    if not isinstance(node, Sequence):
        raise torc.source.refuse("type", f"'actions' is {describe(node)}, a list is expected", node)
    found = []
    for item in node.items:
        with torc.source.noting:
            form: Fields = ACTION.read(item, "an action", torc.source)
            if action := _action(form, torc):
                found.append(action)
    return found


def _action(form: Fields, torc: Torc) -> _Action | None:
    """The action, if it is one that runs commands."""
    if "trigger_type" not in form or "action_type" not in form:
        return None  # noted
    jobs = _jobs(form, torc)
    if form["action_type"] == "schedule_nodes":
        _keep_nodes(form, torc)
        return None
    if not form.get("commands"):
        if form.has_unknown_keys or ("commands" in form.node.entries and "commands" not in form):
            return None  # noted, under this name or another
        hint = "add 'commands: […]'"
        raise torc.source.refuse("missing_key", "the action has no 'commands'", form.node, hint=hint)
    action = _Action(form, torc.names.fit(form["trigger_type"]))
    action.jobs = jobs
    _warn_of_cluster(form, torc)
    return action


def _jobs(form: Fields, torc: Torc) -> tuple[Job, ...]:
    """The jobs that it is about, in the order of the file."""
    trigger = form["trigger_type"]
    lists = {key: form.at(key) for key in ("jobs", "job_name_regexes") if form.get(key)}
    if trigger.startswith("on_jobs_") and not lists:
        message = f"an action '{trigger}' says which jobs it is about"
        raise torc.source.refuse("missing_key", message, form.node, hint="add 'jobs' or 'job_name_regexes'")
    if not trigger.startswith("on_jobs_"):
        for key in lists:
            torc.translation.warn("action", f"'{key}' means nothing with '{trigger}'", form.key(key))
        return ()
    found: dict[Job, None] = {}
    for key, node in lists.items():
        find = torc.jobs.named if key == "jobs" else torc.jobs.matching
        for item in node.items if isinstance(node, Sequence) else ():
            found |= dict.fromkeys(find(item.text, item) if isinstance(item, Scalar) else ())
    return tuple(sorted(found, key=lambda job: job.number))


def _keep_nodes(form: Fields, torc: Torc) -> None:
    """Nodes are scheduled on a cluster. What it says must still be said rightly."""
    missing = [key for key in ("scheduler", "scheduler_type") if not form.get(key)]
    if missing:
        message = f"the action schedules nodes, and has no '{missing[0]}'"
        raise torc.source.refuse("missing_key", message, form.node, hint=f"add '{missing[0]}: …'")
    torc.kept_actions.append(form.node)
    if len(torc.kept_actions) == 1:
        message = "'schedule_nodes' is for a cluster: kept, and not run"
        torc.translation.warn("cluster", message, form.at("action_type"))


def _warn_of_cluster(form: Fields, torc: Torc) -> None:
    said = [key for key in _FOR_A_CLUSTER if form.get(key)]
    if said:
        verb = "is" if len(said) == 1 else "are"
        message = f"{quote_list(said, 'and')} {verb} for a cluster: on one machine the commands run once"
        torc.translation.warn("cluster", message, form.key(said[0]))


# -- making


def _add_starts(actions: list[_Action], torc: Torc) -> list[Any]:
    """Those that run before all jobs, one after the other; what everything that starts at once needs for that."""
    needs: list[Any] = []
    for action in sorted(actions, key=lambda action: _STARTS.index(action.trigger)):
        torc.after.append(_step(action, needs))
        needs = [made({"step": action.step, "on": "always"}, action.at)]
    for job in torc.jobs.things.values() if needs else ():
        if not any(job.dependencies()):
            job.extra_needs += needs
    return needs


def _before_jobs(action: _Action, started: list[Any], groups: Groups) -> list[Any]:
    """What it needs to run when all its jobs could start. Those that could not start before wait for it."""
    asked = {job: _dependencies(job) for job in action.jobs}
    waited_for = set().union(*asked.values())
    # What one of its jobs waits for that another one waits for is done when that one is.
    own = {job: jobs for job, jobs in asked.items() if job not in waited_for}
    union = set().union(*own.values())
    needed = [made({"step": action.step, "on": "always"}, action.at)]
    for job, jobs in own.items():
        if jobs == union:
            job.extra_needs += needed
    succeeded = set().union(*(jobs for job, jobs in own.items() if job.is_cancelled_with_others))
    found = _in_order(union & succeeded, None, groups, action)
    return [*found, *_in_order(union - succeeded, "always", groups, action)] or started


def _dependencies(job: Job) -> frozenset[Job]:
    return frozenset().union(*job.dependencies())


def _in_order(jobs: Iterable[Job], on: str | None, groups: Groups, action: _Action) -> list[Any]:
    return _named(tuple(sorted(jobs, key=lambda job: job.number)), on, groups, action.at)


def _named(jobs: tuple[Job, ...], on: str | None, groups: Groups, at: Node) -> list[Any]:
    """The entries of `needs` for these jobs."""
    if len(jobs) > FEW:
        return [made({"match": groups.expression(jobs), "on": on}, at)]
    return [made({"step": job.step, "on": on} if on else job.step, at) for job in jobs]


def _step(action: _Action, needs: list[Any]) -> Mapping:
    entries = {
        "step": scalar(action.step, action.form.at("trigger_type")),
        "shell": scalar(f"{_ENTER} || exit\n{_in_turn(action.commands)}", action.at),
        "needs": needs or None,
        "continue_on_error": True,
    }
    return mapping(entries, action.form.node)


def _in_turn(commands: tuple[str, ...]) -> str:
    """One command as it is; several each in a shell of its own, up to the first that fails."""
    if len(commands) == 1:
        return commands[0]
    return " && ".join(f"(\n{command}\n)" for command in commands)


def _end(actions: list[_Action]) -> Mapping:
    """The commands of all that runs last: what fails in one of them keeps no other from running."""
    lines = ["failed="]
    for action in actions:
        commands = " && ".join(f"(\n{command}\n)" for command in action.commands)
        lines.append(f'( {_ENTER} && {commands} ) || failed="$failed {action.trigger}"')
    first = actions[0]
    text = scalar("\n".join((*lines, _WARN)), first.at)
    # Lines: what these commands print says nothing about the run, even if it is an object with a status.
    return mapping({"shell": text, "capture": "lines", "timeout": _END_TIMEOUT}, first.form.node)
