"""Starting runs and changing them, each with `dry_run`.

Steps of a run that the server starts work in the folder `work` of the home of their worker: a server has no terminal
whose folder could be meant, and its own is not on the host of every worker.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.access.token_limits import changed_run, refuse_other_workflow, refuse_without
from mulligan.api.http.routing import Answer, Body, Call, Query, Route
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid
from mulligan.service.authoring.values import read_budgets
from mulligan.service.runs.changes.answers import ChangeResult, Given, StartedRun
from mulligan.service.runs.changes.corrections import CorrectedWorkflow
from mulligan.service.runs.changes.fork_at import EventFork
from mulligan.service.runs.changes.preflight import refuse_reserved_labels
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.changes.round_plans import ForkResult, RetryResult
from mulligan.service.runs.changes.starting import check_key
from mulligan.service.runs.changes.workflow_sources import WorkflowSource
from mulligan.service.runs.stored.damaged_runs import RemovedRuns
from mulligan.service.server.notices.notices import HookRule, read_rules

KEY_HEADER = "idempotency-key"
Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


# -- starting --------------------------------------------------------------------------------------------------------


class StartBody(Body, frozen=True):
    """A published workflow, or the text of one, which needs the scope `write`."""

    workflow: str = ""
    # The newest by default.
    version: Positive | None = None
    text: str = ""
    # The system whose file the text is; by default it is recognized.
    format: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    # Who is notified of this run, besides those whom the workflow and the hooks name.
    notify: tuple[HookRule, ...] = ()


def start_run(call: Call) -> Answer:
    asked: StartBody = call.body
    key = _key(call)
    prepared = _prepared(call, asked)
    if asked.notify:
        prepared = msgspec.structs.replace(prepared, notify=read_rules(asked.notify))
    newest = Given(asked.inputs, asked.labels) if asked.workflow and asked.version is None else None
    started = call.service.changes.start(prepared, key, newest)
    location = f"{call.base_url}/api/v1/runs/{started.run_id}"
    return Answer(started, 201 if started.is_new else 200, {"Location": location})


def _prepared(call: Call, asked: StartBody) -> Prepared:
    refuse_reserved_labels(asked.labels)
    if bool(asked.workflow) == bool(asked.text):
        raise InputInvalid("name a workflow or send its text", hint='send {"workflow": NAME} or {"text": TEXT}')
    if asked.text:
        refuse_without(call, "write", "sending text to run is sending code")
        if asked.version is not None:
            raise InputInvalid("a text has no version", hint="leave 'version' out, or name a workflow", field="version")
        source = WorkflowSource(text=asked.text, format=asked.format)
        prepared = call.service.workflow_sources.prepare(source, asked.inputs, asked.labels)
        refuse_other_workflow(call, prepared.workflow.name)
        return prepared
    if asked.format is not None:
        raise InputInvalid("'format' is for a text", hint="leave it out, or send a text", field="format")
    refuse_other_workflow(call, asked.workflow)
    return call.service.catalogue.prepare(asked.workflow, asked.version, asked.inputs, asked.labels)


def _key(call: Call) -> str:
    """The header `Idempotency-Key`, with or without the quotes of a structured header; "" without one."""
    given = call.headers.get(KEY_HEADER)
    if given is None:
        return ""
    text = given.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return check_key(text)


# -- changing --------------------------------------------------------------------------------------------------------


class CancelBody(Body, frozen=True):
    """How to stop a run."""

    # Skip cleanup and undo.
    now: bool = False
    reason: str = ""
    dry_run: bool = False


def cancel_run(call: Call) -> ChangeResult:
    asked: CancelBody = call.body
    return call.service.changes.cancel(changed_run(call), now=asked.now, reason=asked.reason, dry_run=asked.dry_run)


class PauseBody(Body, frozen=True):
    """What to pause: the run, or one of its steps."""

    step: str = ""
    reason: str = ""
    dry_run: bool = False


def pause_run(call: Call) -> ChangeResult:
    asked: PauseBody = call.body
    return call.service.changes.pause(changed_run(call), step=asked.step, reason=asked.reason, dry_run=asked.dry_run)


class ResumeBody(Body, frozen=True):
    """What to resume: the run, one of its steps, or so many of its steps before it is paused again."""

    step: str = ""
    steps: Positive | None = None
    reason: str = ""
    dry_run: bool = False


def resume_run(call: Call) -> ChangeResult:
    asked: ResumeBody = call.body
    if asked.step and asked.steps is not None:
        hint = "leave one of them out"
        raise InputInvalid("'steps' is for the whole run, and a paused step was named", hint=hint, field="steps")
    return call.service.changes.resume(
        changed_run(call), step=asked.step, steps=asked.steps or 0, reason=asked.reason, dry_run=asked.dry_run
    )


class RetryBody(Body, frozen=True):
    """What to run again, and how."""

    # The first step to run again, with those after it; by default what did not complete.
    from_step: str = ""
    # Only these items of that map step; [] for those that failed.
    items: tuple[Index, ...] | None = None
    # More memory and time for steps that ran out of them.
    adjust: bool = False
    # Larger budgets, such as cost=5 or STEP.tokens=50k.
    budgets: tuple[str, ...] = ()
    # Continue with this version of the published workflow of the same name, and these inputs.
    version: Positive | None = None
    # Or with this text, which needs the scope `write`. Its format is by default recognized.
    text: str = ""
    format: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    # Keep results of completed steps, even if a step before them runs again, or that version or text changes them.
    keep_completed: bool = False
    # Start child runs that did not complete anew, in place of their next round; or this run, if it is a child run.
    from_start: bool = False
    # Run steps again although their undo has failed: what they did may still be in effect.
    force: bool = False
    reason: str = ""
    dry_run: bool = False


def retry_run(call: Call) -> RetryResult:
    asked: RetryBody = call.body
    run_id = changed_run(call)
    if asked.version is None and not asked.text and asked.inputs:
        hint = "name the version or send the text to continue with"
        raise InputInvalid("'inputs' needs 'version' or 'text'", hint=hint, field="inputs")
    if asked.items is not None and not asked.from_step:
        raise InputInvalid("'items' needs 'from_step'", hint="name the map step", field="items")
    workflow = _other_definition(call, run_id, asked)
    return call.service.changes.retry(
        run_id,
        from_step=asked.from_step,
        items=asked.items,
        adjust=asked.adjust,
        corrected=None if workflow is None else CorrectedWorkflow(workflow, dict(asked.inputs), "", may_rename=False),
        budgets=read_budgets(asked.budgets),
        keep_completed=asked.keep_completed,
        from_start=asked.from_start,
        force=asked.force,
        reason=asked.reason,
        dry_run=asked.dry_run,
    )


def _other_definition(call: Call, run_id: int, asked: RetryBody | ForkBody) -> Workflow | None:
    """The version of the workflow of a run, or the text, that is asked for; None for the definition that it has."""
    if asked.format is not None and not asked.text:
        raise InputInvalid("'format' is for a text", hint="leave it out, or send a text", field="format")
    workflow: Workflow
    if asked.text:
        refuse_without(call, "write", "sending text to run is sending code")
        if asked.version is not None:
            hint = "name a version or send a text, not both"
            raise InputInvalid("a text has no version", hint=hint, field="version")
        source = WorkflowSource(text=asked.text, format=asked.format)
        workflow = call.service.workflow_sources.load(source, {})
        refuse_other_workflow(call, workflow.name)
        return workflow
    if asked.version is None:
        return None
    workflow = call.service.catalogue.load(call.service.runs.record(run_id).workflow, asked.version)
    return workflow


class ForkBody(Body, frozen=True):
    """Where the new run begins, and what is different in it."""

    from_step: str
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    # This version of the published workflow of the same name.
    version: Positive | None = None
    # Or this text, which needs the scope `write`. Its format is by default recognized.
    text: str = ""
    format: str | None = None
    # Keep results of completed steps, even if another step before them than `from_step` runs again.
    keep_completed: bool = False
    dry_run: bool = False


def fork_run(call: Call) -> Answer:
    asked: ForkBody = call.body
    run_id = changed_run(call)
    found = call.service.changes.fork(
        run_id,
        asked.from_step,
        dict(asked.inputs),
        _other_definition(call, run_id, asked),
        keep_completed=asked.keep_completed,
        dry_run=asked.dry_run,
    )
    return _fork_answer(call, found)


def _fork_answer(call: Call, found: ForkResult | EventFork) -> Answer:
    if found.fork_run_id is None:
        return Answer(found)
    return Answer(found, 201, {"Location": f"{call.base_url}/api/v1/runs/{found.fork_run_id}"})


class EventForkBody(Body, frozen=True):
    """What is different in a run that continues another one. What is parked there is decided about as in any run."""

    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    reason: str = ""
    dry_run: bool = False


def fork_at_event(call: Call) -> Answer:
    asked: EventForkBody = call.body
    found = call.service.event_forks.fork(
        changed_run(call),
        int(call.path["seq"]),
        inputs=dict(asked.inputs),
        reason=asked.reason,
        dry_run=asked.dry_run,
    )
    return _fork_answer(call, found)


class StepRetryBody(Body, frozen=True):
    """When a step may run again: in this round of its run, and if it has had fewer attempts than that."""

    reason: str
    round: Positive | None = None
    max_attempts: Positive | None = None
    dry_run: bool = False


class StepRetried(msgspec.Struct, frozen=True):
    """What follows for a parked step; or the round that is opened for a failed step of a run that has ended."""

    run_id: int
    dry_run: bool
    change: ChangeResult | None
    round: RetryResult | None


def retry_step(call: Call) -> StepRetried:
    asked: StepRetryBody = call.body
    run_id = changed_run(call)
    if call.service.runs.record(run_id).status in RUN_ENDED:
        refuse_without(call, "run", "the run has ended, so its step runs again in another round")
    found = call.service.changes.retry_step(
        run_id,
        call.path["step"],
        round=asked.round,
        max_attempts=asked.max_attempts,
        reason=asked.reason,
        dry_run=asked.dry_run,
    )
    if isinstance(found, ChangeResult):
        return StepRetried(run_id, asked.dry_run, found, None)
    return StepRetried(run_id, asked.dry_run, None, found)


class RemoveQuery(Query, frozen=True):
    """Whether to try only."""

    dry_run: bool = False


def remove_run(call: Call) -> RemovedRuns:
    return call.service.runs.remove(changed_run(call), is_dry=call.query.dry_run)


_RUN = "runs/{run_id:int}"
ROUTES = (
    Route(
        "POST",
        "runs",
        start_run,
        "run",
        "Start a run of a published workflow, or of a text (scope write). With Idempotency-Key it may be asked again.",
        body=StartBody,
        answer=StartedRun,
        status=201,
        other_statuses=(200,),
        request_headers=(
            (
                "Idempotency-Key",
                "Asking again with the same key gives the same run (200); other inputs or labels are refused.",
            ),
        ),
        problems=(409,),
        creates_run=True,
    ),
    Route(
        "POST",
        f"{_RUN}:cancel",
        cancel_run,
        "run",
        "Stop a run: cleanup, undo and end still run.",
        body=CancelBody,
        answer=ChangeResult,
        problems=(409,),
    ),
    Route(
        "DELETE",
        _RUN,
        remove_run,
        "admin",
        "Remove a run that has ended or is damaged, with the runs that it called; with dry_run=true only say which.",
        query=RemoveQuery,
        answer=RemovedRuns,
        problems=(409,),
    ),
    Route(
        "POST",
        f"{_RUN}:pause",
        pause_run,
        "run",
        "Pause a run or one of its steps: what runs may end.",
        body=PauseBody,
        answer=ChangeResult,
        problems=(409,),
    ),
    Route(
        "POST",
        f"{_RUN}:resume",
        resume_run,
        "run",
        "Let a paused run or step continue.",
        body=ResumeBody,
        answer=ChangeResult,
        problems=(409,),
    ),
    Route(
        "POST",
        f"{_RUN}:retry",
        retry_run,
        "run",
        "Give a run another round: what did not complete runs again.",
        body=RetryBody,
        answer=RetryResult,
        problems=(409,),
    ),
    Route(
        "POST",
        f"{_RUN}:fork",
        fork_run,
        "run",
        "Start a new run that keeps the results of another before a step.",
        body=ForkBody,
        answer=ForkResult,
        status=201,
        other_statuses=(200,),
        problems=(409,),
        creates_run=True,
    ),
    Route(
        "POST",
        f"{_RUN}/at/{{seq:int}}:fork",
        fork_at_event,
        "run",
        "Start a new run that continues another one after one of its events.",
        body=EventForkBody,
        answer=EventFork,
        status=201,
        other_statuses=(200,),
        problems=(409,),
        creates_run=True,
    ),
    Route(
        "POST",
        f"{_RUN}/steps/{{step}}:retry",
        retry_step,
        "decide",
        "Run one step again that is parked, or that failed in a run that has ended.",
        body=StepRetryBody,
        answer=StepRetried,
        problems=(409,),
    ),
)
