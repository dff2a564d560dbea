"""Asking a run: a report is put into its inbox, and its answer is waited for.

The process that drives the run answers. If no process does, this one takes the run's turn until it has answered. So the
core refuses a senseless change at once, wherever the run is.
"""

from __future__ import annotations

import time

from mulligan.core.deciding.admit import rerun_hint
from mulligan.core.deciding.report_checks import check_report
from mulligan.core.model import reports as r
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.driven_runs import RunAbandoned
from mulligan.errors import CodecError, InputInvalid, Refused, RunDriven, RunFinished, StoreUnavailable
from mulligan.ports import Answer, RunRecord, WorkerRecord
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.driving.locks import Locks
from mulligan.service.runs.stored.run_reader import RunReader

# How long to wait for an answer of the process that drives the run, and how often to look for it.
ANSWER_SECONDS, LOOK_SECONDS = 10.0, 0.01
# How long to drive a run that nobody drives until it answers: tasks of its last round may have their grace.
OWN_TURN_SECONDS = 60.0


def ask(reader: RunReader, run_id: int, report: r.Report) -> tuple[int, Answer]:
    """Put a report into the run's inbox and wait for the answer. The id of the message, and the answer."""
    check_report(report)
    try:
        message_id = reader.store.put(run_id, report, is_asking=True)
    except UnicodeEncodeError:
        # A terminal may pass bytes that are not text.
        raise InputInvalid("the text is not valid UTF-8, so it cannot be stored") from None
    try:
        return message_id, _wait_for_answer(reader, run_id, message_id)
    except (CodecError, RunAbandoned):
        if not (isinstance(report, r.CancelRequested) and report.now) or reader.home.is_remote:
            raise
        if reader.store.run(run_id).status in RUN_ENDED:
            raise
        # Nothing of it can be processed. Its row says that it has ended, whatever its log says.
        with open_driver(reader) as driver:
            driver.end_unreadable(run_id, report)
        return message_id, Answer()


def _wait_for_answer(reader: RunReader, run_id: int, message_id: int) -> Answer:
    answer: Answer | None = None

    def is_answered() -> bool:
        nonlocal answer
        answer = answer or reader.store.answer(message_id)
        return answer is not None

    begun = time.monotonic()
    while not is_answered():
        driver, waited = reader.driver_of(reader.store.run(run_id)), time.monotonic() - begun
        if waited > (ANSWER_SECONDS if driver is not None else OWN_TURN_SECONDS):
            raise _unanswered(run_id, driver)
        if driver is not None:
            time.sleep(LOOK_SECONDS)
            continue
        # Drive the run without running tasks, until it has answered or another process drives it.
        refuse_unknown_holder(reader, run_id)
        with open_driver(reader) as own:
            own.turn(
                run_id,
                lambda: (
                    is_answered()
                    or time.monotonic() > begun + OWN_TURN_SECONDS
                    or (run_id not in own.engine.drivers and reader.is_driven(run_id))
                ),
            )
    assert answer is not None
    return answer


def refuse_child(record: RunRecord, verb: str) -> None:
    """Refuse a child run: the step that called it controls it."""
    if record.parent_run_id is not None:
        raise Refused(
            f"run {record.run_id} is a child of run {record.parent_run_id}",
            hint=f"{verb} that one: mulligan {verb} {record.root_run_id}",
        )


def refuse_to_take_up(reader: RunReader, record: RunRecord) -> None:
    """Refuse to continue a run that has ended, that another run controls, or that a process drives."""
    if record.status in RUN_ENDED:
        raise RunFinished(
            f"run {record.run_id} {record.status}, so there is nothing to resume",
            hint=rerun_hint(reader.lazy_state(record.run_id)),
        )
    refuse_child(record, "resume")
    refuse_unknown_holder(reader, record.run_id)
    driver = reader.driver_of(record)
    if driver is not None and record.status != "paused":
        raise RunDriven(
            f"run {record.run_id} is driven by process {driver.pid} on {driver.host}",
            hint=_where_it_goes_on(reader, record.run_id, driver),
        )


def _where_it_goes_on(reader: RunReader, run_id: int, driver: WorkerRecord) -> str:
    """A hint about a run that another process drives. In a copy of its home a cancel would reach no process."""
    original = Locks(reader.home, is_shared=reader.store.is_shared).original_home(driver)
    if original:
        return f"this folder is a copy; the run continues in '{original}': use --home with that one, or wait"
    return f"it continues there; to stop it: mulligan cancel {run_id}"


def refuse_unknown_holder(reader: RunReader, run_id: int) -> None:
    """Refuse a run whose holder is not a worker: a turn ends with its worker, so no other would ever get it."""
    holder = reader.store.run(run_id).holder
    if not holder or any(worker.name == holder for worker in reader.store.workers()):
        return
    # Read again: a worker that was removed in between has given up its turns.
    if reader.store.run(run_id).holder == holder:
        raise CodecError(
            f"run {run_id} is held by '{holder}', which is not a worker of this store",
            hint="the store was changed by hand or is damaged: restore it from a copy",
        )


def _unanswered(run_id: int, driver: WorkerRecord | None) -> StoreUnavailable:
    if driver is None:
        return StoreUnavailable(
            f"run {run_id} has not answered",
            hint="the request is recorded; the run answers when its running tasks have ended",
        )
    return StoreUnavailable(
        f"process {driver.pid} on {driver.host} drives run {run_id} and has not answered",
        hint="the request is recorded; that process may be stopped, and answers when it continues",
    )
