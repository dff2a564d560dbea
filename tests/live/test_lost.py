"""A lost worker, live: commands that kill the supervisor above them. It spends nothing, up to a bound."""

from __future__ import annotations

import os

import pytest
from tests.support.runner import Live, Ran, Terminal, wait_until

from mulligan.core.model import events as e
from mulligan.core.model.workflow import RERUNS_AFTER_LOSS_MAX

# The parent of a command is the supervisor of its worker: with it goes all that the worker runs.
LOSE = "kill -9 $PPID; sleep 60"


def losses(ran: Ran) -> dict[str, int]:
    """How often each place lost its worker."""
    found: dict[str, int] = {}
    for fact in ran.facts(e.AttemptLost):
        found[fact.place] = found.get(fact.place, 0) + 1
    return found


@pytest.mark.postgres
def test_a_step_that_loses_its_worker_runs_again_and_spends_no_retry(live: Live):
    ran = live.run(
        f"""
name: lost
steps:
  - step: fetch
    shell: |
      case $MULLIGAN_ATTEMPT in 1|3) {LOSE};; 2) exit 5;; *) echo fetched;; esac
    retry: {{max_retries: 1}}
"""
    )

    assert (ran.steps["fetch"]["output"], ran.steps["fetch"]["attempts"]) == ("fetched", 4)
    assert [(fact.attempt, fact.number) for fact in ran.facts(e.RetryScheduled)] == [(3, 1)]
    assert losses(ran) == {"fetch": 2}


def test_after_three_reruns_it_is_a_failure_and_climbs(live: Live):
    ran = live.run(
        f"""
name: lost
steps:
  - step: fetch
    shell: {LOSE}
    retry: {{max_retries: 1}}
    on_failure: echo "${{error.code}} in attempt ${{error.attempt}}"
"""
    )

    # A retry of a lost attempt has no reruns of its own: the bound is the step's.
    assert losses(ran)["fetch"] == RERUNS_AFTER_LOSS_MAX + 2
    assert [fact.reason for fact in ran.facts(e.RungPassed)] == [
        "reruns_exhausted",
        "reruns_exhausted",
        "retries_exhausted",
    ]
    assert ran.steps["fetch"]["output"] == "WORKER_LOST in attempt 5"
    assert ran.steps["fetch"]["recovered"]


AT_ONCE = f"""
name: lost
steps:
  - step: asked
    shell: {LOSE}
    on_lost: fail
    retry: 1
  - step: named
    needs: [{{step: asked, on: always}}]
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || {{ {LOSE}; }}'
    retry: {{rules: [{{codes: [WORKER_LOST], max_retries: 1}}]}}
"""


def test_it_climbs_at_once_where_the_step_or_a_rule_says_so(live: Live):
    ran = live.run(AT_ONCE)

    # What climbs at once spends a retry like any other failure.
    assert losses(ran) == {"asked": 2, "named": 1}
    assert [fact.place for fact in ran.facts(e.RetryScheduled)] == ["asked", "named"]
    asked, named = ran.steps["asked"], ran.steps["named"]
    assert (asked["status"], asked["failure"]["code"], asked["attempts"]) == ("failed", "WORKER_LOST", 2)
    assert (named["status"], named["attempts"]) == ("completed", 2)


BELOW = f"""
name: below
steps:
  - step: fetch
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 1'
    retry: {{max_retries: 1, recovery_script: 'echo x >> script; [ $(wc -l < script) -gt 1 ] || {{ {LOSE}; }}'}}
  - step: build
    needs: [fetch]
    shell: exit 2
    on_failure:
      - echo one >> handler
      - 'echo two >> handler; [ $(wc -l < handler) -gt 2 ] || {{ {LOSE}; }}; echo built'
"""


def test_a_script_or_handler_command_that_loses_its_worker_is_repeated_alone_and_the_log_says_so(live: Live):
    ran = live.run(BELOW)

    assert (ran.status, ran.steps["build"]["output"]) == ("completed", "built")
    assert (live.lines("script"), live.lines("handler")) == (["x", "x"], ["one", "two", "two"])
    assert losses(ran) == {"fetch.script@1": 1, "build.on_failure@1.1": 1}


HELD = """
name: held
steps:
  - step: hold
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || { echo up > up; sleep 60; }'
"""


def test_an_interrupted_attempt_spends_and_counts_nothing(live: Live):
    os.mkfifo(live.folder / "up")

    def interrupt(there: Terminal) -> None:
        assert (there.folder / "up").read_text() == "up\n"
        os.kill(os.getpid(), 2)

    before = live.run(HELD, meanwhile=interrupt)
    ran = live.resume(before.run_id)

    assert (before.ending, before.exit_code, before.status) == ("interrupted", 130, "running")
    assert [fact.attempt for fact in ran.facts(e.AttemptInterrupted)] == [1]
    assert (ran.status, ran.facts(e.RetryScheduled), ran.facts(e.AttemptFailed)) == ("completed", [], [])


@pytest.mark.postgres
def test_who_waits_for_a_run_that_another_process_drives_goes_on_with_it_when_that_one_dies(live: Live):
    live.write("flow.yaml", "name: a\nsteps: [{step: a, shell: 'test ! -e up || exit 0; touch up; sleep 1000'}]\n")

    def kill(terminal: Terminal) -> None:
        terminal.wait_until(lambda: len(terminal.service.reader.store.workers()) == 2)
        child.kill()

    with live.process("run", "flow.yaml") as child:
        wait_until((live.folder / "up").exists)
        ran = live.resume(1, meanwhile=kill)

    assert (ran.status, ran.steps["a"]["attempts"]) == ("completed", 2)
