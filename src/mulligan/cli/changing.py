"""`mulligan cancel`, `pause`, `retry` and `fork`: verbs that change what becomes of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mulligan.cli.conduct import conduct
from mulligan.cli.onward import go_on, is_following, see_to_the_end
from mulligan.cli.options import AsJson, Follow, HomeFolder, Inputs, Reason, RunId, service_at, where
from mulligan.cli.parameters import Option
from mulligan.cli.run import given_inputs
from mulligan.cli.tables import counted
from mulligan.cli.terminal import complain, show, show_json
from mulligan.service.definitions import load

FromStep = Annotated[str, Option("--from", metavar="STEP", help="The step to run again, and all behind it.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only say what would be done.")]


def cancel(
    run: RunId,
    now: Annotated[bool, Option("--now", help="Run no cleanup and no undo: only `end`.")] = False,
    reason: Reason = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Stop a run: cleanup, undo and its end still run.

    What runs gets its grace. Where no process drives the run, this one sees it to its end.
    """
    with service_at(home) as service:
        service.cancel(run, now=now, reason=reason)
        return see_to_the_end(service, run, as_json=as_json, home=home)


def pause(run: RunId, reason: Reason = "", home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Let what runs end, and start nothing more until you resume it."""
    with service_at(home) as service:
        was_paused = service.record(run).status == "paused"
        service.pause(run, reason)
        if as_json:
            show_json(service.show(run))
    already = " already" if was_paused else ""
    complain(f"run {run} is paused{already}; to let it go on: mulligan resume {run}{where(home)}")


def retry(
    run: RunId,
    from_step: FromStep = "",
    reason: Reason = "",
    dry_run: DryRun = False,
    follows: Follow = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Give a run another round: what was not done runs again.

    Steps that failed unhandled, were cancelled, skipped or undone go back; what completed keeps its result.
    """
    with service_at(home) as service:
        steps = service.plan_retry(run, from_step)
        if dry_run:
            _tell_plan(run, "would run again", steps, as_json=as_json)
            return 0
        service.retry(run, from_step=from_step, reason=reason)
        complain(f"run {run} has another round: {counted(len(steps), 'step')} again")
        return go_on(service, run, is_wanted=is_following(follows), as_json=as_json, home=home)


def fork(
    run: RunId,
    from_step: FromStep,
    inputs: Inputs = None,
    file: Annotated[Path | None, Option("--file", metavar="FILE", help="A corrected workflow to run.")] = None,
    dry_run: DryRun = False,
    follows: Annotated[
        bool, Option("--follow/--no-follow", help="Run it to its end here, and show it.", show_default=True)
    ] = True,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Start a new run that keeps what another did before a step.

    It may have other inputs, or a corrected workflow. The exit codes are those of `mulligan run`.
    """
    with service_at(home) as service:
        given = given_inputs(inputs or [])
        workflow = load(file) if file else None
        # Planned before anything is opened for it: a fork that makes no sense leaves nothing behind.
        _, prepared, kept = service.plan_fork(run, from_step, given, workflow)
        if dry_run:
            done = {one.step for one in kept}
            steps = [step.name for step in prepared.workflow.steps if step.name not in done]
            _tell_plan(run, "a fork would run", steps, as_json=as_json)
            return 0
        if follows:
            begin = partial(service.fork, run, from_step, given, workflow)
            return conduct(service, begin, as_json=as_json, home=home)
        new = service.fork(run, from_step, given, workflow)
        complain(f"run {new} is a fork of run {run} from '{from_step}'")
        return go_on(service, new, is_wanted=False, as_json=as_json, home=home)


def _tell_plan(run_id: int, what: str, steps: tuple[str, ...] | list[str], *, as_json: bool) -> None:
    if as_json:
        show_json({"run_id": run_id, "steps": list(steps)})
        return
    complain(f"run {run_id}: {what}")
    for step in steps:
        show(step)
