"""Rung 2, live: what `on_failure` may be, what each strategy makes of it, and what a handler is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e

FORMS = """
name: forms
handlers:
  tidy: {commands: [rm -f half, echo tidied]}
  old: {strategy: fallback, commands: [echo yesterday]}
steps:
  - {step: text, shell: exit 1, on_failure: echo by a text}
  - {step: action, shell: exit 1, on_failure: {shell: echo by an action}}
  - {step: python, shell: exit 1, on_failure: {python: 'def main(code): return [code]', args: {code: '${error.code}'}}}
  - {step: listed, shell: exit 1, on_failure: [touch first, {shell: ls first}]}
  - {step: mapping, shell: exit 1, on_failure: {commands: [touch second, ls second], timeout: 1m}}
  - {step: named, shell: touch half; exit 1, on_failure: {use: tidy}}
  - {step: named_too, shell: exit 1, on_failure: {use: old}}
"""


def outputs(ran: Ran) -> dict[str, Any]:
    return {name: step["output"] for name, step in ran.steps.items()}


def test_a_handler_may_be_a_text_an_action_a_list_a_mapping_or_a_name(live_file: Live):
    ran = live_file.run(FORMS)

    assert (ran.status, ran.shown["degraded"]) == ("completed", True)
    assert outputs(ran) == {
        "text": "by a text",
        "action": "by an action",
        "python": ["EXIT_NONZERO"],
        "listed": "first",
        "mapping": "second",
        "named": "tidied",
        "named_too": "yesterday",
    }
    assert all(step["recovered"] and step["status"] == "completed" for step in ran.steps.values())
    assert not (live_file.folder / "half").exists()


STRATEGIES = """
name: strategies
fail_fast: never
steps:
  - step: recovery
    shell: exit 1
    on_failure: {commands: [echo one, echo two], capture: {said: output, code: error.code, twice: '[output, output]'}}
  - step: fallback
    shell: exit 1
    on_failure: {strategy: fallback, shell: echo old}
  - step: cleanup
    shell: touch scratch; exit 4
    on_failure: {strategy: cleanup, shell: rm scratch}
  - step: decided_well
    shell: exit 1
    on_failure:
      strategy: custom
      shell: 'echo ''{"status": "completed", "output": [1]}'' > "$MULLIGAN_OUTPUT"'
  - step: decided_badly
    shell: exit 6
    on_failure: {strategy: custom, shell: 'echo ''{"status": "failed"}'' > "$MULLIGAN_OUTPUT"'}
  - step: undecided
    shell: exit 7
    on_failure: {strategy: custom, shell: echo hm}
"""


def test_each_strategy_makes_its_own_of_a_handler_that_succeeded(live_file: Live):
    ran = live_file.run(STRATEGIES)

    recovered = {name: fact.recovered_by for name in ran.steps for fact in ran.facts(e.StepCompleted, step=name)}
    assert recovered == {"recovery": "recovery", "fallback": "fallback", "decided_well": "custom"}
    given = outputs(ran)
    assert given["recovery"] == {"said": "two", "code": "EXIT_NONZERO", "twice": ["two", "two"]}
    assert (given["fallback"], given["decided_well"]) == ("old", [1])
    failures = {found["step"]: found for found in ran.shown["failures"] if not found["recovered"]}
    assert {name: found["exit_code"] for name, found in failures.items()} == {
        "cleanup": 4,
        "decided_badly": 6,
        "undecided": 7,
    }
    # A cleanup leaves the failure as it is; whoever does not decide has failed.
    assert [fact.place for fact in ran.facts(e.HandlerFailed)] == ["undecided"]
    assert not (live_file.folder / "scratch").exists()


RERUNS = """
name: reruns
steps:
  - step: mended
    shell: echo $MULLIGAN_ATTEMPT >> tried; test -e certificate && echo deployed
    retry: 1
    on_failure: {shell: 'test $(wc -l < tried) -lt 3 || touch certificate', rerun: 3}
  - step: hopeless
    shell: exit 9
    retry: 1
    on_failure: {shell: echo x >> again, rerun: 2}
    continue_on_error: true
"""


def test_with_rerun_the_steps_own_action_runs_again_the_handler_before_each_and_no_rule_is_asked(live_file: Live):
    ran = live_file.run(RERUNS)

    mended, hopeless = ran.steps["mended"], ran.steps["hopeless"]
    assert (mended["output"], mended["recovered"], mended["visits"], mended["attempts"]) == ("deployed", True, 1, 4)
    assert (hopeless["status"], hopeless["attempts"], len(live_file.lines("again"))) == ("failed", 4, 2)
    # Attempt 2 is the rule's, those after it are the handler's.
    assert [fact.attempt for fact in ran.facts(e.RetryScheduled, place="hopeless")] == [2]
    assert [fact.reason for fact in ran.facts(e.RungPassed, place="hopeless")] == [
        "retries_exhausted",
        "rules_not_asked",
        "rules_not_asked",
        "reruns_exhausted",
        "no_route",
    ]


LIMITED = """
name: limited
steps:
  - step: build
    shell: exit 3
    on_failure: {commands: [echo one >> trace, sleep 60, echo three >> trace], timeout: 150ms}
"""


def test_the_time_of_a_handler_is_that_of_all_its_commands_and_ends_the_one_that_runs(live: Live):
    ran = live.run(LIMITED)

    failure = ran.steps["build"]["failure"]
    assert (failure["code"], failure["exit_code"]) == ("EXIT_NONZERO", 3)
    assert failure["handler_failure"]["code"] == "HANDLER_FAILED"
    assert failure["handler_failure"]["message"] == "the handler took longer than 0.15s"
    assert live.lines("trace") == ["one"]


INSIDE = """
name: inside
steps:
  - step: publish
    shell: echo '["never"]'; echo mirror 1 is down >&2; exit 1
    capture: json
    env: {SITE: example}
    cwd: below
    on_failure:
      - {shell: 'echo nobody reads this >&2; exit 5', continue_on_error: true}
      - shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 75; echo mirror 2 is down >&2; exit 1'
        retry: {max_retries: 1}
        on_failure:
          - shell: exit 8
            on_failure: 'echo "[\\"$SITE\\", \\"$(basename "$PWD")\\"]"'
"""


def test_a_command_lives_like_a_step_and_inherits_its_format_environment_and_folder(live_file: Live):
    (live_file.folder / "below").mkdir()

    ran = live_file.run(INSIDE)

    assert (ran.status, ran.steps["publish"]["output"]) == ("completed", ["example", "below"])
    first, second = "publish.on_failure@1.0", "publish.on_failure@1.1"
    [allowed] = ran.facts(e.CommandFailed, place=first)
    assert (allowed.is_allowed, allowed.failure.message) == (True, "nobody reads this")
    assert [fact.place for fact in ran.facts(e.RetryScheduled)] == [second]
    completed = [fact.place for fact in ran.facts(e.CommandCompleted)]
    assert completed == [f"{second}.on_failure@2.0.on_failure@1.0", f"{second}.on_failure@2.0", second]


TOLD = """
name: told
steps:
  - step: fetch
    shell: |
      echo 'it is "down"' >&2; [ $MULLIGAN_ATTEMPT -gt 1 ] || exit 1; exit 22
    retry: 1
    on_failure:
      shell: |
        echo "${error.message}|${error.exit_code}|${error.step}|${error.timestamp}|${error.code}"
        echo "${error.severity}|${error.attempt}|$MULLIGAN_ERROR_CODE|$MULLIGAN_RETURN_CODE"
  - step: load
    shell: kill -9 $$
    on_failure:
      python: 'def main(**seen): return seen'
      args: {message: '${error.message}', exit_code: '${error.exit_code}', signal: '${error.signal}'}
"""


def test_a_handler_is_told_the_failure_in_its_text_and_as_values(live_file: Live):
    ran = live_file.run(TOLD)

    first, second = str(ran.steps["fetch"]["output"]).splitlines()
    message, exit_code, step, at, code = first.split("|")
    assert (message, exit_code, step, code) == ('it is "down"', "22", "fetch", "EXIT_NONZERO")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", at)
    assert second == "error|2|EXIT_NONZERO|22"
    assert ran.steps["load"]["output"] == {"message": "killed by signal 9", "exit_code": 137, "signal": 9}


HOWEVER = """
name: however
defaults: {timeout: 30s}
steps:
  - {step: killed, shell: kill -9 $$, on_failure: 'echo ${error.code}'}
  - {step: late, shell: sleep 30, timeout: 50ms, on_failure: 'echo ${error.code}'}
  - step: hungry
    shell: '{ head -c 100000000 /dev/zero; sleep 60; } | tail -n 1'
    resources: {memory: 32MiB}
    on_failure: 'echo ${error.code}'
  # With it goes all that runs beside it: so it comes last.
  - step: lost
    needs: [killed, late, hungry, thrown, gone]
    shell: kill -9 $PPID; sleep 60
    on_lost: fail
    on_failure: 'echo ${error.code}'
  - {step: thrown, python: 'def main(): raise ValueError("no")', on_failure: 'echo ${error.code}'}
  - {step: gone, shell: 'true', cwd: nowhere, on_failure: {shell: 'echo ${error.code}', cwd: .}}
"""


def test_a_handler_runs_however_the_attempt_died(live: Live):
    ran = live.run(HOWEVER)

    assert outputs(ran) == {
        "killed": "SIGNALED",
        "late": "TIMEOUT",
        "hungry": "OUT_OF_MEMORY",
        "lost": "WORKER_LOST",
        "thrown": "EXCEPTION",
        "gone": "INPUT_INVALID",
    }
    assert ran.status == "completed"


FAILING = """
name: failing
steps:
  - step: build
    shell: exit 2
    on_failure: 'echo no tools >&2; exit 44'
    next:
      - {to: wrong, on: failure, codes: [TIMEOUT]}
      - {to: by_handler, on: failure, codes: [HANDLER_FAILED]}
  - step: check
    shell: exit 2
    on_failure: exit 44
    next: [{to: by_own, on: failure, codes: [EXIT_NONZERO]}]
  - {step: wrong, shell: echo wrong}
  - {step: by_handler, shell: 'echo "${failure.code} ${failure.exit_code} ${failure.handler_failure.exit_code}"'}
  - {step: by_own, shell: echo own}
"""


def test_a_failed_handler_is_added_to_the_failure_and_edges_match_either_code(live_file: Live):
    ran = live_file.run(FAILING)

    failure = ran.steps["build"]["failure"]
    assert (failure["code"], failure["exit_code"]) == ("EXIT_NONZERO", 2)
    assert (failure["handler_failure"]["code"], failure["handler_failure"]["message"]) == ("HANDLER_FAILED", "no tools")
    assert (ran.status, ran.steps["wrong"]["status"]) == ("completed", "skipped")
    assert (ran.steps["by_handler"]["output"], ran.steps["by_own"]["output"]) == ("EXIT_NONZERO 2 44", "own")


@pytest.mark.parametrize(
    "keys",
    ["on_failure: {shell: exit 44, handler_failure_fatal: true}", "on_failure: exit 44, handler_failure_fatal: true"],
    ids=["of the handler", "of the step"],
)
def test_a_failed_handler_may_be_fatal_then_nobody_is_asked_and_nothing_is_routed(live_file: Live, keys: str):
    ran = live_file.run(
        f"""
name: fatal
steps:
  - {{step: build, shell: exit 2, triage: {{when: always}}, next: {{to: fix, on: failure}}, {keys}}}
  - {{step: fix, shell: echo fixed}}
  - {{step: other, wait: 1m}}
"""
    )

    # Critical and unhandled: fail-fast strikes.
    statuses = {name: step["status"] for name, step in ran.steps.items()}
    assert statuses == {"build": "failed", "fix": "cancelled", "other": "cancelled"}
    assert ran.steps["build"]["failure"]["severity"] == "critical"
    assert [fact.reason for fact in ran.facts(e.RungPassed, place="build")] == [
        "no_rule",
        "handler_failure_fatal",
        "handler_failure_fatal",
    ]


FILES = """
name: files
files: {page: out/page.html, index: index.html, map: map.xml, news: news.txt, parts: parts.txt}
fail_fast: never
steps:
  - {step: made, shell: exit 1, writes: [page], on_failure: [mkdir -p out, touch out/page.html]}
  - {step: recovered, shell: exit 1, writes: [index], on_failure: echo nothing}
  - {step: replaced, shell: exit 1, writes: [map], on_failure: {strategy: fallback, shell: echo nothing}}
  - {step: at_best, shell: exit 1, writes: [news], on_failure: [{shell: echo nothing, continue_on_error: true}]}
  # Nobody but its check can look.
  - {step: mapped, map: {over: [1, 2]}, do: ['true'], writes: [parts]}
"""


def test_after_a_recovery_the_declared_files_must_be_there(live_file: Live):
    ran = live_file.run(FILES)

    assert ran.steps["made"]["status"] == "completed"
    for name, file in (("recovered", "index"), ("replaced", "map"), ("at_best", "news")):
        failure = ran.steps[name]["failure"]
        assert failure["handler_failure"]["message"] == f"declared files missing after exit code 0: {file}"
    mapped = ran.steps["mapped"]["failure"]
    assert (mapped["code"], mapped["message"]) == ("OUTPUT_MISSING", "declared files missing after exit code 0: parts")


AFTER = """
name: after
fail_fast: never
steps:
  - step: well
    shell: echo 7
    capture: json
    on_success: ['echo "got ${output}" >> trace', 'echo broken >&2; exit 3', echo never >> trace]
    next: then
  - {step: then, shell: echo then >> trace}
  - {step: recovered, shell: exit 1, on_failure: 'true', on_success: echo never >> trace}
  - {step: strict, shell: 'true', on_success: exit 4, handler_failure_fatal: true}
"""


def test_on_success_runs_after_a_success_that_was_no_recovery_and_before_the_edges(live_file: Live):
    ran = live_file.run(AFTER)

    assert live_file.lines("trace") == ["got 7", "then"]
    well, strict = ran.steps["well"], ran.steps["strict"]
    assert (well["status"], well["output"]) == ("completed", 7)
    assert [(found["code"], found["message"]) for found in well["warnings"]] == [("EXIT_NONZERO", "broken")]
    assert (strict["status"], strict["failure"]["code"], strict["failure"]["severity"]) == (
        "failed",
        "HANDLER_FAILED",
        "critical",
    )


CHECKED = """
name: checked
fail_fast: never
steps:
  - {step: retried, shell: echo $(( MULLIGAN_ATTEMPT - 1 )), capture: json, validate: output > 0, retry: 1}
  - step: handled
    shell: echo page
    validate: {shell: 'echo no ${output} >&2; exit 5'}
    on_failure: 'echo "${error.code}: ${error.message}"'
  - {step: refused, shell: echo 1, validate: output == "2"}
  - {step: unsure, shell: echo 1, capture: json, validate: output.size > 1}
"""


def test_a_result_that_a_check_refuses_is_a_failure_like_any_other(live_file: Live):
    ran = live_file.run(CHECKED)

    assert (ran.steps["retried"]["output"], ran.steps["retried"]["attempts"]) == (1, 2)
    assert ran.steps["handled"]["output"] == "VALIDATION_FAILED: no page"
    refused, unsure = ran.steps["refused"]["failure"], ran.steps["unsure"]["failure"]
    assert (refused["code"], refused["message"]) == ("VALIDATION_FAILED", "'output == \"2\"' does not hold")
    assert unsure["code"] == "EXPRESSION_FAILED"


def test_the_logs_of_a_handler_are_kept_apart(live_file: Live):
    ran = live_file.run("name: a\nsteps: [{step: a, shell: echo own; exit 1, on_failure: [echo one, echo two >&2]}]")

    assert live_file.logs(ran.run_id, "a") == [("own\n", "")]
    assert live_file.logs(ran.run_id, "a", "handler") == [("one\n", ""), ("", "two\n")]


NONSENSE = """
name: nonsense
fail_fast: never
steps:
  - {step: unknown, shell: exit 1, on_failure: 'echo ${error.details.nothing.at_all}'}
  - {step: captured, shell: exit 1, on_failure: {shell: echo x, capture: {a: output.b.c}}}
  - {step: undecided, shell: exit 1, on_failure: {strategy: custom, shell: 'echo [] > "$MULLIGAN_OUTPUT"'}}
  - {step: missing, shell: exit 1, on_failure: ./nowhere.sh}
  - {step: killed, shell: exit 1, on_failure: [kill -9 0, echo never]}
"""


def test_a_handler_that_makes_no_sense_has_failed_and_says_why(live_file: Live):
    ran = live_file.run(NONSENSE)

    said = {name: step["failure"]["handler_failure"]["message"] for name, step in ran.steps.items()}
    assert said == {
        "unknown": "'error.details.nothing.at_all': no such key 'nothing'",
        "captured": "'output.b.c': the field 'b' is read from a string",
        "undecided": 'a custom handler must write {"status": "completed" or "failed", "output": …} to $MULLIGAN_OUTPUT',
        "missing": "bash: line 1: ./nowhere.sh: No such file or directory",
        "killed": "killed by signal 9",
    }
    assert {step["failure"]["exit_code"] for step in ran.steps.values()} == {1}


def test_whatever_bytes_a_step_wrote_its_handler_is_told(live_file: Live):
    ran = live_file.run(
        """
name: bytes
steps:
  - step: a
    shell: printf 'a\\0b\\377c' >&2; exit 1
    on_failure: echo "${error.message}"
"""
    )

    assert ran.steps["a"]["output"] == "a\ufffdb\ufffdc"


LEFT = """
name: left
steps:
  - step: build
    shell: exit 1
    on_failure: 'sleep 60 & echo $! > pid; echo built'
"""


def test_what_a_handler_leaves_in_the_background_does_not_outlive_it(live_file: Live):
    ran = live_file.run(LEFT)

    assert ran.steps["build"]["output"] == "built"
    assert not Path(f"/proc/{live_file.read('pid').strip()}").exists()
