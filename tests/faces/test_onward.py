"""Who continues a run after a command has changed it: one rule for every command, on a terminal and in a script."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.commands import Said, mulligan, process, ran
from tests.support.serving import TOKEN, serving

from mulligan.cli.running import continue_run
from mulligan.cli.words.commands import COMMANDS, load
from mulligan.cli.words.parameters import parameters_of
from mulligan.service.service import Service

pytestmark = pytest.mark.usefixtures("folder")

PARKED = "name: parked\nsteps:\n  - {step: a, shell: 'test -e go', triage: true}\n"
ASKING = """\
name: asking
steps:
  - {step: a, approve: {message: 'ship it?'}}
  - {step: b, needs: [a], shell: 'true'}
"""
WAITING = "name: waiting\nsteps:\n  - {step: a, wait: {event: go}}\n  - {step: b, needs: [a], shell: 'true'}\n"
FAILED = "name: failed\nsteps:\n  - {step: a, shell: 'test -e go'}\n"
TWO = "name: two\nsteps:\n  - {step: a, shell: 'true'}\n  - {step: b, needs: [a], shell: 'test -e go'}\n"
STOPPING = ASKING + "end: {shell: 'true'}\n"
ITEMS = "name: items\nsteps:\n  - {step: a, map: {over: [1, 2], as: n}, do: [{shell: 'test -e go || test ${n} = 1'}]}\n"


class Row(NamedTuple):
    """A command that changes run 1 of a workflow, so that a process has to continue a run."""

    text: str
    words: tuple[object, ...]
    # The run that goes on, and what comes of it.
    run_id: int = 1
    status: str = "completed"


ROWS = {
    "classify": Row(PARKED, ("classify", 1, "a", "retry", "--reason", "it may go")),
    "approve": Row(ASKING, ("approve", 1, "a", "--reason", "it may go")),
    "retry": Row(FAILED, ("retry", 1)),
    "items": Row(ITEMS, ("items", 1, "a", "--retry")),
    "fork": Row(FAILED, ("fork", 1, "--from", "a"), run_id=2),
    "replay": Row(TWO, ("replay", 1, "--at", 9, "--fork-here"), run_id=2),
    "send": Row(WAITING, ("send", 1, "go")),
    "cancel": Row(STOPPING, ("cancel", 1), status="cancelled"),
}
# `run` and `resume` are what the others follow: they drive, unless they are detached. The rest drives no run of a home.
DRIVING = {"run", "resume"}
OTHERS = set(
    "wait worker server mcp dashboard list workers show explain logs events data report pause pending notices stats "
    "whatif usage suggest breakers traces step rehearse validate coverage graph convert publish workflows schedule "
    "webhook schema login logout token postgres slurm gc remove doctor demo debug deploy".split()
)
EVERY_ROW = pytest.mark.parametrize("verb", ROWS)
# For what needs a process beside this one: a run that goes on, one that is made, and one that is stopped.
SOME_ROWS = pytest.mark.parametrize(
    "verb",
    [one if one in ("approve", "fork", "cancel") else pytest.param(one, marks=pytest.mark.nightly) for one in ROWS],
)


def prepared(row: Row) -> None:
    """Run 1, which waits or has failed, and would complete if it went on."""
    ran(row.text)
    Path("go").touch()


def status(run_id: int) -> str:
    return str(mulligan("show", run_id, "--json").json["status"])


def last_worker(run_id: int) -> int:
    """The process that has run the last command of a run."""
    events = [json.loads(line)["fact"] for line in mulligan("events", run_id, "--json").out.splitlines()]
    return int([event["worker"] for event in events if "worker" in event][-1].split(".")[-2])


def in_a_script(*words: object) -> Said:
    return mulligan(*words)


def on_a_terminal(*words: object) -> Said:
    """What a command says whose answer is read by a person."""
    ours, theirs = os.openpty()
    child = process(*words, stdout=theirs)
    _, err = child.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    return Said(child.returncode, "", err.decode())


SOMEWHERE = pytest.mark.parametrize("say", [in_a_script, on_a_terminal])


@contextmanager
def a_worker() -> Iterator[int]:
    """The id of a worker of the home, which takes up what nothing drives."""
    child = process("worker", "--parallel", 1)
    assert child.stderr is not None
    assert b"is up" in child.stderr.readline()
    try:
        yield child.pid
    finally:
        child.terminate()
        child.communicate(timeout=60)


def test_every_command_has_a_row_or_drives_no_run():
    options = {name: {flag for one in parameters_of(load(name)) for flag, _ in one.flags()} for name in COMMANDS}

    assert {*ROWS, *DRIVING, *OTHERS} == {*COMMANDS}
    assert {name for name in COMMANDS if "--no-follow" in options[name]} == {*ROWS}
    assert {name for name in COMMANDS if "--detach" in options[name]} == {*ROWS, *DRIVING}


@EVERY_ROW
@SOMEWHERE
def test_where_nothing_drives_the_run_a_command_drives_it_on(verb: str, say):
    row = ROWS[verb]
    prepared(row)

    said = say(*row.words)

    assert said.code == 0, said.err
    assert status(row.run_id) == row.status


def test_a_run_that_somebody_else_ends_meanwhile_is_said_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(ROWS["approve"])

    def ended_meanwhile(service: Service, chosen: object, run_id: int) -> bool:
        assert mulligan("resume", run_id).code == 0
        return False

    monkeypatch.setattr(continue_run, "drives_here", ended_meanwhile)

    said = mulligan(*ROWS["approve"].words)

    assert said.code == 0
    assert "run 1 completed" in said.err


@SOME_ROWS
@SOMEWHERE
def test_where_a_worker_takes_up_runs_it_is_named_and_the_command_returns(verb: str, say):
    row = ROWS[verb]
    prepared(row)

    with a_worker() as pid:
        said = say(*row.words)
        waited = mulligan("wait", row.run_id)

    assert said.code == 0, said.err
    # The worker may have ended the run before the command looks for whoever drives it.
    assert f"process {pid} on " in said.err or re.search(rf"run {row.run_id} (is )?{row.status}\b", said.err)
    assert last_worker(row.run_id) == pid
    assert "mulligan resume" not in said.err
    assert waited.code == (3 if verb == "cancel" else 0)


@EVERY_ROW
def test_with_no_follow_the_change_is_only_recorded(verb: str):
    row = ROWS[verb]
    prepared(row)

    said = mulligan(*row.words, "--no-follow")

    assert said.code == 0
    assert f"nothing is running it; to run it here: mulligan resume {row.run_id}\n" in said.err
    assert status(row.run_id) == "running"
    assert mulligan("resume", row.run_id).code == (3 if verb == "cancel" else 0)


@SOME_ROWS
def test_with_detach_a_process_in_the_background_drives_it_and_its_number_is_printed(verb: str):
    row = ROWS[verb]
    prepared(row)

    said = mulligan(*row.words, "--detach")

    assert (said.code, said.out) == (0, f"{row.run_id}\n")
    mulligan("wait", row.run_id, "--timeout", "60s")
    assert status(row.run_id) == row.status


@EVERY_ROW
def test_driven_on_a_command_prints_the_run_as_run_does_and_nothing_else(verb: str):
    row = ROWS[verb]
    prepared(row)

    said = mulligan(*row.words, "--json")

    assert (said.json["run_id"], said.json["status"]) == (row.run_id, row.status)
    assert said.json.keys() == ran(FAILED, "--json").json.keys()


@EVERY_ROW
def test_a_server_drives_the_run_itself(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    row = ROWS[verb]
    prepared(row)

    with serving(folder / ".mulligan") as url:
        monkeypatch.setenv("MULLIGAN_TOKEN", TOKEN)
        said = mulligan(*row.words, "--home", url)

    assert said.code == 0, said.err
    assert "the workers of the server continue it\n" in said.err
    assert status(row.run_id) == "running"


@EVERY_ROW
def test_follow_and_detach_exclude_each_other(verb: str):
    row = ROWS[verb]
    prepared(row)

    for option in ("--follow", "--no-follow"):
        assert mulligan(*row.words, option, "--detach") == (
            2,
            "",
            f"error[usage]: {option} and --detach cannot be combined\n  give one of them\n",
        )


def test_after_one_of_two_answers_the_run_waits_again():
    ran("name: two\nsteps:\n  - {step: a, approve: 'a?'}\n  - {step: b, approve: 'b?'}\n")

    assert mulligan("approve", 1, "a", "--reason", "fine").code == 4
    assert mulligan("approve", 1, "b", "--reason", "fine").code == 0


def test_a_round_that_fails_again_has_the_exit_code_of_run():
    ran(FAILED)

    assert mulligan("retry", 1).code == 1
    assert mulligan("fork", 1, "--from", "a").code == 1


def test_follow_drives_the_run_here_although_a_worker_would():
    prepared(ROWS["retry"])

    with a_worker():
        said = mulligan("retry", 1, "--follow")

    assert said.code == 0
    assert "run 1 completed" in said.err


def test_who_drives_the_run_is_named():
    os.mkfifo("hold")
    hold = "echo up > hold; read -r x < hold"
    Path("flow.yaml").write_text(
        f"name: w\nsteps:\n  - {{step: a, approve: 'go?', next: end}}\n  - {{step: b, shell: '{hold}'}}\n"
    )
    child = process("run", "flow.yaml")
    assert Path("hold").read_text() == "up\n"

    said = mulligan("approve", 1, "a", "--reason", "fine")

    Path("hold").write_text("end\n")
    child.communicate(timeout=60)
    assert said.plain == (0, "", "run 1: 'a' is approved\nprocess N on HOST drives it\n")
    assert child.returncode == 0


def test_follow_shows_the_run_of_another_process_until_its_end():
    os.mkfifo("hold")
    hold = "echo up > hold; read -r x < hold"
    Path("flow.yaml").write_text(
        f"steps:\n  - {{step: a, approve: 'go?', next: end}}\n  - {{step: b, shell: '{hold}'}}\noutputs: {{x: 1}}\n"
    )
    driver = process("run", "flow.yaml")
    assert Path("hold").read_text() == "up\n"

    follower = process("approve", 1, "a", "--reason", "fine", "--follow")
    assert follower.stderr is not None
    assert follower.stderr.readline() == b"run 1: 'a' is approved\n"
    Path("hold").write_text("end\n")
    out, err = follower.communicate(timeout=60)
    driver.communicate(timeout=60)

    assert (follower.returncode, json.loads(out)) == (0, {"x": 1})
    assert b"run 1 completed" in err
