"""`mulligan cancel`, `pause`, `retry` and `fork`: verbs that change what becomes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from mulligan.cli.continue_run import go_on, is_following, mention_changed_file, see_to_the_end
from mulligan.cli.corrections import tell_correction
from mulligan.cli.drive_run import conduct
from mulligan.cli.options import (
    LATEST,
    AsJson,
    Budgets,
    By,
    Follow,
    HomeFolder,
    Inputs,
    NewestRun,
    Reason,
    RunName,
    System,
    TrustTemplates,
    service_at,
    where,
)
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.run import given_inputs
from mulligan.cli.tables import show_table
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service import CorrectedWorkflow, ForkPlan, RoundPlan, Service, Workflow, answer_to, read_budgets, to_json
from mulligan.service.formatting import group_title, pluralize

FromStep = Annotated[str, Option("--from", metavar="STEP", help="The step to run again, and all behind it.")]
CorrectedFile = Annotated[Path | None, Option("--file", metavar="FILE", help="A corrected workflow to run.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only say what would be done.")]
Adjusting = Annotated[
    bool, Option("--adjust", help="Give what ran out of memory half as much again, of time twice as much.")
]
# Of names in a sentence, and of maps whose items are named; --json has them all.
_NAMES_MAX, _MAPS_MAX = 10, 3


def cancel(
    run: RunName,
    now: Annotated[bool, Option("--now", help="Run no cleanup and no undo: only `end`.")] = False,
    reason: Reason = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Cancel a run; its cleanup, undo and end steps still run.

    What runs gets its grace. Where no process drives the run, this one sees it to its end.
    """
    with service_at(home) as service:
        run_id = service.find_run(run)
        service.cancel(run_id, now=now, reason=reason)
        return see_to_the_end(service, run_id, as_json=as_json, home=home)


def pause(
    run: RunName,
    step: Annotated[
        str | None, Argument(metavar="STEP", help="One step, or all steps of a matrix; else the whole run.")
    ] = None,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run: running steps finish, and no other step starts.

    With STEP only that step is held: the rest of the run goes on.
    """
    with service_at(home, by) as service:
        run_id = service.find_run(run)
        if step is not None:
            _pause_step(service, run_id, step, reason, as_json=as_json, home=home)
            return
        running = service.pause(run_id, reason)
        if as_json:
            show_json(service.show(run_id))
    still = (
        f"; {pluralize(running, 'command')} still {'runs' if running == 1 else 'run'} and may end" if running else ""
    )
    complain(f"run {run_id} is paused{still}; to let it go on: mulligan resume {run_id}{where(home)}")


def _pause_step(service: Service, run_id: int, step: str, reason: str, *, as_json: bool, home: str | None) -> None:
    running = service.pause_step(run_id, step, reason)
    if as_json:
        show_json(service.show(run_id))
    still = "; what of it runs may end" if running else ""
    typed = answer_to(run_id, "step_pause", step) + where(home)
    complain(f"step '{step}' of run {run_id} is paused{still}; to let it go on: {typed}")


def retry(
    run: NewestRun = LATEST,
    from_step: FromStep = "",
    file: CorrectedFile = None,
    inputs: Inputs = None,
    adjust: Adjusting = False,
    budget: Budgets = None,
    keep_completed: Annotated[
        bool, Option("--keep-completed", help="Keep what has completed, though the file changes it.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Take the file though its workflow has another name.")] = False,
    reason: Reason = "",
    system: System = None,
    trust_templates: TrustTemplates = False,
    dry_run: DryRun = False,
    follows: Follow = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Give a run another round: steps that did not complete run again.

    Steps that failed unhandled, were cancelled, skipped or undone go back; what completed keeps its result, unless a
    file that it declared to write is gone or has changed.
    The workflow is the one that the run has, whatever has become of its file; with --file the run goes on with a
    corrected one: steps that changed run again too, and what is behind them, unless they completed and you
    --keep-completed. Without RUN that is the newest run of
    the file's workflow that failed.
    """
    with service_at(home) as service:
        corrected = _correction(file, inputs, system, trust_templates, force=force, keep_completed=keep_completed)
        run_id = service.find_run(run) if corrected is None else service.find_failed_run(run, corrected.workflow.name)
        chosen = Chosen(run_id, from_step, None, adjust, corrected, read_budgets(budget or ()))
        return another_round(service, chosen, reason, dry_run=dry_run, follows=follows, home=home, as_json=as_json)


def _correction(
    file: Path | None,
    inputs: list[str] | None,
    system: str | None,
    trust_templates: bool,
    *,
    force: bool,
    keep_completed: bool,
) -> CorrectedWorkflow | None:
    """The corrected file that was named, if one was, with what is given beside it."""
    if file is None and (inputs or force or keep_completed):
        option = "--input" if inputs else "--force" if force else "--keep-completed"
        raise UsageRefused(f"{option} is about a corrected file", hint="name it: --file FILE")
    workflow = _corrected(file, system, trust_templates)
    if workflow is None or file is None:
        return None
    return CorrectedWorkflow(
        workflow,
        dict(given_inputs(inputs or [])),
        str(file.absolute()),
        may_rename=force,
        keeps_completed=keep_completed,
    )


class Chosen(NamedTuple):
    """What a round is opened for."""

    run_id: int
    from_step: str
    # Of that step, a map, only these items; none of them: those that failed. None: the whole step.
    items: Sequence[int] | None
    adjust: bool
    corrected: CorrectedWorkflow | None = None
    # What agents may spend from now on, by step, "" of the run.
    budgets: Mapping[str, Any] = MappingProxyType({})

    @property
    def words(self) -> dict[str, Any]:
        chosen = {"from_step": self.from_step, "items": self.items, "adjust": self.adjust}
        return {**chosen, "corrected": self.corrected, "budgets": self.budgets}


def another_round(
    service: Service,
    chosen: Chosen,
    reason: str,
    *,
    dry_run: bool,
    follows: bool | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Open a round and go on with the run where that is wanted; or only say what it would be."""
    if chosen.corrected is None:
        mention_changed_file(service, chosen.run_id, home, is_retry=chosen.items is None)
    if dry_run:
        planned = service.plan_retry(chosen.run_id, **chosen.words)
        _foretell_round(planned, service.matrices(chosen.run_id), as_json=as_json)
        return 0
    if chosen.corrected is not None:
        # What the file changes is said before anything is done about it.
        tell_correction(service.plan_retry(chosen.run_id, **chosen.words))
    _tell_round(service.retry(chosen.run_id, reason=reason, **chosen.words), adjust=chosen.adjust)
    return go_on(service, chosen.run_id, is_wanted=is_following(follows), as_json=as_json, home=home)


def _tell_round(planned: RoundPlan, *, adjust: bool) -> None:
    _tell_stale(planned)
    complain(f"run {planned.run_id} has another round: {_sizes(planned)}")
    for step, words in planned.adjustments.items():
        complain(f"  '{step}': {', '.join(words)}")
    if adjust and not planned.adjustments:
        complain("  nothing that runs again had run out of memory or time")


def _tell_stale(planned: RoundPlan | ForkPlan) -> None:
    """Which steps run again although they had completed, and for which files."""
    for one in planned.stale[:_NAMES_MAX]:
        complain(f"'{one.step}' runs again: it wrote {one.path}, which {one.state}")
    if len(planned.stale) > _NAMES_MAX:
        complain(f"and {pluralize(len(planned.stale) - _NAMES_MAX, 'more file')} that steps had written")


def _foretell_round(planned: RoundPlan, matrices: Mapping[str, Sequence[str]], *, as_json: bool) -> None:
    """Say what a round would run, why, and what it would keep."""
    if as_json:
        show_json(to_json(planned))
        return
    tell_correction(planned)
    complain(f"run {planned.run_id} would have round {planned.round}: {_sizes(planned)}")
    why = {step: "; ".join(_reasons(planned, step)) for step in planned.steps}
    show_table(("STEP", "WHY"), _together(why, matrices))
    if planned.kept:
        complain(f"kept: {_listed([name for name, _ in _together(dict.fromkeys(planned.kept, ''), matrices)])}")


def _together(told: Mapping[str, str], matrices: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Each step with what is told of it; the many of a matrix of which the same is told in one: `293 of sim × 300`."""
    whole = {step: matrix for matrix, steps in matrices.items() for step in steps}
    alike: dict[tuple[str, str], list[str]] = {}
    for step, words in told.items():
        alike.setdefault((whole.get(step, f"step {step}"), words), []).append(step)
    found: list[tuple[str, str]] = []
    for (matrix, words), steps in alike.items():
        if len(steps) > _NAMES_MAX:
            title = group_title(matrix, len(matrices[matrix]))
            found.append((title if len(steps) == len(matrices[matrix]) else f"{len(steps):,} of {title}", words))
        else:
            found += [(step, words) for step in steps]
    return found


def _sizes(planned: RoundPlan) -> str:
    kept = f", {len(planned.kept):,} kept" if planned.kept else ""
    again = f"{pluralize(len(planned.steps), 'step')} again" if planned.steps else "only its end again"
    maps = list(planned.items.items())
    items = "".join(f"; of '{step}' {_only(indexes)}" for step, indexes in maps[:_MAPS_MAX])
    more = f"; and of {pluralize(len(maps) - _MAPS_MAX, 'more map')}" if len(maps) > _MAPS_MAX else ""
    return f"{again}{kept}{items}{more}"


def _reasons(planned: RoundPlan, step: str) -> list[str]:
    indexes = planned.items.get(step)
    items = [] if indexes is None else [_only(indexes)]
    return [planned.why[step], *items, *planned.adjustments.get(step, ())]


def _only(indexes: Sequence[int]) -> str:
    return f"only {'item' if len(indexes) == 1 else 'items'} {_listed([str(index) for index in indexes])}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_MAX])
    return f"{shown} and {len(names) - _NAMES_MAX:,} more" if len(names) > _NAMES_MAX else shown


def fork(
    run: RunName,
    from_step: FromStep,
    inputs: Inputs = None,
    file: CorrectedFile = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    dry_run: DryRun = False,
    follows: Annotated[
        bool, Option("--follow/--no-follow", help="Run it to its end here, and show it.", show_default=True)
    ] = True,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Start a new run that keeps another run's results before a step.

    It may have other inputs, or a corrected workflow. The exit codes are those of `mulligan run`.
    """
    with service_at(home) as service:
        run_id = service.find_run(run)
        given = given_inputs(inputs or [])
        workflow = _corrected(file, system, trust_templates)
        if workflow is None:
            mention_changed_file(service, run_id, home)
        # Planned before anything is opened for it: a fork that makes no sense leaves nothing behind.
        planned = service.plan_fork(run_id, from_step, given, workflow)
        if dry_run:
            _foretell_fork(planned, as_json=as_json)
            return 0
        begin = partial(service.fork, run_id, from_step, given, workflow, file=str(file.absolute()) if file else "")
        if follows:
            complain(f"a fork of run {run_id} from '{from_step}': {_fork_sizes(planned)}")
            _tell_changes(planned)
            return conduct(service, begin, as_json=as_json, home=home)
        new = begin()
        complain(f"run {new} is a fork of run {run_id} from '{from_step}': {_fork_sizes(planned)}")
        _tell_changes(planned)
        return go_on(service, new, is_wanted=False, as_json=as_json, home=home)


def _corrected(file: Path | None, system: str | None, trust_templates: bool) -> Workflow | None:
    """The workflow in the file that was named, if one was."""
    if file is None and (system is not None or trust_templates):
        option = "--format" if system is not None else "--trust-templates"
        raise UsageRefused(f"{option} is about a file", hint="name it: --file FILE")
    return Service.load_workflow(file, named=system, trust_templates=trust_templates) if file else None


def _foretell_fork(planned: ForkPlan, *, as_json: bool) -> None:
    if as_json:
        show_json(to_json(planned))
        return
    complain(f"a fork of run {planned.run_id} from '{planned.from_step}' would run:")
    for step in planned.steps:
        show(step)
    if planned.kept:
        complain(f"kept: {_listed(planned.kept)}")
    _tell_changes(planned)


def _fork_sizes(planned: ForkPlan) -> str:
    kept = f", {len(planned.kept):,} kept" if planned.kept else ""
    return f"{pluralize(len(planned.steps), 'step')} to run{kept}"


def _tell_changes(planned: ForkPlan) -> None:
    """Where the file is another than the old run had, and what its steps wrote is not there any more."""
    _tell_stale(planned)
    if planned.changed:
        complain(f"kept as they were, although the file has changed them: {_listed(planned.changed)}")
    if planned.dropped:
        complain(f"no longer in the file: {_listed(planned.dropped)}")
