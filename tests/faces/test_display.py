"""A run on a terminal: what moves is drawn below what stays, and gone when it is over."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from tests.support.commands import SRC, ran, steady, workflow
from tests.support.forked_process import start_mulligan
from tests.support.pipes import Pipe

from mulligan.service.rendering.console.display import FRAME_SECONDS, LIVE_AFTER_SECONDS, PROGRESS_SECONDS, Display
from mulligan.service.rendering.console.printer import Printer
from mulligan.testing.history import History, step
from mulligan.testing.history import workflow as checked_workflow
from mulligan.worker.logs.progress_records import Progress

pytestmark = pytest.mark.usefixtures("folder")

# The first fails and waits for a retry that never comes; the second waits until it is heard.
MOVING = """\
name: moving
steps:
  - {step: again, shell: 'exit 4', retry: {max_retries: 1, delay: 1h}}
  - {step: slow, shell: 'cat pipe'}
  - {step: gate, approve: {message: 'ship it?'}, next: end}
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal with a run in it."""

    def __init__(self, *words: str, columns: int = 80, **extra: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm-256color", **extra}
        for name in {"NO_COLOR", "COLUMNS", "LINES"} - set(extra):
            environment.pop(name, None)
        self.child = start_mulligan(["run", *words], environment, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        self.raw = ""

    def shows(self, *words: str) -> bool:
        """Read on until all these have been drawn, or nothing more comes."""
        while not all(word in _ESCAPES.sub("", self.raw) for word in words):
            if not self._read():
                return False
        return True

    def left(self) -> str:
        """All that it drew, when it is over."""
        while self._read():
            pass
        self.child.communicate(timeout=60)
        os.close(self._ours)
        return self.raw

    def _read(self) -> bool:
        try:
            self.raw += os.read(self._ours, 65536).decode(errors="replace").replace("\r\n", "\n")
        except OSError:
            # The other end is closed.
            return False
        return True


def test_what_moves_is_drawn_below_the_lines_and_wiped_in_the_end():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING))

    is_shown = terminal.shows("↻ again  attempt 2 in 59m59s", "● slow ", "? gate ", "an approval: ship it?", "0 of 3")
    Path("pipe").write_text("heard\n")

    assert is_shown
    drawn = terminal.left()
    assert terminal.child.returncode == 4
    assert "\x1b[?25l" in drawn and drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h")
    last = _ESCAPES.sub("", drawn.rpartition("\x1b[?25h")[2])
    assert steady(last).splitlines()[:2] == ["", "? run 1 waits for a person"]


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_what_moves_is_drawn_only_of_a_run_that_takes_long_enough_to_be_looked_at() -> None:
    screen, now = Screen(), [0.0]
    display = Display(Printer(screen, {"TERM": "xterm"}), clock=lambda: now[0])

    now[0] += LIVE_AFTER_SECONDS
    display.tick()
    early = screen.getvalue()
    now[0] += 2 * FRAME_SECONDS
    display.tick()
    display.close()

    assert ("\x1b[?25l" in early, "\x1b[?25l" in screen.getvalue()) == (False, True)


def test_a_short_run_on_a_terminal_is_told_in_lines() -> None:
    terminal = Terminal(workflow("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"))

    lines = steady(_ESCAPES.sub("", terminal.left()))

    assert lines.startswith("run 1: hello\n")
    assert lines.endswith("✓ run 1 completed in Ns (1 step)\n")


def test_who_wants_no_colour_gets_nothing_bold_or_dim_either_and_still_sees_what_moves():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING), NO_COLOR="1")

    is_shown = terminal.shows("● slow ")
    Path("pipe").write_text("heard\n")

    assert is_shown
    assert re.findall(r"\x1b\[[0-9;]*m", terminal.left()) == []


def test_what_runs_in_a_called_run_is_drawn_with_its_caller():
    os.mkfifo("pipe")
    workflow("name: inner\nsteps:\n  - {step: slow, shell: 'cat pipe'}\n", "inner.yaml")
    workflow("name: middle\nsteps:\n  - {step: inner, workflow: inner.yaml}\n", "middle.yaml")
    terminal = Terminal(workflow("name: outer\nsteps:\n  - {step: call, workflow: middle.yaml}\n"))

    is_shown = terminal.shows("▸ call ", "▸ call/inner ", "● call/inner/slow ")
    Path("pipe").write_text("heard\n")

    assert is_shown
    assert "call/inner/slow  completed" in _ESCAPES.sub("", terminal.left())


@pytest.mark.parametrize("kind", ["dumb", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines_alone(kind: str):
    pipe = Pipe()
    terminal = Terminal(workflow(MOVING.replace("cat pipe", "sleep 1; echo on > pipe")), TERM=kind)

    pipe.hear()

    drawn = terminal.left()
    assert "\x1b[?25l" not in drawn
    assert "slow" in drawn


def test_on_a_narrow_terminal_what_moves_takes_one_line_each():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING), columns=20)

    is_shown = terminal.shows("● slow ", "…")
    Path("pipe").write_text("heard\n")

    assert is_shown
    terminal.left()
    assert terminal.child.returncode == 4


def test_how_far_a_step_says_that_it_is_is_drawn_beside_it():
    os.mkfifo("pipe")
    steps = "  - {step: copy, shell: 'echo 3/10 of the files > $MULLIGAN_PROGRESS; cat pipe'}\n"
    terminal = Terminal(workflow(f"name: moving\nsteps:\n{steps}"))

    is_shown = terminal.shows("━━━───────  3/10 of the files")
    Path("pipe").write_text("heard\n")

    assert is_shown
    terminal.left()


def test_without_a_terminal_progress_is_said_seldom_and_only_if_it_has_changed() -> None:
    stream, now, reported = io.StringIO(), [0.0], [Progress(3, 10, "files")]
    display = Display(Printer(stream, {}), clock=lambda: now[0], read_progress=lambda *_: reported[0])
    history = History(checked_workflow(step("copy"))).start().started("copy")
    display.committed(history.state, history.log)
    stream.seek(stream.truncate(0))

    for progress in (Progress(3, 10, "files"), Progress(3, 10, "files"), Progress(4, 10, "files")):
        reported[0] = progress
        now[0] += PROGRESS_SECONDS / 2
        display.tick()
        now[0] += PROGRESS_SECONDS / 2
        display.tick()

    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines == ["- copy  3/10 files", "- copy  4/10 files"]


def test_where_the_terminal_knows_no_signs_there_are_letters():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING), PYTHONIOENCODING="ascii")

    is_shown = terminal.shows("* slow ", "~ again", "---")
    Path("pipe").write_text("heard\n")

    assert is_shown
    assert terminal.left().isascii()


def test_ctrl_c_at_the_terminal_is_shown_and_the_run_can_be_resumed():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING))
    assert terminal.shows("● slow ")

    terminal.child.send_signal(2)

    assert "! interrupted: waiting for running tasks to end" in terminal.left()
    assert terminal.child.returncode == 130


# -- what is left, and what to type ------------------------------------------------------------------------------------

# The second takes as long as it is told to.
TIMED = """\
name: timed
inputs: {time: {default: 0s}}
steps:
  - {step: first, shell: 'true'}
  - {step: rest, needs: [first], wait: '${inputs.time}'}
"""


def test_who_has_to_decide_sees_the_command_to_type_for_as_long_as_it_is_waited_for():
    os.mkfifo("pipe")
    terminal = Terminal(workflow(MOVING))

    is_shown = terminal.shows("? gate ", "  mulligan approve 1 gate --reason 'why'")
    Path("pipe").write_text("heard\n")

    assert is_shown
    terminal.left()


def test_on_a_narrow_terminal_names_are_cut_and_the_command_is_whole():
    os.mkfifo("pipe")
    name = "a-name-that-is-much-too-long-for-this"
    text = MOVING.replace("gate", name).replace("name: moving", "name: moving\nfail_fast: never")
    terminal = Terminal(workflow(text), columns=40)

    is_shown = terminal.shows("? a-name-that-…", "0 of 3")
    Path("pipe").write_text("heard\n")

    assert is_shown
    drawn = _ESCAPES.sub("", terminal.left()).replace("\n", "").replace("\r", "")
    assert f"mulligan approve 1 {name} --reason 'why'" in re.sub(r" {2,}", " ", drawn)


def test_what_earlier_runs_took_says_how_long_this_one_will_still_take():
    ran(TIMED)
    terminal = Terminal("flow.yaml", "-i", "time=1h")

    is_shown = terminal.shows("◷ rest ", "1 of 2", "about 1 h left")
    terminal.child.terminate()

    assert is_shown
    terminal.left()


def test_a_workflow_that_never_ran_before_says_nothing_of_the_time_that_is_left():
    terminal = Terminal(workflow(TIMED), "-i", "time=1h")

    is_shown = terminal.shows("◷ rest ", "1 of 2")
    terminal.child.terminate()

    assert is_shown
    assert " left" not in terminal.left()


def test_of_a_matrix_one_line_says_how_far_it_is():
    os.mkfifo("pipe")
    text = "name: sweep\nsteps:\n  - {step: sim, matrix: {n: [1, 2, 3]}, shell: 'cat pipe; : ${matrix.n}'}\n"
    terminal = Terminal(workflow(text), "-p", "2")

    is_shown = terminal.shows("▸ sim ", "0 of 3 done, 2 running", "1 queued")
    terminal.child.terminate()

    assert is_shown
    terminal.left()


def test_without_a_terminal_the_command_to_type_is_said_when_somebody_has_to_decide():
    said = ran(
        """\
        name: asks
        steps:
          - {step: gate, approve: {message: 'ship it?'}, next: end}
          - {step: bad, shell: exit 3, triage: true}
        """
    )

    lines = steady(said.err).splitlines()
    assert lines[1:6] == [
        "THEN ? gate  waits for an approval: ship it?",
        "  mulligan approve 1 gate --reason 'why'",
        "THEN ✗ bad  attempt 1 failed with EXIT_NONZERO 3",
        "THEN ? bad  parked for a decision",
        "  mulligan classify 1 bad retry --reason 'why'",
    ]


def test_the_command_names_the_home_that_the_run_is_in():
    said = ran("name: asks\nsteps: [{step: gate, approve: {message: ok}}]", "--home", "other place")

    assert "  mulligan approve 1 gate --reason 'why' --home 'other place'" in steady(said.err)
