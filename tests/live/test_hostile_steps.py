"""Steps that misbehave in whole runs: each fails in words of its own, those beside it complete, nothing is left over.

What one task can do to its worker is in `tests/worker/test_hostile.py`; here is what a person sees of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import Live, Ran, Terminal, wait_until

from mulligan.core.model import events as e
from mulligan.errors import InputInvalid
from mulligan.service.driving.driver import Capacity
from mulligan.worker.supervisor import processes

# What a step does: its text, and what is told of it. None: it completes.
SHELL: dict[str, tuple[str, tuple[str, str] | None]] = {
    "binary": ("head -c 100000 /dev/urandom", None),
    "not_utf8": (r"printf 'a\xff\xfeb\xc3'", None),
    "nul": (r"printf 'a\0b'", None),
    "huge_line": ("head -c 3000000 /dev/zero | tr '\\0' x", None),
    "escapes": (
        r"printf '\033[2J\033]0;owned\007'; printf '\033[31mboom' >&2; exit 5",
        ("EXIT_NONZERO", "\x1b[31mboom"),
    ),
    "nul_on_stderr": (r"printf 'a\0b\xff' >&2; exit 5", ("EXIT_NONZERO", "a\ufffdb\ufffd")),
    "closes_stdout": (
        "exec >&-; echo gone",
        ("EXIT_NONZERO", "bash: line 1: echo: write error: Bad file descriptor"),
    ),
    "closes_all": ("exec <&- >&- 2>&-; exit 3", ("EXIT_NONZERO", "exit code 3")),
    "leaves_a_daemon": ("setsid -f sleep 1000; (sleep 1000 &); echo left", None),
    "stops_itself": ("kill -STOP $$", ("TIMEOUT", "it took longer than its timeout")),
    "output_is_garbage": (
        'echo "{" > "$MULLIGAN_OUTPUT"',
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT is not JSON: Input data was truncated"),
    ),
    "output_is_a_pipe": (
        'mkfifo "$MULLIGAN_OUTPUT"',
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT is a pipe, not a file"),
    ),
    "output_is_endless": (
        'ln -s /dev/zero "$MULLIGAN_OUTPUT"',
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT is a device, not a file"),
    ),
    "output_is_huge": (
        'truncate -s 100M "$MULLIGAN_OUTPUT"',
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT has 104,857,600 bytes; the limit is 67,108,864"),
    ),
    "output_is_deep": (
        "printf '[%.0s' {1..50000} > \"$MULLIGAN_OUTPUT\"",
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT is not readable JSON: it is nested too deep"),
    ),
    "output_is_too_large_a_number": (
        'echo 100000000000000000000 > "$MULLIGAN_OUTPUT"',
        (
            "OUTPUT_INVALID",
            "its output cannot be stored: it contains a number of more than 64 bits, or is nested too deep",
        ),
    ),
    "error_is_a_folder": ('mkdir "$MULLIGAN_ERROR"', ("OUTPUT_INVALID", "$MULLIGAN_ERROR is a folder, not a file")),
    "error_is_of_no_type": (
        """echo '{"code": [1], "message": {"a": 1}, "severity": 7, "details": []}' > "$MULLIGAN_ERROR" """,
        ("EXCEPTION", '{"a":1}'),
    ),
    "error_is_of_the_engine": (
        """echo '{"code": "WORKER_LOST", "message": "no"}' > "$MULLIGAN_ERROR" """,
        ("EXCEPTION", "no"),
    ),
    "full_disk": (
        "echo x > /dev/full",
        ("EXIT_NONZERO", "bash: line 1: echo: write error: No space left on device"),
    ),
    "no_descriptors": ("ulimit -n 3; echo x > file", ("EXIT_NONZERO", "bash: line 1: file: Too many open files")),
    "removes_where_it_is": ("mkdir gone; cd gone; rmdir ../gone; exit 4", ("EXIT_NONZERO", "exit code 4")),
    "segfaults": ("kill -SEGV $$", ("SIGNALED", "killed by signal 11")),
}

PYTHON: dict[str, tuple[str, tuple[str, str] | None]] = {
    "no_json": (
        "def main(): return object()",
        (
            "OUTPUT_INVALID",
            "the result is of type 'object', which cannot be stored; return JSON values, a dataclass, a model, a table "
            "or an array",
        ),
    ),
    "cannot_be_shown": (
        "class E(Exception):\n  def __str__(self): raise ValueError\ndef main(): raise E",
        ("EXCEPTION", "E: it cannot be shown"),
    ),
    "leaves": (
        "import os\ndef main(): os._exit(0)",
        ("EXCEPTION", "its process exited before 'main' returned"),
    ),
    "closes_all": (
        "import os\ndef main(): os.closerange(3, 999)",
        ("EXIT_NONZERO", "the step broke the process that ran it: OSError: [Errno 9] Bad file descriptor"),
    ),
    "raves": (
        "import os\ndef main():\n  for fd in range(3, 99):\n    try: os.write(fd, b'\\xff' * 9)\n"
        "    except OSError: pass",
        ("EXCEPTION", "it wrote to the connection that returns its result, so the result is lost"),
    ),
    "stops_itself": (
        "import os\ndef main(): os.kill(os.getpid(), 19)",
        ("TIMEOUT", "it took longer than its timeout"),
    ),
    "leaves_a_daemon": (
        "import os, time\ndef main():\n  if os.fork(): return 1\n  os.setsid()\n  time.sleep(1000)",
        None,
    ),
    "is_no_text": (
        "def main(): return 'half \\ud800'",
        ("OUTPUT_INVALID", "the result contains a lone surrogate, which is not JSON"),
    ),
    "never_ends": ("def main():\n  while True: pass", ("TIMEOUT", "it took longer than its timeout")),
}
# Those that end only because their time is up.
STUBBORN = {"stops_itself", "never_ends"}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_LOG_MAX", "1MiB")


def hostile(kind: str, table: dict[str, tuple[str, Any]]) -> str:
    """A workflow of all of them, and steps beside and after them that have nothing to do with it."""
    steps: list[dict[str, Any]] = [{"step": f"beside{number}", "shell": f"echo {number}"} for number in range(3)]
    for name, (text, _) in table.items():
        limit = {"timeout": "2s"} if name in STUBBORN else {}
        steps.append({"step": name, kind: text, **limit})
    after = {"step": "after", "needs": [{"step": name, "on": "always"} for name in table]}
    steps.append({**after, "shell": 'echo \'{"a": 1}\' > "$MULLIGAN_OUTPUT"; test ! -e "$MULLIGAN_ERROR"'})
    return json.dumps({"name": "hostile", "cancel_grace": "100ms", "steps": steps})


def code_and_message(ran: Ran, name: str) -> tuple[str, str] | None:
    failure = ran.steps[name]["failure"]
    return failure and (failure["code"], failure["message"])


def leftovers(live: Live) -> list[int]:
    """The processes of this test's own workers, which all know where the runs are kept."""
    mark = os.fsencode(str(live.home.folder))
    return [pid for pid in processes.snapshot() if mark in processes.environment_of(pid).get(b"MULLIGAN_OUTPUT", b"")]


@pytest.mark.parametrize(("kind", "table"), [("shell", SHELL), ("python", PYTHON)], ids=["shell", "python"])
def test_each_step_fails_in_its_own_words_and_all_others_complete(
    live_file: Live, kind: str, table: dict[str, tuple[str, Any]]
) -> None:
    ran = live_file.run(hostile(kind, table))

    assert {name: code_and_message(ran, name) for name in table} == {
        name: expected for name, (_, expected) in table.items()
    }
    assert {name: ran.steps[name]["attempts"] for name in table} == dict.fromkeys(table, 1)
    assert [ran.steps[f"beside{number}"]["output"] for number in range(3)] == ["0", "1", "2"]
    assert (ran.status, ran.steps["after"]["output"]) == ("failed", {"a": 1})
    assert leftovers(live_file) == []
    again = live_file.run("name: fine\nsteps: [{step: s, shell: echo 1}, {step: p, python: 'def main(): return 2'}]")
    assert (again.status, again.steps["s"]["output"], again.steps["p"]["output"]) == ("completed", "1", 2)


# -- where a command is not a step ---------------------------------------------------------------------------------

ITEMS = """
name: items
steps:
  - step: each
    map: {over: [fifo, fine, flood, daemon, nul, fine], as: attack, on_item_failure: collect}
    do:
      - shell: |
          case "${attack}" in
            fifo) mkfifo "$MULLIGAN_OUTPUT" ;;
            flood) yes ;;
            daemon) setsid -f sleep 1000; exit 3 ;;
            nul) printf 'a\\0b' >&2; exit 4 ;;
            *) echo fine ;;
          esac
"""


def test_an_item_that_misbehaves_fails_alone(live_file: Live) -> None:
    ran = live_file.run(ITEMS)

    output = ran.steps["each"]["output"]
    assert (ran.status, output["results"]) == ("completed", [None, "fine", None, None, None, "fine"])
    assert [(one["code"], one["message"]) for one in output["failures"]] == [
        ("OUTPUT_INVALID", "$MULLIGAN_OUTPUT is a pipe, not a file"),
        (
            "OUTPUT_INVALID",
            "it wrote more than 1MiB to standard output and error and was stopped (limit: MULLIGAN_LOG_MAX)",
        ),
        ("EXIT_NONZERO", "exit code 3"),
        ("EXIT_NONZERO", "a\ufffdb"),
    ]
    assert leftovers(live_file) == []


HANDLED = """
name: handled
steps:
  - step: work
    shell: exit 1
    on_failure:
      - {shell: 'mkfifo "$MULLIGAN_OUTPUT"', continue_on_error: true}
      - {shell: 'yes', continue_on_error: true}
      - {shell: 'kill -STOP $$', timeout: 1s, continue_on_error: true}
      - {shell: 'echo [1] > "$MULLIGAN_OUTPUT"'}
"""


def test_a_handler_gets_past_commands_that_misbehave(live_file: Live) -> None:
    ran = live_file.run(HANDLED)

    failed = [fact.failure.code for fact in ran.facts(e.AttemptFailed) if "on_failure" in fact.place]
    assert failed == ["OUTPUT_INVALID", "OUTPUT_INVALID", "TIMEOUT"]
    assert (ran.status, ran.steps["work"]["output"]) == ("completed", [1])
    assert leftovers(live_file) == []


# -- endless output ------------------------------------------------------------------------------------------------


def test_a_step_that_never_stops_writing_is_ended_and_its_log_can_be_read(live_file: Live) -> None:
    ran = live_file.run("name: flood\nsteps: [{step: flood, shell: echo first; yes}, {step: beside, shell: echo 1}]")

    assert code_and_message(ran, "flood") == (
        "OUTPUT_INVALID",
        "it wrote more than 1MiB to standard output and error and was stopped (limit: MULLIGAN_LOG_MAX)",
    )
    [(out, _)] = live_file.logs(ran.run_id, "flood")
    assert (out.startswith("first\ny\n"), out.endswith("y\n"), len(out) < 1 << 20) == (True, True, True)
    assert ran.steps["beside"]["status"] == "completed"


def test_a_bound_that_is_no_size_is_refused_before_anything_runs(
    live_file: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_LOG_MAX", "lots")

    with pytest.raises(InputInvalid) as refused:
        live_file.run("name: any\nsteps: [{step: any, shell: echo 1}]")

    assert refused.value.render() == (
        "error[input.invalid]: MULLIGAN_LOG_MAX: 'lots' is not a size\n  write it like 512MiB or 4GB"
    )
    assert live_file.service.reader.runs() == []


def test_a_step_that_prints_too_much_completes_and_degrades_the_run_if_nobody_reads_it(live_file: Live) -> None:
    ran = live_file.run("name: loud\nsteps: [{step: loud, shell: truncate -s 67108865 /dev/stdout}]")

    [warning] = ran.steps["loud"]["warnings"]
    assert (ran.status, ran.shown["degraded"], ran.steps["loud"]["output"]["$artifact"]["format"]) == (
        "completed",
        True,
        "dropped",
    )
    assert (warning["code"], warning["message"]) == (
        "OUTPUT_TOO_LARGE",
        "its standard output has 67,108,865 bytes; the limit is 67,108,864; it was not kept, and the log has all of it",
    )


@pytest.mark.nightly
def test_a_step_that_prints_as_much_as_it_may_has_its_output(live_file: Live) -> None:
    ran = live_file.run("name: loud\nsteps: [{step: loud, shell: truncate -s 67108864 /dev/stdout}]")

    assert (ran.status, ran.shown["degraded"], ran.steps["loud"]["warnings"]) == ("completed", False, [])
    assert ran.steps["loud"]["output"]["$artifact"]["size"] == 67_108_864


# -- made to end ---------------------------------------------------------------------------------------------------

# Each says when it is up, and would rather stay.
STAYING = """
name: staying
cancel_grace: 100ms
steps:
  - {step: deaf, shell: "trap '' TERM INT; touch up1; while :; do sleep 1; done"}
  - {step: stopped, shell: "touch up2; kill -STOP $$"}
  - {step: daemon, shell: "setsid -f sh -c 'trap : TERM; touch up3; while :; do sleep 1; done'; sleep 1000"}
  - {step: quiet, shell: "exec <&- >&- 2>&-; touch up4; sleep 1000"}
  - step: masked
    python: |
      import pathlib, signal, time
      def main():
          signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
          pathlib.Path("up5").touch()
          time.sleep(1000)
  - step: catching
    python: |
      import pathlib, time
      def main():
          while True:
              try:
                  pathlib.Path("up6").touch()
                  time.sleep(1000)
              except BaseException:
                  pass
"""
STAYING_COUNT = 6
ROOMY = Capacity(cpus=8.0, memory=4 << 30)


def are_up(folder: Path) -> bool:
    return all((folder / f"up{number + 1}").exists() for number in range(STAYING_COUNT))


def test_whoever_would_rather_stay_is_cancelled_all_the_same(live: Live) -> None:
    def cancel(there: Terminal) -> None:
        there.wait_until(lambda: are_up(there.folder))
        there.service.changes.cancel(there.run_id)

    ran = live.run(STAYING, meanwhile=cancel, room=ROOMY)

    assert ran.status == "cancelled"
    assert {step["status"] for step in ran.steps.values()} == {"cancelled"}
    assert leftovers(live) == []


def press_until_it_ends(terminal: subprocess.Popen[str]) -> None:
    """Ctrl-C again and again: two that come at once are one."""
    while terminal.poll() is None:
        terminal.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            terminal.wait(0.2)


def test_whoever_would_rather_stay_ends_with_the_second_ctrl_c(live_file: Live) -> None:
    flow = live_file.write("flow.yaml", STAYING)

    with live_file.process("run", flow, "--parallel", "8") as terminal:
        wait_until(lambda: are_up(live_file.folder))
        press_until_it_ends(terminal)

    assert terminal.returncode == 130
    assert leftovers(live_file) == []
    # Nothing was spent: whoever takes the run up again has all of it before him.
    assert {step["status"] for step in live_file.look(1).steps.values()} == {"ready"}


# -- killers -------------------------------------------------------------------------------------------------------


def test_a_step_that_kills_its_supervisor_again_and_again_fails_and_the_worker_lives(live_file: Live) -> None:
    ran = live_file.run(
        "name: killer\nsteps:\n  - {step: killer, shell: 'kill -9 $PPID; sleep 1000'}\n"
        "  - {step: after, shell: echo 1, needs: [{step: killer, on: always}]}"
    )

    [worker] = {fact.worker for fact in ran.facts(e.AttemptLost)}
    assert code_and_message(ran, "killer") == ("WORKER_LOST", f"the worker running it was lost ({worker})")
    assert (ran.steps["killer"]["attempts"], ran.steps["after"]["output"]) == (4, "1")
    assert leftovers(live_file) == []


def test_a_step_that_kills_the_worker_is_lost_and_the_run_can_be_taken_up_until_it_fails(live_file: Live) -> None:
    kill = "test -e done && exit; kill -9 $(ps -o ppid= $PPID); sleep 1000"
    flow = live_file.write(
        "flow.yaml", f"name: killer\nsteps: [{{step: killer, shell: '{kill}'}}, {{step: beside, shell: echo 1}}]"
    )

    with live_file.process("run", flow) as terminal:
        terminal.communicate()
    live_file.write("done")
    ran = live_file.resume(1)

    assert terminal.returncode == -signal.SIGKILL
    assert (ran.status, ran.steps["killer"]["attempts"], ran.steps["beside"]["output"]) == ("completed", 2, "1")
    assert leftovers(live_file) == []


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB, where this user may have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("only root may have a disk of its own, and not everywhere")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_of_the_runs_is_waited_for_and_what_it_has_failed_runs_again(
    small_disk: Path, live_file: Live
) -> None:
    ballast, mark = small_disk / "ballast", live_file.folder / "mark"
    command = f"test -e {mark} && exit; touch {mark}; cat /dev/zero > {ballast}"
    flow = live_file.write("flow.yaml", f"name: fill\nsteps: [{{step: fill, shell: '{command}'}}]")

    with live_file.process("run", flow, "--json", "--home", small_disk / "home") as terminal:
        assert terminal.stderr is not None
        said = [terminal.stderr.readline() for _ in range(2)]
        ballast.unlink()
        out, _ = terminal.communicate()

    where = small_disk / "home" / "mulligan.db"
    assert said == ["run 1: fill\n", f"! the disk is full: '{where}' cannot be written; waiting for it\n"]
    step = json.loads(out)["steps"]["fill"]
    assert (step["status"], step["attempts"]) == ("completed", 2)


def test_a_step_that_fills_its_own_disk_fails_alone(small_disk: Path, live_file: Live) -> None:
    ran = live_file.run(
        f"name: fill\nsteps:\n  - {{step: fill, cwd: {small_disk}, shell: cat /dev/zero > ballast}}\n"
        "  - {step: beside, shell: echo 1}\n"
        f"  - {{step: after, cwd: {small_disk}, needs: [{{step: fill, on: always}}], shell: rm ballast; echo 2}}"
    )

    assert code_and_message(ran, "fill") == ("EXIT_NONZERO", "cat: write error: No space left on device")
    assert (ran.steps["beside"]["output"], ran.steps["after"]["output"]) == ("1", "2")


# -- values going in -----------------------------------------------------------------------------------------------


def test_values_that_no_process_can_be_given_are_refused_before_it_starts(live_file: Live) -> None:
    live_file.write("large", "x" * 100_000)
    ran = live_file.run(
        """
name: values
steps:
  - {step: nul, shell: printf 'a\\0b'}
  - {step: large, shell: cat large}
  - {step: takes_nul, needs: [nul], shell: 'touch ran; echo ${steps.nul.output}'}
  - {step: takes_large, needs: [large], shell: 'touch ran; echo ${steps.large.output}'}
  - {step: python_takes_nul, needs: [nul], env: {X: '${steps.nul.output}'}, python: 'def main(): open("ran", "w")'}
  - {step: reads_large, needs: [large], stdin: '${steps.large.output}', shell: wc -c}
  - {step: reads_nul, needs: [nul], stdin: '${steps.nul.output}', shell: wc -c}
  - {step: nowhere, cwd: not/there, shell: touch ran}
  - {step: in_a_file, cwd: large, shell: touch ran}
  - {step: python_in_a_file, cwd: large, python: 'def main(): open("ran", "w")'}
"""
    )

    other_ways = "; pass it with 'stdin:', or write it to a file and pass the name of the file"
    nul = "has a NUL, which no environment variable can hold" + other_ways
    large = "has 100000 bytes, and an environment variable holds at most 98304" + other_ways
    not_entered = f"the folder '{live_file.folder}/{{}}' cannot be entered: {{}}"
    assert {name: code_and_message(ran, name) for name in ran.steps if code_and_message(ran, name)} == {
        "takes_nul": ("INPUT_INVALID", f"the value of '_steps_nul_output' {nul}"),
        "python_takes_nul": ("INPUT_INVALID", f"the value of 'X' {nul}"),
        "takes_large": ("INPUT_INVALID", f"the value of '_steps_large_output' {large}"),
        "nowhere": ("INPUT_INVALID", not_entered.format("not/there", "no such file or directory")),
        "in_a_file": ("INPUT_INVALID", not_entered.format("large", "not a directory")),
        "python_in_a_file": ("INPUT_INVALID", not_entered.format("large", "not a directory")),
    }
    assert (ran.steps["reads_large"]["output"], ran.steps["reads_nul"]["output"]) == ("100000", "3")
    assert not (live_file.folder / "ran").exists()
