"""`mulligan show`: one run with its steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from mulligan.cli.output.attempts import show_attempts
from mulligan.cli.output.groups import (
    calls_group,
    counts_text,
    folded_calls,
    listed_steps,
    more_text,
    title,
    unlisted_text,
)
from mulligan.cli.output.tables import age, cut, length, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json, show_result, show_written
from mulligan.cli.reading.list_command import driven
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, find_run_and_step, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.program_calls import name_of
from mulligan.core.state.state import StepPause
from mulligan.service.rendering.descriptions import (
    describe_artifact,
    describe_budget,
    describe_spending,
    describe_value,
    failure_tail,
    summarize_failure,
)
from mulligan.service.rendering.formatting import (
    UNDO_FAILED,
    format_size,
    group_counts,
    group_title,
    pluralize,
    single_line,
    up_to_date_since,
    values_text,
)
from mulligan.service.rendering.json_output import to_json
from mulligan.service.rendering.next_commands import suggest_commands
from mulligan.service.rendering.story_text import describe_question, when_default_applies
from mulligan.service.runs.views.attempt_progress import describe_progress
from mulligan.service.runs.views.failure_summary import spent_budget
from mulligan.service.runs.views.output_tables import OutputTable, change_line, table_lines
from mulligan.service.runs.views.run_view import WHOLE_RUN, CalledRunView, MatrixView, RunView, StepView, part

# How many failed steps are shown with their last lines.
TAILS_MAX = 3
# How many files that steps kept are listed.
ARTIFACTS_MAX = 20
# How many values of its data are shown: `mulligan data list` has them all.
DATA_MAX = 10
# The indent of a called run, and again of its steps.
_INDENT = "  "
AnyRun = RunView | CalledRunView
# The runs that a run called, by their numbers.
Children = dict[int, CalledRunView]
_HEADS = ("STEP", "STATUS", "TRIES", "TIME", "CPU", "MEMORY", "")


def show_run(
    run: NewestRun = LATEST,
    step: Annotated[str | None, Argument("STEP", "A step with its attempts, or a matrix with all its steps.")] = None,
    attempts: Annotated[bool, Flag("Show every attempt at steps, handlers and scripts.")] = False,
    brief: Annotated[
        bool, Flag("List only steps that need attention, and count the others: so is a large run shown.")
    ] = False,
    whole: Annotated[
        bool, Flag("Show all steps of a large run, with what they cost: it takes a while.", "--all")
    ] = False,
    output: Annotated[str, Option("STEP", "Print the whole output of this step, or of an item (STEP[3]).")] = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: its steps, its failures, and what it waits for.

    Time and CPU are totals over all attempts of a step; memory is the most that one attempt used. Of a run with more
    than 20,000 events only the steps that need attention are listed, without these figures, and the others are counted.
    """
    if brief and whole:
        raise UsageRefused("--brief and --all cannot be combined", hint="give one of them")
    with service_at(home) as service:
        run_id, name = find_run_and_step(service, run, step)
        if output:
            given = service.runs.output(run_id, output)
            _show_output(given.value, as_json=as_json)
            for one in [] if as_json else service.runs.output_tables(run_id, output):
                if line := change_line(one):
                    complain(f"note: {line}")
            if given.is_refused:
                complain(f"note: '{output}' failed because 'validate' rejected this output")
            return
        if name:
            shown_step = service.runs.step_overview(run_id, name)
            tries = shown_step.tries if isinstance(shown_step, StepView) else []
            names = service.runs.name_places(run_id, [one.place for one in tries])
            tables = [] if as_json else service.runs.output_tables(run_id, name)
            _show_step(shown_step, names, tables, where(home), as_json=as_json)
            return
        if as_json:
            show_result(part(service.runs.overview(run_id, with_attempts=True), WHOLE_RUN))
            return
        brief = not whole and (brief or service.runs.is_large(run_id))
        found = service.runs.brief_overview(run_id) if brief else service.runs.overview(run_id)
        tried = [one for step in service.runs.attempts(run_id).values() for one in step] if attempts else []
        shown = [one.place for one in tried] + [one.place for one in found.artifacts[-ARTIFACTS_MAX:]]
        names = service.runs.name_places(run_id, shown)
        needs_force = found.status in ("failed", "cancelled") and service.runs.needs_force(run_id)
    show(_headline(found))
    if agents := agents_line(found):
        show(agents)
    if found.workspace:
        show(_workspace_line(found))
    if found.state:
        show("state: " + ", ".join(f"{name}={cut(describe_value(value), 60)}" for name, value in found.state.items()))
    if attempts:
        show_attempts(tried, names)
        return
    if brief:
        show(f"{pluralize(sum(found.step_counts.values()), 'step')}: {group_counts(found.step_counts)}")
    show_table(
        _HEADS, [*(_brief_rows(found, where(home)) if brief else step_rows(found, 0, where(home), is_whole=whole))]
    )
    _show_tails(found, where(home))
    for name, value in found.outputs.items():
        show(f"output {name}: {describe_artifact(value) or cut(describe_value(value), 200)}")
    for name, value in islice(found.data.items(), DATA_MAX):
        show(f"data {name} (version {value.version}): {cut(describe_value(value.value), 100)}")
    _show_artifacts(found, names)
    for hint in _hints(found, where(home), needs_force=needs_force):
        complain(hint)


def _show_artifacts(run: RunView, names: Mapping[str, str]) -> None:
    """The files that its steps kept, the latest ones."""
    kept = run.artifacts
    if len(kept) > ARTIFACTS_MAX:
        show(f"{len(kept):,} artifacts, the last {ARTIFACTS_MAX} of them (all: --json):")
    for one in kept[-ARTIFACTS_MAX:]:
        again = f", attempt {one.attempt}" if one.attempt > 1 else ""
        show(f"artifact {one.file} of '{names[one.place]}'{again}: {describe_artifact({'$artifact': to_json(one)})}")


def _show_tails(run: RunView, home: str) -> None:
    """The last lines of the first unhandled failed steps."""
    failed = [(name, step) for name, step in run.steps.items() if step.status == "failed" and not step.handled]
    tails = ((name, failure_tail(step.failure)) for name, step in failed if step.failure)
    for name, lines in islice(((name, lines) for name, lines in tails if lines), TAILS_MAX):
        show(f"the last lines of '{name}' (all: mulligan logs {run.run_id} {name}{home}):")
        show("\n".join(f"  | {line}" for line in lines))


def _show_output(given: Any, *, as_json: bool) -> None:
    """A text as it is, anything else as JSON."""
    if isinstance(given, str) and not as_json:
        show_written(given.encode("utf-8", "surrogateescape") + b"\n", sys.stdout)
    else:
        show_json(given)


def _show_step(
    found: StepView | MatrixView, names: dict[str, str], tables: list[OutputTable], place: str, *, as_json: bool
) -> None:
    """One step with its attempts; or all steps of a matrix, failed and running ones first."""
    if as_json:
        show_result(found)
        return
    run_id, name = found.run_id, found.name
    if isinstance(found, MatrixView):
        show(f"{title(name, found)} of run {run_id}: {counts_text(found)}")
        show_table(_HEADS, [_row(step.name, step) for step in found.steps])
        complain(
            f"the values of each step: mulligan items {run_id} {name}{place}; one of them: mulligan show {run_id} STEP"
        )
        return
    matrix = found.matrix
    values = f", {matrix.name} with {values_text(matrix.values)}" if matrix else ""
    show(f"step '{name}' of run {run_id}{values}: {'; '.join((found.status, *_remarks(found)))}")
    show_attempts(found.tries, names)
    if found.call and found.call.arguments:
        show(f"arguments: {cut(describe_value(found.call.arguments), 200)}")
    if found.output is not None:
        show(f"output: {describe_artifact(found.output) or cut(describe_value(found.output), 200)}")
    for one in tables:
        for line in table_lines(one):
            show(line)
    with_logs = found.call.program if found.call and found.call.kind == "inline" else name
    complain(f"its logs: mulligan logs {run_id} {with_logs}{place}; its story: mulligan explain {run_id} {name}{place}")


def _headline(run: RunView) -> str:
    words = [run.status]
    words += ["degraded"] if run.degraded else []
    words += [f"round {run.round}"] if run.round > 1 else []
    words += [f"child of run {run.parent_run_id}"] if run.parent_run_id is not None else []
    words.append(f"started {age(datetime.fromisoformat(run.created_at), datetime.now(UTC))} ago")
    words += [f"{name}={value}" for name, value in run.labels.items()]
    reason = f": {run.reason}" if run.reason else ""
    return f"run {run.run_id} of '{run.workflow}': {', '.join(words)}{reason}"


def _workspace_line(run: RunView) -> str:
    """Where the run works, or where its work is now."""
    work = run.workspace or {}
    if work["merged"]:
        return f"workspace: merged into '{work['target'] or 'HEAD'}'"
    where_it_is = f"workspace: {work['worktree']} on branch '{work['branch']}'"
    if work["worktree_exists"] is False:
        where_it_is = f"workspace: {work['worktree']} is gone"
        where_it_is += (
            f"; its branch '{work['branch']}' is there" if work["branch_exists"] else ", and so is its branch"
        )
    if run.status == "completed" and work["branch_exists"]:
        return f"{where_it_is}; to merge it: git merge {work['branch']}"
    has_ended = run.status in ("failed", "cancelled")
    return f"{where_it_is}; a retry continues there" if has_ended and work["worktree_exists"] else where_it_is


def agents_line(run: RunView | StepView) -> str:
    """`agents: 3 calls, 41,200 tokens, $0.62; budget: $2.00`; nothing of a run without agents."""
    spent, budget = describe_spending(run.spent), run.budget
    limits = f"budget{'' if spent else ' for agents'}: {describe_budget(budget)}" if budget else ""
    return "; ".join(filter(None, (f"agents: {spent}" if spent else "", limits)))


def _end(run: AnyRun) -> list[tuple[str, StepView]]:
    """`end`, if it did something or is doing it."""
    end = run.end if isinstance(run, RunView) else None
    return [("end", end)] if end is not None and (end.attempts or end.failure) else []


def step_rows(run: AnyRun, depth: int, place: str, *, is_whole: bool = False) -> Iterator[tuple[str, ...]]:
    """The steps of a run, each matrix as one row; below each step the runs that it called, with their steps.

    Many calls of one line of a program are one row, too, unless `is_whole`.
    """
    children: Children = {child.run_id: child for child in run.children}
    whole = {name: matrix for matrix, group in run.matrices.items() for name in group.combinations}
    shown: set[str] = set()
    folded = {} if is_whole else folded_calls(run.steps or {})
    for name, step in (*(run.steps or {}).items(), *_end(run)):
        matrix = whole.get(name)
        if name in folded:
            if folded[name][0] == name:
                yield from _calls_rows(run, folded[name], children, depth + 1, place)
        elif matrix is None:
            below = 1 + step.call.depth if step.call else 0
            yield from _step_rows(name, step, children, depth + below, place)
        elif matrix not in shown:
            shown.add(matrix)
            yield from _matrix_rows(run, matrix, children, depth, place)


def _brief_rows(run: RunView, place: str) -> Iterator[tuple[str, ...]]:
    """Of a large run: each matrix, and the steps that need attention; the others are counted."""
    children: Children = {child.run_id: child for child in run.children}
    steps, listed = run.steps, run.listed or {}
    for matrix, group in run.matrices.items():
        yield _figures(group_title(matrix, len(group.combinations)), group, counts_text(group))
        for name in listed[matrix]:
            yield from _step_rows(name, steps[name], children, 1, place)
        left = Counter(group.statuses) - Counter(steps[name].status for name in listed[matrix])
        if more := more_text(left):
            yield f"{_INDENT}… {more}", "", "", "", "", "", f"mulligan show {run.run_id} {matrix}{place}"
    for name, step in (*((name, steps[name]) for name in listed[""]), *_end(run)):
        yield from _step_rows(name, step, children, 0, place)
    if others := run.unlisted_counts:
        yield f"… {group_counts(others, 'more ')}", "", "", "", "", "", f"mulligan show {run.run_id} --all{place}"


def _matrix_rows(run: AnyRun, matrix: str, children: Children, depth: int, place: str) -> Iterator[tuple[str, ...]]:
    """A matrix in a row; below it failed and running steps, as many as there is room for."""
    group, steps = run.matrices[matrix], run.steps or {}
    yield _figures(_INDENT * depth + title(matrix, group), group, counts_text(group))
    listed = listed_steps(group, steps)
    for name in listed:
        yield from _step_rows(name, steps[name], children, depth + 1, place)
    if left := unlisted_text(group, steps, listed):
        more = f"{_INDENT * (depth + 1)}… {left}"
        yield more, "", "", "", "", "", f"mulligan show {run.run_id} {matrix}{place}"


def _calls_rows(
    run: AnyRun, names: Sequence[str], children: Children, depth: int, place: str
) -> Iterator[tuple[str, ...]]:
    """Many calls of one line of a program in a row; below it failed and running ones, as many as there is room for."""
    steps = {name: (run.steps or {})[name] for name in names}
    group = calls_group(steps)
    line = steps[names[0]].call.text.partition(",")[0]
    yield _figures(_INDENT * depth + title(name_of(names[0]), group), group, f"{line}; {counts_text(group)}")
    listed = listed_steps(group, steps)
    for name in listed:
        yield from _step_rows(name, steps[name], children, depth + 1, place)
    if left := unlisted_text(group, steps, listed):
        yield f"{_INDENT * (depth + 1)}… {left}", "", "", "", "", "", f"mulligan show {run.run_id} --all{place}"


def _step_rows(name: str, step: StepView, children: Children, depth: int, place: str) -> Iterator[tuple[str, ...]]:
    yield _row(_INDENT * depth + name, step)
    # A run as it was at an event has no others with it.
    called = [children[run_id] for run_id in step.children if run_id in children]
    for child in called:
        if child.steps is not None:
            yield _child_row(child, depth + 1)
            yield from step_rows(child, depth + 2, place)
    if closed := sum(child.steps is None for child in called):
        more = f"{_INDENT * (depth + 1)}{pluralize(closed, 'more run')}"
        yield more, "", "", "", "", "", f"mulligan list --all{place}"


def _row(name: str, step: StepView) -> tuple[str, ...]:
    return _figures(name, step, "; ".join(_remarks(step)))


def _figures(name: str, one: StepView | MatrixView, remark: str) -> tuple[str, ...]:
    """A step or a matrix with its figures."""
    usage = one.usage
    # The time of a program is mostly that of its calls: it is not measured.
    took = length(usage.wall_seconds) if usage and (usage.wall_seconds or not usage.cpu_seconds) else ""
    cpu = length(usage.cpu_seconds) if usage else ""
    peak = format_size(usage.peak_memory) if usage and usage.peak_memory else ""
    tries = f"{one.attempts:,}" if one.attempts else ""
    return name, one.status, tries, took, cpu, peak, remark


def _child_row(child: CalledRunView, depth: int) -> tuple[str, ...]:
    is_plain = child.attempt == 1 and "[" not in child.step and "." not in child.step
    whose = "" if is_plain else f"for attempt {child.attempt} of '{child.step_name}'"
    name = f"{_INDENT * depth}run {child.run_id}: {child.workflow}"
    rounds = f"round {child.round}" if child.round > 1 else ""
    return name, child.status, "", "", "", "", "; ".join(filter(None, (rounds, whose, child.reason)))


def _remarks(step: StepView) -> Iterator[str]:
    if step.visits > 1:
        yield f"visit {step.visits}"
    if step.status == "completed" and not step.visits:
        yield "kept from the run that was forked"
    if step.up_to_date_since:
        yield up_to_date_since(step.up_to_date_since)
    if step.faked:
        yield "faked"
    if step.recovered:
        yield "recovered"
    if step.paused and not any(wait.kind == "step_pause" for wait in step.waiting_for):
        yield _paused(step.paused)
    if step.undone:
        yield "undone"
    if step.undo_failed:
        yield UNDO_FAILED
    if step.items:
        yield _items(step.items)
    if step.progress and step.status != "completed":
        yield f"at {describe_progress(step.progress)}"
    if agents := agents_line(step):
        yield agents
    # The failure of a parked step is shown with the question.
    if step.failure and step.status not in ("completed", "pending_failed"):
        handled_at = step.call.handled_at if step.call else ""
        at = f" at {handled_at}" if handled_at else ""
        yield summarize_failure(step.failure) + (f", handled{at}" if step.handled else "")
    for warning in step.warnings:
        yield f"warning: {summarize_failure(warning)}"
    if step.call:
        yield step.call.text
    # Items are counted already, and called runs are shown below.
    waits = (wait for wait in step.waiting_for if wait.kind not in ("items", "child"))
    # Many items of a map may wait for the same.
    yield from dict.fromkeys(f"waits for {single_line(wait.text)}{when_default_applies(wait)}" for wait in waits)


def _paused(pause: StepPause) -> str:
    """A paused step that still runs or waits for other steps."""
    by, reason = pause.by, pause.reason
    return f"paused{f' by {by}' if by else ''}{f': {single_line(reason)}' if reason else ''}"


def _items(counts: dict[str, int]) -> str:
    parts = [f"{counts[status]} {status}" for status in ("failed", "running", "cancelled") if counts[status]]
    parts += [f"{counts['up_to_date']} up to date"] if counts["up_to_date"] else []
    return ", ".join([f"{counts['completed']} of {pluralize(counts['total'], 'item')} done", *parts])


def _hints(run: RunView, place: str, *, needs_force: bool) -> Iterator[str]:
    """What to do next."""
    run_id = run.run_id
    if run.status in ("failed", "cancelled"):
        spent = _spent_budgets(run)
        again = suggest_commands(run_id, run.status, spent_budgets=spent, needs_force=needs_force)[0].text
        look = "after you have checked what could not be undone, to run it again" if needs_force else "to try again"
        yield f"its story: mulligan explain {run_id}{place}; {look}: {again}{place}"
    elif run.status == "running":
        yield driven(run, place)
    yield from _questions(run, place)


def _spent_budgets(run: RunView) -> list[str]:
    """The limits that must be raised before a retry can succeed."""
    open_ = ((name, step.failure) for name, step in run.steps.items() if step.failure and not step.handled)
    spent = (spent_budget(name, failure["code"], failure["details"]) for name, failure in open_)
    return list(dict.fromkeys(filter(None, spent)))


def _questions(run: AnyRun, place: str) -> Iterator[str]:
    """What the run, and the runs that it called, ask a person."""
    run_id, sweeps = run.run_id, _paused_matrices(run)
    held = Counter(sweeps.values())
    for sweep, count in held.items():
        if count > 1:
            yield f"{count:,} steps of '{sweep}' are paused: mulligan resume {run_id} {sweep}{place}"
    alone = (wait for wait in run.waiting_for if held[sweeps.get(wait.place, "")] < 2)
    yield from (asked for wait in alone if (asked := describe_question(run_id, wait, place)))
    for child in run.children:
        yield from _questions(child, place)


def _paused_matrices(run: AnyRun) -> dict[str, str]:
    """The matrices of the paused steps that would run."""
    held = [wait.place for wait in run.waiting_for if wait.kind == "step_pause"]
    if not held:
        return {}
    if isinstance(run, RunView) and run.listed is not None:
        # A run in brief, which does not have all steps of its matrices.
        return {step: run.matrix_of[step] for step in held if step in run.matrix_of}
    matrices = run.matrices.items()
    sweeps = {member: name for name, group in matrices for member in group.combinations}
    return {step: sweeps[step] for step in held if step in sweeps}
