"""Undo and rounds, live: what was done is taken back, the last first; another round does what is not done."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.errors import UndoFailed

BOOKING = """
name: booking
order: sequential
steps:
  - {step: seat, shell: echo "seat-$MULLIGAN_VISIT" | tee -a trace, undo: 'echo "undo ${output}" >> trace'}
  - {step: hotel, shell: echo hotel | tee -a trace, undo: {shell: UNDO_HOTEL}}
  - {step: note, shell: echo note | tee -a trace}
  - {step: pay, shell: 'test -e funds && echo paid >> trace', undo: echo never >> trace}
  - {step: mail, shell: echo mailed >> trace}
end: {shell: echo end >> trace}
"""
UNDO_HOTEL = 'echo "undo ${output}" >> trace'


def booking(undo_hotel: str = UNDO_HOTEL) -> str:
    return BOOKING.replace("UNDO_HOTEL", f"'{undo_hotel}'")


def test_undos_run_one_at_a_time_the_last_completed_first_with_their_outputs_then_end(live: Live):
    ran = live.run(booking())

    assert live.lines("trace") == ["seat-1", "hotel", "note", "undo hotel", "undo seat-1", "end"]
    assert ran.status == "failed"
    assert [fact.step for fact in ran.facts(e.UndoCompleted)] == ["hotel", "seat"]


def test_nothing_is_undone_where_a_failure_was_handled(live_file: Live):
    ran = live_file.run(booking().replace("echo paid >> trace", "echo paid >> trace || true").replace("UNDO", ""))

    assert ran.status == "completed"
    assert live_file.lines("trace") == ["seat-1", "hotel", "note", "mailed", "end"]


def test_each_visit_of_a_loop_is_undone_with_its_own_output(live_file: Live):
    ran = live_file.run("""
        name: loop
        steps:
          - step: add
            shell: echo "row $MULLIGAN_VISIT"
            undo: 'echo "remove ${output}" >> trace'
            take: first
            next: [{to: add, when: steps.add.visits < 3}, {to: check}]
          - {step: check, shell: exit 1}
    """)

    assert live_file.lines("trace") == ["remove row 3", "remove row 2", "remove row 1"]
    assert ran.status == "failed"


def test_an_undo_that_fails_after_its_retry_and_handler_is_recorded_and_the_others_go_on(live_file: Live):
    text = booking().replace(
        "undo: {shell: 'echo \"undo ${output}\" >> trace'}",
        "undo: {shell: 'echo trying >> trace; exit 9', retry: 1, on_failure: exit 8}",
    )

    ran = live_file.run(text)

    [failed] = ran.facts(e.UndoFailed)
    assert (failed.step, failed.failure.code, failed.failure.cause[0].exit_code) == ("hotel", "UNDO_FAILED", 9)
    assert live_file.lines("trace")[3:] == ["trying", "trying", "undo seat-1", "end"]
    assert ran.status == "failed"


def test_an_undo_that_takes_too_long_is_ended_and_the_others_go_on(live: Live):
    text = booking().replace(
        "undo: {shell: 'echo \"undo ${output}\" >> trace'}", "undo: {shell: sleep 1000, timeout: 100ms}"
    )

    ran = live.run(text)

    [failed] = ran.facts(e.UndoFailed)
    assert failed.failure.cause[0].code == "TIMEOUT"
    assert live.lines("trace")[3:] == ["undo seat-1", "end"]


def test_a_cancelled_run_is_undone_and_with_now_it_is_not(live: Live):
    text = """
name: held
steps:
  - {step: book, shell: echo seat, undo: 'echo "undo ${output}" >> trace'}
  - {step: hold, needs: [book], shell: sleep 1000}
end: {shell: echo end >> trace}
"""

    def cancel(now: bool) -> Any:
        def act(there: Terminal) -> None:
            there.wait_for(e.AttemptStarted, place="hold")
            there.service.changes.cancel(there.run_id, now=now)

        return act

    live.run(text, meanwhile=cancel(now=False))
    assert live.lines("trace") == ["undo seat", "end"]

    live.run(text, meanwhile=cancel(now=True))
    assert live.lines("trace") == ["undo seat", "end", "end"]


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_a_new_round_runs_what_was_undone_and_what_was_built_on_it(live: Live):
    first = live.run(booking())
    live.write("trace")
    live.write("funds")

    assert live.service.changes.retry(first.run_id, dry_run=True).steps == ("seat", "hotel", "note", "pay", "mail")
    live.service.changes.retry(first.run_id, reason="funds came")
    second = live.resume(first.run_id)

    [reopened] = second.facts(e.RunReopened)
    assert (reopened.round, reopened.reason, reopened.by) == (2, "funds came", live.service.by)
    assert (second.status, second.shown["round"]) == ("completed", 2)
    assert live.lines("trace") == ["seat-2", "hotel", "note", "paid", "mailed", "end"]


def test_what_could_not_be_undone_is_shown_and_runs_again_only_by_force(live: Live):
    first = live.run(booking("echo trying >> trace; test -e mended"))
    places = live.service.reader.state(first.run_id).places
    assert [(places[name].is_undone, places[name].undo_failed) for name in ("seat", "hotel")] == [
        (True, False),
        (False, True),
    ]
    live.write("mended")

    with pytest.raises(UndoFailed) as refused:
        live.service.changes.retry(first.run_id)
    assert refused.value.data["steps"] == ["hotel"]
    live.service.changes.retry(first.run_id, force=True)
    live.resume(first.run_id)

    assert live.lines("trace")[-4:] == ["trying", "undo seat-2", "trying", "end"]
    hotel = live.service.reader.state(first.run_id).places["hotel"]
    assert (hotel.is_undone, hotel.undo_failed) == (True, False)


def test_a_new_round_keeps_what_completed_or_was_handled_and_gives_fresh_budgets(live: Live):
    first = live.run("""
        name: rounds
        timeout: 1m
        steps:
          - {step: kept, shell: echo kept >> trace}
          - {step: helped, shell: echo helped >> trace; exit 1, next: {to: help, on: failure}}
          - {step: help, shell: echo help >> trace}
          - {step: broken, shell: echo broken >> trace; test -e mended, retry: 1}
          - {step: behind, needs: [broken], shell: echo behind >> trace}
    """)
    assert sorted(live.lines("trace")) == ["broken", "broken", "help", "helped", "kept"]
    live.write("trace")

    live.service.changes.retry(first.run_id)
    second = live.resume(first.run_id)
    live.write("mended")
    live.service.changes.retry(first.run_id)
    third = live.resume(first.run_id)

    assert (first.status, second.status, third.status) == ("failed", "failed", "completed")
    assert live.lines("trace") == ["broken", "broken", "broken", "behind"]
    ends = third.facts(e.RunFailed) + third.facts(e.RunCompleted)
    assert [ended.round for ended in ends] == [1, 2, 3]
    first_due, second_due = first.facts(e.RunStarted)[0].due, third.facts(e.RunReopened)[1].due
    assert first_due is not None
    assert second_due is not None
    assert second_due > first_due


def test_a_cancelled_run_is_taken_up_again_by_another_round(live: Live):
    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="hold")
        there.service.changes.cancel(there.run_id)

    first = live.run(
        """
        name: held
        steps:
          - {step: done, shell: echo done >> trace}
          - {step: hold, needs: [done], shell: test -e go || sleep 1000}
          - {step: after, needs: [hold], shell: echo after >> trace}
        """,
        meanwhile=cancel,
    )
    live.write("go")

    live.service.changes.retry(first.run_id)
    second = live.resume(first.run_id)

    assert (first.status, second.status) == ("cancelled", "completed")
    assert live.lines("trace") == ["done", "after"]
