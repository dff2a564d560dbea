"""`mulligan resume`: on with a run that nobody drives, without doing anything twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, steady, workflow
from tests.support.pipes import Pipe

pytestmark = pytest.mark.usefixtures("folder")

# The second step waits for a reader of `pipe` the first time, and is quick the second.
SLOW = """\
name: slow
steps:
  - {step: first, shell: 'echo x >> firsts'}
  - {step: second, needs: [first], shell: 'test -e pipe || exit 0; echo on > pipe; exec sleep 60'}
"""


def interrupted(number: signal.Signals, text: str = SLOW) -> int:
    """The exit code of a run that got a signal while its second step ran."""
    pipe = Pipe()
    child = process("run", workflow(text))
    pipe.hear()
    pipe.remove()
    child.send_signal(number)
    child.communicate(timeout=60)
    return child.returncode


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_or_killed_run_goes_on_and_nothing_that_was_done_is_done_again(
    number: signal.Signals, code: int
):
    assert interrupted(number) == code

    said = mulligan("resume")

    assert said.code == 0
    assert steady(said.err).startswith("run 1: slow\n")
    assert "✓ run 1 completed in Ns (Ns of it now) (2 steps)" in steady(said.err)
    assert Path("firsts").read_text() == "x\n"


def test_a_paused_run_goes_on():
    ran("name: asking\nsteps:\n  - {step: gate, approve: {message: 'ship it?'}}\n")
    mulligan("pause", 1)

    said = mulligan("resume", 1, "--json")

    assert (said.code, said.json["status"]) == (4, "running")


def test_a_run_goes_on_step_by_step():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'ship it?', next: end}\n  - {step: s, shell: 'true'}\n")

    stepped = mulligan("resume", 1, "--steps", 1, "--json")
    wrong = [mulligan("resume", 1, "--steps", 0), mulligan("resume", 1, "s", "--steps", 1)]

    assert (stepped.code, stepped.json["status"]) == (4, "running")
    assert [said.err.splitlines()[0] for said in wrong] == [
        "error[usage]: --steps must be at least 1, not 0",
        "error[usage]: --steps is for the whole run, and a paused step was named",
    ]


def test_what_broke_before_an_interruption_is_summed_up_after_it():
    first = "{step: first, retry: 1, shell: 'test -e tried && exit 0; touch tried; echo oh >&2; exit 4'}"
    text = SLOW.replace("{step: first, shell: 'echo x >> firsts'}", first)
    assert interrupted(signal.SIGINT, text) == 130

    said = mulligan("resume", 1)

    told = "  ✓ first  EXIT_NONZERO 4: oh → retried, then completed  (mulligan logs 1 first)\n"
    assert (said.code, told in said.err) == (0, True)


def test_a_run_that_a_live_process_drives_is_refused_and_the_process_named():
    pipe = Pipe()
    child = process("run", workflow(SLOW))
    pipe.hear()

    said, any_run = mulligan("resume", 1), mulligan("resume")

    child.kill()
    child.communicate(timeout=60)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error[run.driven]: run 1 is driven by process {child.pid} on ")
    assert any_run.err == "error[refused]: there is no run to resume: every unfinished run is driven by a process\n"


def test_a_run_that_has_ended_is_refused():
    ran("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")

    assert tuple(mulligan("resume", 1)) == (
        2,
        "",
        "error[run.finished]: run 1 completed, so there is nothing to resume\n"
        "  to run it again from a step: mulligan fork 1 --from STEP\n",
    )


def test_where_there_is_nothing_to_resume_that_is_said(folder: Path):
    assert tuple(mulligan("resume")) == (
        2,
        "",
        f"error[refused]: there is no run to resume in '{folder}/.mulligan': no run is unfinished\n"
        "  to run the failed steps of a run again: mulligan retry RUN\n",
    )


def test_a_run_works_in_the_folder_in_which_it_was_called_whoever_takes_it_up_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ran(
        "name: here\nsteps:\n  - {step: gate, approve: {message: 'ship it?'}}\n"
        "  - {step: plain, needs: [gate], shell: pwd}\n  - {step: below, needs: [gate], cwd: sub, shell: pwd}\n"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    home = tmp_path / ".mulligan"

    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow", "--home", home)
    said = mulligan("resume", 1, "--json", "--home", home)

    assert said.json["status"] == "completed"
    assert said.json["steps"]["plain"]["output"] == str(tmp_path)
    assert said.json["steps"]["below"]["output"] == str(tmp_path / "sub")


def test_a_step_of_a_group_has_the_same_name_when_its_run_is_taken_up_again():
    inside = "[{step: one, shell: echo, undo: {shell: echo}}, {step: two, shell: exit 3, triage: {when: always}}]"
    ran(f"name: t\nsteps:\n  - {{step: g, group: {{order: sequential, steps: {inside}}}}}\n")

    said = mulligan("classify", 2, "two", "fail", "--reason", "broken", "--follow")

    assert "✓ g/one  undone\n" in steady(said.err)
