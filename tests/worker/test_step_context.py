"""What a step calls while it runs: progress, log, attempt, idempotency key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work

import mulligan
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Secret
from mulligan.ports import Lease
from mulligan.step_context import NotInStep
from mulligan.worker.logs.progress_records import Progress, parse_progress, read_progress

from .test_python import other_pythons

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

SECRET = "hunter2&co-never-shown"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)


def progress_of(work: Work, lease: Lease) -> tuple[object, ...] | None:
    task = lease.task
    path = f"{work.home}/runs/{task.run_id}/logs/{task.place}#{task.attempt}.progress"
    found = read_progress(path)
    return None if found is None else (found.done, found.total, found.text)


# -- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("3, 10", (3, 10, "")),
        ("3, 10, 'loading'", (3, 10, "loading")),
        ("0.3", (0.3, 1, "")),
        ("7", (7, None, "")),
        ("'3 files'", (None, None, "3 files")),
        ("text='two\\nlines'", (None, None, "two lines")),
        ("2.5, 10", (2.5, 10, "")),
        ("12, 10", (12, 10, "")),
        ("1, 2, '\U0001f389' * 500", (1, 2, "\U0001f389" * 200)),
        ("1, 2, '\\ud800'", (1, 2, "")),
    ],
)
def test_the_last_progress_is_kept_with_the_attempt(work: Work, call: str, expected: tuple[object, ...]) -> None:
    lease = work.python(
        f"import mulligan\ndef main():\n  mulligan.progress(1, 1, 'x' * 300)\n  mulligan.progress({call})"
    )

    assert work.run(lease).outcome == Outcome()

    assert progress_of(work, lease) == expected


@pytest.mark.parametrize(
    "call", ["'3', 10", "True, 2", "-1, 2", "3, -1", "float('nan'), 2", "", "None, 10", "1, 2, 3", "object()", "10**30"]
)
def test_a_progress_that_is_none_is_an_error_of_the_step(work: Work, call: str) -> None:
    report = work.run_python(f"import mulligan\ndef main(): mulligan.progress({call})")

    assert report.outcome.code == "EXCEPTION"
    assert "progress" in report.outcome.message
    assert "step_context" not in report.outcome.trace.splitlines()[1]


def test_a_step_that_reports_no_progress_has_no_file(work: Work) -> None:
    lease = work.python("def main(): print('said')")
    work.run(lease)

    assert list(work.log(lease).parent.glob("*.progress")) == []


def test_each_step_of_a_child_has_its_own_progress(work: Work) -> None:
    first, second, third = (work.python(f"import mulligan\ndef main(): mulligan.progress({i})") for i in (1, 2, 3))
    silent = work.python("def main(): pass")

    for lease in (first, second, silent, third):
        work.run(lease)

    found = [progress_of(work, lease) for lease in (first, second, silent, third)]
    assert found == [(1, None, ""), (2, None, ""), None, (3, None, "")]


@pytest.mark.parametrize(
    "code",
    [
        "import threading\ndef main():\n  t = threading.Thread(target=report)\n  t.start()\n  t.join()",
        "import os\ndef main():\n  pid = os.fork()\n  if not pid:\n    report()\n    os._exit(0)\n  os.waitpid(pid, 0)",
        "import subprocess, sys\n"
        "def main(): subprocess.run([sys.executable, '-c', 'import mulligan; mulligan.progress(2, 3)'], check=True)",
        "import subprocess\ndef main(): subprocess.run('echo 2/3 > $MULLIGAN_PROGRESS', shell=True, check=True)",
    ],
)
def test_threads_and_processes_of_a_step_report_its_progress(work: Work, code: str) -> None:
    before = "import mulligan\ndef report(): mulligan.progress(2, 3)\nmulligan.progress(1, 3)\n"
    lease = work.python(before + code)

    assert work.run(lease).outcome == Outcome()

    assert progress_of(work, lease) == (2, 3, "")


@pytest.mark.parametrize("how", ["def main(): count()", "def main(): threading.Thread(target=count).run()"])
def test_the_last_of_very_many_calls_is_not_lost(work: Work, how: str) -> None:
    code = "import mulligan, threading\ndef count():\n  for i in range(20_000): mulligan.progress(i, 30_000, 'x')\n"
    first, second = work.python(code + how), work.python("import mulligan\ndef main(): mulligan.progress(1, 2)")

    work.run(first)
    work.run(second)

    assert [progress_of(work, lease) for lease in (first, second)] == [(19_999, 30_000, "x"), (1, 2, "")]


def test_the_last_of_very_many_calls_of_a_program_is_not_lost(work: Work) -> None:
    code = "import mulligan; [mulligan.progress(i, 30_000) for i in range(20_000)]"
    lease = work.shell(f"{sys.executable} -c '{code}'")

    work.run(lease)

    assert progress_of(work, lease) == (19_999, 30_000, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo 3/10 copying > $MULLIGAN_PROGRESS", (3, 10, "copying")),
        ("for i in 1 2 3; do echo $i/3 >> $MULLIGAN_PROGRESS; done", (3, 3, "")),
        ("echo 30% > $MULLIGAN_PROGRESS", (0.3, 1, "")),
        ("echo 0.25 of it > $MULLIGAN_PROGRESS", (0.25, 1, "of it")),
        ("echo copying files > $MULLIGAN_PROGRESS", (None, None, "copying files")),
        ("seq 400000 > $MULLIGAN_PROGRESS", (400000, None, "")),
        (": > $MULLIGAN_PROGRESS", None),
        ("ln -s /etc/passwd $MULLIGAN_PROGRESS", None),
        ("mkdir $MULLIGAN_PROGRESS", None),
        ("mkfifo $MULLIGAN_PROGRESS", None),
    ],
)
def test_a_shell_step_writes_its_progress_to_a_file(work: Work, text: str, expected: tuple[object, ...] | None) -> None:
    lease = work.shell(text)

    assert work.run(lease).outcome == Outcome()

    assert progress_of(work, lease) == expected
    assert work.run_shell("ls $MULLIGAN_PROGRESS 2>/dev/null || echo none").output == "none"


def test_progress_is_shown_while_the_step_runs_and_after_its_process_was_killed(
    work: Work, announcements: Announcements
) -> None:
    code = (
        "import mulligan, os, time\ndef main(path):\n  mulligan.progress(4, 9, 'half')\n"
        "  open(path, 'w').write(f'{os.getpid()}\\n')\n  time.sleep(60)"
    )
    lease = work.python(code, {"path": str(announcements.path)})
    work.start(lease)
    (pid,) = announcements.numbers(1)

    assert work.wait_for(lambda: progress_of(work, lease)) == (4, 9, "half")
    os.kill(pid, 9)
    work.reports()

    assert progress_of(work, lease) == (4, 9, "half")


@pytest.mark.parametrize("kind", ["python", "shell"])
def test_secrets_in_a_progress_are_redacted(work: Work, kind: str) -> None:
    known = {"secrets": {"token": Secret(env="DEPLOY_TOKEN")}, "late": {"env.TOKEN": [{"secret": "secrets.token"}]}}
    code = "import mulligan, os\ndef main(): mulligan.progress(1, 2, 'with ' + os.environ['TOKEN'])"
    lease = (
        work.python(code, **known)
        if kind == "python"
        else work.shell('echo "1/2 with $TOKEN" > $MULLIGAN_PROGRESS', **known)
    )

    assert work.run(lease).outcome == Outcome()

    assert progress_of(work, lease) == (1, 2, "with ***")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", None),
        (b"\n \n", None),
        (b"3/10", Progress(3, 10)),
        (b"3 / 10 x\n", Progress(3, 10, "x")),
        (b"old\n5\n\n", Progress(5)),
        (b"5files", Progress(text="5files")),
        (b'{"done": 1}\n', Progress(1)),
        (b'{"done": "x"}', Progress(text='{"done": "x"}')),
        (b'{"done": -1, "total": 1e300}', Progress()),
        (b"\xff\x00\x1b[31m", Progress(text="\ufffd  [31m")),
        (b"99999999999999999999/2", Progress(text="99999999999999999999/2")),
    ],
)
def test_the_last_line_counts_whatever_is_in_it(data: bytes, expected: Progress | None) -> None:
    assert parse_progress(data) == expected


# -- log, attempt, idempotency key -----------------------------------------------------------------------------------


def test_a_log_line_has_the_time_the_text_and_the_fields(work: Work) -> None:
    lease = work.python(
        "import mulligan\ndef main(): mulligan.log('two\\nlines', rows=12, table='facts', who='a b', when=object)"
    )

    assert work.run(lease).outcome == Outcome()

    at, _, rest = work.log(lease, "err").read_text().partition(" ")
    assert rest == 'two\\nlines rows=12 table=facts who="a b" when="<class \'object\'>"\n'
    assert len(at) == len("2026-11-16T15:00:00.000Z")


def test_a_step_knows_its_attempt_and_its_idempotency_key(work: Work) -> None:
    code = "import mulligan\ndef main(): return [mulligan.attempt(), mulligan.idempotency_key()]"

    lease = work.python(code, attempt=3)

    assert work.run(lease).output == [3, lease.task.idempotency_key]


@pytest.mark.parametrize("interpreter", other_pythons())
def test_all_of_it_works_in_another_interpreter(work: Work, interpreter: str) -> None:
    code = (
        "import mulligan\nasync def main():\n  mulligan.log('hello', a=1)\n  mulligan.progress(1, 2)\n"
        "  open('made', 'w').write('x')\n  mulligan.artifact('made')\n  return mulligan.attempt()"
    )
    lease = work.lease("python", {"code": code, "interpreter": interpreter})

    report = work.run(lease)

    assert (report.outcome, report.output) == (Outcome(), 1)
    assert progress_of(work, lease) == (1, 2, "")
    assert work.log(lease, "err").read_text().endswith("Z hello a=1\n")


# -- outside of a step -----------------------------------------------------------------------------------------------


@pytest.fixture
def _no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MULLIGAN_"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_step")
@pytest.mark.parametrize("function", ["attempt", "idempotency_key", "artifact"])
def test_outside_of_a_step_there_is_no_attempt(function: str) -> None:
    arguments = [__file__] if function == "artifact" else []

    with pytest.raises(NotInStep, match=rf"^mulligan\.{function}\(\) was called outside of a step; "):
        getattr(mulligan, function)(*arguments)


@pytest.mark.usefixtures("_no_step")
def test_outside_of_a_step_progress_and_log_print(capsys: pytest.CaptureFixture[str]) -> None:
    mulligan.progress(1, 3, "first")
    mulligan.progress(2, 3, "first")
    mulligan.progress(3, 3, "first")
    mulligan.log("said", a=1)

    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["progress: 1/3 first", "progress: 3/3 first"]
    assert lines[2].endswith("Z said a=1")


def test_importing_mulligan_and_its_context_loads_little(tmp_path: Path) -> None:
    code = (
        "import sys, mulligan; mulligan.progress; "
        "print(*sorted({'typing', 'msgspec', 'asyncio', 'pathlib', 'hashlib', 'shutil'} & set(sys.modules)))"
    )

    found = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.append({str(Path(mulligan.__file__).parent.parent)!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == "\n"
