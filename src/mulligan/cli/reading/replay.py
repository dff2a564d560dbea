"""`mulligan replay`: a run as it was at any of its events, and the check that its tables agree with its log."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from mulligan.cli.output.corrections import plan_as_json
from mulligan.cli.output.tables import cut, show_table, tinted
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result, visible, wants_colour
from mulligan.cli.reading.show import step_rows
from mulligan.cli.running.continue_run import Continuation, Detach, Follow, read_continuation, start_and_continue
from mulligan.cli.running.drive_run import CommandContext
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import AsJson, By, HomeFolder, Reason, RunName, pairs, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.history.views import Wait
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.descriptions import describe_value, summarize_failure
from mulligan.service.rendering.formatting import pluralize, single_line
from mulligan.service.rendering.page.styles import format_elapsed
from mulligan.service.rendering.story_text import when_default_applies
from mulligan.service.runs.changes.fork_at import EventFork
from mulligan.service.runs.changes.round_plans import ForkResult
from mulligan.service.runs.views.run_events import EventLine
from mulligan.service.runs.views.time_travel import RunDifference, RunMoment, StepPoints, TurnEvents
from mulligan.service.service import Service

# How many steps, waits, timers, events of a turn and points of a step are shown; `--json` has more of them.
ROWS_MAX, LINES_MAX, POINTS_MAX = 200, 20, 50
# The longest value in a list of changes.
VALUE_CHARS_MAX = 80


def replay(
    run: RunName,
    other: Annotated[int | None, Argument("B", "With --diff: the other event.")] = None,
    at: Annotated[int | None, Option("SEQ", "Show the run as it was after this event.")] = None,
    until: Annotated[str | None, Option("TIME", "The last event at or before then: 2h, 2026-11-01T08:00.")] = None,
    step: Annotated[str, Option("STEP", "Show the events of this step, and its states.")] = "",
    diff: Annotated[int | None, Option("A", "Show what changed from event A to event B: --diff 12 40.")] = None,
    verify: Annotated[bool, Flag("Compare the replayed log with the store.")] = False,
    forks: Annotated[bool, Flag("Start a new run that continues from there.", "--fork-here")] = False,
    classify: Annotated[str, Option("STEP=VERDICT", "With --fork-here: decide about a parked step.")] = "",
    approve: Annotated[str, Option("STEP", "With --fork-here: say yes to the approval of this step.")] = "",
    refuse: Annotated[str, Option("STEP", "With --fork-here: say no to the approval of this step.")] = "",
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    file: Annotated[Path | None, Option("FILE", "With --fork-here: a corrected workflow file.")] = None,
    reason: Reason = "",
    dry_run: Annotated[
        bool, Flag("With --fork-here: show what the new run would keep and do. Starts nothing.")
    ] = False,
    follows: Follow = None,
    detach: Detach = False,
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Show a run as it was at any of its events, or compare its log with the store.

    Runs nothing and changes nothing, unless --fork-here starts a new run. `mulligan events RUN` lists the events with
    their numbers. With --verify the exit code is 1 if log and store differ; with --fork-here as of `mulligan run`.
    """
    _check_usage(at, until, step, diff, other, verify=verify)
    given = given_inputs(inputs, inputs_file) if forks else {}
    change = Change(classify, approve, refuse, given, file, reason)
    continuation = read_continuation(follows, detach)
    _check_fork(
        change,
        forks=forks,
        is_point=(at is not None or until is not None) and not step,
        has_inputs=bool(inputs) or inputs_file is not None,
        dry_run=dry_run,
    )
    with service_at(home, by) as service:
        run_id = service.runs.find(run)
        if verify:
            return _verify(service, run_id, as_json=as_json)
        if diff is not None:
            assert other is not None
            changed = service.past.compare(run_id, diff, other)
            show_result(changed) if as_json else _show_difference(changed)
            return 0
        seq = at if until is None else service.past.last_before(run_id, parse_time(until, datetime.now(UTC)))
        if step:
            points = service.past.points(run_id, step, seq)
            show_result(points) if as_json else _show_points(points, where(home))
            return 0
        assert seq is not None
        if forks:
            return fork_at(CommandContext(service, home, as_json), run_id, seq, change, continuation, dry_run=dry_run)
        moment = service.past.moment(run_id, seq, is_whole=as_json or service.past.is_small(run_id))
        show_result(moment) if as_json else _show_moment(moment, where(home))
        return 0


def _check_usage(
    at: int | None, until: str | None, step: str, diff: int | None, other: int | None, *, verify: bool
) -> None:
    """Refuse options that do not go together, and a call that asks for nothing."""
    example = "write mulligan replay RUN --at 40, --until 2h, --step STEP, --diff 12 40 or --verify"
    is_point = at is not None or until is not None or bool(step)
    if not (is_point or diff is not None or verify):
        raise UsageRefused("say what to show: a point of the run, or --verify", hint=example)
    if at is not None and until is not None:
        raise UsageRefused("--at and --until both name an event: give one of them", hint=example)
    if is_point + (diff is not None) + verify > 1:
        raise UsageRefused("--verify, --diff and a point of the run cannot be asked for together", hint=example)
    if (diff is None) != (other is None):
        raise UsageRefused("--diff compares two events", hint="write mulligan replay RUN --diff 12 40")


def _verify(service: Service, run_id: int, *, as_json: bool) -> int:
    found = service.runs.replay(run_id)
    if as_json:
        show_result(found)
    elif found.differing:
        why = "the store was changed by hand, or this is a bug in Mulligan"
        complain(f"run {run_id} differs from its log in {', '.join(found.differing)}: {why}")
    else:
        show(f"run {run_id}: {pluralize(found.events, 'event')} replayed, no difference")
    return 1 if found.differing else 0


# -- a fork ----------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """What is different in a fork."""

    classify: str = ""
    approve: str = ""
    refuse: str = ""
    inputs: Mapping[str, Any] = {}
    file: Path | None = None
    reason: str = ""

    @property
    def decides(self) -> bool:
        return bool(self.classify or self.approve or self.refuse)


def _check_fork(change: Change, *, forks: bool, is_point: bool, has_inputs: bool, dry_run: bool) -> None:
    """Refuse what a fork needs where none was asked for, and what does not go together."""
    if not forks:
        if change.decides or has_inputs or change.file is not None or dry_run:
            raise UsageRefused("a replay changes nothing", hint="to start a new run from there: --fork-here")
        return
    if not is_point:
        raise UsageRefused("--fork-here needs an event", hint="write mulligan replay RUN --at 40 --fork-here")
    if sum(map(bool, (change.classify, change.approve, change.refuse))) > 1:
        raise UsageRefused("a fork takes one decision: --classify, --approve or --refuse")
    if change.decides and not change.reason:
        raise UsageRefused("a decision needs a reason", hint="say why: --reason TEXT")
    if change.decides and change.file is not None:
        hint = "leave out one of them: with --file every step that had not completed begins anew, and nothing is parked"
        raise UsageRefused("--file and a decision do not go together", hint=hint)


def fork_at(
    context: CommandContext, run_id: int, seq: int, change: Change, continuation: Continuation, *, dry_run: bool
) -> int:
    """Start a run that goes on from an event of another one."""
    service, given = context.service, dict(change.inputs)
    if change.file is not None:
        workflow = Workflows.load_workflow(change.file, **service.starts.reading_of(run_id))
        where_from = str(change.file.absolute())
        planned = service.event_forks.fork_with_file(run_id, seq, given, workflow, dry_run=True)
        said = f"run {run_id} is forked at event {seq} with '{change.file}': {len(planned.kept):,} steps keep their "
        said += f"results, {len(planned.steps):,} run"

        def begin(driver: Any = None) -> EventFork | ForkResult:
            return service.event_forks.fork_with_file(run_id, seq, given, workflow, driver, file=where_from)

        shown: Any = plan_as_json(planned)
    else:
        decision = _decision(service, change)
        fork = service.event_forks.fork(run_id, seq, inputs=given, decision=decision, dry_run=True)
        said = "\n".join(_fork_lines(fork))

        def begin(driver: Any = None) -> EventFork | ForkResult:
            return service.event_forks.fork(run_id, seq, driver, inputs=given, decision=decision, reason=change.reason)

        shown = fork

    if dry_run:
        show_result(shown) if context.as_json else show(said)
        return 0

    def describe(new: int | None) -> None:
        complain(said if new is None else f"{said}\nit is run {new}")

    return start_and_continue(context, begin, continuation, like_run=run_id, describe=describe)


def _decision(service: Service, change: Change) -> Any:
    forks = service.event_forks
    if change.classify:
        ((step, verdict),) = pairs([change.classify], "decision", "--classify deploy=retry").items()
        if verdict not in ("retry", "fail"):
            raise UsageRefused(f"'{verdict}' is not a verdict", hint="write retry or fail")
        return forks.classified(step, verdict, change.reason)
    if change.approve or change.refuse:
        return forks.approved(change.approve or change.refuse, change.reason, is_approved=bool(change.approve))
    return None


def _fork_lines(fork: EventFork) -> Iterator[str]:
    earlier = f" (event {fork.asked} is in the middle of a turn)" if fork.asked != fork.seq else ""
    yield f"run {fork.run_id} is forked after event {fork.seq}{earlier}: {pluralize(len(fork.kept), 'step')} completed"
    for one in fork.again[:LINES_MAX]:
        yield f"  runs again, since it was running: {one}"
    for one in fork.follows[1:LINES_MAX]:
        yield f"  {visible(single_line(one))}"
    for one in fork.starts[:LINES_MAX]:
        yield f"  may start: {one}"
    if fork.status == "paused":
        yield "  it is paused, as the run was then: resume it when it is started"


# -- a moment --------------------------------------------------------------------------------------------------------


def _show_moment(moment: RunMoment, home: str) -> None:
    run = moment.run
    show(f"run {moment.run_id} of '{moment.workflow}' at event {moment.seq} of {moment.last_seq}: {_standing(moment)}")
    show(f"event {moment.seq}: {_sentence(moment.event)}")
    if not moment.is_at_rest:
        complain("note: further events follow from this one at once; they are listed below")
    rows = [(row[0], row[1], row[2], row[6]) for row in step_rows(run, 0, home)]
    show_table(("STEP", "STATUS", "TRIES", ""), rows[:ROWS_MAX])
    _show_left_out(len(rows) - ROWS_MAX, "step")
    if not moment.is_whole:
        counted = ", ".join(f"{count:,} {status}" for status, count in run.step_counts.items() if count)
        show(f"{run.step_count:,} steps: {counted}; completed, skipped and waiting ones are not listed (all: --json)")
    _show_list("waits for:", [_wait(wait) for wait in run.waiting_for])
    _show_list("timers:", [f"'{one.name}': {one.text}" if one.place else one.text for one in moment.timers])
    for child in moment.called:
        is_over = "was waited for" if child.is_open else "had ended"
        then = f"mulligan replay {child.run_id} --until {moment.at.isoformat()}{home}"
        show(f"run {child.run_id}, called by '{child.name}', {is_over}; as it was then: {then}")
    _show_next(moment.next)


def _standing(moment: RunMoment) -> str:
    run = moment.run
    words = [run.status, *([f"round {run.round}"] if run.round > 1 else [])]
    passed = (moment.at - moment.started_at).total_seconds()
    words.append(f"{moment.at.astimezone():%Y-%m-%d %H:%M:%S}, {format_elapsed(passed)} after its start")
    return ", ".join(words)


def _wait(wait: Wait) -> str:
    name = wait.shown_place
    place = f"'{name}': " if name else ""
    return f"{place}{single_line(wait.text)}{when_default_applies(wait)}"


def _show_list(head: str, lines: Sequence[str]) -> None:
    if lines:
        show("\n".join((head, *(f"  {line}" for line in lines[:LINES_MAX]))))
        _show_left_out(len(lines) - LINES_MAX, "line", "  ")


def _show_left_out(count: int, noun: str, indent: str = "") -> None:
    if count > 0:
        show(f"{indent}… {pluralize(count, f'more {noun}')} (all: --json)")


def _show_next(turn: TurnEvents | None) -> None:
    if turn is None:
        show("this was its last event")
        return
    which = f"event {turn.first}" if turn.first == turn.last else f"events {turn.first} to {turn.last}"
    show(f"what came next ({which}, {turn.at.astimezone():%H:%M:%S}): {turn.report}")
    for event in turn.events[:LINES_MAX]:
        show(f"  {event.seq:>4} {_sentence(event)}")
    _show_left_out(len(turn.events) - LINES_MAX, "event", "  ")


def _sentence(event: EventLine) -> str:
    place = f"{event.shown_place}: " if event.place else ""
    text = visible(single_line(event.text))
    shown = tinted(text, event.tone) if wants_colour(sys.stdout, os.environ) else text
    return f"{place}{shown}{f' (run {event.child_run_id})' if event.child_run_id else ''}"


# -- the points of a step --------------------------------------------------------------------------------------------


def _show_points(found: StepPoints, home: str) -> None:
    points = found.points[-POINTS_MAX:]
    left_out = found.left_out + len(found.points) - len(points)
    counted = pluralize(len(found.points) + found.left_out, "event")
    show(f"step '{found.step}' of run {found.run_id}, up to event {found.seq} of {found.last_seq}: {counted}")
    if left_out:
        show(f"… {left_out:,} earlier")
    rows = [
        (
            str(one.event.seq),
            f"{one.event.at.astimezone():%H:%M:%S}",
            one.status or "no step",
            str(one.attempt or ""),
            one.event.text
            if one.event.place == found.step
            else f"{one.event.shown_place or 'the run'}: {one.event.text}",
        )
        for one in points
    ]
    show_table(("EVENT", "TIME", "STATUS", "TRIES", ""), rows)
    for wait in found.then.waiting_for if found.then else ():
        show(f"it waits for {single_line(wait.text)}{when_default_applies(wait)}")
    complain(f"the run at one of them: mulligan replay {found.run_id} --at EVENT{home}")


# -- differences -----------------------------------------------------------------------------------------------------


def _show_difference(found: RunDifference) -> None:
    passed = format_elapsed((found.b_at - found.a_at).total_seconds())
    show(f"run {found.run_id} of '{found.workflow}' from event {found.a} to event {found.b}, {passed} later:")
    for change in found.run:
        show(f"the run: {change.name} {_value(change.before)} → {_value(change.after)}")
    rows = [
        (one.name, one.before or "no step", one.after or "no step", "; ".join(_step_changes(one.changes)))
        for one in found.steps
    ]
    show_table(("STEP", "BEFORE", "AFTER", ""), rows[:ROWS_MAX])
    _show_left_out(len(rows) - ROWS_MAX, "step")
    for failure in found.failures[:LINES_MAX]:
        answered = f", recovered by {failure.recovered_by}" if failure.recovered_by else ""
        answered = ", handled" if failure.is_handled else answered
        show(f"failed at event {failure.seq}: {failure.step}: {visible(single_line(failure.text))}{answered}")
    _show_left_out(len(found.failures) - LINES_MAX, "failure")
    if not (found.run or found.steps or found.failures):
        show("nothing changed")


def _step_changes(changes: Sequence[Any]) -> Iterator[str]:
    """What changed besides the status."""
    for one in changes:
        if one.name in ("visits", "attempts"):
            yield f"{one.name} {one.before or 0} → {one.after or 0}"
        elif one.name == "failure":
            yield summarize_failure(one.after) if one.after else "its failure is gone"
        elif one.name == "output":
            yield f"output {_value(one.after)}" if one.after is not None else "its output is gone"
        elif one.name == "waiting_for":
            yield from (f"waits for {text}" for text in one.after or ())
        elif one.name == "paused":
            yield "paused" if one.after else "resumed"
        elif one.name in ("recovered", "handled") and one.after:
            yield one.name


def _value(value: Any) -> str:
    return cut(describe_value(value), VALUE_CHARS_MAX)
