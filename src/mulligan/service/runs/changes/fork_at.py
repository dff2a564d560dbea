"""A fork that continues a run from one of its events, with another decision or other inputs.

The log up to that event is kept: completed steps keep their results, retries that were used stay used, a parked step is
still parked. What ran at that moment runs again as a new attempt. The new run never undoes what the other one did.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.rounds.fork import worktree_origin
from mulligan.core.deciding.rounds.kept_approvals import approvals_given
from mulligan.core.deciding.rounds.rounds import fork_hint
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import Workflow, decode
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import awaits_worktree
from mulligan.core.turn import turn
from mulligan.errors import Refused, StepNotParked, StepNotWaitingForApproval, UnknownStep
from mulligan.history.item_names import PlaceNames
from mulligan.history.story import StoryWriter
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs, refuse_references
from mulligan.service.driving.driver import Driver
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.foresight import LINES_MAX, startable_attempts
from mulligan.service.runs.changes.preflight import refuse_missing_files, stale_results
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.changes.round_plans import ForkResult
from mulligan.service.runs.changes.run_worktrees import (
    refuse_callers_worktree,
    refuse_missing_worktree,
    refuse_moving_worktree,
    refuse_shared_worktree,
)
from mulligan.service.runs.stored.past_states import PastStates

# A decision in place of the one that was taken.
OtherDecision = r.Classified | r.ApprovalGiven


class EventFork(msgspec.Struct, frozen=True):
    """What a fork at an event keeps and what it does at once; and its number, once it is started."""

    run_id: int
    # The last event that is kept. It may be earlier than the one that was asked for, which was in the middle of a turn.
    seq: int
    asked: int
    # The steps that had completed and keep their results.
    kept: list[str]
    # Attempts that were running and run again, that could start, and what follows at once, in sentences.
    again: list[str]
    starts: list[str]
    follows: list[str]
    # Kept steps in which a person has approved something: the fork does not ask again.
    approvals: list[str]
    # Of the new run. A paused one waits until it is resumed.
    status: str
    fork_run_id: int | None = None


class EventForks:
    """Forks runs at their events, in the name of the user of a `Service`."""

    def __init__(self, changes: Changes, past: PastStates) -> None:
        self._changes, self._past = changes, past
        self._reader = changes.reader

    def classified(self, step: str, verdict: Any, reason: str) -> r.Classified:
        """The decision about a parked step, in the name of the user."""
        return r.Classified(_now(), step, verdict, self._changes.by, reason)

    def approved(self, place: str, reason: str, *, is_approved: bool) -> r.ApprovalGiven:
        """The answer to an approval, in the name of the user."""
        return r.ApprovalGiven(_now(), place, is_approved, self._changes.by, reason)

    def fork(
        self,
        run_id: int,
        seq: int,
        driver: Driver | None = None,
        *,
        inputs: dict[str, Any] | None = None,
        decision: OtherDecision | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EventFork:
        """Start a run that continues another one after one of its events."""
        prepared, planned, request = self._planned(run_id, seq, inputs or {}, decision)
        if dry_run:
            return planned
        request = msgspec.structs.replace(request, reason=reason)
        started = self._changes.create_fork(prepared, request, driver)
        self._changes.keep_driven(started)
        return msgspec.structs.replace(planned, fork_run_id=started)

    def fork_with_file(
        self,
        run_id: int,
        seq: int,
        inputs: dict[str, Any],
        workflow: Workflow,
        driver: Driver | None = None,
        *,
        file: str = "",
        dry_run: bool = False,
    ) -> ForkResult:
        """Start a run of a corrected workflow that keeps the results which another run had after one of its events.

        What was half done there begins anew: what it came to depends on a definition that the new run does not have.
        """
        self._past.check(run_id, seq)
        then = self._past.at(run_id, seq).state
        if then.graph.program:
            raise Refused(
                f"run {run_id} is a run of a program: a fork of it goes on with the source that it had then",
                hint="fork it without --file, and correct the new run: mulligan retry RUN --file FILE",
            )
        return self._changes.fork(run_id, "", inputs, workflow, driver, file=file, then=then, seq=seq, dry_run=dry_run)

    def _planned(
        self, run_id: int, seq: int, given: dict[str, Any], decision: OtherDecision | None
    ) -> tuple[Prepared, EventFork, r.RunRequested]:
        point = self._rest_before(run_id, seq)
        old = self._past.at(run_id, point).state
        self._refuse(run_id, point, old)
        if decision is not None:
            self._changes.refuse_beyond_limits(decision)
        evaluator = Cel(os.environ, self._reader.store.artifacts.fetch)
        inputs = check_recorded_inputs(old.workflow, {**old.run.inputs, **given}, evaluator)
        refuse_references({name: inputs[name] for name in given})
        loaded = self._reader.store.load(run_id)
        first = decode(loaded.workflow)
        started = self._reader.store.log(run_id, limit=1)[0].fact
        prepared = Prepared(
            first,
            loaded.workflow,
            loaded.record.version,
            inputs,
            Path(old.run.cwd),
            file=getattr(started, "file", ""),
            changed_only=old.run.changed_only,
            forced=old.run.forced,
            labels=self._reader.labels(run_id),
            capacity=self._reader.capacity(run_id),
            notify=old.run.notify,
        )
        request = r.RunRequested(
            _now(),
            0,
            inputs,
            prepared.version,
            by=self._changes.by,
            forked_from=run_id,
            forked_at=point,
            history=pack_history(islice(self._reader.events(run_id), point)),
            has_inputs=bool(given),
            decision=decision,
            notify=prepared.notify,
            worktree=worktree_origin(old),
        )
        planned = self._preview(request, State(first), asked=seq, evaluator=evaluator)
        self._changes.refuse_keeping(planned.approvals)
        return prepared, planned, request

    def _rest_before(self, run_id: int, seq: int) -> int:
        """The last event at or before this one after which the run waited for something: the end of a turn.

        In the middle of a turn decisions are open that the other run took there, and nobody else can take.
        """
        self._past.check(run_id, seq)
        point = self._past.last_rest(run_id, seq)
        if not point:
            raise Refused(
                f"nothing of run {run_id} is kept before event {seq}, which belongs to its start",
                hint="choose a later event, or start another run",
            )
        return point

    def _refuse(self, run_id: int, point: int, old: State) -> None:
        if old.run.status in RUN_ENDED:
            raise Refused(
                f"run {run_id} had ended at event {point}: no decision can be changed there",
                hint="choose an earlier event" if old.graph.program else f"choose an earlier event; {fork_hint(old)}",
            )
        refuse_callers_worktree(self._reader, run_id, old)
        if old.run.stop is not None:
            hint = "choose an event before it was stopped"
            raise Refused(f"run {run_id} was being stopped at event {point}", hint=hint)
        if worktree_origin(old) is not None:
            refuse_moving_worktree(self._reader, run_id)
            refuse_missing_worktree(old)
        else:
            refuse_shared_worktree(run_id, ((place.key, place.output) for place in old.steps()))
        if not self._reader.home.is_remote:
            refuse_missing_files(old.workflow, Path(old.run.cwd))
            for stale in stale_results(self._reader.home, old, old.graph.nodes):
                raise Refused(
                    f"step '{stale.step}' cannot be kept: {stale.text}",
                    hint=f"run it again, with the steps after it: mulligan fork {run_id} --from {stale.step}",
                    step=stale.step,
                )

    def _preview(self, request: r.RunRequested, state: State, *, asked: int, evaluator: Cel) -> EventFork:
        """What follows from the request, decided on a state that is thrown away."""
        try:
            entries = turn(state, msgspec.structs.replace(request, run_id=1), evaluator)
        except UnknownStep as error:
            step = error.data.get("step", "STEP")
            raise UnknownStep(
                f"'{step}' was not a step of run {request.forked_from} at event {request.forked_at}",
                hint=f"see what was: mulligan replay {request.forked_from} --at {request.forked_at}",
                step=step,
            ) from error
        except (StepNotParked, StepNotWaitingForApproval) as error:
            step = error.data.get("step", "STEP")
            # The core's hint names a command for the run that is only previewed.
            history = f"mulligan replay {request.forked_from} --step {step}"
            error.hint = f"a parked step is classified, an approval is answered; what it was when: {history}"
            raise
        state.commit()
        point = request.forked_at
        writer, follows = StoryWriter(state.workflow), list[str]()
        for entry in entries:
            if entry.seq <= point:
                writer.memory.update(entry.fact)
                continue
            lines = [line for line in writer.lines_for(entry) if not line.is_detail]
            follows += [f"{line.shown_place}: {line.text}" if line.place else line.text for line in lines]
        facts = [entry.fact for entry in entries if entry.seq > point]
        if request.decision is not None and not _is_decided(entries, point):
            command = f"mulligan replay {request.forked_from} --at {point} --fork-here --dry-run"
            raise Refused(
                "there is nothing to decide: the steps that run again in the fork fail at once and stop it",
                hint=f"see what follows without a decision: {command}",
            )
        kept = [place.key for place in state.steps() if place.status == "completed"]
        assert request.forked_from is not None
        return EventFork(
            run_id=request.forked_from,
            seq=point,
            asked=asked,
            kept=kept,
            again=[*_again(state, facts)],
            starts=[*islice(startable_attempts(state), LINES_MAX)],
            follows=follows[:LINES_MAX],
            approvals=approvals_given(state),
            status=state.run.status,
        )


def _again(state: State, facts: Iterable[e.Fact]) -> Iterator[str]:
    """The attempts that were running and run again, in a run with a worktree as soon as that is open."""
    names = PlaceNames()
    for fact in facts:
        if isinstance(fact, e.AttemptInterrupted):
            yield f"{names.name(state, fact.place)}: attempt {fact.attempt + 1}"
    for place in state.places.values() if awaits_worktree(state) else ():
        if place.status == "running" and not is_engine_action(place.spec):
            yield f"{names.name(state, place.key)}: attempt {place.attempt + 1}"


def _is_decided(entries: Iterable[e.Entry], point: int) -> bool:
    """Whether something follows from the request beside the fork itself: the decision that it brings."""
    return any(one.seq > point and not one.caused_by and not isinstance(one.fact, e.RunForked) for one in entries)


def _now() -> datetime:
    return datetime.now(UTC)
