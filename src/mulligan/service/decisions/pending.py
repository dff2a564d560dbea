"""What waits for a person, over all runs: parked steps, approvals, pauses; with the facts for a decision."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.effects.snapshot import read_place, restore
from mulligan.core.evolve.evolve_places import is_agent
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Handler, decode
from mulligan.core.state.scope import approval_of, error_view
from mulligan.core.state.state import Place, State, Suggestion
from mulligan.errors import CodecError, MulliganError, StoreUnavailable
from mulligan.history.evidence import Evidence, evidence_lines, evidence_of
from mulligan.history.item_names import PlaceNames
from mulligan.history.phrases import describe_failure
from mulligan.history.retry_reasons import RetryReason, why_not
from mulligan.history.route_outcomes import format_times
from mulligan.ports import RunRecord, Store, WaitingPlace
from mulligan.service.runs.changes.run_worktrees import seen_workspace
from mulligan.service.runs.views.run_list import pause_of

# How many earlier runs of the workflow are read, and how many are reported.
RUNS_SEEN_MAX = 20
RUNS_SHOWN_MAX = 5
# How many paused runs are listed, the newest ones.
PAUSED_MAX = 1000


class EarlierRun(msgspec.Struct, frozen=True):
    """What the same step did in an earlier run of the workflow."""

    run_id: int
    status: str
    attempts: int
    # Its code and exit code.
    failure: dict[str, Any] | None
    recovered_by: str | None
    # The decision about it, if there was one.
    ruling: dict[str, Any] | None


class PendingEntry(msgspec.Struct, kw_only=True):
    """Something that waits for a person: a parked step, an approval, a paused step or a paused run.

    Every entry has all fields, so that a program may hand it back to `classify --file` with a decision added.
    """

    run_id: int
    workflow: str | None = None
    # None for a run that is paused as a whole.
    step: str | None = None
    # The display name of the step: `check[web]` for a command of an item.
    name: str | None = None
    kind: str
    parent_run_id: int | None = None
    root_run_id: int | None = None
    visit: int | None = None
    attempt: int | None = None
    since: datetime | None = None
    failure: dict[str, Any] | None = None
    message: str = ""
    # What an approval shows with its question.
    evidence: list[Evidence] = []
    parked_for: str | None = None
    # Of each rule, why it granted no retry.
    rules: list[RetryReason] = []
    # Of its handler, why it did not help; None if it has no handler.
    handler: str | None = None
    # What a handler that judges (an agent, or strategy custom) returned: what it suggests.
    handler_output: Any = None
    earlier: list[EarlierRun] = []
    # What its triager answered, if that was not applied.
    suggestion: Suggestion | None = None
    # What happens by default, and when.
    due: datetime | None = None
    default: str | None = None
    paused_by: str | None = None
    # The Git worktree in which the run works, and its branch.
    workspace: dict[str, Any] | None = None
    # Why the run cannot be read.
    error: str | None = None
    # The commands that answer it, filled in by the command line.
    commands: list[str] = []


def evidence_text(one: PendingEntry) -> list[str]:
    """What an approval shows with its question, as lines."""
    return [line for piece in one.evidence for line in evidence_lines(piece)]


class PendingPage(msgspec.Struct, frozen=True):
    """A page of what waits for a person, oldest run first."""

    entries: list[PendingEntry]
    # Run and step (or "") to ask for the next page with; None if this is the last one.
    next: tuple[int, str] | None
    # How many places and runs wait, over all pages.
    total: int


def commands_for_pending(one: PendingEntry) -> list[str]:
    """The commands that answer what waits for a person, or help to decide; none if its run cannot be read."""
    if one.error:
        return []
    if one.kind == "paused" and not one.step:
        return [f"mulligan resume {one.run_id}"]
    target = f"{one.run_id} {shlex.quote(one.name or one.step or '')}"
    if one.kind == "approval":
        return [f"mulligan approve {target} {no}--reason TEXT" for no in ("", "--no ")]
    if one.kind == "paused":
        return [f"mulligan resume {target}"]
    words = [f"mulligan classify {target} {verdict} --reason TEXT" for verdict in ("retry", "fail")]
    return [*words, f"mulligan logs {target}"]


# What waits, by run and place; "" for a run that is paused as a whole.
Waiting = Mapping[tuple[int, str], WaitingPlace | RunRecord]


def find_waiting(store: Store) -> Waiting:
    """Everything that waits for a person, in two queries."""
    paused = store.lists.find(RunFilter(statuses=("paused",)), limit=PAUSED_MAX)
    return {
        **{(one.run_id, ""): one for one in paused},
        **{(one.run_id, one.place): one for one in store.waiting_places() if one.is_for_a_person},
    }


def read_waiting(store: Store, waiting: Waiting) -> list[PendingEntry]:
    """The entries of what waits, by run and place. Each run is loaded once."""
    look, entries = _PendingReader(store), list[PendingEntry]()
    for run_id, group in groupby(sorted(waiting), key=itemgetter(0)):
        found = [waiting[key] for key in group]
        entries += [_paused_run(store, one) for one in found if isinstance(one, RunRecord)]
        places = [one for one in found if isinstance(one, WaitingPlace)]
        entries += look.at(run_id, places) if places else []
    return entries


def _paused_run(store: Store, record: RunRecord) -> PendingEntry:
    """A run that is paused as a whole."""
    pause = pause_of(store, record)
    return PendingEntry(
        run_id=record.run_id,
        workflow=record.workflow,
        kind="paused",
        root_run_id=record.root_run_id or record.run_id,
        since=pause.at if pause is not None else record.updated_at,
        message=record.reason,
        paused_by=(pause.by or None) if pause is not None else None,
    )


class _PendingReader:
    """Reads what waits in runs. Workflows and the history of steps are read once for all runs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._graph = cache(lambda body: Graph(decode(body)))
        self._earlier = cache(self._look_back)
        self._names = PlaceNames()

    def at(self, run_id: int, waiting: list[WaitingPlace]) -> list[PendingEntry]:
        """What waits in one run."""
        try:
            loaded = self.store.load(run_id)
            graph = self._graph(loaded.workflow)
            state = restore(graph.workflow, loaded.rows, graph)
            return [self._entry(loaded.record, state, one) for one in waiting if _still_waits(state, one)]
        except StoreUnavailable:
            raise
        except (MulliganError, msgspec.MsgspecError) as error:
            message = str(error)
            return [PendingEntry(run_id=run_id, step=one.place, kind=one.kind, error=message) for one in waiting]

    def _entry(self, record: RunRecord, state: State, waiting: WaitingPlace) -> PendingEntry:
        place = state.places[waiting.place]
        details = {"parked": _parked, "paused": _paused_step}.get(waiting.kind, _approval)(state, place)
        return PendingEntry(
            run_id=record.run_id,
            workflow=state.workflow.name,
            step=waiting.place,
            name=self._names.name(state, waiting.place),
            kind=waiting.kind,
            parent_run_id=record.parent_run_id,
            root_run_id=record.root_run_id or record.run_id,
            visit=state.step_of(place).visit,
            attempt=place.attempt,
            workspace=seen_workspace(state),
            earlier=self._earlier(state.workflow.name, place.key) if waiting.kind == "parked" else [],
            **details,
        )

    def _look_back(self, workflow: str, step: str) -> list[EarlierRun]:
        """The same step in the newest other runs of the workflow: first those in which it failed."""
        rows = self.store.recent_rows(workflow, "places", step, RUNS_SEEN_MAX)
        places = [(run_id, _place(step, data)) for run_id, data in rows]
        ended = [(run_id, place) for run_id, place in places if place and place.status in ("completed", "failed")]
        ended.sort(key=lambda one: not one[1].climb.tries)
        return [_earlier(run_id, place) for run_id, place in ended[:RUNS_SHOWN_MAX]]


def _place(step: str, data: bytes) -> Place | None:
    """A place of another run; None if it cannot be read, which `show` of that run reports."""
    try:
        return read_place(step, data)
    except CodecError:
        return None


def _still_waits(state: State, waiting: WaitingPlace) -> bool:
    """Whether the place still waits: it may have been answered meanwhile."""
    place = state.places.get(waiting.place)
    if place is not None and waiting.kind == "paused":
        return place.pause is not None
    return place is not None and place.status == ("pending_failed" if waiting.kind == "parked" else "running")


def _parked(state: State, place: Place) -> dict[str, Any]:
    policy, climb, failure = state.step(place.key).triage, place.climb, place.failure
    since = climb.parked_at or (failure.at if failure else None)
    return {
        "since": since,
        "failure": error_view(failure) if failure else None,
        "parked_for": climb.parked_for or None,
        "rules": why_not(place.spec, climb, failure) if failure else [],
        "handler": _handler(place),
        "handler_output": climb.handler_output if _is_judging(place.spec.on_failure) else None,
        "suggestion": climb.suggestion,
        "due": climb.parked_due,
        "default": policy.default if policy and climb.parked_due else None,
    }


def _is_judging(handler: Handler | None) -> bool:
    return handler is not None and (handler.strategy == "custom" or any(map(is_agent, handler.commands)))


def _handler(place: Place) -> str | None:
    """What became of the handler of a parked step."""
    handler, failure = place.spec.on_failure, place.failure
    if handler is None:
        return None
    name = f"its {handler.strategy} handler"
    if failure is not None and failure.handler_failure is not None:
        return f"{name} failed: {describe_failure(failure.handler_failure)}"
    times = place.climb.handled_times
    if not times:
        return f"{name} was not asked"
    return f"{name} ran{format_times(times)}, and the step still failed"


def _paused_step(state: State, place: Place) -> dict[str, Any]:
    assert place.pause is not None
    return {"since": place.pause.at, "message": place.pause.reason, "paused_by": place.pause.by or None}


def _approval(state: State, place: Place) -> dict[str, Any]:
    asked = approval_of(place)
    return {
        "since": place.entered_at,
        "message": str(asked.get("message") or ""),
        "evidence": evidence_of(asked),
        "due": place.due,
        "default": (asked.get("default") or "refuse") if place.due else None,
    }


def _earlier(run_id: int, place: Place) -> EarlierRun:
    failure, ruling = place.failure, place.climb.ruling
    return EarlierRun(
        run_id=run_id,
        status=place.status,
        attempts=place.attempt,
        failure={"code": failure.code, "exit_code": failure.exit_code} if failure else None,
        recovered_by=place.recovered_by or None,
        ruling=msgspec.structs.asdict(ruling) if ruling else None,
    )


def describe_earlier_run(earlier: EarlierRun) -> str:
    """What a step did in another run, in a line: how it failed, what was decided, and how it ended."""
    ruling, ended = earlier.ruling, earlier.status
    if earlier.status == "failed" and earlier.failure:
        ended += f" with {_failure_code(earlier.failure)}"
    elif earlier.recovered_by:
        ended += f", recovered by its {earlier.recovered_by} handler"
    ended += f" on attempt {earlier.attempts}" if earlier.attempts > 1 else ""
    decided = (
        f"failed with {_failure_code(ruling)}, {ruling['by']} said {ruling['verdict']}: {ruling['reason']}; "
        if ruling
        else ""
    )
    return f"run {earlier.run_id}: {decided}{ended}"


def _failure_code(failure: dict[str, Any]) -> str:
    return failure["code"] if failure["exit_code"] is None else f"{failure['code']} {failure['exit_code']}"
