"""Python steps: warm children that are kept apart, put back in order, and replaced when they break."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Announcements, Work, is_alive, kill, watched

from mulligan import StepError
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

WHO = "import os\ndef main(): return os.getpid()"


# -- what it gives ---------------------------------------------------------------------------------------------------


def test_the_output_is_what_main_returns(work: Work) -> None:
    report = work.run_python("def main(a, b=2): return {'sum': a + b}", {"a": 1})

    assert (report.outcome, report.output) == (Outcome(), {"sum": 3})


@pytest.mark.parametrize("value", [None, True, 1.5, "é\n\0", [1, [2]], {"a": {"b": None}}, 2**63, "x" * 3_000_000])
def test_values_go_there_and_back(work: Work, value: object) -> None:
    assert work.run_python("def main(x): return x", {"x": value}).output == value


@pytest.mark.parametrize("value", ["10**30", "{'a': [-2**70]}"])
def test_a_number_that_cannot_be_kept_is_no_result(work: Work, value: str) -> None:
    report = work.run_python(f"def main(): return {value}")

    assert report.output is None
    assert report.outcome.output_error == (
        "its output cannot be stored: it contains a number of more than 64 bits, or is nested too deep"
    )


def test_a_step_that_leaves_before_main_has_returned_has_failed(work: Work) -> None:
    report = work.run_python("import os\ndef main(): os._exit(0)")

    assert (report.outcome.code, report.outcome.message) == (
        "EXCEPTION",
        "its process exited before 'main' returned",
    )


def test_the_traceback_of_a_step_is_in_its_log(work: Work) -> None:
    work.run_python("def main(): raise ValueError('no')")

    (log,) = (work.home / "runs").glob("*/logs/*.err")
    assert log.read_text().splitlines()[-1] == "ValueError: no"


def test_an_async_main_is_waited_for(work: Work) -> None:
    report = work.run_python("import asyncio\nasync def main():\n  await asyncio.sleep(0)\n  return 'later'")

    assert report.output == "later"


def test_a_function_of_a_module_is_found_where_run_was_called(work: Work) -> None:
    (work.folder / "tools").mkdir()
    (work.folder / "tools" / "deploy.py").write_text("class A:\n  @staticmethod\n  def go(x): return x * 2")

    report = work.run(work.lease("python", {"call": "tools.deploy:A.go", "args": {"x": 21}}, cwd="/"))

    assert report.output == 42


def test_an_object_that_stands_for_a_function_is_unwrapped(work: Work) -> None:
    code = "class Step:\n  def __init__(self, f): self.__mulligan_function__ = f\n"
    (work.folder / "flows_.py").write_text(code + "@Step\ndef double(x): return x * 2")

    report = work.run(work.lease("python", {"call": "flows_:double", "args": {"x": 21}}))

    assert report.output == 42


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (
            "[1, {'a': (2, object)}]",
            "the result[1]['a'][1] is of type 'type', which cannot be stored; "
            "return JSON values, a dataclass, a model, a table or an array",
        ),
        ("{(1, 2): 3}", "the result has a key of type 'tuple', which is not JSON"),
        ("{'a': float('nan')}", "the result['a'] is nan, which is not JSON"),
        ("float('-inf')", "the result is -inf, which is not JSON"),
        ("'\\ud800'", "the result contains a lone surrogate, which is not JSON"),
    ],
)
def test_a_result_that_is_no_json_is_invalid_and_told_where(work: Work, result: str, problem: str) -> None:
    report = work.run_python(f"def main(): return {result}")

    assert (report.outcome, report.output) == (Outcome(output_error=problem), None)


def test_a_result_that_holds_itself_is_invalid(work: Work) -> None:
    report = work.run_python("def main():\n  x = []\n  x.append(x)\n  return x")

    assert report.outcome.output_error.endswith("is nested too deep, or contains itself")


def test_what_it_prints_is_in_its_logs(work: Work) -> None:
    lease = work.python("import sys\ndef main():\n  print('out')\n  print('err', file=sys.stderr)")
    silent = work.python("def main(): pass")

    work.run(lease)
    work.run(silent)
    again = work.python("def main(): print('more')")
    work.run(again)

    assert (work.log(lease).read_text(), work.log(lease, "err").read_text()) == ("out\n", "err\n")
    assert not work.log(silent).exists()
    assert work.log(again).read_text() == "more\n"


def test_its_log_can_be_read_while_it_runs_and_the_next_step_has_its_own(work: Work) -> None:
    code = "def main(go):\n  print('first')\n  open(go).read()\n  print('second')"
    work.run_shell("mkfifo go")
    lease = work.python(code, {"go": str(work.folder / "go")})
    work.start(lease)

    seen = work.wait_for(lambda: work.log(lease).exists() and work.log(lease).read_text())
    (work.folder / "go").write_text("")
    work.reports()
    after = work.python("def main(): print('other')")
    work.run(after)

    assert seen == "first\n"
    assert work.log(lease).read_text() == "first\nsecond\n"
    assert work.log(after).read_text() == "other\n"


# -- how it fails ----------------------------------------------------------------------------------------------------


def test_an_exception_is_told_with_the_lines_of_the_user_alone(work: Work) -> None:
    outcome = work.run_python("def main():\n  inner()\ndef inner():\n  raise ValueError('no')", place="load").outcome

    assert (outcome.code, outcome.message, outcome.exit_code) == ("EXCEPTION", "ValueError: no", None)
    assert [line.strip() for line in outcome.trace.splitlines() if "File" in line or "Error:" in line] == [
        'File "<step load>", line 2, in main',
        'File "<step load>", line 4, in inner',
        "ValueError: no",
    ]
    assert "raise ValueError('no')" in outcome.trace


@pytest.mark.parametrize(
    ("code", "args", "message"),
    [
        ("def main(x): pass", {}, "TypeError: main() missing 1 required positional argument: 'x'"),
        ("def main(): pass", {"y": 1}, "TypeError: main() got an unexpected keyword argument 'y'"),
        ("import no_such_module\ndef main(): pass", {}, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def main(): raise Exception", {}, "Exception"),
        ("class E(Exception):\n  def __str__(self): 1/0\ndef main(): raise E", {}, "E: it cannot be shown"),
        ("def main(): raise ValueError('\\ud800')", {}, "ValueError: ?"),
        ("class B(BaseException): pass\ndef main(): raise B('x')", {}, "B: x"),
    ],
)
def test_whatever_it_raises_is_its_failure(work: Work, code: str, args: dict[str, Any], message: str) -> None:
    outcome = work.run_python(code, args).outcome

    assert (outcome.code, outcome.message) == ("EXCEPTION", message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nowhere:f", "ModuleNotFoundError: No module named 'nowhere'"),
        ("json:f", "AttributeError: module 'json' has no attribute 'f'"),
    ],
)
def test_a_function_that_is_not_there_is_its_failure(work: Work, call: str, message: str) -> None:
    outcome = work.run(work.lease("python", {"call": call})).outcome

    assert (outcome.code, outcome.message) == ("EXCEPTION", message)


def test_a_step_says_itself_what_went_wrong(work: Work) -> None:
    code = (
        "from mulligan import StepError\n"
        "def main(): raise StepError('QUOTA', 'too much', severity='critical', retryable=False, details={'used': 9})"
    )

    outcome = work.run_python(code).outcome

    assert outcome.reported == (
        {
            "code": "QUOTA",
            "message": "too much",
            "severity": "critical",
            "retryable": False,
            "details": {"used": 9},
        },
    )
    assert outcome.exit_code is None
    assert outcome.trace.endswith("mulligan.StepError: too much\n")


@pytest.mark.parametrize("how", ["from reason", ""])
def test_what_led_to_the_error_that_a_step_reports_is_in_its_log(work: Work, how: str) -> None:
    lease = work.python(
        "from mulligan import StepError\n"
        "def main():\n"
        "  try: {}['price']\n"
        f"  except KeyError as reason: raise StepError('NO_PRICE', 'it has no price') {how}"
    )

    outcome = work.run(lease).outcome

    assert outcome.reported == ({"code": "NO_PRICE", "message": "it has no price"},)
    log = work.log(lease, "err").read_text().splitlines()
    assert "KeyError: 'price'" in log
    assert log[-1] == "mulligan.StepError: it has no price"


def test_a_step_error_alone_writes_nothing_to_the_log(work: Work) -> None:
    lease = work.python("import mulligan\ndef main(): raise mulligan.StepError('QUOTA', 'too much')")

    work.run(lease)

    log = work.log(lease, "err")
    assert not log.exists() or log.read_text() == ""


def test_a_step_error_says_only_what_was_said() -> None:
    assert StepError("QUOTA").report() == {"code": "QUOTA"}
    assert str(StepError("QUOTA")) == "QUOTA"


def test_details_that_are_no_json_are_told_as_text(work: Work) -> None:
    code = "from mulligan import StepError\ndef main(): raise StepError('A', details={'x': {1}})"

    assert work.run_python(code).outcome.reported == ({"code": "A", "details": {"details": "{'x': {1}}"}},)


@pytest.mark.parametrize(
    ("argument", "exit_code", "said"),
    [("", 0, ""), ("0", 0, ""), ("3", 3, ""), ("257", 1, ""), ("'why'", 1, "why\n")],
)
def test_an_exit_is_that_of_a_process(work: Work, argument: str, exit_code: int, said: str) -> None:
    report = work.run_python(f"import sys\ndef main(): sys.exit({argument})")

    assert report.outcome == Outcome(exit_code=exit_code, stderr_tail=said)


def test_errors_that_a_program_of_the_step_wrote_count(work: Work) -> None:
    code = """import os\ndef main(): os.system('echo \\'{"code": "MINE"}\\' > "$MULLIGAN_ERROR"')"""

    assert work.run_python(code).outcome == Outcome(reported=({"code": "MINE"},))


def test_declared_files_are_asked_for(work: Work) -> None:
    report = work.run_python("def main(): open('a', 'w')", files={"a": "a", "b": "b"})

    assert report.outcome == Outcome(missing_outputs=("b",))


# -- one child, many steps -------------------------------------------------------------------------------------------


def test_a_child_is_used_again(work: Work) -> None:
    assert work.run_python(WHO).output == work.run_python(WHO).output


def test_workflows_and_interpreters_have_children_of_their_own(work: Work) -> None:
    ours = work.run_python(WHO).output
    other_version = work.run_python(WHO, version="v2").output
    other_python = work.run(work.lease("python", {"code": WHO, "interpreter": sys.executable + "3"})).output

    assert other_version != ours
    assert other_python is None or other_python not in (ours, other_version)


def test_when_there_is_no_room_an_idle_child_of_another_workflow_goes(work: Work) -> None:
    pids = [work.run_python(WHO, version=f"v{number}").output for number in range(3)]

    with watched(*[pid for pid in pids[:1] if is_alive(pid)]) as are_dead:
        assert are_dead()
    assert is_alive(pids[2])


def test_two_steps_at_once_have_two_children(work: Work, announcements: Announcements) -> None:
    code = "import os\ndef main(pipe, go):\n  open(pipe, 'w').write('1\\n')\n  open(go).read()\n  return os.getpid()"
    work.run_shell("mkfifo go0 go1")
    leases = [
        work.python(code, {"pipe": str(announcements.path), "go": str(work.folder / f"go{number}")})
        for number in range(2)
    ]
    work.start(*leases)
    announcements.lines(2)
    for number in range(2):
        (work.folder / f"go{number}").write_text("")

    reports = work.reports(2)

    assert len({report.output for report in reports if isinstance(report, TaskEnded)}) == 2


def test_no_step_sees_what_another_one_changed(work: Work) -> None:
    spoil = (
        "import os, sys\nleft = 1\ndef main():\n  os.environ['LEFT'] = '1'; os.environ.pop('PATH')\n"
        "  sys.argv.append('x')\n"
        "  sys.path.insert(0, '/left'); os.chdir('/'); sys.stdout = None\n  return os.getpid()"
    )
    look = (
        "import os, sys\ndef main():\n  print('said')\n"
        "  return [os.environ.get('LEFT'), 'PATH' in os.environ, sys.argv, '/left' in sys.path, os.getcwd(),"
        " 'left' in globals(), os.getpid()]"
    )

    pid = work.run_python(spoil).output
    found = work.run_python(look).output

    assert found == [None, True, [""], False, str(work.folder), False, pid]


def test_each_step_has_its_own_environment_and_so_have_its_programs(work: Work) -> None:
    code = (
        "import os, subprocess\nNAMES = ['MULLIGAN_STEP', 'MULLIGAN_FENCE', 'MULLIGAN_ITEM', 'MINE']\n"
        "def main(): return [[os.environ.get(n, '') for n in NAMES],"
        " subprocess.run(['bash', '-c', 'echo $MULLIGAN_STEP,$MULLIGAN_FENCE,$MULLIGAN_ITEM,$MINE'],"
        " capture_output=True, text=True).stdout,"
        " subprocess.check_output(['printenv', 'TRACEPARENT'], text=True).strip() == os.environ['TRACEPARENT']]"
    )

    first = work.run_python(code, step="a", item=3, env={"MINE": "x"}).output
    second = work.run_python(code, step="b").output
    third = work.run_python(code, step="c", item=4, env={"MINE": "y"}).output

    assert first == [["a", "1", "3", "x"], "a,1,3,x\n", True]
    assert second == [["b", "2", "", ""], "b,2,,\n", True]
    assert third == [["c", "3", "4", "y"], "c,3,4,y\n", True]


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [
        ("import os\ndef main(): os._exit(4)", 4, None),
        ("import os\ndef main(): os.abort()", None, 6),
        ("import os\ndef main(): os.kill(os.getpid(), 9)", None, 9),
        ("import ctypes\ndef main(): ctypes.string_at(0)", None, 11),
    ],
)
def test_a_child_that_dies_is_replaced(work: Work, code: str, exit_code: int | None, signal: int | None) -> None:
    before = work.run_python(WHO).output

    outcome = work.run_python(code).outcome
    after = work.run_python(WHO)

    assert (outcome.exit_code, outcome.signal) == (exit_code, signal)
    assert (after.outcome, after.output != before) == (Outcome(), True)


def test_what_a_child_said_before_it_died_is_told(work: Work) -> None:
    outcome = work.run_python("import os\ndef main():\n  os.write(2, b'last words')\n  os._exit(4)").outcome

    assert outcome == Outcome(exit_code=4, stderr_tail="last words")


def test_a_child_that_died_while_it_was_idle_costs_no_step(work: Work) -> None:
    pid = work.run_python(WHO).output
    with watched(pid) as is_dead:
        kill(pid)
        assert is_dead()

    report = work.run_python(WHO)

    assert (report.outcome, report.output != pid) == (Outcome(), True)


def test_a_child_that_left_a_thread_behind_is_replaced(work: Work) -> None:
    code = (
        "import os, threading\ndef main():\n"
        "  threading.Thread(target=threading.Event().wait, daemon=True).start()\n  return os.getpid()"
    )

    pid = work.run_python(code).output

    assert not is_alive(pid)
    assert work.run_python(WHO).output != pid


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '1000']).pid",
        "os.posix_spawn('/bin/sleep', ['sleep', '1000'], {})",
        "int(subprocess.check_output(['bash', '-c', 'setsid sleep 1000 > /dev/null & echo $!']))",
    ],
)
def test_processes_that_a_step_left_behind_are_dead_when_its_end_is_told(work: Work, start: str) -> None:
    report = work.run_python(f"import os, subprocess\ndef main(): return {start}")

    assert report.outcome == Outcome()
    assert not is_alive(report.output)


def test_a_step_has_no_standard_input(work: Work) -> None:
    assert work.run_python("import sys\ndef main(): return sys.stdin.read()").output == ""


def test_an_interpreter_that_is_not_there_ends_as_a_shell_would_say(work: Work) -> None:
    report = work.run(work.lease("python", {"code": WHO, "interpreter": "no-such-python"}))

    assert report.outcome == Outcome(exit_code=127, stderr_tail="no-such-python: command not found")


def other_pythons() -> list[str]:
    """Interpreters beside ours: the one below our environment, which has nothing installed, and those on the path."""
    names = [f"python3.{minor}" for minor in range(9, 20)]
    found = [path for name in names if (path := shutil.which(name)) and is_python(path)]
    return list(dict.fromkeys([os.path.realpath(sys.executable), *found]))


def is_python(path: str) -> bool:
    """A name on the path may be no more than a name."""
    return subprocess.run([path, "-c", ""], capture_output=True).returncode == 0


def test_another_interpreter_needs_nothing_of_ours(work: Work) -> None:
    """One test, so that the interpreters are looked for once, and not by each process that collects tests."""
    code = "import sys\ndef main(x):\n  print('said')\n  return [x, list(sys.version_info[:2])]"
    for interpreter in other_pythons():
        told = subprocess.check_output([interpreter, "-c", "import sys; print(list(sys.version_info[:2]))"])
        lease = work.lease("python", {"code": code, "args": {"x": "é"}, "interpreter": interpreter})

        report = work.run(lease)

        assert (report.outcome, report.output) == (Outcome(), ["é", json.loads(told)]), interpreter
        assert work.log(lease).read_text() == "said\n"


def test_the_path_of_an_interpreter_is_relative_to_where_run_was_called(work: Work) -> None:
    (work.folder / "bin").mkdir()
    (work.folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))

    report = work.run(work.lease("python", {"code": WHO, "interpreter": "bin/python"}, cwd="/"))

    assert isinstance(report.output, int)


def test_an_interpreter_that_is_no_python_is_a_failure_with_what_it_said(work: Work) -> None:
    report = work.run(work.lease("python", {"code": WHO, "interpreter": "false"}))

    assert report.outcome == Outcome(exit_code=1)


def test_a_child_sees_no_more_of_what_lies_beside_our_package_than_any_python_does(work: Work) -> None:
    root = str(Path(__file__).parents[2] / "src")
    code = "import json, sys; print(json.dumps(sys.path))"
    plain = json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=work.folder))

    # Where the package is installed to be edited, every python sees it.
    assert (root in work.run_python("import sys\ndef main(): return sys.path").output) == (root in plain)


CLEANS_UP = """
import pathlib, time
def main(path):
    try:
        pathlib.Path(path).write_text("0\\n")
        {wait}
    finally:
        pathlib.Path("cleaned").write_text("yes")
"""
CLEANS_UP_ASYNC = """
import asyncio, pathlib
async def main(path):
    try:
        pathlib.Path(path).write_text("0\\n")
        await asyncio.sleep(1000)
    finally:
        pathlib.Path("cleaned").write_text("yes")
"""
CLEANS_UP_AND_GOES_ON = """
import pathlib, time
def main(path):
    try:
        pathlib.Path(path).write_text("0\\n")
        time.sleep(1000)
    except BaseException:
        pathlib.Path("cleaned").write_text("yes")
    return "well"
"""


@pytest.mark.parametrize(
    "code",
    [
        CLEANS_UP.format(wait="time.sleep(1000)"),
        CLEANS_UP.format(wait="while True: pass"),
        CLEANS_UP_ASYNC,
        # Whatever it makes of it: it was stopped, and did not end by itself.
        CLEANS_UP_AND_GOES_ON,
    ],
)
def test_a_stopped_step_cleans_up_within_its_grace(work: Work, announcements: Announcements, code: str) -> None:
    lease = work.python(code, {"path": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, grace_seconds=1000)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.outcome, report.output) == (Outcome(exit_code=None, signal=15, is_stopped=True), None)
    assert (work.folder / "cleaned").read_text() == "yes"


def test_a_step_whose_time_is_up_cleans_up_and_has_timed_out(work: Work, announcements: Announcements) -> None:
    lease = work.python(CLEANS_UP.format(wait="time.sleep(1000)"), {"path": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    work.time_is_up(lease, 1000.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert report.outcome == Outcome(exit_code=None, signal=15, is_timed_out=True)
    assert (work.folder / "cleaned").exists()


def test_a_stop_that_comes_while_an_object_is_destroyed_is_not_lost(work: Work, announcements: Announcements) -> None:
    code = (
        "import pathlib, time\nclass Last:\n  def __del__(self):\n"
        "    pathlib.Path(self.path).write_text('0\\n')\n    time.sleep(1000)\n"
        "def main(path):\n  last = Last()\n  last.path = path\n  del last\n  time.sleep(1000)"
    )
    lease = work.python(code, {"path": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, grace_seconds=1000)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.outcome.exit_code, report.outcome.signal) == (None, 15)


def test_a_handler_that_a_step_has_set_is_not_there_for_the_next(work: Work, announcements: Announcements) -> None:
    before = work.run_python(
        "import os, signal\ndef main():\n  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n  return os.getpid()"
    )
    lease = work.python(CLEANS_UP.format(wait="time.sleep(1000)"), {"path": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, grace_seconds=1000)
    (report,) = work.reports()

    assert before.outcome == Outcome()
    assert isinstance(report, TaskEnded)
    assert report.outcome == Outcome(exit_code=None, signal=15, is_stopped=True)


def test_what_a_step_forks_is_terminated_as_any_process(work: Work) -> None:
    code = (
        "import os, signal, time\ndef main():\n  pid = os.fork()\n"
        "  if not pid:\n    time.sleep(1000)\n    os._exit(0)\n"
        "  os.kill(pid, signal.SIGTERM)\n  return os.waitpid(pid, 0)[1]"
    )

    report = work.run_python(code)

    assert (report.outcome, report.output) == (Outcome(), 15)


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(0)", 0), ("return 'copy'", 0), ("sys.exit(3)", 3), ("raise ValueError('copy')", 1)]
)
def test_a_process_that_a_step_forks_does_not_answer_for_the_step(work: Work, end: str, status: int) -> None:
    code = (
        f"import os, sys\ndef main():\n  if not os.fork():\n    {end}\n"
        "  return 'step', os.waitstatus_to_exitcode(os.wait()[1])"
    )

    report = work.run_python(code)

    assert (report.outcome, report.output) == (Outcome(), ["step", status])


def test_a_process_that_was_started_without_a_word_is_dead_when_the_end_of_its_step_is_told(work: Work) -> None:
    code = (
        "import ctypes, time\ndef main():\n  pid = ctypes.CDLL(None).fork()\n"
        "  while not pid: time.sleep(1000)\n  return pid"
    )

    report = work.run_python(code)

    assert report.outcome == Outcome()
    assert not is_alive(report.output)


def test_a_call_and_code_take_turns_in_one_child(work: Work) -> None:
    (work.folder / "taking_turns.py").write_text("import os\ndef who(): return 'call', os.getpid()")
    code = "import os\ndef main(): return 'code', os.getpid()"

    told = [
        work.run(work.lease("python", params)).output
        for params in ({"code": code}, {"call": "taking_turns:who"}, {"code": code}, {"call": "taking_turns:who"})
    ]

    assert [name for name, _ in told] == ["code", "call", "code", "call"]
    assert len({pid for _, pid in told}) == 1


def test_a_child_that_is_slow_to_come_up_keeps_what_its_step_prints(work: Work) -> None:
    lease = work.python("def main(): print('said')")
    os.kill(work.executor._supervisor.pid, signal.SIGSTOP)

    work.start(lease)
    (running,) = work.executor._running.values()
    first = running.name_logs_at
    work.wait_for(lambda: running.name_logs_at != first)
    os.kill(work.executor._supervisor.pid, signal.SIGCONT)
    work.reports()

    assert work.log(lease).read_text() == "said\n"


def test_a_breakpoint_says_where_a_debugger_works(work: Work) -> None:
    outcome = work.run_python("def main(): breakpoint()").outcome

    assert outcome.message == "BdbQuit: a step has no terminal for a debugger; call the function itself: NAME.fn(…)"


@pytest.mark.parametrize("call", ["def main() -> list[int]:", "async def main() -> list[int]:"])
def test_a_result_that_is_not_what_the_function_promises_fails_the_step(work: Work, call: str) -> None:
    outcome = work.run_python(f"{call}\n  return [1, '2']").outcome

    reason = "the result does not fit '-> list[int]': the result[1] must be an integer, and is \"2\""
    assert outcome.output_error == reason
