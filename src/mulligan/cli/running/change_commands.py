"""`mulligan cancel`, `pause`, `retry` and `fork`: the commands that change a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from mulligan.cli.output.corrections import list_names, plan_as_json, show_correction
from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show_json, show_result
from mulligan.cli.running.continue_run import (
    Continuation,
    Detach,
    Follow,
    continue_run,
    finish_run,
    mention_changed_file,
    read_continuation,
    start_and_continue,
)
from mulligan.cli.running.drive_run import CommandContext
from mulligan.cli.words.capacity import Gpus, Memory, On, ParallelOrNone, asked_capacity
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import (
    LATEST,
    AsJson,
    Budgets,
    By,
    Catalogue,
    HomeFolder,
    NewestRun,
    Reason,
    RunName,
    System,
    TrustTemplates,
    service_at,
    where,
)
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.deciding.rounds.child_rounds import PlannedChild
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.model.workflow import Workflow
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.values import read_budgets
from mulligan.service.rendering.formatting import group_title, pluralize
from mulligan.service.rendering.next_commands import command_for_request
from mulligan.service.runs.changes.corrections import CorrectedWorkflow
from mulligan.service.runs.changes.round_plans import ForkResult, RetryResult

ForkFrom = Annotated[str, Option("STEP", "The first step to run again; the steps after it run too.", "--from")]
RetryFrom = Annotated[
    str, Option("STEP", "Run this step again too, even if it completed, and the steps after it.", "--from")
]
CorrectedFile = Annotated[Path | None, Option("FILE", "A corrected workflow file.")]
DryRun = Annotated[bool, Flag("Show what would be done, and change nothing.")]
Adjusting = Annotated[bool, Flag("Give steps that ran out of memory 1.5 times as much, and of time twice as much.")]
KeepCompleted = Annotated[bool, Flag("Keep results of completed steps, even if a step that they depend on runs again.")]
# How many names and maps one sentence lists; --json has them all.
_NAMES_MAX, _MAPS_MAX = 10, 3


def cancel(
    run: RunName,
    now: Annotated[bool, Flag("Skip cleanup and undo; run only `end`.")] = False,
    reason: Reason = "",
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Cancel a run; its cleanup, undo and end steps still run.

    Running steps get their grace period. If nothing is running the run, this process runs it to its end.
    """
    chosen = read_continuation(follows, detach)
    with service_at(home) as service:
        run_id = service.runs.find(run)
        service.changes.cancel(run_id, now=now, reason=reason)
        return finish_run(CommandContext(service, home, as_json), run_id, chosen)


def remove(
    run: RunName,
    is_dry: Annotated[bool, Flag("Show what would be removed, and remove nothing.", "--dry-run")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Remove a run that has ended or that cannot be read, with the runs that it called.

    Its files are removed by the next 'mulligan gc', and by a server.
    """
    with service_at(home) as service:
        run_id = service.runs.find(run)
        found = service.runs.remove(run_id, is_dry=is_dry)
    if as_json:
        show_result(found)
        return
    others = f" and {pluralize(len(found.run_ids) - 1, 'run')} that it called" if len(found.run_ids) > 1 else ""
    damage = f"; it was damaged: {found.damage}" if found.damage else ""
    complain(f"run {run_id}{others} {'would be' if is_dry else 'was'} removed{damage}")


def pause(
    run: RunName,
    step: Annotated[
        str | None, Argument("STEP", "A step, or a matrix with all its steps (default: the whole run).")
    ] = None,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run: running steps finish, and no other step starts.

    With STEP only that step is paused: the rest of the run continues.
    """
    with service_at(home, by) as service:
        run_id = service.runs.find(run)
        running = len(service.changes.pause(run_id, step=step or "", reason=reason).still_running)
        if step is None:
            verb = "runs" if running == 1 else "run"
            still = f"; {pluralize(running, 'command')} still {verb} and may end" if running else ""
            what, typed = f"run {run_id}", command_for_request(run_id, "pause")
        else:
            still = "; its running attempts may end" if running else ""
            what, typed = f"step '{step}' of run {run_id}", command_for_request(run_id, "step_pause", step)
        if as_json:
            show_json(service.runs.show(run_id))
    complain(f"{what} is paused{still}; to continue it: {typed}{where(home)}")


def retry(
    run: NewestRun = LATEST,
    from_step: RetryFrom = "",
    file: CorrectedFile = None,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    adjust: Adjusting = False,
    budget: Budgets = None,
    keep_completed: KeepCompleted = False,
    force: Annotated[
        bool, Flag("Run steps again whose undo has failed; accept a file whose workflow has another name.")
    ] = False,
    from_start: Annotated[
        bool, Flag("Start child runs that did not complete anew, instead of continuing them.")
    ] = False,
    reason: Reason = "",
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    dry_run: DryRun = False,
    parallel: ParallelOrNone = None,
    memory: Memory = None,
    gpus: Gpus = None,
    on: On = None,
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Give a run another round: steps that did not complete run again, and steps that depend on them.

    Steps that failed unhandled, were cancelled or undone run again, and every step that depends on one of them. Other
    completed steps keep their results, unless a file that they declared to write is gone or has changed. With
    --keep-completed all of them do, even if a corrected file changes them. A step whose undo has failed runs again
    only with --force: what it did may still be in effect.
    The run has the --parallel, --memory and --gpus that it was started with, unless others are given.
    The run keeps its workflow, even if the file has changed. With --file it continues with a corrected workflow:
    changed steps and the steps after them run again too. Without RUN, --file is for the newest failed run of that
    workflow.
    A child run that did not complete gets its next round too, in which its completed steps are kept; with --from-start
    a new child run starts. RUN may be a child run: then the run at the top gets another round, and drives it.
    """
    asked = asked_capacity(parallel, memory, gpus, on, may_be_none=True)
    continuation = read_continuation(follows, detach)
    with service_at(home) as service:
        option = "--input" if inputs else "--inputs" if inputs_file is not None else ""
        if file is None and option:
            other = "to run with another value of an input: mulligan fork RUN --from STEP -i KEY=VALUE"
            raise UsageRefused(f"{option} needs --file", hint=f"name the file: --file FILE; {other}")
        given = given_inputs(inputs, inputs_file)
        load = partial(_corrected, file, given, system=system, trust_templates=trust_templates, catalogue=catalogue)
        corrected = _correction(load(), file, given, force=force)
        run_id = service.runs.find(run) if corrected is None else service.runs.find_failed(run, corrected.workflow.name)
        if corrected is not None and corrected.workflow.origin:
            # Its inputs and options may decide how a file of another system is read.
            workflow = load(reading=service.starts.reading_of(run_id))
            corrected = _correction(workflow, file, given, force=force)
        chosen = RetryOptions(
            run_id,
            from_step,
            items=None,
            adjust=adjust,
            corrected=corrected,
            budgets=read_budgets(budget or ()),
            capacity=asked,
            keep_completed=keep_completed,
            from_start=from_start,
            force=force,
        )
        return run_retry(CommandContext(service, home, as_json), chosen, reason, continuation, dry_run=dry_run)


def _correction(
    workflow: Workflow | None, file: Path | None, given: dict[str, Any], *, force: bool
) -> CorrectedWorkflow | None:
    """The corrected workflow with its options, if --file was given."""
    if workflow is None or file is None:
        return None
    return CorrectedWorkflow(workflow, given, str(file.absolute()), may_rename=force)


class RetryOptions(NamedTuple):
    """What a retry runs again."""

    run_id: int
    from_step: str
    # Only these items of that map step; () means those that failed, None the whole step.
    items: Sequence[int] | None
    adjust: bool
    corrected: CorrectedWorkflow | None = None
    # What agents may spend from now on, by step; "" is the run.
    budgets: Mapping[str, Any] = MappingProxyType({})
    # In place of what the run was started with.
    capacity: HostCapacity | None = None
    # Whether completed steps keep their results although a step that they depend on runs again.
    keep_completed: bool = False
    # Child runs are not continued.
    from_start: bool = False
    # Whether steps run again whose undo has failed.
    force: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """What `Changes.retry` takes."""
        return {name: given for name, given in self._asdict().items() if name not in ("run_id", "capacity")}


def run_retry(
    context: CommandContext, chosen: RetryOptions, reason: str, continuation: Continuation, *, dry_run: bool
) -> int:
    """Open another round and continue the run; with `dry_run` only show the plan."""
    service = context.service
    if chosen.corrected is None:
        mention_changed_file(context, chosen.run_id, is_retry=chosen.items is None)
    if dry_run:
        planned = service.changes.retry(chosen.run_id, **chosen.arguments, dry_run=True)
        _show_round_plan(planned, service.runs.matrices(chosen.run_id), as_json=context.as_json)
        return 0
    if chosen.corrected is not None:
        # Show what the file changes before anything is done.
        show_correction(service.changes.retry(chosen.run_id, **chosen.arguments, dry_run=True))
    _show_round(service.changes.retry(chosen.run_id, reason=reason, **chosen.arguments), adjust=chosen.adjust)
    return continue_run(context, chosen.run_id, continuation, asked=chosen.capacity)


def _show_failed_undos(planned: RetryResult | ForkResult) -> None:
    """Say of which steps what they did may still be in effect, whether they are kept or run."""
    if planned.undo_failed:
        again = frozenset(planned.steps)
        kept = [step for step in planned.undo_failed if step not in again]
        run = [step for step in planned.undo_failed if step in again]
        words = [f"{list_names(names)} {what}" for names, what in ((run, "run again"), (kept, "kept")) if names]
        complain(f"undo failed, so what they did may still be in effect: {'; '.join(words)}")


def _show_undone_first(planned: RetryResult) -> None:
    """Say which calls of a program are undone before it begins again."""
    if planned.undone_first:
        complain(f"undone first: {list_names(planned.undone_first)}")


def _show_round(planned: RetryResult, *, adjust: bool) -> None:
    _show_stale_files(planned)
    _show_failed_undos(planned)
    _show_undone_first(planned)
    complain(f"{_opening(planned, 'begins')}: {_sizes(planned)}")
    _show_children(planned)
    for step, words in planned.adjustments.items():
        complain(f"  '{step}': {', '.join(words)}")
    if adjust and not (planned.adjustments or planned.children):
        complain("  no step that runs again had run out of memory or time")


def _show_stale_files(planned: RetryResult | ForkResult) -> None:
    """Show which completed steps run again because of their files."""
    for one in planned.stale[:_NAMES_MAX]:
        complain(f"'{one.step}' runs again: its file {one.path} {one.state}")
    if len(planned.stale) > _NAMES_MAX:
        complain(f"and {pluralize(len(planned.stale) - _NAMES_MAX, 'more file')} of completed steps")


def _show_round_plan(planned: RetryResult, matrices: Mapping[str, Sequence[str]], *, as_json: bool) -> None:
    """Show what a round would run, why, and what it would keep."""
    if as_json:
        show_json(plan_as_json(planned))
        return
    show_correction(planned)
    complain(f"{_opening(planned, 'would begin')}: {_sizes(planned)}")
    why = {step: "; ".join(_reasons(planned, step)) for step in _effects_first(planned)}
    show_table(("STEP", "WHY"), _grouped(why, matrices))
    if planned.kept:
        complain(f"kept: {list_names([name for name, _ in _grouped(dict.fromkeys(planned.kept, ''), matrices)])}")
    _show_children(planned)
    _show_failed_undos(planned)
    _show_undone_first(planned)


def _opening(planned: RetryResult, verb: str) -> str:
    """`run 2 begins round 2`; for a child run, with the run at the top."""
    if planned.from_start:
        return f"run {planned.root_run_id} {verb} another round, with a new child run instead of run {planned.run_id}"
    within = f", in another round of run {planned.root_run_id}" if planned.root_run_id else ""
    return f"run {planned.run_id} {verb} round {planned.round}{within}"


def _show_children(planned: RetryResult) -> None:
    """Show which child runs are continued, and which start anew."""
    for one in planned.children[:_NAMES_MAX]:
        becomes = f"a new child run after run {one.run_id}: {one.why_new}" if one.why_new else _continued(one)
        complain(f"  '{one.name}': {becomes}")
    if len(planned.children) > _NAMES_MAX:
        complain(f"  and {pluralize(len(planned.children) - _NAMES_MAX, 'more child run')}")


def _continued(one: PlannedChild) -> str:
    return f"run {one.run_id} continues in round {one.round}, if it is called with the same inputs"


def _effects_first(planned: RetryResult | ForkResult) -> list[str]:
    """The steps to run, first those that change something outside of the run once more."""
    return [*planned.side_effects, *(step for step in planned.steps if step not in planned.side_effects)]


def _grouped(reasons: Mapping[str, str], matrices: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Each step with its reason; many steps of a matrix with the same reason in one row: `293 of sim × 300`."""
    whole = {step: matrix for matrix, steps in matrices.items() for step in steps}
    alike: dict[tuple[str, str], list[str]] = {}
    for step, words in reasons.items():
        alike.setdefault((whole.get(step, f"step {step}"), words), []).append(step)
    found: list[tuple[str, str]] = []
    for (matrix, words), steps in alike.items():
        if len(steps) > _NAMES_MAX:
            title = group_title(matrix, len(matrices[matrix]))
            found.append((title if len(steps) == len(matrices[matrix]) else f"{len(steps):,} of {title}", words))
        else:
            found += [(step, words) for step in steps]
    return found


def _sizes(planned: RetryResult) -> str:
    kept = f", {len(planned.kept):,} kept" if planned.kept else ""
    again = f"{pluralize(len(planned.steps), 'step')} again" if planned.steps else "only its end again"
    maps = list(planned.items.items())
    items = "".join(f"; of '{step}' {_only(indexes)}" for step, indexes in maps[:_MAPS_MAX])
    more = f"; and of {pluralize(len(maps) - _MAPS_MAX, 'more map')}" if len(maps) > _MAPS_MAX else ""
    return f"{again}{kept}{items}{more}"


def _reasons(planned: RetryResult, step: str) -> list[str]:
    indexes = planned.items.get(step)
    items = [] if indexes is None else [_only(indexes)]
    return [*_why(planned, step), *items, *planned.adjustments.get(step, ())]


def _why(planned: RetryResult | ForkResult, step: str) -> list[str]:
    effect = planned.side_effects.get(step)
    return [planned.why[step], *([f"it {effect}"] if effect else [])]


def _only(indexes: Sequence[int]) -> str:
    return f"only {'item' if len(indexes) == 1 else 'items'} {list_names([str(index) for index in indexes])}"


def fork(
    run: RunName,
    from_step: ForkFrom = "",
    at: Annotated[
        int | None, Option("EVENT", "Go on from this event, in place of --from: see mulligan events RUN.")
    ] = None,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    file: CorrectedFile = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    keep_completed: KeepCompleted = False,
    dry_run: DryRun = False,
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Start a new run that keeps another run's results before a step.

    It runs the step and those after it, what did not complete, and every step that depends on one of these; with
    --keep-completed other completed steps keep their results.
    It may have other inputs or a corrected workflow. With --at it keeps all that was recorded up to an event, as
    `mulligan replay RUN --at EVENT --fork-here` does, which also decides. The exit codes are those of `mulligan run`.
    """
    continuation = read_continuation(follows, detach)
    if (at is None) is (from_step == ""):
        example = "write mulligan fork RUN --from STEP, or mulligan fork RUN --at EVENT"
        raise UsageRefused("a fork begins before a step or after an event: give one of them", hint=example)
    if at is not None and (keep_completed or system is not None or trust_templates or catalogue is not None):
        hint = "leave out --keep-completed, --format, --trust-templates and --catalogue, or give --from"
        raise UsageRefused("--at keeps all that is recorded, and reads a file as that of the run was read", hint=hint)
    with service_at(home) as service:
        context = CommandContext(service, home, as_json)
        run_id = service.runs.find(run)
        given = given_inputs(inputs, inputs_file)
        if at is not None:
            from mulligan.cli.reading.replay import Change, fork_at

            return fork_at(context, run_id, at, Change(inputs=given, file=file), continuation, dry_run=dry_run)
        workflow = _corrected(
            file,
            given,
            system=system,
            trust_templates=trust_templates,
            catalogue=catalogue,
            reading=service.starts.reading_of(run_id),
        )
        if workflow is None:
            mention_changed_file(context, run_id)
        named = str(file.absolute()) if file else ""
        # Planned before anything is created, so that a refused fork leaves nothing behind.
        fork_it = partial(
            service.changes.fork, run_id, from_step, given, workflow, file=named, keep_completed=keep_completed
        )
        planned = fork_it(dry_run=True)
        if dry_run:
            _show_fork_plan(planned, service.runs.matrices(run_id), as_json=as_json)
            return 0

        def describe(new: int | None) -> None:
            head = "a fork" if new is None else f"run {new} is a fork"
            complain(f"{head} of run {run_id} from '{from_step}': {_fork_sizes(planned)}")
            _show_fork_changes(planned)

        return start_and_continue(context, fork_it, continuation, like_run=run_id, describe=describe)


def _corrected(
    file: Path | None,
    inputs: dict[str, Any],
    *,
    system: str | None,
    trust_templates: bool,
    catalogue: Path | None,
    reading: Mapping[str, Any] | None = None,
) -> Workflow | None:
    """The workflow of --file, if it was given. `reading`: how files of the run are read."""
    given = {"--format": system is not None, "--trust-templates": trust_templates, "--catalogue": catalogue is not None}
    option = next((name for name, is_given in given.items() if is_given), None)
    if file is None and option is not None:
        raise UsageRefused(f"{option} needs --file", hint="name the file: --file FILE")
    if file is None:
        return None
    of_run = reading or {}
    return Workflows.load_workflow(
        file,
        named=system,
        trust_templates=trust_templates,
        catalogue=catalogue,
        given={**of_run.get("given", {}), **inputs},
        options=of_run.get("options"),
    )


def _show_fork_plan(planned: ForkResult, matrices: Mapping[str, Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        show_json(plan_as_json(planned))
        return
    complain(f"a fork of run {planned.run_id} from '{planned.from_step}' would run:")
    why = {step: "; ".join(_why(planned, step)) for step in _effects_first(planned)}
    show_table(("STEP", "WHY"), _grouped(why, matrices))
    if planned.kept:
        complain(f"kept: {list_names(planned.kept)}")
    _show_fork_changes(planned)


def _fork_sizes(planned: ForkResult) -> str:
    kept = f", {len(planned.kept):,} kept" if planned.kept else ""
    return f"{pluralize(len(planned.steps), 'step')} to run{kept}"


def _show_fork_changes(planned: ForkResult) -> None:
    """Show how the file differs from the old run, which files are gone, and what could not be undone."""
    _show_stale_files(planned)
    _show_failed_undos(planned)
    if planned.changed:
        complain(f"kept, although the file changed them: {list_names(planned.changed)}")
    if planned.dropped:
        complain(f"no longer in the file: {list_names(planned.dropped)}")
