"""Stopping, live: nothing starts; what runs is asked to end, then made to; then cleanup, undo, `end`, in this order."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.runner import Live, Ran, Terminal, wait_until

from mulligan.core.model import events as e

# A process that ends when asked to, one that does not care, and one that has left its session and does not care either.
TREE = """
name: tree
cancel_grace: GRACE
steps:
  - step: tree
    shell: |
      trap 'echo asked >> trace' TERM
      sh -c 'trap "" TERM; echo $$ >> pids; exec sleep 1000' &
      setsid sh -c 'trap "" TERM; echo $$ >> pids; exec sleep 1000' &
      echo $$ >> pids
      while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done
      touch up
      while :; do sleep 0.05; done
    on_failure: {shell: 'echo "cleanup ${error.code}" >> trace', strategy: cleanup}
end: {shell: echo end >> trace}
"""


def cancel_when_up(there: Terminal, *, now: bool = False) -> None:
    there.wait_until((there.folder / "up").exists)
    there.service.changes.cancel(there.run_id, now=now)


def cancel_now_when_up(there: Terminal) -> None:
    cancel_when_up(there, now=True)


def is_gone(pid: str) -> bool:
    """A process that ended and was waited for has no entry; one that nobody waited for is a zombie."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_what_runs_is_asked_to_end_and_after_its_grace_the_whole_tree_is_killed(live: Live):
    ran = live.run(TREE.replace("GRACE", "200ms"), meanwhile=cancel_when_up)

    [stopping], [ended] = ran.entries(e.AttemptStopping), ran.entries(e.AttemptCancelled)
    assert (ran.status, ran.steps["tree"]["status"]) == ("cancelled", "cancelled")
    assert live.lines("trace") == ["asked", "cleanup CANCELLED", "end"]
    assert ended.at - stopping.at >= timedelta(milliseconds=200)
    assert all(is_gone(pid) for pid in live.lines("pids"))


def test_without_grace_the_tree_is_killed_at_once_and_with_now_nothing_is_cleaned_up(live: Live):
    ran = live.run(TREE.replace("GRACE", "0s"), meanwhile=cancel_now_when_up)

    assert (ran.status, live.lines("trace")[-1:]) == ("cancelled", ["end"])
    assert "cleanup CANCELLED" not in live.lines("trace")
    assert all(is_gone(pid) for pid in live.lines("pids"))


def test_a_step_that_ends_when_asked_to_is_not_waited_for(live: Live):
    ran = live.run(
        """
        name: polite
        cancel_grace: 10m
        steps: [{step: a, shell: "trap 'echo bye >> trace; exit 0' TERM; touch up; while :; do sleep 0.02; done"}]
        """,
        meanwhile=cancel_when_up,
    )

    assert (ran.status, ran.steps["a"]["status"], live.lines("trace")) == ("cancelled", "cancelled", ["bye"])


# -- nothing starts --------------------------------------------------------------------------------------------------


def test_nothing_starts_in_a_stopping_run_and_reserved_retries_are_void(live: Live):
    def cancel(there: Terminal) -> None:
        there.wait_for(e.RetryScheduled, place="climbing")
        there.wait_for(e.StepParked, step="parked")
        cancel_when_up(there)

    ran = live.run(
        """
        name: void
        cancel_grace: 5s
        steps:
          - {step: climbing, shell: echo tried >> trace; exit 1, retry: {max_retries: 3, delay: 1h}}
          - {step: parked, shell: exit 1, triage: true}
          - {step: asking, approve: {message: go on?}, next: end}
          - {step: waiting, wait: 1h}
          - {step: running, shell: touch up; sleep 1000}
          - {step: behind, needs: [running], shell: echo never >> trace}
          - {step: routed, needs: [running], shell: echo never >> trace, next: {to: fix, on: failure}}
          - {step: fix, shell: echo never >> trace}
        end: {shell: echo end >> trace}
        """,
        meanwhile=cancel,
    )

    assert live.lines("trace") == ["tried", "end"]
    # What had failed and was climbing has failed; parked ones were waiting for a person, and are cancelled.
    assert {name: step["status"] for name, step in ran.steps.items()} == {
        "climbing": "failed",
        "parked": "cancelled",
        "asking": "cancelled",
        "waiting": "cancelled",
        "running": "cancelled",
        "behind": "cancelled",
        "routed": "cancelled",
        "fix": "cancelled",
    }
    assert ran.steps["climbing"]["failure_route"]["status"] == "skipped_terminal"


def test_a_handler_that_is_no_cleanup_is_stopped_with_its_step(live: Live):
    ran = live.run(
        """
        name: handled
        cancel_grace: 0s
        steps:
          - {step: a, shell: exit 1, on_failure: [touch up; sleep 1000, echo never >> trace]}
        """,
        meanwhile=cancel_when_up,
    )

    assert (ran.status, ran.steps["a"]["status"]) == ("cancelled", "failed")
    assert live.lines("trace") == []


# -- left to finish --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "status"), [(0, "completed"), (5, "failed")])
def test_left_to_finish_what_runs_ends_by_itself_and_what_it_reports_counts(live: Live, code: int, status: str):
    def cancel(there: Terminal) -> None:
        cancel_when_up(there)
        there.wait_for(e.RunStopping)
        (there.folder / "go").touch()

    ran = live.run(
        f"""
        name: finish
        cancel_grace: finish
        steps:
          - {{step: a, shell: "touch up; until test -e go; do sleep 0.01; done; echo done; exit {code}"}}
          - {{step: b, needs: [a], shell: echo never >> trace}}
        """,
        meanwhile=cancel,
    )

    assert (ran.status, ran.steps["a"]["status"]) == ("cancelled", status)
    assert live.lines("trace") == []
    assert ran.steps["a"]["output"] == ("done" if code == 0 else None)


# -- cleanup, undo, end ----------------------------------------------------------------------------------------------

ORDER = """
name: order
cancel_grace: 0s
fail_fast: FAST
TIMEOUT
steps:
  - {step: booked, shell: echo seat, undo: echo undo booked >> trace}
  - {step: paid, needs: [booked], shell: echo card, undo: echo undo paid >> trace}
  - step: hold
    needs: [paid]
    shell: touch up; sleep 1000
    on_failure: {commands: [echo cleanup one >> trace, echo cleanup two >> trace], strategy: cleanup}
  - {step: spoil, needs: [paid], shell: COMMAND}
end: {shell: echo end >> trace}
"""
IN_ORDER = ["cleanup one", "cleanup two", "undo paid", "undo booked", "end"]


def order(fast: str = "never", timeout: str = "", command: str = "'true'") -> str:
    return ORDER.replace("FAST", fast).replace("TIMEOUT", timeout).replace("COMMAND", command)


def test_cleanup_then_undo_then_end_after_a_cancel(live: Live):
    ran = live.run(order(), meanwhile=cancel_when_up)

    assert (ran.status, live.lines("trace")) == ("cancelled", IN_ORDER)


def test_cleanup_then_undo_then_end_when_the_runs_time_is_up(live: Live):
    def is_held(_: Ran) -> bool:
        if not (live.folder / "up").exists():
            (live.folder / "trace").unlink()
            return False
        return True

    ran = live.run_within(order(timeout="timeout: LIMIT"), 1500, is_held)

    assert (ran.status, live.lines("trace")) == ("failed", IN_ORDER)
    assert (ran.shown["reason"], ran.exit_code) == ("the run took longer than its timeout", 1)


def test_cleanup_then_undo_then_end_when_fail_fast_strikes(live: Live):
    ran = live.run(order(fast="always", command="until test -e up; do sleep 0.01; done; exit 1"))

    assert (ran.status, live.lines("trace")) == ("failed", IN_ORDER)
    assert ran.steps["hold"]["status"] == "cancelled"


def test_fail_fast_on_critical_strikes_only_then(live_file: Live):
    live_file.write("error.json", '{"code": "LEAK", "severity": "critical"}')
    critical = "'until test -e up; do sleep 0.01; done; cat error.json > \"$MULLIGAN_ERROR\"'"

    ran = live_file.run(order(fast="on_critical", command=critical))

    assert (ran.status, live_file.lines("trace")) == ("failed", IN_ORDER)
    assert ran.steps["spoil"]["failure"]["code"] == "LEAK"


def test_a_failure_that_is_not_critical_does_not_disturb_other_branches(live_file: Live):
    ran = live_file.run("""
        name: branches
        steps:
          - {step: bad, shell: exit 1}
          - {step: good, shell: 'true'}
          - {step: better, needs: [good], shell: 'true'}
    """)

    assert ran.status == "failed"
    assert {name: step["status"] for name, step in ran.steps.items()} == {
        "bad": "failed",
        "good": "completed",
        "better": "completed",
    }


def test_cleanup_undo_and_end_each_have_their_own_time_limit(live: Live):
    ran = live.run(
        """
        name: limits
        cancel_grace: 0s
        timeout: 1m
        steps:
          - {step: booked, shell: 'true', undo: {shell: sleep 1000, timeout: 50ms}}
          - step: hold
            needs: [booked]
            shell: touch up; sleep 1000
            on_failure: {shell: sleep 1000, strategy: cleanup, timeout: 50ms}
        end: {shell: sleep 1000, timeout: 50ms}
        """,
        meanwhile=cancel_when_up,
    )

    [undo] = ran.facts(e.UndoFailed)
    assert (ran.status, ran.steps["hold"]["status"]) == ("cancelled", "cancelled")
    assert undo.failure.cause[0].code == "TIMEOUT"
    assert ran.shown["end"]["failure"]["code"] == "TIMEOUT"


def test_now_ends_the_cleanup_and_the_undo_that_an_earlier_cancel_left_to_run(live: Live):
    def cancel(there: Terminal) -> None:
        cancel_when_up(there)
        there.wait_for(e.AttemptStarted, place="hold.on_failure@1.0")
        there.service.changes.cancel(there.run_id, now=True)

    ran = live.run(
        """
        name: hurry
        cancel_grace: 0s
        steps:
          - {step: booked, shell: 'true', undo: echo never >> trace}
          - step: hold
            needs: [booked]
            shell: touch up; sleep 1000
            on_failure: {shell: sleep 1000, strategy: cleanup}
        end: {shell: echo end >> trace}
        """,
        meanwhile=cancel,
    )

    assert (ran.status, live.lines("trace")) == ("cancelled", ["end"])


def test_a_cleanup_handler_runs_once_per_item_that_was_running(live: Live):
    ran = live.run(
        """
        name: items
        cancel_grace: 0s
        steps:
          - step: each
            map: {over: [a, b, c], max_parallel: 2}
            do:
              - shell: 'if test ${item} = b; then touch up; fi; sleep 1000'
                on_failure: {shell: 'echo "cleanup ${item}" >> trace', strategy: cleanup}
        """,
        meanwhile=cancel_when_up,
    )

    assert ran.status == "cancelled"
    assert sorted(live.lines("trace")) == ["cleanup a", "cleanup b"]


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_an_interrupt_is_no_cancel_nothing_is_spent_and_the_run_goes_on_later(live: Live):
    live.write(
        "flow.yaml",
        "name: held\nsteps:\n"
        "  - {step: hold, shell: 'echo tried >> trace; test -e go || { touch up; sleep 1000; }', on_failure: exit 9}\n"
        "end: {shell: echo end >> trace}\n",
    )
    with live.process("run", "flow.yaml") as child:
        wait_until((live.folder / "up").exists)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    between = live.look(1)
    live.write("go")

    ran = live.resume(1)

    assert child.returncode == 130
    assert (between.status, between.facts(e.RunStopping)) == ("running", [])
    assert live.lines("trace") == ["tried", "tried", "end"]
    assert (ran.status, ran.shown["failures"], ran.facts(e.RetryScheduled)) == ("completed", [], [])
    assert ran.facts(e.HandlerStarted) == []


TIDY = """
name: tidy
steps:
  - step: hold
    shell: |
      echo came >> trace
      test -e go && exit
      trap 'for _ in 1 2 3 4 5 6 7 8 9; do sleep 0.4; done; echo left >> trace; exit' TERM
      touch go
      read -r _ <> pipe
"""


def test_what_has_its_grace_keeps_its_lease_for_so_long(live_server: Live, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_LEASE", "2s")
    live_server.write("flow.yaml", TIDY)
    os.mkfifo(live_server.folder / "pipe")
    with live_server.process("run", "flow.yaml") as child:
        wait_until((live_server.folder / "go").exists)
        with live_server.process("worker"):
            wait_until(lambda: len(live_server.service.reader.store.workers()) == 2)
            child.send_signal(signal.SIGINT)

            wait_until(lambda: live_server.service.reader.store.run(1).status == "completed")

    assert live_server.lines("trace") == ["came", "left", "came"]


def test_who_drives_a_run_has_its_signal_handlers_back_afterwards(live_file: Live):
    def interrupt(there: Terminal) -> None:
        there.wait_until((there.folder / "up").exists)
        during.extend(handlers())
        os.kill(os.getpid(), signal.SIGINT)

    before, during = handlers(), list[object]()

    ran = live_file.run("name: held\nsteps: [{step: hold, shell: touch up; sleep 1000}]", meanwhile=interrupt)

    assert ran.exit_code == 130
    assert handlers() == before
    assert all(ours != theirs for ours, theirs in zip(during, before, strict=True))


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
