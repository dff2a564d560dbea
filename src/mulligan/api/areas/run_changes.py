"""Starting runs and changing them, each with `dry_run`.

Steps of a run that the server starts work in the folder `work` of the home of their worker: a server has no terminal
whose folder could be meant, and its own is not on the host of every worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from mulligan.api.access.auth import allows
from mulligan.api.access.token_limits import changed_run, refuse_other_workflow, refuse_without
from mulligan.api.http.routing import Answer, Body, Call, Query, Routes
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, MulliganError, Refused
from mulligan.service.authoring.values import read_budgets
from mulligan.service.runs.changes.answers import ChangeResult, Given, StartedRun
from mulligan.service.runs.changes.corrections import CorrectedWorkflow
from mulligan.service.runs.changes.event_receivers import RefusedEvent, SentEvents, refusal_for_sender, send_to_all
from mulligan.service.runs.changes.fork_at import EventFork
from mulligan.service.runs.changes.preflight import refuse_reserved_labels
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.changes.round_plans import ForkResult, RetryResult
from mulligan.service.runs.changes.starting import check_key
from mulligan.service.runs.changes.workflow_sources import WorkflowSource
from mulligan.service.runs.stored.damaged_runs import RemovedRuns
from mulligan.service.server.notices.notices import HookRule, read_rules

ROUTES = Routes()

KEY_HEADER = "idempotency-key"
Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
# Of routes that start a run, or say with `dry_run` or a known key what there is.
_CREATES: dict[str, Any] = {"status": 201, "other_statuses": (200,), "problems": (409,), "creates_run": True}


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


@ROUTES.add(
    "POST",
    "runs",
    "run",
    answer=StartedRun,
    request_headers=(
        (
            "Idempotency-Key",
            "Asking again with the same key gives the same run (200); other inputs or labels are refused.",
        ),
    ),
    **_CREATES,
)
def start_run(call: Call, body: StartBody) -> Answer:
    """Start a run of a published workflow, or of a text (scope write). With Idempotency-Key it may be asked again."""
    key = _key(call)
    prepared = _prepared(call, body)
    if body.notify:
        prepared = msgspec.structs.replace(prepared, notify=read_rules(body.notify))
    newest = Given(body.inputs, body.labels) if body.workflow and body.version is None else None
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


@ROUTES.add("POST", "runs/{run_id:int}:cancel", "run", problems=(409,))
def cancel_run(call: Call, body: CancelBody) -> ChangeResult:
    """Stop a run: cleanup, undo and end still run."""
    return call.service.changes.cancel(changed_run(call), **asdict(body))


class RemoveQuery(Query, frozen=True):
    """Whether to try only."""

    dry_run: bool = False


@ROUTES.add("DELETE", "runs/{run_id:int}", "admin", problems=(409,))
def remove_run(call: Call, query: RemoveQuery) -> RemovedRuns:
    """Remove a run that has ended or is damaged, with the runs that it called; with dry_run=true only say which."""
    return call.service.runs.remove(changed_run(call), is_dry=query.dry_run)


class EventBody(Body, frozen=True):
    """An event: its name, and its value."""

    name: str
    value: Any = None
    dry_run: bool = False


_SENT_ONCE = (("Idempotency-Key", "A second event with the same key is the same; with another value it is refused."),)


@ROUTES.add("POST", "runs/{run_id:int}/events", "send", request_headers=_SENT_ONCE, problems=(409,))
def send_event(call: Call, body: EventBody) -> ChangeResult:
    """Send an event to a run: a step that waits for it takes it, or it is kept until one does."""
    if body.dry_run:
        refuse_without(call, "read", "what would follow is for those who may look at runs")
    with _nothing_said(call):
        # Who may only send does not get to know what follows.
        may_look = allows(call.token, "read")
        return call.service.changes.send_event(changed_run(call), key=_key(call), foresees=may_look, **asdict(body))


@contextmanager
def _nothing_said(call: Call) -> Iterator[None]:
    """What a run says of itself when it refuses an event is for those who may look at runs."""
    try:
        yield
    except MulliganError as error:
        raise error if allows(call.token, "read") else refusal_for_sender(error) from None


class EventsBody(Body, frozen=True):
    """An event for the run that was started under a key, or for all open runs with labels."""

    name: str
    value: Any = None
    run_key: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


@ROUTES.add("POST", "events", "send", request_headers=_SENT_ONCE, problems=(404, 409))
def send_events(call: Call, body: EventsBody) -> SentEvents:
    """Send an event to the run with a key, or to each open run with these labels. A refusal stops no other."""
    key, changes = _key(call), call.service.changes
    found = call.service.runs.find_receivers(key=body.run_key, labels=body.labels)
    with _nothing_said(call):
        for run_id in found if call.token.limits.workflows else ():
            refuse_other_workflow(call, call.service.runs.record(run_id).workflow)
        if body.run_key:
            changes.send_event(found[0], body.name, body.value, key=key, foresees=False)
            return SentEvents(found, [])
    send = changes.send_event
    sent = send_to_all(found, lambda run_id: send(run_id, body.name, body.value, key=key, foresees=False))
    shown = sent if allows(call.token, "read") else SentEvents(sent.run_ids, [_unsaid(one) for one in sent.refused])
    if not sent.run_ids:
        first = shown.refused[0]
        raise Refused(
            f"no run has taken the event ({len(shown.refused)} refused it); run {first.run_id}: {first.message}"
        )
    return shown


def _unsaid(one: RefusedEvent) -> RefusedEvent:
    return msgspec.structs.replace(one, message="the run has refused it")


class PauseBody(Body, frozen=True):
    """What to pause: the run, or one of its steps."""

    step: str = ""
    reason: str = ""
    dry_run: bool = False


@ROUTES.add("POST", "runs/{run_id:int}:pause", "run", problems=(409,))
def pause_run(call: Call, body: PauseBody) -> ChangeResult:
    """Pause a run or one of its steps: what runs may end."""
    return call.service.changes.pause(changed_run(call), **asdict(body))


class ResumeBody(Body, frozen=True):
    """What to resume: the run, one of its steps, or so many of its steps before it is paused again."""

    step: str = ""
    steps: Positive | None = None
    reason: str = ""
    dry_run: bool = False


@ROUTES.add("POST", "runs/{run_id:int}:resume", "run", problems=(409,))
def resume_run(call: Call, body: ResumeBody) -> ChangeResult:
    """Let a paused run or step continue."""
    if body.step and body.steps is not None:
        hint = "leave one of them out"
        raise InputInvalid("'steps' is for the whole run, and a paused step was named", hint=hint, field="steps")
    return call.service.changes.resume(
        changed_run(call), step=body.step, steps=body.steps or 0, reason=body.reason, dry_run=body.dry_run
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


@ROUTES.add("POST", "runs/{run_id:int}:retry", "run", problems=(409,))
def retry_run(call: Call, body: RetryBody) -> RetryResult:
    """Give a run another round: what did not complete runs again."""
    run_id = changed_run(call)
    if body.version is None and not body.text and body.inputs:
        hint = "name the version or send the text to continue with"
        raise InputInvalid("'inputs' needs 'version' or 'text'", hint=hint, field="inputs")
    if body.items is not None and not body.from_step:
        raise InputInvalid("'items' needs 'from_step'", hint="name the map step", field="items")
    workflow = _other_definition(call, run_id, body)
    return call.service.changes.retry(
        run_id,
        from_step=body.from_step,
        items=body.items,
        adjust=body.adjust,
        corrected=None if workflow is None else CorrectedWorkflow(workflow, dict(body.inputs), "", may_rename=False),
        budgets=read_budgets(body.budgets),
        keep_completed=body.keep_completed,
        from_start=body.from_start,
        force=body.force,
        reason=body.reason,
        dry_run=body.dry_run,
    )


def _other_definition(call: Call, run_id: int, asked: RetryBody | ForkBody) -> Workflow | None:
    """The version of the workflow of a run, or the text, that is asked for; None for the definition that it has."""
    if asked.format is not None and not asked.text:
        raise InputInvalid("'format' is for a text", hint="leave it out, or send a text", field="format")
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
    return call.service.catalogue.load(call.service.runs.record(run_id).workflow, asked.version)


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


@ROUTES.add("POST", "runs/{run_id:int}:fork", "run", answer=ForkResult, **_CREATES)
def fork_run(call: Call, body: ForkBody) -> Answer:
    """Start a new run that keeps the results of another before a step."""
    run_id = changed_run(call)
    found = call.service.changes.fork(
        run_id,
        body.from_step,
        dict(body.inputs),
        _other_definition(call, run_id, body),
        keep_completed=body.keep_completed,
        dry_run=body.dry_run,
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


@ROUTES.add("POST", "runs/{run_id:int}/at/{seq:int}:fork", "run", answer=EventFork, **_CREATES)
def fork_at_event(call: Call, seq: int, body: EventForkBody) -> Answer:
    """Start a new run that continues another one after one of its events."""
    found = call.service.event_forks.fork(
        changed_run(call), seq, inputs=dict(body.inputs), reason=body.reason, dry_run=body.dry_run
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


@ROUTES.add("POST", "runs/{run_id:int}/steps/{step}:retry", "decide", problems=(409,))
def retry_step(call: Call, step: str, body: StepRetryBody) -> StepRetried:
    """Run one step again that is parked, or that failed in a run that has ended."""
    run_id = changed_run(call)
    if call.service.runs.record(run_id).status in RUN_ENDED:
        refuse_without(call, "run", "the run has ended, so its step runs again in another round")
    found = call.service.changes.retry_step(run_id, step, **asdict(body))
    if isinstance(found, ChangeResult):
        return StepRetried(run_id, body.dry_run, found, None)
    return StepRetried(run_id, body.dry_run, None, found)
