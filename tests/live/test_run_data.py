"""The data of a run, live: a step sets it with a command or a file, and later steps read it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.runner import Live, Terminal, wait_until

from mulligan.core.model import events as e

SHARED = """
name: shared
data: {rate: 0.5, note: "from the file"}
steps:
  - step: set
    shell: |
      mulligan data get note > first
      mulligan data set rate 0.25
      mulligan data set model '{"layers": [3, 4]}'
      mulligan data set model.name "two words"
      mulligan data get rate > own
      echo '{"plain": 1}' >> "$MULLIGAN_DATA_SET"
  - step: read
    needs: [set]
    shell: |
      mulligan data get model > model
      mulligan data get model.name > name
      mulligan data get missing 2> missing || echo "$?" >> missing
      cat "$MULLIGAN_DATA" > all
      echo ${run.data.rate} ${run.data["model.name"]} > expression
"""


def test_what_a_step_sets_later_steps_read_by_command_by_file_and_in_expressions(live_file: Live) -> None:
    ran = live_file.run(SHARED)

    assert ran.status == "completed"
    read = {name: live_file.lines(name) for name in ("first", "own", "model", "name", "missing", "all", "expression")}
    assert read == {
        "first": ["from the file"],
        "own": ["0.25"],
        "model": ['{"layers":[3,4]}'],
        "name": ["two words"],
        "missing": [
            "error[data.missing]: the run has no data 'missing'",
            "  it has model, model.name, note, plain, rate",
            "1",
        ],
        "all": ['{"rate":0.25,"note":"from the file","model":{"layers":[3,4]},"model.name":"two words","plain":1}'],
        "expression": ["0.25 two words"],
    }
    assert ran.shown["data"]["rate"] == {"value": 0.25, "version": 2}
    assert [(one.name, one.version, one.step) for one in live_file.service.runs.data(ran.run_id)] == [
        ("model", 1, "set"),
        ("model.name", 1, "set"),
        ("note", 1, ""),
        ("plain", 1, "set"),
        ("rate", 2, "set"),
    ]


def test_all_stores_keep_it(live: Live) -> None:
    ran = live.run("""
        name: kept
        steps:
          - {step: a, shell: 'echo "{\\"x\\": [1]}" > $MULLIGAN_DATA_SET'}
          - {step: b, needs: [a], shell: 'cat $MULLIGAN_DATA'}
          - step: c
            needs: [b]
            python: |
              import json, os
              def main():
                  with open(os.environ["MULLIGAN_DATA_SET"], "a") as file:
                      file.write(json.dumps({"y": 2}))
    """)

    assert ran.steps["b"]["output"] == '{"x":[1]}'
    assert ran.shown["data"] == {"x": {"value": [1], "version": 1}, "y": {"value": 2, "version": 1}}


def test_a_step_that_is_killed_sets_nothing_and_its_next_attempt_starts_from_what_counts(live_file: Live) -> None:
    ran = live_file.run("""
        name: killed
        data: {count: 0}
        steps:
          - step: a
            shell: |
              [ ! -e "$MULLIGAN_DATA_SET" ] || exit 3
              echo "{\\"count\\": $MULLIGAN_ATTEMPT, \\"at_$MULLIGAN_ATTEMPT\\": 1}" >> "$MULLIGAN_DATA_SET"
              [ "$MULLIGAN_ATTEMPT" -gt 1 ] || kill -KILL $$
              cat "$MULLIGAN_DATA"
            retry: 1
    """)

    assert ran.status == "completed"
    assert ran.steps["a"]["output"] == '{"count":0}'
    assert {name: one["value"] for name, one in ran.shown["data"].items()} == {"count": 2, "at_2": 1}


def test_a_worker_that_is_killed_leaves_nothing_behind(live_file: Live) -> None:
    live_file.write(
        "flow.yaml",
        """
        name: lost
        steps:
          - step: a
            shell: |
              echo "{\\"by\\": $MULLIGAN_ATTEMPT}" >> "$MULLIGAN_DATA_SET"
              echo "$PPID" > there
              [ "$MULLIGAN_ATTEMPT" -gt 1 ] || exec sleep 100
        """,
    )
    with live_file.process("run", "flow.yaml") as process:
        there = live_file.folder / "there"
        wait_until(lambda: there.exists() and there.read_text().strip())
        process.send_signal(signal.SIGKILL)
        process.communicate()

    with live_file.process("resume", "1") as process:
        process.communicate()

    assert live_file.service.runs.data(1)[0].value == 2
    assert [fact.fact.attempt for fact in live_file.service.reader.events(1) if isinstance(fact.fact, e.DataSet)] == [2]


INVALID = {
    "echo nonsense": "line 1 of $MULLIGAN_DATA_SET is not JSON: JSON is malformed: invalid character (byte 4)",
    "echo 3": "line 1 of $MULLIGAN_DATA_SET is not a JSON object of names and values",
    "echo '{\"a b\": 1}'": (
        "it sets the data 'a b', which is not valid: "
        "a name has letters, digits, '_', '-' and '.', and begins with a letter or '_'"
    ),
    'printf \'{"a": "%070000d"}\' 1': (
        "it sets the data 'a', which is not valid: it has 68KiB, and a value has at most 64KiB"
    ),
}


@pytest.mark.parametrize("printed", INVALID)
def test_what_cannot_be_data_fails_the_attempt(live_file: Live, printed: str) -> None:
    (live_file.folder / "bad.sh").write_text(f"{printed} > $MULLIGAN_DATA_SET\n")

    ran = live_file.run("name: bad\nsteps: [{step: a, shell: bash bad.sh}]\n")

    failure = ran.steps["a"]["failure"]
    assert (failure["code"], ran.shown["data"]) == ("OUTPUT_INVALID", {})
    assert failure["message"].endswith(INVALID[printed])


def test_a_secret_is_hidden_in_it(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_THIS_TEST", "s3cr3t-s3cr3t")

    ran = live_file.run("""
        name: secret
        secrets: {token: {env: TOKEN_OF_THIS_TEST}}
        steps: [{step: a, shell: 'echo "{\\"t\\": \\"${secrets.token}\\"}" > $MULLIGAN_DATA_SET'}]
    """)

    assert ran.shown["data"]["t"]["value"] == "***"


def test_two_steps_at_the_same_time_have_two_versions(live: Live) -> None:
    """Each waits for the other: both were scheduled before either had set anything."""

    def look(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        there.wait_for(e.AttemptStarted, place="b")
        Path(there.folder, "go").touch()

    wait = "until [ -e go ]; do sleep 0.01; done"
    ran = live.run(
        f"""
        name: both
        steps:
          - {{step: a, shell: '{wait}; echo "{{\\"x\\": 1}}" > $MULLIGAN_DATA_SET'}}
          - {{step: b, shell: '{wait}; echo "{{\\"x\\": 2}}" > $MULLIGAN_DATA_SET'}}
        """,
        meanwhile=look,
    )

    facts = ran.facts(e.DataSet)
    assert [fact.version for fact in facts] == [1, 2]
    assert ran.shown["data"]["x"] == {"value": facts[-1].value, "version": 2}
