"""Recovery scripts, live: what they find around them, when they run, and what becomes of the retry they run for."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.core.model import events as e

# Names that are about the task itself, whatever it is.
OF_EVERY_TASK = {
    f"MULLIGAN_{name}"
    for name in "OUTPUT ERROR PROGRESS ARTIFACTS DATA DATA_SET CACHE FENCE IDEMPOTENCY_KEY WORKER CPUS".split()
}

TOLD = """
name: told
steps:
  - step: fetch
    shell: '[ $MULLIGAN_ATTEMPT -gt 2 ] || { echo "disk full" >&2; exit 28; }'
    env: {COLOUR: blue}
    cwd: below
    retry:
      rules:
        - exit_codes: [28]
          max_retries: 2
          recovery_script: |
            env | grep ^MULLIGAN_ | sort > env-$MULLIGAN_ATTEMPT
            echo "clearing: ${error.message}"
            echo "$COLOUR ${error.code} ${error.exit_code} ${error.attempt}" >&2
  - step: check
    map: {over: '${["a", "b"]}'}
    do:
      - shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || kill -9 $$'
        retry: {max_retries: 1, recovery_script: 'env | grep ^MULLIGAN_ > item-$MULLIGAN_ITEM'}
  - step: slow
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || sleep 30'
    timeout: 50ms
    retry: {max_retries: 1, recovery_script: 'env | grep ^MULLIGAN_ > slow'}
"""


def variables(live: Live, name: str) -> dict[str, str]:
    """What a script found in its environment, without what every task has."""
    found = dict(line.split("=", 1) for line in live.lines(name))
    return {key: value for key, value in found.items() if key not in OF_EVERY_TASK}


def test_a_script_finds_the_failure_that_it_is_about_in_its_environment(live_file: Live):
    (live_file.folder / "below").mkdir()

    ran = live_file.run(TOLD)

    assert ran.status == "completed"
    shared = {"MULLIGAN_RUN_ID": str(ran.run_id), "MULLIGAN_WORKFLOW": "told", "MULLIGAN_VISIT": "1"}
    shared["MULLIGAN_OUTPUT_DIR"] = f"{live_file.home.folder}/runs/{ran.run_id}/output"
    failed = {"MULLIGAN_ERROR_CODE": "EXIT_NONZERO", "MULLIGAN_RETURN_CODE": "28", "MULLIGAN_STEP": "fetch"}
    assert variables(live_file, "below/env-1") == {**shared, **failed, "MULLIGAN_ATTEMPT": "1"}
    assert variables(live_file, "below/env-2") == {**shared, **failed, "MULLIGAN_ATTEMPT": "2"}
    killed = {"MULLIGAN_ERROR_CODE": "SIGNALED", "MULLIGAN_RETURN_CODE": "137", "MULLIGAN_STEP": "check"}
    assert variables(live_file, "item-1") == {**shared, **killed, "MULLIGAN_ATTEMPT": "1", "MULLIGAN_ITEM": "1"}
    # A timeout has no exit code.
    late = {"MULLIGAN_ERROR_CODE": "TIMEOUT", "MULLIGAN_STEP": "slow", "MULLIGAN_ATTEMPT": "1"}
    assert variables(live_file, "slow") == {**shared, **late}


def test_a_script_has_the_steps_folder_and_environment_and_logs_of_its_own(live_file: Live):
    (live_file.folder / "below").mkdir()

    ran = live_file.run(TOLD)

    [log] = live_file.logs(ran.run_id, "fetch", "script")
    assert log == ("clearing: disk full\n", "blue EXIT_NONZERO 28 2\n")


def test_what_an_outer_step_was_told_is_not_handed_on(live_file: Live, monkeypatch: pytest.MonkeyPatch):
    """`mulligan run` may stand in a handler of another run."""
    for name in "ITEM ERROR_CODE RETURN_CODE FAILURE_CONTEXT PROMPT_FILE CONTEXT_FILE MODEL MEMORY".split():
        monkeypatch.setenv(f"MULLIGAN_{name}", "of the outer step")

    ran = live_file.run("name: inner\nsteps: [{step: a, shell: env | grep -c 'of the outer step' || true}]")

    assert ran.steps["a"]["output"] == "0"


FAILING = """
name: failing
steps:
  - step: fetch
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 28'
    retry: {max_retries: 1, recovery_script: 'echo no broom >&2; exit 3'}
  - step: load
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 28'
    retry: {max_retries: 1, recovery_script: {shell: sleep 30, timeout: 50ms}}
"""


def test_a_scripts_failure_or_timeout_is_recorded_and_the_retry_goes_on(live_file: Live):
    ran = live_file.run(FAILING)

    assert (ran.status, ran.steps["fetch"]["attempts"], ran.steps["load"]["attempts"]) == ("completed", 2, 2)
    failed = {fact.place: fact.failure for fact in ran.facts(e.CommandFailed)}
    assert (failed["fetch.script@1"].code, failed["fetch.script@1"].message) == ("EXIT_NONZERO", "no broom")
    assert failed["load.script@1"].code == "TIMEOUT"
    assert ran.shown["failures"] == []


TIMING = """
name: timing
steps:
  - step: slow_script
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 1'
    retry: {max_retries: 1, delay: 10ms, recovery_script: sleep 0.1}
  - step: slow_delay
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 1'
    retry: {max_retries: 1, delay: 150ms, recovery_script: 'true'}
  - {step: no_retry, shell: exit 1, retry: {max_retries: 0, recovery_script: touch ran}}
  - {step: no_match, shell: exit 1, retry: {rules: [{exit_codes: [2], recovery_script: touch ran}]}}
"""


def test_the_retry_starts_when_its_script_has_ended_and_its_delay_is_over(live: Live):
    ran = live.run(TIMING)

    for name in ("slow_script", "slow_delay"):
        [reserved] = ran.entries(e.RetryScheduled, place=name)
        [entered] = ran.entries(e.CommandEntered, parent=name)
        [ended] = ran.entries(e.CommandCompleted, parent=name)
        [again] = ran.entries(e.AttemptScheduled, place=name, attempt=2)
        assert reserved.seq < entered.seq < ended.seq < again.seq
        assert again.at >= max(ended.at, reserved.fact.due)  # type: ignore[union-attr]
    assert not (live.folder / "ran").exists()


OUTLASTING = """
name: outlasting
steps:
  - step: fetch
    shell: exit 1
    deadline: LIMIT
    retry: {max_retries: 5, recovery_script: echo clearing; sleep 30}
    on_failure: echo in the end
"""


def test_a_script_that_outlasts_the_deadline_is_cut_and_no_attempt_follows_it(live: Live):
    ran = live.run_within(OUTLASTING, 300, lambda ran: ran.facts(e.CommandEntered, place="fetch.script@1"))

    [script] = ran.facts(e.CommandFailed)
    assert (script.failure.code, script.failure.message) == ("TIMEOUT", "it took longer than its deadline")
    assert [fact.attempt for fact in ran.facts(e.AttemptStarted, place="fetch")] == [1]
    assert [fact.reason for fact in ran.facts(e.RungPassed, rung="retry", place="fetch")] == ["deadline_passed"]
    assert ran.steps["fetch"]["output"] == "in the end"


HELD = """
name: held
steps:
  - step: fetch
    shell: 'echo $MULLIGAN_ATTEMPT >> tried; [ -e clean ] || exit 28'
    retry:
      max_retries: 1
      recovery_script: |
        echo $MULLIGAN_ATTEMPT >> scripts
        if [ -e go ]; then touch clean; else echo up > up; sleep 60; fi
"""


def test_a_script_whose_driver_is_killed_runs_again_for_the_same_reserved_retry(live: Live):
    ran = live.run_killed_when_up(HELD)

    assert (ran.status, live.lines("tried"), live.lines("scripts")) == ("completed", ["1", "2"], ["1", "1"])
    assert [(fact.attempt, fact.number) for fact in ran.facts(e.RetryScheduled)] == [(2, 1)]
    assert [fact.place for fact in ran.facts(e.AttemptLost)] == ["fetch.script@1"]
    assert "fetch.script@1: attempt 1 lost: its worker is gone" in ran.story
