"""Actions: commands that run at an event of the workflow or of some of its jobs.

Each becomes a step that never fails the run. Actions at the end become part of `end`, which also runs after a cancel,
and once more in every round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mulligan.formats.torc.commands import escape_shell
from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.needs import StepPatterns
from mulligan.formats.torc.reading import TorcFile
from mulligan.formats.torc.records import ACTION
from mulligan.formats.translation import made, mapping, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, describe
from mulligan.language.text.suggestions import quote_list

_STARTS = ("on_workflow_start", "on_worker_start")
_ENDS = ("on_worker_complete", "on_workflow_complete")
_CLUSTER_KEYS = (
    *("scheduler", "scheduler_type", "num_allocations"),
    *("start_one_worker_per_node", "max_parallel_jobs", "persistent"),
)
# Torc has no limit, and our default for `end` (five minutes) is too short for real work.
_END_TIMEOUT = "1h"
_ENTER_OUTPUT_DIR = 'mkdir -p "$TORC_OUTPUT_DIR" && cd "$TORC_OUTPUT_DIR"'
# A warning is shown and does not fail the run.
_WARNING = '{"code": "ACTION_FAILED", "severity": "warning", "message": "a command failed in%s"}'
_WARN = f'[ -z "$failed" ] || printf \'{_WARNING}\' "$failed" > "$MULLIGAN_ERROR"'


class _Action(NamedTuple):
    """An action that runs commands: its trigger, its step, and the jobs that it refers to."""

    form: Fields
    trigger: str
    commands: tuple[str, ...]
    step: str
    jobs: tuple[Job, ...]

    @property
    def at(self) -> Node:
        return self.form.at("commands")


def add_actions(torc: TorcFile) -> None:
    """Add steps for the actions of the workflow."""
    actions = _read_actions(torc)
    if torc.source.problems or not actions:
        return
    groups = StepPatterns(torc.names.taken)
    started = _add_starts([action for action in actions if action.trigger in _STARTS], torc)
    for action in actions:
        if action.trigger == "on_jobs_ready":
            torc.after.append(_action_step(action, _before_jobs(action, started, groups)))
        elif action.trigger == "on_jobs_complete":
            torc.after.append(_action_step(action, groups.needs(action.jobs, "always", action.at)))
    ends = [action for action in actions if action.trigger in _ENDS]
    if ends:
        torc.end = _end_step(sorted(ends, key=lambda action: _ENDS.index(action.trigger)))


# -- reading ---------------------------------------------------------------------------------------------------------


def _read_actions(torc: TorcFile) -> list[_Action]:
    node: Node | None = torc.form.get("actions")
    if node is None:
        return []
    if not isinstance(node, Sequence):
        raise torc.source.refuse("type", f"'actions' is {describe(node)}, a list is expected", node)
    found = []
    for item in node.items:
        with torc.source.noting:
            form: Fields = ACTION.read(item, "an action", torc.source)
            if action := _read_action(form, torc):
                found.append(action)
    return found


def _read_action(form: Fields, torc: TorcFile) -> _Action | None:
    """Read an action; None if it runs no commands."""
    if "trigger_type" not in form or "action_type" not in form:
        return None  # noted
    jobs = _jobs(form, torc)
    if form["action_type"] == "schedule_nodes":
        _keep_node_scheduling(form, torc)
        return None
    if not form.get("commands"):
        if form.has_unknown_keys or ("commands" in form.node.entries and "commands" not in form):
            return None  # noted
        hint = "add 'commands: […]'"
        raise torc.source.refuse("missing_key", "the action has no 'commands'", form.node, hint=hint)
    if keys := [key for key in _CLUSTER_KEYS if form.get(key)]:
        verb = "is" if len(keys) == 1 else "are"
        message = f"{quote_list(keys, 'and')} {verb} for a cluster: on one machine the commands run once"
        torc.source.warn("cluster", message, form.key(keys[0]))
    trigger, commands = form["trigger_type"], tuple(map(escape_shell, form["commands"]))
    return _Action(form, trigger, commands, torc.names.fit(trigger), jobs)


def _jobs(form: Fields, torc: TorcFile) -> tuple[Job, ...]:
    """The jobs that the action refers to, in the order of the file."""
    trigger = form["trigger_type"]
    lists = {key: form.at(key) for key in ("jobs", "job_name_regexes") if form.get(key)}
    if trigger.startswith("on_jobs_") and not lists:
        message = f"an action with '{trigger}' must name jobs"
        raise torc.source.refuse("missing_key", message, form.node, hint="add 'jobs' or 'job_name_regexes'")
    if not trigger.startswith("on_jobs_"):
        for key in lists:
            torc.source.warn("action", f"'{key}' has no effect with '{trigger}'", form.key(key))
        return ()
    found: dict[Job, None] = {}
    for key, node in lists.items():
        find = torc.jobs.find if key == "jobs" else torc.jobs.find_matching
        for item in node.items if isinstance(node, Sequence) else ():
            found |= dict.fromkeys(find(item.text, item) if isinstance(item, Scalar) else ())
    return tuple(sorted(found, key=lambda job: job.number))


def _keep_node_scheduling(form: Fields, torc: TorcFile) -> None:
    """Check and keep an action that schedules nodes of a cluster: `cluster` makes a submission of it."""
    missing = [key for key in ("scheduler", "scheduler_type") if not form.get(key)]
    if missing:
        message = f"the action schedules nodes but has no '{missing[0]}'"
        raise torc.source.refuse("missing_key", message, form.node, hint=f"add '{missing[0]}: …'")
    torc.kept_actions.append(form)
    if form.get("max_parallel_jobs"):
        message = "'max_parallel_jobs' is not used: a pilot takes as many jobs as its processors and memory allow"
        torc.source.warn("cluster", message, form.key("max_parallel_jobs"))


# -- building steps --------------------------------------------------------------------------------------------------


def _add_starts(actions: list[_Action], torc: TorcFile) -> list[Any]:
    """Add the actions that run before all jobs, one after the other. Return the `needs` of what starts next."""
    needs: list[Any] = []
    for action in sorted(actions, key=lambda action: _STARTS.index(action.trigger)):
        torc.after.append(_action_step(action, needs))
        needs = [made({"step": action.step, "on": "always"}, action.at)]
    for job in torc.jobs.by_name.values() if needs else ():
        if not any(job.dependencies()):
            job.extra_needs += needs
    return needs


def _before_jobs(action: _Action, started: list[Any], groups: StepPatterns) -> list[Any]:
    """The `needs` of an action that runs once all its jobs are ready. The jobs that become ready last wait for it."""
    asked = {job: frozenset[Job]().union(*job.dependencies()) for job in action.jobs}
    waited_for = set[Job]().union(*asked.values())
    # A job that another of its jobs waits for is finished when that one is ready.
    own = {job: jobs for job, jobs in asked.items() if job not in waited_for}
    union = set().union(*own.values())
    needed = [made({"step": action.step, "on": "always"}, action.at)]
    for job, jobs in own.items():
        if jobs == union:
            job.extra_needs += needed
    succeeded = set().union(*(jobs for job, jobs in own.items() if job.is_cancelled_on_failure))
    found: list[Any] = []
    for each, on in ((union & succeeded, None), (union - succeeded, "always")):
        found += groups.needs(tuple(sorted(each, key=lambda job: job.number)), on, action.at)
    return found or started


def _action_step(action: _Action, needs: list[Any]) -> Mapping:
    script = action.commands[0] if len(action.commands) == 1 else _joined_commands(action.commands)
    entries = {
        "step": scalar(action.step, action.form.at("trigger_type")),
        "shell": scalar(f"{_ENTER_OUTPUT_DIR} || exit\n{script}", action.at),
        "needs": needs or None,
        "continue_on_error": True,
    }
    return mapping(entries, action.form.node)


def _joined_commands(commands: tuple[str, ...]) -> str:
    """Each command in its own subshell, up to the first that fails."""
    return " && ".join(f"(\n{command}\n)" for command in commands)


def _end_step(actions: list[_Action]) -> Mapping:
    """The `end` step: it runs the commands of all final actions, even if one of them fails."""
    lines = ["failed="]
    for action in actions:
        script = _joined_commands(action.commands)
        lines.append(f'( {_ENTER_OUTPUT_DIR} && {script} ) || failed="$failed {action.trigger}"')
    first = actions[0]
    text = scalar("\n".join((*lines, _WARN)), first.at)
    # `lines`: otherwise a printed object with a status would set the status of the run.
    return mapping({"shell": text, "capture": "lines", "timeout": _END_TIMEOUT}, first.form.node)
