"""Maps, live: where the items come from, how they run, and what their failures mean for the step."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.support.nightly import examples
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.language import load
from mulligan.service.driving.driver import Capacity
from mulligan.service.runs.changes.prepared_runs import prepare

WIDE = Capacity(cpus=16.0, memory=4 << 30)


def results(ran: Ran, step: str = "each") -> list[Any]:
    return list(ran.steps[step]["output"]["results"])


# -- where the items come from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("[a, b]", ["0=a", "1=b"]),
        ('"${steps.list.output}"', ["0=x", "1=y"]),
        ("{file: items.txt}", ["0=one", "1=two"]),
        ("{file: items.json}", ['0={"n":1}', "1=2"]),
        ("{shell: 'printf \"p\\nq\\n\"', capture: lines}", ["0=p", "1=q"]),
        ("{shell: 'echo [7]', capture: json}", ["0=7"]),
        ("[]", []),
    ],
)
def test_items_come_from_a_list_an_expression_a_file_or_a_command(live_file: Live, over: str, expected: list[str]):
    live_file.write("items.txt", "one\ntwo\n")
    live_file.write("items.json", '[{"n": 1}, 2]')
    live_file.write("list.json", '["x", "y"]')

    ran = live_file.run(f"""
        name: sources
        steps:
          - {{step: list, shell: cat list.json, capture: json}}
          - step: each
            needs: [list]
            map: {{over: {over}}}
            do: [{{shell: 'echo "${{index}}=${{item}}"'}}]
    """)

    assert (ran.status, results(ran)) == ("completed", expected)


@pytest.mark.parametrize(
    ("over", "code", "message"),
    [
        ("{shell: exit 4}", "EXIT_NONZERO", "exit code 4"),
        ("{shell: 'echo 1', capture: json}", "EXPRESSION_FAILED", "'over' gave a number, not a list"),
        ('"${inputs.n}"', "EXPRESSION_FAILED", "'over' gave a number, not a list"),
    ],
)
def test_what_gives_no_list_is_a_failure_of_the_step(live_file: Live, over: str, code: str, message: str):
    ran = live_file.run(f"""
        name: sources
        inputs: {{n: {{type: integer, default: 3}}}}
        steps:
          - {{step: each, map: {{over: {over}}}, do: [{{shell: 'true'}}]}}
    """)

    failure = ran.steps["each"]["failure"]
    assert (ran.status, failure["code"], failure["message"]) == ("failed", code, message)


@pytest.mark.parametrize("kind", ["a pipe", "a folder"])
def test_a_list_of_items_that_is_no_file_fails_the_step_at_once(live_file: Live, kind: str) -> None:
    make = os.mkfifo if kind == "a pipe" else os.mkdir
    make(live_file.folder / "items.txt")

    ran = live_file.run("steps: [{step: each, map: {over: {file: items.txt}}, do: [{shell: 'true'}]}]")

    failure = ran.steps["each"]["failure"]
    assert (ran.status, failure["code"], failure["message"]) == ("failed", "EXIT_NONZERO", "items.txt is not a file")


def test_items_are_filtered_sorted_told_apart_and_cut(live_file: Live):
    ran = live_file.run("""
        name: chosen
        steps:
          - step: each
            map:
              over: [5, 3, 4, 3, 1, 9, 2]
              as: n
              filter: n < 9
              sort_by: n
              distinct: true
              offset: 1
              max_items: 3
            do: [{shell: 'echo ${n}', capture: json}]
    """)

    assert results(ran) == [2, 3, 4]


# -- how they run ----------------------------------------------------------------------------------------------------


def test_the_commands_of_an_item_run_one_after_the_other_and_the_last_gives_the_result(live_file: Live):
    ran = live_file.run("""
        name: several
        steps:
          - step: each
            map: {over: [a, b]}
            do:
              - shell: 'echo one > ${item}.txt'
              - {shell: exit 1, continue_on_error: true}
              - shell: 'echo "$(cat ${item}.txt) $MULLIGAN_ITEM"'
    """)

    assert (ran.status, results(ran)) == ("completed", ["one 0", "one 1"])


@pytest.mark.postgres
def test_no_more_items_run_at_the_same_time_than_allowed(live: Live):
    ran = live.run(
        """
        name: bounded
        steps:
          - step: each
            map: {over: [1, 2, 3, 4, 5, 6, 7, 8], max_parallel: 2}
            do:
              - shell: |
                  echo "+ ${item}" >> trace
                  sleep 0.03
                  echo "- ${item}" >> trace
        """,
        room=WIDE,
    )

    running, most = 0, 0
    for line in live.lines("trace"):
        running += 1 if line.startswith("+") else -1
        most = max(most, running)
    assert (ran.status, most) == ("completed", 2)


def test_an_item_has_its_own_retry_handler_and_timeout(live: Live):
    ran = live.run("""
        name: own
        steps:
          - step: each
            map: {over: [well, retried, handled, slow]}
            do:
              - shell: |
                  case ${item} in
                    retried) test "$MULLIGAN_ATTEMPT" = 2 || exit 1 ;;
                    handled) test -e mended || exit 1 ;;
                    slow) test "$MULLIGAN_ATTEMPT" = 2 || sleep 1000 ;;
                  esac
                  echo ${item}
                timeout: 1s
                retry: {rules: [{exit_codes: [1], max_retries: 1}]}
                on_failure: {shell: 'touch mended; echo "${error.code}" >> codes', rerun: 1}
    """)

    items = {fact.index: fact.recovered_by for fact in ran.facts(e.ItemCompleted)}
    assert (ran.status, ran.shown["degraded"]) == ("completed", True)
    assert results(ran) == ["well", "retried", "handled", "slow"]
    assert (items[0], items[1]) == ("", "")
    assert sorted(live.lines("codes")) == ["EXIT_NONZERO", "TIMEOUT"]


# -- what their failures mean ----------------------------------------------------------------------------------------

FAILING = """
name: failing
steps:
  - step: each
    map: {over: [a, bad, c, bad2, e], max_parallel: 1, POLICY}
    do: [{shell: 'echo ${item} >> trace; case ${item} in bad*) exit 7;; esac; echo ${item}'}]
"""


@pytest.mark.parametrize(
    ("policy", "status", "ran_items"),
    [
        # All run, then the step fails.
        ("on_item_failure: fail", "failed", 5),
        # No new ones after the first failure.
        ("on_item_failure: stop", "failed", 2),
        ("on_item_failure: collect", "completed", 5),
        # As many as this may fail.
        ("max_failures: 2", "completed", 5),
        ("max_failures: 1", "failed", 5),
        ("{on_item_failure: stop, max_failures: 1}", "failed", 4),
        # A share: strictly more fails it. Two of five are 0.4.
        ("failure_threshold: 0.4", "completed", 5),
        ("{on_item_failure: collect, failure_threshold: 0.39}", "failed", 5),
    ],
)
def test_how_many_items_may_fail(live_file: Live, policy: str, status: str, ran_items: int):
    ran = live_file.run(FAILING.replace("POLICY", policy.strip("{}")))

    assert (ran.status, len(live_file.lines("trace"))) == (status, ran_items)


def test_a_map_that_failed_says_which_items_and_one_that_collected_has_both(live_file: Live):
    failed = live_file.run(FAILING.replace("POLICY", "on_item_failure: fail"))
    collected = live_file.run(FAILING.replace("POLICY", "on_item_failure: collect"))

    found = failed.steps["each"]["failure"]
    assert (found["code"], found["message"]) == ("ITEMS_FAILED", "2 of 5 items failed")
    assert [(cause["item"], cause["exit_code"]) for cause in found["cause"]] == [(1, 7), (3, 7)]
    output = collected.steps["each"]["output"]
    assert (output["total"], output["succeeded"], output["failed"]) == (5, 3, 2)
    assert output["results"] == ["a", None, "c", None, "e"]
    assert [(one["index"], one["item"], one["exit_code"]) for one in output["failures"]] == [
        (1, "bad", 7),
        (3, "bad2", 7),
    ]


def test_another_round_of_a_map_runs_only_the_items_that_failed(live: Live):
    first = live.run("""
        name: again
        steps:
          - step: each
            map: {over: [a, b, c]}
            do: [{shell: 'echo ${item} >> trace; test ${item} != b || test -e mended || exit 1; echo ${item}'}]
    """)
    live.write("trace")
    live.write("mended")

    live.service.changes.retry(first.run_id)
    second = live.resume(first.run_id)

    assert (first.status, second.status) == ("failed", "completed")
    assert live.lines("trace") == ["b"]
    assert results(second) == ["a", "b", "c"]


def test_a_remediated_map_runs_only_the_items_that_failed(live: Live):
    ran = live.run("""
        name: remedied
        steps:
          - step: each
            map: {over: [a, b, c]}
            do: [{shell: 'echo ${item} >> trace; test ${item} != b || test -e mended || exit 1; echo ${item}'}]
            next: {to: mend, on: failure, codes: [ITEMS_FAILED], then: rerun}
          - {step: mend, shell: touch mended}
    """)

    assert (ran.status, results(ran)) == ("completed", ["a", "b", "c"])
    assert sorted(live.lines("trace")) == ["a", "b", "b", "c"]


MANY = """
name: many
steps:
  - step: each
    map: {over: {file: items.json}, as: n}
    do: [{shell: 'true'}]
"""


@pytest.mark.nightly
def test_a_map_takes_very_many_items(live_file: Live):
    """Without the runner, which asks about every promise after every event: that takes longer than the run."""
    count = examples(600, 3_000)
    live_file.write("items.json", json.dumps(list(range(count))))
    prepared = prepare(load(live_file.write("many.yaml", MANY)), {}, live_file.folder)

    with live_file.service.driving.driver(WIDE) as driver:
        [run_id] = live_file.service.changes.create(prepared, driver)
        driver.drive(run_id)

    shown = live_file.service.runs.show(run_id)
    output = shown["steps"]["each"]["output"]
    assert (shown["status"], output["total"], output["succeeded"]) == ("completed", count, count)


def test_a_command_reads_what_the_command_before_it_gave(live_file: Live) -> None:
    ran = live_file.run(
        """
        steps:
          - step: pack
            map: {over: [a, b], as: name, max_parallel: 1}
            do:
              - shell: 'echo "<${output}>${name}"'
              - {shell: 'echo "[${output}]"', on_failure: "true"}
              - python: "def main(said): return {'said': said}"
                args: {said: "${output}"}
        """
    )

    assert ran.steps["pack"]["output"]["results"] == [{"said": "[<>a]"}, {"said": "[<>b]"}]


def test_what_a_failed_item_gave_so_far_is_no_result(live_file: Live) -> None:
    ran = live_file.run(
        """
        steps:
          - step: pack
            map: {over: [a], on_item_failure: collect}
            do: [echo half, "exit 1"]
        """
    )

    assert ran.steps["pack"]["output"]["results"] == [None]


KILLED = """
steps:
  - step: pack
    map: {over: [a], as: name}
    do:
      - echo first >> ran; echo "${name} is packed"
      - {shell: echo never >> ran, when: name != "a"}
      - shell: '[ -e go ] || { echo up > up; sleep 60; }; echo "${outputs[0]}, ${outputs[1] == null}"'
"""


def test_what_the_commands_of_an_item_gave_is_known_after_its_driver_was_killed(live: Live) -> None:
    ran = live.run_killed_when_up(KILLED)

    assert results(ran, "pack") == ["a is packed, true"]
    assert live.lines("ran") == ["first"]
