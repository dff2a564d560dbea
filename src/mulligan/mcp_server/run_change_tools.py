"""Tools that start runs and change them. A worker, or a process in the background, drives what they start."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import (
    DryRun,
    File,
    Inputs,
    Reason,
    RunId,
    StepName,
    Text,
    Version,
    WorkflowName,
)
from mulligan.mcp_server.tool import Arguments, ToolCall, Tools
from mulligan.service.authoring.values import read_budgets
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.changes.preflight import refuse_reserved_labels
from mulligan.service.runs.changes.starting import check_key
from mulligan.service.runs.changes.workflow_sources import WorkflowSource

TOOLS = Tools()

FromStep = Annotated[str, msgspec.Meta(description="The first step to run again, with those after it.")]


class StartRun(Arguments, frozen=True):
    workflow: WorkflowName = ""
    version: Version | None = None
    file: File = ""
    text: Text = ""
    inputs: Inputs = msgspec.field(default_factory=dict)
    labels: Annotated[dict[str, str], msgspec.Meta(description="Labels by name, to find the run again.")] = (
        msgspec.field(default_factory=dict)
    )
    key: Annotated[
        str, msgspec.Meta(max_length=200, description="Start it only once: the same key gives the same run.")
    ] = ""
    dry_run: DryRun = False


@TOOLS.add(
    "run",
    "Start a run of a published workflow; or of a file or a text, which needs the scope `write`. It returns at "
    "once: look at the run with get_run. With dry_run it says what would run, and what is missing.",
)
def start_run(call: ToolCall, asked: StartRun) -> Any:
    refuse_reserved_labels(asked.labels)
    source = _source(call, asked)
    sources = call.service.workflow_sources
    if asked.dry_run:
        return {"dry_run": True, **to_json(sources.preview(source, asked.inputs))}
    return sources.start(source, asked.inputs, asked.labels, key=asked.key)


def _source(call: ToolCall, asked: StartRun | RetryRun | ForkRun) -> WorkflowSource:
    """The workflow that is meant. `ScopeMissing` for code of the caller without the scope for it."""
    source = WorkflowSource(getattr(asked, "workflow", ""), asked.version, asked.text, file=asked.file)
    if source.is_code:
        call.access.refuse_without("write", "a text or a file to run is code")
    if source.file:
        call.access.refuse_files()
    return source


def _correction(call: ToolCall, asked: RetryRun | ForkRun) -> WorkflowSource | None:
    """The workflow that takes the place of that of a run; None to keep it."""
    return _source(call, asked) if asked.text or asked.file or asked.version is not None else None


class RetryRun(Arguments, frozen=True):
    run_id: RunId
    from_step: FromStep = ""
    items: (
        Annotated[
            tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**31)], ...],
            msgspec.Meta(description="Only these items of the map step `from_step`; [] for those that failed."),
        ]
        | None
    ) = None
    adjust: Annotated[
        bool, msgspec.Meta(description="Give steps that ran out of memory 1.5 times as much, of time twice as much.")
    ] = False
    budgets: Annotated[
        tuple[str, ...], msgspec.Meta(description="Larger budgets for agents, such as cost=5 or STEP.tokens=50k.")
    ] = ()
    version: Version | None = None
    file: File = ""
    text: Text = ""
    inputs: Inputs = msgspec.field(default_factory=dict)
    keep_completed: Annotated[
        bool,
        msgspec.Meta(
            description="Keep results of completed steps, even if a step before them runs again, or the corrected "
            "workflow changes them."
        ),
    ] = False
    from_start: Annotated[
        bool, msgspec.Meta(description="Start child runs that did not complete anew, in place of their next round.")
    ] = False
    force: Annotated[
        bool,
        msgspec.Meta(
            description="Run steps again although their undo has failed: what they did may still be in effect."
        ),
    ] = False
    reason: Reason = ""
    dry_run: DryRun = False


@TOOLS.add(
    "run",
    "Give a run that has ended another round: what failed, was cancelled or skipped runs again, what completed is "
    "kept. With `version`, `file` or `text` it continues with a corrected workflow.",
)
def retry_run(call: ToolCall, asked: RetryRun) -> Any:
    source = _correction(call, asked)
    if asked.items is not None and not asked.from_step:
        raise InputInvalid("'items' needs 'from_step'", hint="name the map step", argument="items")
    if source is None and asked.inputs:
        hint = "name a version, or give a file or a text"
        raise InputInvalid("'inputs' is for a corrected workflow", hint=hint, argument="inputs")
    sources = call.service.workflow_sources
    return call.service.changes.retry(
        asked.run_id,
        from_step=asked.from_step,
        items=asked.items,
        adjust=asked.adjust,
        corrected=None if source is None else sources.correction(asked.run_id, source, asked.inputs),
        budgets=read_budgets(asked.budgets),
        keep_completed=asked.keep_completed,
        from_start=asked.from_start,
        force=asked.force,
        reason=asked.reason,
        dry_run=asked.dry_run,
    )


class ForkRun(Arguments, frozen=True):
    run_id: RunId
    from_step: StepName = ""
    at: (
        Annotated[
            int, msgspec.Meta(ge=1, description="Go on from this event, in place of `from_step`; see get_moment.")
        ]
        | None
    ) = None
    inputs: Inputs = msgspec.field(default_factory=dict)
    version: Version | None = None
    file: File = ""
    text: Text = ""
    keep_completed: Annotated[
        bool,
        msgspec.Meta(
            description="Keep results of completed steps, even if another step before them than `from_step` runs again."
        ),
    ] = False
    reason: Reason = ""
    dry_run: DryRun = False


@TOOLS.add(
    "run",
    "Start a new run that keeps the results of another before a step, with edited inputs or an edited workflow; or "
    "one that goes on from an event of it, as a run of a program is forked. The old run stays as it is.",
)
def fork_run(call: ToolCall, asked: ForkRun) -> Any:
    source, sources = _correction(call, asked), call.service.workflow_sources
    if (asked.at is None) is (asked.from_step == ""):
        hint = "give 'from_step', or 'at' for an event"
        raise InputInvalid("a fork begins before a step or after an event", hint=hint, argument="from_step")
    if asked.at is not None:
        if source is not None or asked.keep_completed:
            hint = "give 'from_step' in its place"
            raise InputInvalid("a fork at an event goes on with the workflow of the run", hint=hint, argument="at")
        return call.service.event_forks.fork(
            asked.run_id, asked.at, inputs=dict(asked.inputs), reason=asked.reason, dry_run=asked.dry_run
        )
    return call.service.changes.fork(
        asked.run_id,
        asked.from_step,
        dict(asked.inputs),
        None if source is None else sources.load_for(asked.run_id, source, asked.inputs),
        keep_completed=asked.keep_completed,
        dry_run=asked.dry_run,
    )


class CancelRun(Arguments, frozen=True):
    run_id: RunId
    now: Annotated[bool, msgspec.Meta(description="Skip cleanup and undo.")] = False
    reason: Reason = ""
    dry_run: DryRun = False


@TOOLS.add("run", "Stop a run. Its cleanup, undo and end still run.", is_destructive=True)
def cancel_run(call: ToolCall, asked: CancelRun) -> Any:
    return call.service.changes.cancel(asked.run_id, now=asked.now, reason=asked.reason, dry_run=asked.dry_run)


class SendEvent(Arguments, frozen=True):
    run_id: RunId
    name: Annotated[str, msgspec.Meta(min_length=1, description="The name of the event.")]
    value: Annotated[Any, msgspec.Meta(description="Its value: any JSON.")] = None
    key: Annotated[
        str, msgspec.Meta(max_length=200, description="Send it only once: a second event with this key is the same.")
    ] = ""
    dry_run: DryRun = False


@TOOLS.add("send", "Send an event to a run: a step that waits for it takes it, or it is kept until one does.")
def send_event(call: ToolCall, asked: SendEvent) -> Any:
    key = check_key(asked.key) if asked.key else ""
    return call.service.changes.send_event(asked.run_id, asked.name, asked.value, key=key, dry_run=asked.dry_run)


class PauseRun(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(description="Only this step, or all steps of this matrix.")] = ""
    reason: Reason = ""
    dry_run: DryRun = False


@TOOLS.add("run", "Pause a run or one of its steps: what runs may end, nothing more starts.")
def pause_run(call: ToolCall, asked: PauseRun) -> Any:
    return call.service.changes.pause(asked.run_id, step=asked.step, reason=asked.reason, dry_run=asked.dry_run)


class ResumeRun(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(description="Only this paused step.")] = ""
    steps: (
        Annotated[
            int, msgspec.Meta(ge=1, lt=2**31, description="Let so many steps run, and pause the run again after them.")
        ]
        | None
    ) = None
    reason: Reason = ""
    dry_run: DryRun = False


@TOOLS.add("run", "Let a paused run or step continue, or a run that nothing is running any more.")
def resume_run(call: ToolCall, asked: ResumeRun) -> Any:
    return call.service.changes.resume(
        asked.run_id, step=asked.step, steps=asked.steps or 0, reason=asked.reason, dry_run=asked.dry_run
    )
