"""One failure of a step with everything that helps to decide about it: the ladder so far, the log, the past."""

from __future__ import annotations

import re

import msgspec

from mulligan.core.model.place_keys import step_name
from mulligan.errors import Refused
from mulligan.service.decisions.earlier_decisions import EarlierDecision, find_earlier
from mulligan.service.decisions.inbox import Decisions, GivenAnswer, LogTail, read_tail
from mulligan.service.decisions.pending import PendingEntry
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_details import FailureHandlers
from mulligan.service.runs.views.run_view import FailureView
from mulligan.service.runs.views.step_history import AttemptLine, StepHistories, StepHistory, VisitLadder

# The last attempts, of which there may be thousands.
ATTEMPTS_MAX = 10
_ITEM = re.compile(r"(?P<step>[^.\[]+)\[(?P<index>\d+)\]")


class FailureDetails(msgspec.Struct, frozen=True):
    """A failure of one step or item. What was not found is None or empty."""

    run_id: int
    workflow: str
    run_status: str
    round: int
    step: str
    status: str
    # As `show RUN STEP --json` has it.
    failure: FailureView | None
    # The entry of the step, if it waits for a person; otherwise the last answer that somebody gave.
    pending: PendingEntry | None
    answer: GivenAnswer | None
    # The last failed visit: what each rung of the ladder did, and of each rule why it granted a retry or did not.
    ladder: VisitLadder | None
    # What deals with its failures, as the file says.
    handlers: FailureHandlers | None
    # The last attempts, and how many there were.
    attempts: list[AttemptLine]
    attempts_count: int
    log: LogTail | None
    # What was decided about the same error: about the same step first, each group the newest first.
    decisions: list[EarlierDecision]


class Failures:
    """Reads single failures."""

    def __init__(self, reader: RunReader, cache: RunCache) -> None:
        self._reader = reader
        self._decisions = Decisions(reader)
        self._histories = StepHistories(reader, cache)

    def details(self, run_id: int, step: str) -> FailureDetails:
        """Everything about the failure of a step or item. `UnknownRun`, `UnknownStep`; `Refused` if nothing failed."""
        self._reader.record(run_id)
        self._reader.refuse_unknown(run_id, step)
        step = self._reader.find_place(run_id, step)
        waiting = self._decisions.details(run_id, step)
        history = self._history(run_id, step)
        ladder = history.ladders[0] if history.ladders else None
        failure = history.failure
        if ladder is None and failure is None and waiting.entry is None:
            raise Refused(
                f"'{step}' of run {run_id} has not failed: it is {history.status}",
                hint="what happened to it: the tool explain, or mulligan explain",
                step=step,
            )
        last = next((one for one in reversed(history.attempts) if one.code and one.part == "own"), None)
        decisions, log = waiting.decisions, waiting.log
        if waiting.entry is None and last is not None:
            decisions = find_earlier(self._reader.store, history.workflow, step, last.code, last.exit_code)
            log = read_tail(self._reader, run_id, last.place, last.attempt)
        return FailureDetails(
            run_id=run_id,
            workflow=history.workflow,
            run_status=history.run_status,
            round=history.round,
            step=step,
            status=history.status,
            failure=failure,
            pending=waiting.entry,
            answer=waiting.answer,
            ladder=ladder,
            handlers=history.handlers,
            attempts=history.attempts[-ATTEMPTS_MAX:],
            attempts_count=history.attempts_count,
            log=log,
            decisions=decisions,
        )

    def _history(self, run_id: int, step: str) -> StepHistory:
        item = _ITEM.match(step)
        if item is not None:
            return self._histories.item(run_id, item["step"], int(item["index"]))
        return self._histories.step(run_id, step_name(step))
