"""`mulligan run --debug` and `mulligan debug`: on a real terminal, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import SRC, mulligan, ran, workflow
from tests.support.forked_process import start_mulligan

pytestmark = pytest.mark.usefixtures("folder")

FLOW = """\
name: nightly
steps:
  - {step: first, shell: "echo 2", capture: json}
  - step: load
    needs: [first]
    python: |
      def main(rows):
        count = rows * 2
        return 1 / (count - 4)
    args: {rows: "${steps.first.output}"}
"""
UNDONE = """\
name: nightly
steps:
  - step: load
    python: |
      def main():
        raise ValueError("no")
    undo: {shell: "true"}
"""
EACH = """\
name: nightly
steps:
  - step: load
    map: {over: [{name: west, rows: 0}, {name: east, rows: 4}], as: region}
    do:
      - python: |
          def main(rows):
            return 1 / rows
        args: {rows: "${region.rows}"}
"""


def on_a_terminal(words: list[str], *answers: str) -> tuple[int, str]:
    """The exit code of a command, and what a person sees who types an answer at each prompt."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm", "NO_COLOR": "1"}
    child = start_mulligan(words, environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, left = b"", list(answers)
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:
            break
        if left and seen.endswith(b"(Pdb) "):
            os.write(ours, f"{left.pop(0)}\n".encode())
            seen += b"\n"
    os.close(ours)
    return child.wait(60), seen.decode().replace("\r", "")


def test_a_failed_attempt_is_run_again_with_its_inputs_and_nothing_is_recorded():
    ran(FLOW)
    before = mulligan("show", 1, "--json").out

    code, seen = on_a_terminal(["debug", "1", "load", "--locals"], "p rows", "c", "p count", "q")

    assert code == 1
    assert "attempt 1 of 'load' in run 1 again; nothing of it is recorded" in seen
    assert "\n2\n" in seen
    assert "\n4\n" in seen
    assert "it failed with EXCEPTION: ZeroDivisionError: division by zero" in seen
    assert "    count = 4\n" in seen
    assert mulligan("show", 1, "--json").out == before


def test_a_run_stops_where_a_step_fails_and_goes_on_with_what_the_person_does():
    name = workflow(FLOW)

    code, seen = on_a_terminal(["run", name, "--debug", "--locals"], "p count", "q")

    assert code == 1
    assert "debugging: steps in Python run one at a time" in seen
    assert "\n4\n" in seen
    # What else happens is said when the step has given the terminal back.
    assert seen.index("(Pdb)") < seen.index("failed with EXCEPTION: ZeroDivisionError")
    failure = mulligan("show", 1, "--json").json["steps"]["load"]["failure"]
    assert failure["traceback"][-1]["locals"] == {"rows": "2", "count": "4"}


def test_without_a_terminal_a_run_is_refused_and_not_started():
    said = mulligan("run", workflow(FLOW), "--debug")

    assert said.code == 2
    assert "debugging needs a terminal, and standard input is none" in said.err
    assert not Path(".mulligan").exists()


def test_the_variable_alone_does_nothing_without_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_DEBUG", "1")

    assert "debugging" not in ran(FLOW).err


def test_a_run_in_the_background_is_refused():
    assert "--detach leaves it" in mulligan("run", workflow(FLOW), "--debug", "--detach").err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("first",), "'first' is a shell step, and a debugger is for steps in Python"),
        (("load", "--attempt", 7), "'load' has no attempt 7 in run 1"),
        (("lod",), "did you mean 'load'?"),
        (("load", "--listen", 0), "--listen takes a port from 1 to 65535, not 0"),
    ],
)
def test_what_cannot_be_debugged_is_refused(words: tuple[object, ...], reason: str):
    ran(FLOW)

    said = mulligan("debug", 1, *words)

    assert said.code in (1, 2)
    assert reason in said.err


def test_side_effects_that_may_happen_again_are_asked_about():
    ran(UNDONE)

    said = mulligan("debug", 1, "load")

    assert said.code == 2
    assert "what it does to the world is real, and it has an undo, so it changes something" in said.err
    assert "--yes" in said.err


@pytest.mark.parametrize("words", [("load[west]",), ("load", "--item", "west"), ("load", "--item", 0)])
def test_an_item_is_named_as_everywhere(words: tuple[object, ...]):
    ran(EACH)

    said = mulligan("debug", 1, *words)

    # It was found: what is missing is the terminal.
    assert "attempt 1 of 'load" in said.err
    assert "debugging needs a terminal" in said.err


def test_a_failure_has_its_frames_without_variables_unless_they_are_asked_for():
    ran(FLOW)

    failure = mulligan("show", 1, "--json").json["steps"]["load"]["failure"]

    (frame,) = failure["traceback"]
    assert frame == {"file": "<step load>", "line": 3, "function": "main", "text": "return 1 / (count - 4)"}
    assert "locals" not in json.dumps(failure)
