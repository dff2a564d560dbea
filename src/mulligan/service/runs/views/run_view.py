"""One view of a run, as every face shows it: the run, its steps, its matrices, the runs that it called.

Here from its state; `overview` adds what the store and the log know. What a face does not ask for is not read: the head
of a run has no steps, a large run is shown in brief, and a run as it was at an earlier event has nothing that only the
log knows. A face shows a part of it: `RUN`, `RUN_HEAD`, `WHOLE_RUN`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, TypedDict

import msgspec

from mulligan.core.deciding.agents.budgets import RUN as RUN_BUDGET
from mulligan.core.deciding.agents.budgets import budget_of
from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import NOTHING_SPENT, spent_json
from mulligan.core.model.event_types import Passed
from mulligan.core.model.workflow import END, Budget
from mulligan.core.state.scope import error_view, failed_visits, failure_views
from mulligan.core.state.state import FailureRecord, Place, State, StepPause
from mulligan.core.state.verdict import is_handled
from mulligan.core.state.workspace import workspace_view
from mulligan.history.called_steps import branch_numbers, call_text, handled_at
from mulligan.history.matrices import matrix_groups
from mulligan.history.tool_phrases import tool_calls_json
from mulligan.history.views import Wait, WaitFinder
from mulligan.service.runs.stored.artifacts import KeptFile
from mulligan.service.runs.stored.attempts import AttemptRecord, Cost
from mulligan.worker.logs.progress_records import Progress

# A field that is left out where it was not asked for.
NOT_ASKED: Any = msgspec.UNSET
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class FailureView(TypedDict):
    """A failure, as expressions see it too."""

    code: str
    message: str
    severity: str
    retryable: bool
    exit_code: int | None
    signal: int | None
    step: str
    item: int | None
    visit: int
    attempt: int
    at: Time | None
    timestamp: Time | None
    details: dict[str, Any]
    trace: str
    cause: list[FailureView]
    handler_failure: FailureView | None
    exceptions: list[str]
    traceback: list[dict[str, Any]]


class SpentView(TypedDict):
    """What agents have spent. Money is text, so that no reader rounds it."""

    calls: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cost: str | None
    currency: str
    tool_calls: int


class ViewPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the view of a run."""


class FailureRoute(ViewPart, kw_only=True):
    """Where a failure was routed, and why not to other steps."""

    status: str
    edge: int | None
    to: str | None
    visit: int | None
    then: str | None
    reason: str | None
    passed: list[Passed]


class FailedVisitView(FailureView):
    """A visit of a step that failed, or that a handler recovered."""

    handled: bool
    recovered: bool
    allowed: bool
    # A step has only the route of its last visit.
    failure_route: FailureRoute | None


class MatrixPlace(ViewPart, kw_only=True):
    """The matrix that a step belongs to, and the values of the step."""

    name: str
    values: dict[str, Any]


class CallView(ViewPart, kw_only=True):
    """Where a program has called a step."""

    program: str
    branch: str
    ordinal: int
    # In how many branches it is: 0 if the program itself has called it.
    depth: int
    # The number of the call in its gather, from 0, and how many calls that has.
    position: tuple[int, int] | None
    file: str
    line: int
    # Chosen with `options(key=…)`; "" if none.
    key: str
    kind: str
    # In words: `nightly.py:31, branch 3 of 12`.
    text: str
    # Where the program has caught its failure: `nightly.py:34`; "" if it has not, or it is not known.
    handled_at: str
    # What it was called with; only of a step that is looked at alone.
    arguments: dict[str, Any] = NOT_ASKED


class StepView(ViewPart, kw_only=True):
    """A step."""

    run_id: int = NOT_ASKED
    name: str = NOT_ASKED
    status: str
    visits: int
    attempts: int
    recovered: bool
    handled: bool
    output: Any
    failure: FailureView | None
    failure_route: FailureRoute | None
    waiting_for: list[Wait]
    warnings: list[FailureView]
    # The run whose result was reused.
    up_to_date_since: int | None
    paused: StepPause | None
    spent: SpentView | None
    # What its agents may spend; money is text, as in `spent`.
    budget: dict[str, Any] | None
    faked: bool
    # Of a step that a program has called.
    call: CallView = NOT_ASKED
    # The last calls of tools by its agent: `tool`, `arguments`, `output`, `error`, shortened.
    tool_calls: list[dict[str, str]]
    progress: Progress | None = NOT_ASKED
    # What all attempts have cost.
    usage: Cost | None = NOT_ASKED
    # How many items of a map are in each status.
    items: dict[str, int] | None = NOT_ASKED
    undone: bool = NOT_ASKED
    # A visit could not be undone: what it did may still be in effect.
    undo_failed: bool = NOT_ASKED
    # The runs that it called.
    children: list[int] = NOT_ASKED
    matrix: MatrixPlace | None = NOT_ASKED
    # Every attempt at it, at its handlers and scripts.
    tries: list[AttemptRecord] = NOT_ASKED


class MatrixView(ViewPart, kw_only=True):
    """A matrix as a whole. Its steps are also among the others; here they are listed with their values, in order."""

    run_id: int = NOT_ASKED
    name: str = NOT_ASKED
    status: str
    statuses: dict[str, int]
    failures: dict[str, int] = NOT_ASKED
    combinations: dict[str, dict[str, Any]] = NOT_ASKED
    count: int = NOT_ASKED
    # Of all its steps together: attempts, time and processor time; and the most memory of one.
    attempts: int = NOT_ASKED
    usage: Cost | None = NOT_ASKED
    steps: list[StepView] = NOT_ASKED


class RunDriver(ViewPart, kw_only=True):
    """The live process that drives a run."""

    pid: int
    host: str


class RunRow(ViewPart, kw_only=True):
    """What the row of a run in the store says of it."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: Time = ""
    updated_at: Time = ""
    parent_run_id: int | None = None
    driver: RunDriver | None = None


class CalledRunView(RunRow, kw_only=True):
    """A run that a step called; without its steps if there are many."""

    # The place that called it, its display name (`load[west]` for an item of a map), and the attempt.
    step: str
    step_name: str
    attempt: int
    steps: dict[str, StepView] | None
    matrices: dict[str, MatrixView]
    waiting_for: list[Wait]
    children: list[CalledRunView]


class DataValue(ViewPart, kw_only=True):
    """A value that a step has set."""

    value: Any
    version: int


class RunView(RunRow, kw_only=True):
    """A run. Of failures and waits there may be the first ones only, with the number of all."""

    # The version of the corrected definition; None if the workflow was not corrected.
    revision: str | None
    steps: dict[str, StepView]
    matrices: dict[str, MatrixView]
    failures: list[FailedVisitView]
    failure_count: int
    outputs: dict[str, Any]
    data: dict[str, DataValue]
    spent: SpentView | None
    budget: dict[str, Any] | None
    # What ran last; None if the run has not started.
    end: StepView | None
    # Its Git worktree and branch; None without `workspace`, and before it is open.
    workspace: dict[str, Any] | None
    waiting_for: list[Wait]
    wait_count: int
    # The number of its last event.
    seq: int
    step_count: int
    step_counts: dict[str, int]
    labels: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    # What its program has published last.
    state: dict[str, Any] = {}
    root_run_id: int = 0
    started_by: str = ""
    child_count: int = 0
    artifacts: list[KeptFile] = []
    children: list[CalledRunView] = []
    # In brief: by the name of its matrix, or "" for none, the steps that are among `steps`; and the matrices of the
    # paused steps that would run. None if all steps are there.
    listed: dict[str, list[str]] | None = None
    matrix_of: dict[str, str] = {}

    @property
    def unlisted_counts(self) -> dict[str, int]:
        """In brief: how many steps that belong to no matrix are not listed, by status."""
        left = Counter(self.step_counts)
        for group in self.matrices.values():
            left.subtract(group.statuses)
        left.subtract(self.steps[name].status for name in (self.listed or {}).get("", ()))
        return {status: count for status, count in left.items() if count}


@cache
def _types_of(whole: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of the fields of a struct. To find them takes longer than to make a struct of them."""
    return {field.name: field.type for field in msgspec.structs.fields(whole)}


def part_type(whole: type[msgspec.Struct], name: str, fields: str = "", /, **others: Any) -> type[msgspec.Struct]:
    """A type for these fields of a struct (by default all), in this order, all of them required: as a face gives them.

    `others`: fields that have another type there, or that are there alone.
    """
    types = _types_of(whole)
    chosen = {field: types[field] for field in fields.split() or types} | others
    about: Any = {"namespace": {"__doc__": whole.__doc__}, "frozen": True, "forbid_unknown_fields": True}
    return msgspec.defstruct(name, [*chosen.items()], module=__name__, **about)


def part(whole: msgspec.Struct, kind: type[msgspec.Struct]) -> Any:
    """These fields of a struct."""
    return kind(*(getattr(whole, name) for name in kind.__struct_fields__))


_STATE = "outputs state data spent budget end"
_ROW = " ".join(RunRow.__struct_fields__)
# As `run --json` prints a run; as `show --json` does; without its steps; and as it was at an event.
RUN = part_type(
    RunView,
    "RunAlone",
    f"run_id status degraded round version revision steps matrices failures {_STATE} reason workspace waiting_for",
)
WHOLE_RUN = part_type(
    RunView,
    "WholeRun",
    f"{_ROW} labels revision steps matrices failures {_STATE} workspace waiting_for artifacts children",
)
RUN_HEAD = part_type(
    RunView,
    "RunHead",
    f"{_ROW} labels revision {_STATE} workspace waiting_for failures failure_count wait_count seq root_run_id "
    "started_by inputs step_count step_counts matrices child_count",
)
PAST_RUN_HEAD = part_type(
    RunView,
    "PastRunHead",
    f"run_id status degraded round version revision {_STATE} reason workspace waiting_for failures failure_count "
    "wait_count step_count step_counts steps matrices",
)


# -- from the state --------------------------------------------------------------------------------------------------

# A value of a run as it is shown: with the paths of artifacts.
Show = Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


def view_state(
    state: State,
    waits: WaitFinder | None = None,
    show: Show = _as_it_is,
    *,
    names: Iterable[str] | None = None,
    entries_max: int | None = None,
    queued_max: int | None = None,
) -> RunView:
    """What a state knows of its run: with these steps (by default all), and so many failures and waits.

    `queued_max`: how many of the steps that only wait for a worker are described.
    """
    run, waits = state.run, waits or WaitFinder(state)
    failed = failed_visits(state) if state.places else []
    waiting = list(waits.of_run(queued_max))
    # A run that no worker has taken yet has no places.
    chosen = (state.graph.nodes if names is None else names) if state.places else ()
    return RunView(
        run_id=run.run_id,
        workflow=state.workflow.name,
        version=run.version,
        # A new run is about to have its first turn.
        status="running" if run.status == "new" else run.status,
        round=run.round,
        degraded=run.degraded,
        reason=run.reason,
        revision=None if run.revision is None else run.revision.version,
        steps={name: view_step(waits, name, show) for name in chosen},
        matrices={
            name: MatrixView(
                status=group.status, statuses=group.statuses, failures=group.failures, combinations=group.combinations
            )
            for name, group in matrix_groups(state).items()
        },
        failures=_view_failures(state, failed[:entries_max], show),
        failure_count=len(failed),
        outputs=show(run.outputs),
        state=show(run.published),
        data={name: DataValue(value=show(one.value), version=one.version) for name, one in run.data.items()},
        spent=_spent(run.spent),
        budget=_budget(budget_of(state, RUN_BUDGET)),
        end=view_step(waits, END, show) if state.places else None,
        workspace=workspace_view(state),
        waiting_for=waiting[:entries_max],
        wait_count=len(waiting),
        seq=run.seq,
        step_count=len(state.graph.nodes),
        step_counts=count_statuses(state),
        inputs=show(run.inputs),
    )


def status_of(state: State, name: str) -> str:
    """The status of a step. A run that no worker has taken yet has no places, but its workflow has steps."""
    place = state.places.get(name)
    return place.status if place is not None else "waiting"


def has_handled_failure(state: State, place: Place) -> bool:
    """Whether a step failed in its last visit, and its failure was handled."""
    return place.failure_index is not None and is_handled(state, state.failures[place.failure_index]) is True


def count_statuses(state: State) -> dict[str, int]:
    """How many steps have each status that occurs."""
    return dict(Counter(status_of(state, name) for name in state.graph.nodes))


def view_step(waits: WaitFinder, name: str, show: Show = _as_it_is) -> StepView:
    """What the state knows of a step. Of most, most of it is nothing: that is not asked for."""
    state, place = waits.state, waits.state.places[name]
    record = None if place.failure_index is None else state.failures[place.failure_index]
    budget = budget_of(state, name)
    return StepView(
        status=place.status,
        visits=place.visit,
        attempts=place.attempt,
        recovered=bool(place.recovered_by),
        handled=record is not None and is_handled(state, record) is True,
        output=place.output if place.output is None else show(place.output),
        failure=None if place.failure is None else show(error_view(place.failure)),
        failure_route=None if record is None else _view_route(record),
        waiting_for=waits.of_step(place),
        warnings=show([error_view(warning) for warning in place.warnings]) if place.warnings else [],
        up_to_date_since=place.reused_run_id or None,
        paused=place.pause,
        spent=None if place.spent is NOTHING_SPENT else _spent(place.spent),
        budget=None if budget is None else _budget(budget),
        faked=traits_of(place.spec.action).is_fake,
        call=_call(state, name) if state.calls else NOT_ASKED,
        tool_calls=[] if place.conversation is None else tool_calls_json(place),
    )


def _call(state: State, name: str) -> Any:
    call = state.calls.get(name)
    if call is None:
        return NOT_ASKED
    return CallView(
        program=call.program,
        branch=call.branch,
        ordinal=call.ordinal,
        depth=len(branch_numbers(call.branch)),
        position=call.position,
        file=call.file,
        line=call.line,
        key=call.key,
        kind=call.kind,
        text=call_text(state, name),
        handled_at=handled_at(state, name),
    )


def _view_failures(state: State, records: list[FailureRecord], show: Show) -> list[Any]:
    """Each failed visit with the route of its failure."""
    return [
        {**show(view), "failure_route": None if record.recovered_by else _view_route(record)}
        for view, record in zip(failure_views(state, records), records, strict=True)
    ]


def _view_route(record: FailureRecord) -> FailureRoute:
    route = record.route
    return FailureRoute(
        status=route.status,
        edge=route.edge,
        to=route.to or None,
        visit=route.visit or None,
        then=record.then or None,
        reason=route.reason or None,
        passed=list(route.passed),
    )


def _spent(spent: Any) -> Any:
    return spent_json(spent)


def _budget(budget: Budget | None) -> dict[str, Any] | None:
    return None if budget is None else msgspec.to_builtins(budget.limits)
