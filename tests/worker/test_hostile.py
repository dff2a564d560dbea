"""Tasks that do to their worker what no task should. Each ends in words, and the next task does not notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.nightly import sample
from tests.support.work import Announcements, Work, is_alive

from mulligan.core.deciding.classify import classify
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, TaskEnded
from mulligan.worker.child.json_encoding import OUTPUT_BYTES_MAX
from mulligan.worker.folders import Folders
from mulligan.worker.logs.log_limit import KEPT_BYTES
from mulligan.worker.running_task import RunningTask
from mulligan.worker.task_files import TaskFiles

MIB = 1 << 20


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Work]:
    """A worker that has room beside two tasks that wait."""
    work = Work(tmp_path, cpus=4)
    yield work
    work.close()
    assert work.remaining() == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Work]:
    """A worker that lets a task write little."""
    work = Work(tmp_path, log_bytes_max=2 * MIB)
    yield work
    work.close()
    assert work.remaining() == []


def code_and_message(report: TaskEnded) -> tuple[str, str]:
    """The code and the message that a person sees; nothing where nothing went wrong."""
    failure, _ = classify(report.outcome)
    return (failure.code, failure.message) if failure else ("", "")


def expect_the_next_to_be_well(work: Work) -> None:
    """A task that gets the same side files finds nothing there, and can use them all."""
    text = (
        'test ! -e "$MULLIGAN_OUTPUT" -a ! -e "$MULLIGAN_ERROR" && echo 1 > "$MULLIGAN_OUTPUT" && : > "$MULLIGAN_ERROR"'
    )
    next_one = work.run_shell(text, timeout=20)

    assert (next_one.outcome, next_one.output) == (Outcome(), 1)
    python = work.run_python("import sys\ndef main(): print('said'); print('so', file=sys.stderr); return 1")
    assert (python.outcome, python.output) == (Outcome(), 1)


# -- what is put in the place of a side file -------------------------------------------------------------------------

IN_ITS_PLACE = {
    "mkdir {}": "is a folder, not a file",
    "mkfifo {}": "is a pipe, not a file",
    "ln -s /dev/zero {}": "is a device, not a file",
    "ln -s /nowhere/at/all {}": "is a dangling link",
    "ln -s {0} {0}": "cannot be read: too many levels of symbolic links",
    "python3 -c 'import socket as s, sys; s.socket(s.AF_UNIX).bind(sys.argv[1])' {}": "is a socket, not a file",
    "head -c 1000 /dev/urandom > {0}; printf '\\xff' | dd of={0} conv=notrunc status=none": (
        "is not JSON: JSON is malformed: invalid character (byte 0)"
    ),
    "printf '[%.0s' {{1..100000}} > {}": "is not readable JSON: it is nested too deep",
    "echo 1e999 > {}": "is not JSON: Number out of range",
    "truncate -s 100M {}": None,
}


@pytest.mark.parametrize("which", ["OUTPUT", "ERROR"])
@pytest.mark.parametrize("attack", IN_ITS_PLACE)
def test_what_is_no_file_of_json_is_told_as_such_and_meets_no_later_task(work: Work, attack: str, which: str) -> None:
    limits = {"OUTPUT": "67,108,864", "ERROR": "65,536"}
    # A path short enough for the name of a socket, and a name that says which file it is.
    text = f'cd "$(dirname "$MULLIGAN_{which}")"; ' + attack.format(f'"$(basename "$MULLIGAN_{which}")"')
    if which == "ERROR" and "[%" in attack:
        text = text.replace("100000", "60000")

    report = work.run_shell(text)

    size = f"has 104,857,600 bytes; the limit is {limits[which]}"
    assert code_and_message(report) == ("OUTPUT_INVALID", f"$MULLIGAN_{which} {IN_ITS_PLACE[attack] or size}")
    expect_the_next_to_be_well(work)


def test_a_link_to_a_file_of_json_is_as_good_as_the_file(work: Work) -> None:
    report = work.run_shell('echo "[1]" > result.json; ln -s "$PWD/result.json" "$MULLIGAN_OUTPUT"')

    assert (report.outcome, report.output) == (Outcome(), [1])
    assert (work.folder / "result.json").read_text() == "[1]\n"
    expect_the_next_to_be_well(work)


def test_an_empty_output_file_is_not_json(work: Work) -> None:
    assert code_and_message(work.run_shell(': > "$MULLIGAN_OUTPUT"')) == (
        "OUTPUT_INVALID",
        "$MULLIGAN_OUTPUT is not JSON: it is empty",
    )


# A task's log has a second name when it has run for a while.
NAMED = """
side=$(readlink /proc/$$/fd/1); log=$(dirname "$MULLIGAN_OUTPUT_DIR")/logs/step1#1.out
until [ -e "$log" ]; do sleep 0.01; done
"""


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        ('mkdir "$log"', "is a folder, not a file"),
        ('mkfifo "$log"', "is a pipe, not a file"),
        ('ln -s /dev/full "$log"', "is a device, not a file"),
        (":", "is gone: the file was removed while it ran"),
    ],
)
def test_a_task_that_replaces_its_own_log_has_no_output_and_harms_no_other(
    work: Work, attack: str, problem: str
) -> None:
    report = work.run_shell(f'{NAMED} rm "$log" "$side"; mkdir "$side"; {attack}; echo said', place="step1")

    assert code_and_message(report) == ("OUTPUT_INVALID", f"its standard output {problem}")
    expect_the_next_to_be_well(work)


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/full")])
def test_side_files_in_whose_place_something_else_was_put_are_used_no_more(
    tmp_path: Path, work: Work, put: Callable[[Path], None]
) -> None:
    task_files = TaskFiles(Folders(tmp_path / "home"), "somebody")
    task_files.make_folder()
    lease = work.shell("true")
    running = RunningTask(lease, lease, task_files.take_scratch())
    put(Path(running.scratch.err))

    task_files.clear(running)

    assert not os.path.lexists(task_files.take_scratch().err)


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_task_that_removes_the_files_of_all_tasks_harms_none_of_them(
    roomy: Work, announcements: Announcements, kind: str
) -> None:
    pipe = announcements.path
    for name in ("go", "go2"):
        os.mkfifo(roomy.folder / name)
    shell = roomy.shell(f"echo 1 > {pipe}; read x < go; echo said")
    code = "def main(pipe):\n  open(pipe, 'w').write('1\\n')\n  return open('go2').read()"
    python = roomy.python(code, {"pipe": str(pipe)})
    roomy.start(shell, python)
    announcements.lines(2)
    roomy.wait_for(roomy.log(shell).exists)

    code = "import os, shutil\ndef main(): shutil.rmtree(os.path.dirname(os.environ['MULLIGAN_OUTPUT'])); exit(3)"
    text = 'rm -r "$(dirname "$MULLIGAN_OUTPUT")"; exit 3'
    bad = roomy.run_shell(text) if kind == "shell" else roomy.run_python(code)
    assert roomy.run_shell("cat", stdin="fed").output == "fed"
    expect_the_next_to_be_well(roomy)
    (roomy.folder / "go").write_text("\n")
    (from_shell,) = roomy.reports()
    (roomy.folder / "go2").write_text("well")
    (from_python,) = roomy.reports()

    assert code_and_message(bad) == ("EXIT_NONZERO", "exit code 3")
    assert isinstance(from_shell, TaskEnded)
    assert (from_shell.outcome, from_shell.output) == (Outcome(), "said")
    assert isinstance(from_python, TaskEnded)
    assert (from_python.outcome, from_python.output) == (Outcome(), "well")


# -- endless output --------------------------------------------------------------------------------------------------

ENDLESS = {
    "shell": "echo first; yes",
    "shell, on standard error": "echo first >&2; yes >&2",
    "python": "def main():\n  print('first')\n  while True: print('y' * 1000)",
    "python, on standard error": "import sys\ndef main():\n  sys.stderr.write('first\\n')\n"
    "  while True: sys.stderr.write('y' * 999)",
}


@pytest.mark.parametrize("how", sample([*ENDLESS], 2))
def test_a_task_that_never_stops_writing_is_ended_and_the_ends_of_its_log_are_kept(small: Work, how: str) -> None:
    make = small.shell if how.startswith("shell") else small.python
    lease = make(ENDLESS[how])

    report = small.run(lease)

    assert code_and_message(report) == (
        "OUTPUT_INVALID",
        "it wrote more than 2MiB to standard output and error and was stopped (limit: MULLIGAN_LOG_MAX)",
    )
    log = small.log(lease, "err" if "error" in how else "out").read_bytes()
    assert log.startswith(b"first\n")
    assert b" bytes omitted \xe2\x80\xa6]\n" in log
    assert len(log) < 2 * MIB
    expect_the_next_to_be_well(small)


def test_what_was_left_out_of_a_log_is_counted(small: Work) -> None:
    lease = small.shell("head -c 2000000 /dev/zero | tr '\\0' a; head -c 2000000 /dev/zero | tr '\\0' b; sleep 1000")

    small.run(lease)

    kept = 2 * MIB // 4
    assert kept < KEPT_BYTES
    marker = f"\n[… {4_000_000 - 2 * kept:,} bytes omitted …]\n"
    assert small.log(lease).read_text() == "a" * kept + marker + "b" * kept


def test_a_task_that_writes_much_and_is_done_soon_is_not_ended(small: Work) -> None:
    report = small.run_shell("head -c 5000000 /dev/zero | tr '\\0' x")

    assert report.output == "x" * 5_000_000


# -- processes -------------------------------------------------------------------------------------------------------


def test_hundreds_of_processes_that_a_task_left_are_dead_when_its_end_is_told(work: Work) -> None:
    report = work.run_shell("for i in {1..150}; do sleep 1000 & setsid -f sleep 1000; done; echo left")

    assert (report.outcome, report.output) == (Outcome(), "left")
    assert len(work.leftovers()) <= 1


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("exec >&-; echo gone", "EXIT_NONZERO", "bash: line 1: echo: write error: Bad file descriptor"),
        ("exec <&- >&- 2>&-; exit 3", "EXIT_NONZERO", "exit code 3"),
        ("exec >&-; true", "", ""),
        ("ulimit -n 3; echo x > file", "EXIT_NONZERO", "bash: line 1: file: Too many open files"),
        ("echo x > /dev/full", "EXIT_NONZERO", "bash: line 1: echo: write error: No space left on device"),
        ("kill -SEGV $$", "SIGNALED", "killed by signal 11"),
        ("mkdir d; cd d; rmdir ../d; exit 4", "EXIT_NONZERO", "exit code 4"),
    ],
)
def test_what_a_task_does_to_itself_is_its_own_failure(work: Work, text: str, code: str, message: str) -> None:
    assert code_and_message(work.run_shell(text)) == (code, message)
    expect_the_next_to_be_well(work)


def test_a_task_that_may_start_no_process_any_more_says_so(work: Work) -> None:
    if os.getuid() == 0:
        pytest.skip("no number of processes is too large for root")
    report = work.run_shell("ulimit -u 1; ls")

    assert code_and_message(report)[0] == "EXIT_NONZERO"
    expect_the_next_to_be_well(work)


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_task_that_kills_the_supervisor_is_lost_with_all_beside_it_and_the_worker_goes_on(
    work: Work, announcements: Announcements, kind: str
) -> None:
    beside = work.shell(f"echo $$ > {announcements.path}; sleep 1000; :")
    work.start(beside)
    (pid,) = announcements.numbers(1)

    text = "kill -9 $PPID; sleep 1000"
    code = "import os, time\ndef main():\n  os.kill(os.getppid(), 9)\n  time.sleep(1000)"
    work.start(work.shell(text) if kind == "shell" else work.python(code))
    reports = work.reports(2)

    assert [type(report) for report in reports] == [LeaseExpired, LeaseExpired]
    assert not is_alive(pid)
    expect_the_next_to_be_well(work)


@pytest.mark.parametrize("kind", ["shell", "python"])
@pytest.mark.parametrize(
    ("content", "mode", "code", "message"),
    [
        ("", 0o644, "EXIT_NONZERO", "cannot be executed: permission denied"),
        ("\x7fELF garbage", 0o755, "EXIT_NONZERO", "cannot be executed: exec format error"),
        ("#!/nowhere/at/all\n", 0o755, "EXCEPTION", "cannot be started: no such file or directory"),
        (None, 0o755, "EXIT_NONZERO", "cannot be executed: permission denied"),
    ],
)
def test_an_interpreter_that_is_none_is_named_and_harms_nobody(
    work: Work, content: str | None, mode: int, code: str, message: str, kind: str
) -> None:
    program = work.folder / "interpreter"
    program.mkdir() if content is None else program.write_text(content)
    program.chmod(mode)
    params = {"text": "true"} if kind == "shell" else {"code": "def main(): pass"}

    report = work.run(work.lease(kind, {**params, "interpreter": str(program)}))

    assert code_and_message(report) == (code, f"'{program}' {message}")
    expect_the_next_to_be_well(work)


# -- python steps ----------------------------------------------------------------------------------------------------

# What a step does to the process that runs it, and what is told of it.
MEDDLERS = {
    "an exception that cannot be shown": (
        "class E(Exception):\n  def __str__(self): raise SystemExit(3)\n  __repr__ = __str__\ndef main(): raise E()",
        ("EXCEPTION", "E: it cannot be shown"),
    ),
    "an exit that cannot be shown": (
        "class X:\n  def __str__(self): raise SystemExit(0)\ndef main(): raise SystemExit(X())",
        ("EXIT_NONZERO", "it cannot be shown"),
    ),
    "an exit that is too large": ("def main(): raise SystemExit(1 << 100)", ("EXIT_NONZERO", "exit code 255")),
    "a step error that cannot be told": (
        "import mulligan\nclass E(mulligan.StepError):\n  def report(self): raise ValueError()\n"
        "def main(): raise E('MINE', 'said')",
        ("EXCEPTION", "E: said"),
    ),
    "a lone surrogate in a step error": (
        "import mulligan\ndef main(): raise mulligan.StepError('MINE', 'half \\ud800')",
        ("MINE", "half ?"),
    ),
    "a step error of 10 MB": (
        "import mulligan\ndef main(): raise mulligan.StepError('MINE', 'said', details={'x': 'y' * 10_000_000})",
        ("MINE", "said"),
    ),
    "an exception of 10 MB": (
        "def main(): raise ValueError('x' * 10_000_000)",
        ("EXCEPTION", "ValueError: " + "x" * 1988),
    ),
    "a number that is too large": (
        "def main(): return {'a': [10 ** 5000]}",
        (
            "OUTPUT_INVALID",
            "the result['a'][0] is a number of more than 64 bits, which cannot be stored; write it as a text",
        ),
    ),
    "streams that raise": (
        "import sys\nclass W:\n  def write(self, *_): raise SystemExit(0)\n  flush = write\n"
        "def main():\n  sys.stdout = sys.stderr = W()\n  raise ValueError('said')",
        ("EXCEPTION", "ValueError: said"),
    ),
    "every descriptor closed": (
        "import os\ndef main(): os.closerange(3, 1000)",
        ("EXIT_NONZERO", "the step broke the process that ran it: OSError: [Errno 9] Bad file descriptor"),
    ),
    "the connection closed, and a long sleep": (
        "import os, time\ndef main():\n  os.closerange(3, 1000)\n  time.sleep(1000)",
        ("EXCEPTION", "it closed the connection that returns its result, so the result is lost"),
    ),
    "rubbish on every descriptor": (
        "import os\ndef main():\n  for fd in range(3, 100):\n    try: os.write(fd, b'\\xff' * 10)\n"
        "    except OSError: pass\n  return 1",
        ("EXCEPTION", "it wrote to the connection that returns its result, so the result is lost"),
    ),
    "a forged answer": (
        'import os\nforged = b\'{"number":0,"cpu":0,"peak":0,"out":0,"err":0,"output":42}\'\n'
        "def main():\n  for fd in range(3, 100):\n"
        "    try: os.write(fd, len(forged).to_bytes(4, 'little') + forged)\n    except OSError: pass\n  return 1",
        ("EXCEPTION", "it wrote to the connection that returns its result, so the result is lost"),
    ),
    "builtins that are gone": (
        "import builtins\ndef main(): builtins.len = builtins.isinstance = None",
        (
            "EXIT_NONZERO",
            "the step broke the process that ran it: TypeError: 'NoneType' object is not callable",
        ),
    ),
    # These harm nobody, not even themselves.
    "standard output and error closed": ("import os\ndef main(): os.close(1); os.close(2)", ("", "")),
    "standard output that is full": (
        "import os\ndef main(): os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
        ("", ""),
    ),
    "a file that may not grow": (
        "import resource\ndef main(): resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))",
        ("", ""),
    ),
    "no further descriptor": (
        "import resource\ndef main(): resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
        ("", ""),
    ),
    "no memory": ("import resource\ndef main(): resource.setrlimit(resource.RLIMIT_AS, (1, 1))", ("", "")),
    "children that nobody waits for": (
        "import signal\ndef main(): signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        ("", ""),
    ),
    "modules that are gone": ("import sys\ndef main(): sys.modules.clear()", ("", "")),
}


@pytest.mark.parametrize("what", MEDDLERS)
def test_a_step_that_meddles_with_its_process_is_told_in_words_and_the_next_is_well(work: Work, what: str) -> None:
    code, expected = MEDDLERS[what]

    assert code_and_message(work.run_python(code)) == expected
    after = work.run_python(
        "import subprocess, sys\ndef main():\n  print('out'); print('err', file=sys.stderr)\n"
        "  return subprocess.call(['false'])"
    )
    assert (after.outcome, after.output) == (Outcome(), 1)
    expect_the_next_to_be_well(work)


def test_what_a_step_set_of_masks_timers_and_rights_is_put_back_for_the_next(work: Work) -> None:
    work.run_python(
        "import os, signal\ndef main():\n  os.umask(0o777)\n  signal.alarm(1)\n"
        "  signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    )

    after = work.run_python(
        "import os, signal\ndef main():\n  mask = os.umask(0); os.umask(mask)\n"
        "  return [mask == 0o777, signal.alarm(0), len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]"
    )

    assert (after.outcome, after.output) == (Outcome(), [False, 0, 0])


def test_details_that_are_too_large_are_counted(work: Work) -> None:
    report = work.run_python(
        "import mulligan\ndef main(): raise mulligan.StepError('MINE', 'm', details={'x': 'y' * 2_000_000})"
    )

    assert report.outcome.reported == ({"code": "MINE", "message": "m", "details": {"dropped_bytes": 2_000_054}},)


def test_a_result_that_is_as_large_as_it_may_be_arrives(work: Work) -> None:
    report = work.run_python("def main(size): return 'x' * size", {"size": OUTPUT_BYTES_MAX - 2})

    assert report.outcome == Outcome()
    assert len(report.output) == OUTPUT_BYTES_MAX - 2


@pytest.mark.parametrize(
    "code",
    [
        "import signal, time\ndef main():\n  signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n  time.sleep(99)",
        "import time\ndef main():\n  while True:\n    try: time.sleep(1000)\n    except BaseException: pass",
        "import signal, time\ndef main():\n  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n  time.sleep(1000)",
        "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGSTOP)",
        "def main():\n  while True: pass",
        "import asyncio\nasync def main(): await asyncio.Future()",
    ],
)
def test_a_step_that_does_not_want_to_end_ends_when_its_time_is_up(tmp_path: Path, code: str) -> None:
    with closing(Work(tmp_path, grace_seconds=0.05)) as work:
        report = work.run_python(code, timeout=0.5)

        assert code_and_message(report) == ("TIMEOUT", "it took longer than its timeout")
        expect_the_next_to_be_well(work)


def test_a_signal_after_the_last_instruction_of_a_step_is_not_told_as_a_broken_process(work: Work) -> None:
    """It arrives when the step has returned and its process has not yet noted that."""
    report = work.run_python(
        """
import os, signal, sys
def main():
    def signal_at_exit(frame, event, _):
        if (event, frame.f_code.co_name) == ("call", "__exit__"):
            os.kill(os.getpid(), signal.SIGTERM)
    sys.setprofile(signal_at_exit)
"""
    )

    assert (report.outcome.signal, report.outcome.stderr_tail) == (signal.SIGTERM, "")
