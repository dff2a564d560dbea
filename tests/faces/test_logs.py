"""`mulligan logs`, `events`, `explain` and `replay`: what was written, what was done, and the proof."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

FLAKY = """\
name: flaky
steps:
  - step: build
    shell: |
      echo attempt $MULLIGAN_ATTEMPT
      echo broken $MULLIGAN_ATTEMPT >&2
      exit 3
    retry: {rules: [{exit_codes: [3], max_retries: 1, recovery_script: echo clearing after $MULLIGAN_ATTEMPT}]}
    on_failure: {commands: [echo handling, {shell: exit 4}]}
    undo: {shell: echo undone}
"""
MAPPED = """\
name: mapped
steps:
  - step: check
    map: {over: "${['a', 'b']}", as: one}
    do:
      - shell: echo first ${one}
      - shell: echo second ${one}
"""
ASKING = "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n"


# logs


def test_the_last_attempt_is_what_one_gets_out_to_out_and_err_to_err():
    ran(FLAKY)

    assert mulligan("logs", 1, "build") == (0, "attempt 2\n", "-- run 1, 'build', attempt 2\nbroken 2\n")


SWEEP = """\
steps:
  - {step: before, shell: echo fine}
  - step: each
    needs: [before]
    map: {over: [1, 2, 3, 4, 5, 6, 7, 8]}
    do: [{shell: 'echo item ${item}; [ ${item} = 3 ]'}]
"""


def test_without_a_step_one_gets_what_failed_and_is_told_of_more():
    ran(SWEEP)

    found = mulligan("logs")

    assert found.out == "item 1\nitem 2\nitem 4\nitem 5\nitem 6\n"
    assert found.err.splitlines()[0] == "-- run 1, 'each[0]', attempt 1"
    assert found.err.splitlines()[-1] == "-- 2 more failed: mulligan show 1"
    assert [one["place"] for one in mulligan("logs", "--json").json][:2] == ["each[0].0", "each[1].0"]


def test_without_a_step_and_a_failure_one_gets_what_ran_last():
    ran("steps: [{step: a, shell: echo first}, {step: b, needs: [a], shell: echo second}]")

    assert mulligan("logs") == (0, "second\n", "-- run 1, 'b', attempt 1\n")


def test_a_run_in_which_nothing_has_run_has_no_logs():
    ran(ASKING)

    assert mulligan("logs") == (0, "", "no step of run 1 has run: mulligan show 1\n")
    assert mulligan("logs", 1, "--attempt", 1).code == 2


def test_an_earlier_attempt_can_be_asked_for():
    ran(FLAKY)

    assert mulligan("logs", 1, "build", "--attempt", 1) == (
        0,
        "attempt 1\n",
        "-- run 1, 'build', attempt 1\nbroken 1\n",
    )


def test_what_a_recovery_script_wrote_is_apart():
    ran(FLAKY)

    assert mulligan("logs", 1, "build", "--script") == (
        0,
        "clearing after 1\n",
        "-- run 1, 'build.script@1', attempt 1\n",
    )


def test_what_a_handler_wrote_is_apart_command_by_command():
    ran(FLAKY)

    assert mulligan("logs", 1, "build", "--handler") == (
        0,
        "handling\n",
        "-- run 1, 'build.on_failure@2.0', attempt 1\n-- run 1, 'build.on_failure@2.1', attempt 1: it wrote nothing\n",
    )


def test_one_item_or_every_item_of_a_map():
    ran(MAPPED)

    one, every = mulligan("logs", 1, "check", "--item", 1), mulligan("logs", 1, "check")
    named = mulligan("logs", 1, "check", "--item", "b")

    assert named == one
    assert one == (
        0,
        "first b\nsecond b\n",
        "-- run 1, 'check[b] command 1', attempt 1\n-- run 1, 'check[b] command 2', attempt 2\n",
    )
    assert sorted(every.out.splitlines()) == ["first a", "first b", "second a", "second b"]


def test_logs_as_json_are_one_object_an_attempt():
    ran(FLAKY)

    assert mulligan("logs", 1, "build", "--json").json == [
        {"run_id": 1, "step": "build", "place": "build", "attempt": 2, "stdout": "attempt 2\n", "stderr": "broken 2\n"}
    ]


def test_bytes_that_are_no_text_come_out_as_they_are(folder: Path):
    ran("name: raw\nsteps:\n  - {step: raw, shell: \"printf 'a\\\\xffb'\"}\n")

    assert json.loads(mulligan("logs", 1, "raw", "--json").out)[0]["stdout"] == "a�b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build", "--attempt", 9), "'build' of run 1 has had no attempt 9"),
        (("build", "--script", "--attempt", 2), "'build' of run 1 has had no recovery script after attempt 2"),
        (("build", "--item", 0), "'build[0]' of run 1 has had no attempt"),
        (("build.undo@1",), "'build.undo@1' of run 1 has had no attempt"),
    ],
    ids=["attempt", "script", "item", "undo"],
)
def test_what_never_ran_has_no_logs(words: tuple[object, ...], said: str):
    ran(FLAKY)

    code, out, err = mulligan("logs", 1, *words)

    assert (code, out, err.splitlines()[0]) == (2, "", f"error[attempt.unknown]: {said}")


def test_the_attempts_that_there_are_are_named_beside_one_that_is_not():
    ran(FLAKY)

    assert mulligan("logs", 1, "build", "--attempt", 9).err == (
        "error[attempt.unknown]: 'build' of run 1 has had no attempt 9\n"
        "  there is build attempt 1, build.script@1 attempt 1, build attempt 2, build.on_failure@2.0 attempt 1, "
        "build.on_failure@2.1 attempt 1\n"
    )


def test_a_step_that_is_not_there_has_no_logs():
    ran(FLAKY)

    assert mulligan("logs", 1, "biuld") == (
        2,
        "",
        "error[step.unknown]: 'biuld' is not a step of run 1\n  did you mean 'build'?\n",
    )


def test_who_asks_for_a_step_of_a_group_is_told_which_run_has_it():
    ran("name: pairs\nsteps:\n  - {step: pair, group: {steps: [{step: one, shell: echo 1}]}}\n")

    assert mulligan("logs", 1, "one").err == (
        "error[step.unknown]: 'one' is not a step of run 1\n"
        "  it is a step of run 2, which 'pair' called: mulligan show 2 one\n"
    )
    assert mulligan("logs", 1, "pair").err == (
        "-- run 1, 'pair', attempt 1: it called run 2, whose steps have their own logs: mulligan show 2\n"
    )
    assert mulligan("logs", 1, "pair.one").err.endswith("\n  its story: mulligan explain 1 pair\n")
    assert mulligan("logs", 2, "one").out == "1\n"


def test_two_questions_at_once_are_refused():
    assert mulligan("logs", 1, "build", "--handler", "--script") == (
        2,
        "",
        "error[usage]: --handler and --script cannot be combined\n  give one of them\n",
    )


# events


def test_events_are_one_a_line_for_people():
    ran(ASKING)

    code, out, err = mulligan("events", 1).plain

    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["1", "THEN", "run.started"],
        ["2", "THEN", "step.entered"],
        ["3", "THEN", "attempt.scheduled"],
        ["4", "THEN", "attempt.started"],
    ]


def test_events_as_json_are_lines_as_they_are_kept():
    ran(FLAKY)

    entries = [json.loads(line) for line in mulligan("events", 1, "--json").out.splitlines()]

    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert all(set(entry) == {"v", "seq", "at", "caused_by", "fact"} for entry in entries)
    assert entries[-1]["fact"]["type"] == "run.failed"


# explain


def test_the_story_of_a_run_is_told_line_by_line():
    ran(FLAKY)

    assert mulligan("explain", 1).plain == (
        0,
        "THEN build  attempt 1 failed with EXIT_NONZERO 3: broken 1\n"
        "THEN build  retry 1 of 1 at once after its recovery script (rule for exit code 3)\n"
        "THEN build.script@1  completed: echo clearing after $MULLIGAN_ATTEMPT\n"
        "THEN build  attempt 2 failed with EXIT_NONZERO 3: broken 2\n"
        "THEN build  no retry: the only retry of the rule for exit code 3 is used up\n"
        "THEN build  recovery handler started (2 commands)\n"
        "THEN build.on_failure@2.0  completed: echo handling\n"
        "THEN build.on_failure@2.1  attempt 1 failed with EXIT_NONZERO 4\n"
        "THEN build  handler also failed with EXIT_NONZERO 4\n"
        "THEN build  failed with EXIT_NONZERO 3\n"
        "THEN end  the run failed: failure of 'build' not handled (1 step, 1 failed)\n",
        "",
    )


def test_a_run_that_waits_says_for_whom_at_the_end_of_its_story():
    ran(ASKING)

    assert mulligan("explain", 1).plain == (
        0,
        "'gate' waits for an approval: deploy?\n",
        "  'gate' waits for an approval: mulligan approve 1 gate --reason TEXT\n",
    )


def test_a_story_as_json_is_an_array_of_lines_and_of_what_is_waited_for():
    ran("name: asking\nsteps:\n  - {step: a, shell: 'true'}\n  - {step: gate, needs: [a], approve: 'deploy?'}\n")

    line, wait = mulligan("explain", 1, "--json").json

    assert (line["run_id"], line["place"], line["text"], line["tone"]) == (1, "a", "completed", "good")
    assert line["seq"] > 1 and line["at"].startswith("20")
    assert wait == {
        "run_id": 1,
        "seq": None,
        "at": None,
        "place": "gate",
        "text": "waits for an approval: deploy?",
        "tone": "wait",
        "waiting_for": {"kind": "approval", "text": "an approval: deploy?", "place": "gate", "attempt": 1},
    }


TWO = """\
name: two
steps:
  - {step: fetch, shell: exit 1, on_failure: echo fetched}
  - {step: gate, needs: [fetch], approve: 'deploy?'}
  - {step: load, needs: [gate], shell: 'true'}
"""


def test_the_story_of_one_step_has_its_own_lines_and_what_it_waits_for():
    ran(TWO)

    assert mulligan("explain", 1, "fetch").plain == (
        0,
        "THEN fetch  attempt 1 failed with EXIT_NONZERO 1\n"
        "THEN fetch  recovery handler started\n"
        "THEN fetch.on_failure@1.0  completed: echo fetched\n"
        "THEN fetch  recovered by its handler\n",
        "",
    )
    assert mulligan("explain", 1, "fetch.on_failure@1.0").plain[1] == (
        "THEN fetch.on_failure@1.0  completed: echo fetched\n"
    )
    assert mulligan("explain", 1, "load") == (0, "'load' waits for 'gate' to complete\n", "")


def test_the_story_of_a_step_that_is_not_there_is_refused():
    ran(TWO)

    assert mulligan("explain", 1, "fech") == (
        2,
        "",
        "error[step.unknown]: 'fech' is not a step of run 1\n  did you mean 'fetch'?\n",
    )


def test_the_stories_of_called_runs_are_told_in_their_places_as_a_tree():
    workflow("name: inner\nsteps:\n  - {step: greet, shell: exit 3}\n", "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")

    assert mulligan("explain", 1).plain[1] == (
        "THEN call  called 'inner.yaml' as run 2\n"
        "THEN call  failed with CHILD_FAILED: child run 2 failed at 'greet': EXIT_NONZERO 3\n"
        "THEN end  the run failed: failure of 'call' not handled (1 step, 1 failed)\n"
    )
    assert mulligan("explain", 1, "--tree").plain[1] == (
        "THEN call  called 'inner.yaml' as run 2\n"
        "THEN call/greet  failed with EXIT_NONZERO 3\n"
        "THEN call/end  the run failed: failure of 'greet' not handled (1 step, 1 failed)\n"
        "THEN call  failed with CHILD_FAILED: child run 2 failed at 'greet': EXIT_NONZERO 3\n"
        "THEN end  the run failed: failure of 'call' not handled (1 step, 1 failed)\n"
    )
    assert [line["run_id"] for line in mulligan("explain", 1, "--tree", "--json").json] == [1, 2, 2, 1, 1]


def test_what_a_called_run_waits_for_is_told_at_the_end_of_the_story():
    workflow(ASKING, "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")

    assert mulligan("explain", 1).plain[1:] == (
        "THEN call  called 'inner.yaml' as run 2\n'call' waits for run 2\n'call/gate' waits for an approval: deploy?\n",
        "  'gate' waits for an approval: mulligan approve 2 gate --reason TEXT\n",
    )


@pytest.mark.parametrize("words", [("explain", 1), ("show", 1), ("list",), ("explain", 1, "--json")], ids=str)
def test_a_reader_that_has_enough_sees_no_traceback(words: tuple[object, ...]):
    ran(TWO)
    reading, writing = os.pipe()
    os.close(reading)

    child = process(*words, stdout=writing)
    os.close(writing)
    _, err = child.communicate(timeout=60)

    assert (child.returncode, err) == (141, b"")


# replay


def test_a_replay_proves_that_the_log_gives_what_the_store_has():
    ran(FLAKY)
    count = len(mulligan("events", 1, "--json").out.splitlines())

    assert mulligan("replay", 1, "--verify") == (
        0,
        f"run 1: {count} events replayed, no difference\n",
        "",
    )
    assert mulligan("replay", 1, "--verify", "--json").json == {
        "run_id": 1,
        "ok": True,
        "events": count,
        "differing": [],
    }


def test_a_replay_without_a_purpose_is_refused():
    assert mulligan("replay", 1) == (
        2,
        "",
        "error[usage]: say what to show: a point of the run, or --verify\n"
        "  write mulligan replay RUN --at 40, --until 2h, --step STEP, --diff 12 40 or --verify\n",
    )
