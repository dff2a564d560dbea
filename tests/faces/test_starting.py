"""`mulligan run --key` and `--detach`: a run that is there once, and one that outlives its terminal."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, process, workflow

from mulligan.cli.words.options import service_at
from mulligan.formats import load
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.changes.starting import RunNotTakenUp, detach
from mulligan.worker.supervisor.processes import is_running

pytestmark = pytest.mark.usefixtures("folder")

ONCE = """\
name: once
inputs: {n: {type: integer, default: 1}}
steps: [{step: a, shell: "echo ran >> trace; echo ${inputs.n}"}]
outputs: {said: "${steps.a.output}"}
"""
# Ends when somebody says so.
HELD = """\
name: held
steps:
  - {step: hold, shell: "touch began; while test ! -e go; do sleep 0.02; done; echo held >> trace"}
outputs: {said: over}
"""
SECONDS_MAX = 60.0


def run(text: str, *words: object) -> Said:
    return mulligan("run", workflow(text), *words)


def until(path: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not Path(path).exists():
        assert time.monotonic() < deadline, f"'{path}' never came"
        time.sleep(0.01)


def status(run_id: int = 1) -> str:
    found: str = mulligan("show", run_id, "--json").json["status"]
    return found


def ended(run_id: int = 1) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := status(run_id)) == "running":
        assert time.monotonic() < deadline, "the run goes on for ever"
        time.sleep(0.02)
    return found


# -- a key -----------------------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_run_that_is_there_and_its_result():
    first = run(ONCE, "--key", "order-7")

    again = run(ONCE, "--key", "order-7")

    assert (again.code, again.json) == (first.code, first.json) == (0, {"said": "1"})
    assert again.err == "run 1 was already started with the key 'order-7': it is completed\n"
    assert Path("trace").read_text() == "ran\n"


def test_a_run_that_failed_is_not_started_again_and_says_so():
    run("name: bad\nsteps: [{step: a, shell: exit 1}]", "--key", "k")

    again = run("name: bad\nsteps: [{step: a, shell: exit 1}]", "--key", "k")

    assert (again.code, len(mulligan("list", "--json").json)) == (1, 1)


def test_another_key_and_another_workflow_are_other_runs():
    run(ONCE, "--key", "a")

    run(ONCE, "--key", "b")
    run(ONCE.replace("once", "other"), "--key", "a")

    assert [one["run_id"] for one in mulligan("list", "--json").json] == [3, 2, 1]


def test_a_key_with_other_inputs_is_refused():
    run(ONCE, "--key", "k")

    said = run(ONCE, "--key", "k", "-i", "n=2")

    assert (said.code, said.out, said.err.splitlines()[0]) == (
        2,
        "",
        "error[run.key_mismatch]: the key 'k' was used for run 1 with other inputs: 'n'",
    )


def test_a_file_that_has_changed_since_is_said_and_the_run_stays_the_one_it_is():
    run(ONCE, "--key", "k")

    said = run(ONCE.replace("ran", "changed"), "--key", "k")

    assert (said.code, said.json) == (0, {"said": "1"})
    assert "the file has changed since" in said.err
    assert Path("trace").read_text() == "ran\n"


def test_two_at_once_have_one_run_between_them_and_the_same_result():
    both = [process("run", workflow(HELD), "--key", "k") for _ in range(2)]
    until("began")
    Path("go").touch()

    said = [one.communicate(timeout=SECONDS_MAX) for one in both]

    assert [one.returncode for one in both] == [0, 0], said
    assert said[0][0] == said[1][0] != b""
    assert Path("trace").read_text() == "held\n"
    assert len(mulligan("list", "--json").json) == 1


def test_a_run_under_a_key_whose_process_has_died_is_driven_on():
    first = process("run", workflow(HELD), "--key", "k")
    until("began")
    first.kill()
    first.communicate()
    Path("go").touch()

    said = run(HELD, "--key", "k")

    assert (said.code, said.json) == (0, {"said": "over"})


@pytest.mark.parametrize("key", [" ", "a\nb", "x" * 201])
def test_what_is_no_key_is_refused(key: str):
    said = run(ONCE, "--key", key)

    assert (said.code, said.err.startswith("error[input.invalid]")) == (2, True)
    assert not Path(".mulligan").exists()


# -- in the background -----------------------------------------------------------------------------------------------


def test_a_detached_run_goes_on_without_its_terminal_and_prints_its_number():
    said = run(HELD, "--detach")

    assert (said.code, said.out, status()) == (0, "1\n", "running")
    assert "mulligan wait 1" in said.err
    until("began")
    Path("go").touch()
    assert ended() == "completed"
    assert "held" in Path(".mulligan/runs/1/driver.log").read_text()


def test_its_process_has_a_session_of_its_own_and_is_nobodys_child():
    found = run(HELD, "--detach", "--json").json

    pid = found["pid"]
    assert os.getsid(pid) != os.getsid(0)
    assert (found["run_id"], found["status"], Path(found["log"]).stat().st_mode & 0o077) == (1, "running", 0)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    Path("go").touch()
    assert ended() == "completed"


def test_files_named_like_modules_are_no_modules_of_a_detached_run():
    for name in ("mulligan", "msgspec", "signal"):
        Path(f"{name}.py").write_text("raise SystemExit('not this one')")

    said = run(ONCE, "--detach")

    assert (said.code, said.out, ended()) == (0, "1\n", "completed")


def test_a_detached_run_whose_process_dies_is_resumed():
    pid = run(HELD, "--detach", "--json").json["pid"]
    until("began")
    os.kill(pid, signal.SIGKILL)
    while is_running(pid):
        time.sleep(0.01)
    Path("go").touch()

    assert mulligan("resume", 1).code == 0
    assert status() == "completed"


def test_what_is_refused_starts_nothing_in_the_background():
    said = run("name: s\nsecrets: {t: {env: NOT_SET}}\nsteps: [{step: a, shell: 'echo ${secrets.t}'}]", "--detach")

    assert (said.code, said.out) == (2, "")
    assert mulligan("list", "--json").json == []


def test_a_detached_run_with_a_key_is_there_once():
    first = run(HELD, "--detach", "--key", "k")
    again = run(HELD, "--detach", "--key", "k")

    assert (first.out, again.out, again.code) == ("1\n", "1\n", 0)
    Path("go").touch()
    assert ended() == "completed"


def test_a_run_that_nobody_took_up_says_what_its_process_said():
    with service_at(None) as service:
        prepared = prepare(load(Path(workflow(ONCE))), {}, Path.cwd())
        run_id = service.changes.create(prepared)[0]
        broken = ("/bin/sh", "-c", "echo no such luck >&2; exit 1")

        with pytest.raises(RunNotTakenUp, match="no such luck") as refused:
            detach(service.reader, run_id, program=broken)

    assert refused.value.hint.startswith("to drive it here: mulligan resume 1")
    assert mulligan("resume", 1).code == 0
