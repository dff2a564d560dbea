"""Secrets in the hands of a worker: looked up for whoever reads them, hidden from everybody else."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Announcements, Work, is_alive

from mulligan.core.deciding.classify import classify
from mulligan.core.model.reports import Report, TaskEnded, TaskInterrupted
from mulligan.core.model.workflow import Secret
from mulligan.ports import Lease
from mulligan.worker.child.child_pool import SCOPE_SECONDS, ChildPool
from mulligan.worker.child.warm_child import ChildUse
from mulligan.worker.logs.redacted_logs import RedactedLogs
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.secrets.secrets import ROOTS_MAX

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

SECRET = "hunter2&co-never-told"
TOKEN = {"token": Secret(env="DEPLOY_TOKEN")}
LATE = {"env.TOKEN": [{"secret": "secrets.token"}]}
PRINT = 'printf %s "$TOKEN"'


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    monkeypatch.setenv("SHORT", "abc")


def knowing(work: Work, text: str, secret: Secret = TOKEN["token"], **fields: Any) -> Lease:
    """A shell task that has the secret in its environment."""
    return work.shell(text, **{"secrets": {"token": secret}, "late": LATE, **fields})


def told_of(report: Report) -> tuple[str, str]:
    assert isinstance(report, TaskEnded)
    failure, _ = classify(report.outcome)
    assert failure is not None
    return failure.code, failure.message


# -- where they are --------------------------------------------------------------------------------------------------

IS_IT = f'[ "$TOKEN" = "{SECRET}" ] && echo yes'


def test_a_secret_of_the_environment_is_handed_to_who_reads_it(work: Work) -> None:
    assert work.run(knowing(work, IS_IT)).output == "yes"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_in_a_file_is_without_its_last_line_end(work: Work, end: str) -> None:
    (work.folder / "token").write_bytes(f"{SECRET}{end}".encode())

    assert work.run(knowing(work, IS_IT, Secret(file="token"))).output == "yes"


def test_a_file_may_be_named_from_the_home_folder(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text(SECRET)

    assert work.run(knowing(work, IS_IT, Secret(file="~/token"))).output == "yes"


def test_a_secret_is_what_its_command_prints_where_run_was_called(work: Work) -> None:
    (work.folder / "token").write_text(SECRET)

    assert work.run(knowing(work, IS_IT, Secret(command="cat token; echo; echo noise >&2"))).output == "yes"


def test_a_command_is_run_once_for_many(work: Work) -> None:
    secret = Secret(command=f"echo x >> count; echo '{SECRET}'")

    work.start(*(knowing(work, IS_IT, secret) for _ in range(2)))
    reports = [*work.reports(2), work.run(knowing(work, IS_IT, secret))]

    assert [report.output for report in reports if isinstance(report, TaskEnded)] == ["yes"] * 3
    assert (work.folder / "count").read_text() == "x\n"


def test_a_command_that_ends_long_after_its_last_word_is_waited_for(work: Work) -> None:
    secret = Secret(command=f"echo '{SECRET}'; exec >&-; while [ ! -e go ]; do sleep 0.01; done")
    lease = knowing(work, IS_IT, secret)

    work.start(lease)
    work.wait_for(lambda: len(work.leftovers()) > 1)
    (work.folder / "go").touch()
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert report.output == "yes"


def test_while_a_command_takes_its_time_others_are_run(work: Work) -> None:
    slow = knowing(work, IS_IT, Secret(command=f"while [ ! -e go ]; do sleep 0.01; done; echo '{SECRET}'"))
    work.start(slow)

    quick = work.run_shell("echo quick")
    (work.folder / "go").touch()
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (quick.output, report.output) == ("quick", "yes")


def test_a_secret_goes_into_text_into_stdin_and_into_the_folder(work: Work) -> None:
    (work.folder / SECRET).mkdir()
    reference = {"secret": "secrets.token"}
    lease = work.lease(
        "shell",
        {"text": 'read line; [ "$line$WHO" = "$EXPECTED" ] && basename "$PWD" | wc -c', "stdin": {"${}": "stdin"}},
        secrets=TOKEN,
        late={"stdin": [reference], "env.WHO": ["me:", reference], "cwd": [reference]},
        bound={"env.EXPECTED": f"{SECRET}me:{SECRET}"},
    )

    assert work.run(lease).output == str(len(SECRET) + 1)
    # The program with which steps find `mulligan` is there in any case.
    files = [path for path in (work.home / "workers" / work.name).iterdir() if path.name != "mulligan"]
    assert [path.name for path in files if path.stat().st_size] == []


def test_what_an_expression_makes_of_a_secret_is_handed_over_and_hidden(work: Work) -> None:
    late = {"env.TOKEN": [{"secret": "secrets.token.upperAscii()"}]}
    lease = work.shell(PRINT + '; [ "$TOKEN" = HUNTER2\\&CO-NEVER-TOLD ] && echo " yes"', secrets=TOKEN, late=late)

    assert work.run(lease).output == "*** yes"


def test_what_is_made_of_a_secret_is_hidden_within_lists_and_mappings_too(work: Work) -> None:
    late = {"args": [{"secret": '{"upper": [secrets.token.upperAscii()]}'}]}
    lease = work.lease(
        "python",
        {"code": "def main(upper):\n    print(upper[0])\n    return upper[0] + '!'", "args": {"${}": "args"}},
        **{"secrets": TOKEN, "late": late},
    )

    report = work.run(lease)

    assert report.output == "***!"


@pytest.mark.nightly
def test_a_step_that_began_ten_thousand_runs_ago_tells_no_secret(work: Work, announcements: Announcements) -> None:
    long = f'echo $$ > {announcements.path}; read -r _ < {work.folder}/go; echo "\\"$TOKEN\\"" > "$MULLIGAN_OUTPUT"'
    os.mkfifo(work.folder / "go")
    work.start(knowing(work, long, uid="first"))
    announcements.numbers(1)
    for number in range(ROOTS_MAX):
        work.executor._secrets.resolve(knowing(work, PRINT, uid=f"later{number}").task)

    (work.folder / "go").write_text("\n")
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert report.output == "***"


def test_a_python_step_gets_a_secret_as_an_argument(work: Work) -> None:
    lease = work.lease(
        "python",
        {"code": "def main(token): return [token, len(token)]", "args": {"token": {"${}": "token"}}},
        secrets=TOKEN,
        late={"token": [{"secret": "secrets.token"}]},
    )

    assert work.run(lease).output == ["***", len(SECRET)]


# -- those that cannot be had ----------------------------------------------------------------------------------------

MISSING = {
    "variable": (
        Secret(env="NOWHERE"),
        "INPUT_INVALID",
        "environment variable 'NOWHERE' is not set where the worker runs",
    ),
    "file": (Secret(file="keys/none"), "INPUT_INVALID", "there is no file 'keys/none'"),
    "folder": (Secret(file="."), "INPUT_INVALID", "'.' cannot be read: is a directory"),
    "pipe": (Secret(file="pipe"), "INPUT_INVALID", "'pipe' is not a file"),
    "short": (
        Secret(env="SHORT"),
        "INPUT_INVALID",
        "it has fewer than 4 characters, too few to be redacted",
    ),
    "empty": (Secret(command="true"), "INPUT_INVALID", "it is empty"),
    "spaces": (Secret(command="printf '    '"), "INPUT_INVALID", "it is empty"),
    "blank": (
        Secret(command="printf '   a  '"),
        "INPUT_INVALID",
        "it has fewer than 4 characters, too few to be redacted",
    ),
    "nul": (Secret(command="printf 'abcd\\0efgh'"), "INPUT_INVALID", "it contains a NUL byte"),
    "bytes": (Secret(command="printf 'abcd\\xff'"), "INPUT_INVALID", "it is not UTF-8"),
    "large": (Secret(command="head -c 20000 /dev/zero | tr '\\0' x"), "INPUT_INVALID", "it is longer than 16384 bytes"),
    "endless": (Secret(command="yes"), "INPUT_INVALID", "it is longer than 16384 bytes"),
    "exit": (Secret(command=f"echo {SECRET}; exit 3"), "EXCEPTION", "its command exited with code 3"),
    "signal": (Secret(command="kill -9 $$"), "EXCEPTION", "its command was killed by signal 9"),
    "unknown": (Secret(command="no-such-program-here"), "EXCEPTION", "its command exited with code 127"),
}


@pytest.mark.parametrize(("secret", "code", "reason"), MISSING.values(), ids=MISSING.keys())
def test_a_secret_that_cannot_be_had_fails_who_reads_it(work: Work, secret: Secret, code: str, reason: str) -> None:
    os.mkfifo(work.folder / "pipe")

    report = work.run(knowing(work, "touch started", secret))

    assert told_of(report) == (code, f"secret 'token' is not available: {reason}")
    assert not (work.folder / "started").exists()


def test_a_secret_that_cannot_be_had_is_nothing_to_who_does_not_read_it(work: Work) -> None:
    command = Secret(command="echo x >> asked; exit 1")
    secrets = {"a": Secret(env="NOWHERE"), "b": Secret(file="none"), "c": command}

    outputs = [work.run_shell("echo fine", secrets=secrets).output for _ in range(2)]

    assert (outputs, (work.folder / "asked").read_text()) == (["fine", "fine"], "x\n")


def test_what_a_command_gives_is_known_before_anything_of_the_workflow_runs(work: Work) -> None:
    """Whoever takes a run up again finds what its steps wrote, and has handed the secret to none of them."""
    (work.folder / "written").write_text(SECRET)

    ended = work.run_shell("cat written", secrets={"token": Secret(command=f"echo '{SECRET}'")})

    assert ended.output == "***"


def test_all_commands_are_asked_at_once(work: Work) -> None:
    """Each waits for the other: one after the other they would come to nothing."""
    os.mkfifo(work.folder / "meet")
    secrets = {"a": Secret(command="echo first-of-two > meet"), "b": Secret(command="cat meet")}

    ended = work.run_shell("echo first-of-two", secrets=secrets)

    assert ended.output == "***"


def test_a_command_that_failed_is_run_again_for_the_next_attempt(work: Work) -> None:
    secret = Secret(command=f"[ -e go ] && echo '{SECRET}'")
    first = work.run(knowing(work, IS_IT, secret))
    (work.folder / "go").touch()

    assert told_of(first)[0] == "EXCEPTION"
    assert work.run(knowing(work, IS_IT, secret)).output == "yes"


def test_an_expression_that_fails_over_a_secret_says_so_without_it(work: Work) -> None:
    report = work.run(work.shell("true", secrets=TOKEN, late={"env.X": [{"secret": "int(secrets.token)"}]}))

    code, message = told_of(report)
    assert code == "EXPRESSION_FAILED"
    assert SECRET not in message


@pytest.mark.parametrize("how", ["stopped", "interrupted", "dropped"])
def test_a_task_that_waits_for_a_secret_may_be_stopped(work: Work, how: str) -> None:
    lease = knowing(work, "touch started", Secret(command="sleep 1000"))
    work.start(lease)
    work.wait_for(lambda: len(work.leftovers()) > 1)

    if how == "stopped":
        work.executor.stop(lease.token, 5.0)
        (report,) = work.reports()
        assert isinstance(report, TaskEnded)
        assert report.outcome.is_stopped
    elif how == "interrupted":
        work.executor.stop_all(5.0)
        (report,) = work.reports()
        assert isinstance(report, TaskInterrupted)
    else:
        work.executor.drop_all()
    assert list(work.executor.running) == []
    assert not (work.folder / "started").exists()


# -- what is told ----------------------------------------------------------------------------------------------------

LEAKS = {
    "stdout": PRINT,
    "split over many writes": 'for i in $(seq 0 30); do printf %s "${TOKEN:$i:1}"; done',
    "stderr": PRINT + " >&2; exit 3",
    "output": 'printf \'{"it": "%s"}\' "$TOKEN" > "$MULLIGAN_OUTPUT"',
    "error": 'printf \'{"code": "MINE", "message": "%s"}\' "$TOKEN" > "$MULLIGAN_ERROR"',
    "base64": PRINT + " | base64",
    "behind a user": 'printf "user:%s" "$TOKEN" | base64 -w0',
    "trace": "set -x; : $TOKEN",
    "killed": PRINT + "; kill -9 $$",
    "a program of its own": "printenv TOKEN",
    "opened again": PRINT + " > /dev/stdout; " + PRINT + " >> /dev/stderr",
    "in the background": (
        f"mkfifo said; (trap '' TERM; {PRINT}; exec >&- 2>&-; echo > said; sleep 1000) & read _ < said; exec >&- 2>&-"
    ),
}


@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS.keys())
def test_nothing_that_a_shell_step_does_tells_a_secret(work: Work, text: str) -> None:
    lease = knowing(work, text)

    report = work.run(lease)

    expect_hidden(work, report)


def test_a_step_that_runs_into_its_timeout_tells_no_secret(work: Work, announcements: Announcements) -> None:
    lease = knowing(work, f"{PRINT}; echo 1 > {announcements.path}; sleep 1000")
    work.start(lease)
    announcements.lines(1)

    work.time_is_up(lease, 1000.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert told_of(report)[0] == "TIMEOUT"
    assert work.log(lease).read_text() == "***"
    expect_hidden(work, report)


PYTHON_LEAKS = {
    "returned": "return {token: [token]}",
    "printed": "print(token); import sys; print(token, file=sys.stderr)",
    "written bare": "import os; [os.write(1, token[i:i+1].encode()) for i in range(len(token))]",
    "raised": "raise ValueError(token)",
    "reported": "import mulligan; raise mulligan.StepError('MINE', token, details={'it': token})",
    "left": "import sys; print(token, file=sys.stderr); sys.exit(3)",
    "died": "import os; print(token, flush=True); os._exit(3)",
    "by a program": "import subprocess; subprocess.run(['printf', token])",
}


@pytest.mark.parametrize("body", PYTHON_LEAKS.values(), ids=PYTHON_LEAKS.keys())
def test_nothing_that_a_python_step_does_tells_a_secret(work: Work, body: str) -> None:
    lease = work.lease(
        "python",
        {"code": f"def main(token):\n    {body}\n", "args": {"token": {"${}": "token"}}},
        secrets=TOKEN,
        late={"token": [{"secret": "secrets.token"}]},
    )

    report = work.run(lease)

    expect_hidden(work, report)


def expect_hidden(work: Work, report: Report) -> None:
    """Nothing that was told or is kept has the secret, and something has what stands in its place."""
    kept = [path.read_bytes() for path in work.home.rglob("*") if path.is_file()]
    everything = b"\n".join([repr(report).encode(), *kept])
    assert Redactor([SECRET]).redact_bytes(everything) == everything
    assert b"***" in everything


def test_the_tail_of_what_a_python_step_said_before_it_left_is_told(work: Work) -> None:
    code = "import sys\ndef main():\n    print('no disk', file=sys.stderr)\n    sys.exit(3)"

    report = work.run(work.python(code, secrets=TOKEN))

    assert told_of(report) == ("EXIT_NONZERO", "no disk")


def test_who_prints_what_another_wrote_to_a_file_is_hidden_too(work: Work) -> None:
    work.run(knowing(work, PRINT + " > written"))

    assert work.run_shell("cat written", secrets=TOKEN).output == "***"
    assert work.run_shell("echo $DEPLOY_TOKEN", secrets=TOKEN).output == "***"


def test_a_run_that_was_called_hides_the_secrets_of_its_caller(work: Work) -> None:
    work.run(knowing(work, PRINT + " > written", uid="r1"))

    assert work.run_shell("cat written", uid="r1.call.1", run_id=8).output == "***"
    assert work.run_shell("cat written", uid="r2", run_id=9).output == SECRET


def test_a_secret_that_was_changed_is_hidden_still(work: Work) -> None:
    secrets = {"token": Secret(file="token")}
    (work.folder / "token").write_text("the-older-one")
    work.run_shell("cp token written", secrets=secrets)
    (work.folder / "token").write_text("the-newer-one")

    assert work.run_shell("cat written token", secrets=secrets).output == "***"


def test_what_a_command_gave_is_hidden_from_who_did_not_ask_for_it(work: Work) -> None:
    secrets = {"token": Secret(command=f"echo '{SECRET}'")}
    work.run(knowing(work, PRINT + " > written", secrets["token"]))

    assert work.run_shell("cat written", secrets=secrets).output == "***"


# -- logs ------------------------------------------------------------------------------------------------------------


def test_the_log_of_a_step_that_knows_a_secret_is_live(work: Work, announcements: Announcements) -> None:
    lease = knowing(work, f"echo one $TOKEN; echo ready > {announcements.path}; read < {announcements.path}.go")
    os.mkfifo(f"{announcements.path}.go")
    work.start(lease)

    work.wait_for(lambda: work.log(lease).exists() and work.log(lease).read_text() == "one ***\n")
    with open(f"{announcements.path}.go", "w") as go:
        go.write("\n")

    (report,) = work.reports()
    assert isinstance(report, TaskEnded)
    assert report.output == "one ***"


def test_a_chatty_step_loses_no_byte_and_keeps_nobody_from_anything(work: Work) -> None:
    chatty = knowing(work, 'yes 0123456789abcdef | head -c 8000000; printf %s "$TOKEN"')
    work.start(chatty)

    quick = work.run_shell("echo quick")
    (report,) = work.reports()

    assert quick.output == "quick"
    assert isinstance(report, TaskEnded)
    whole = b"0123456789abcdef\n" * (8_000_000 // 17 + 1)
    assert work.log(chatty).read_bytes() == whole[:8_000_000] + b"***"


def test_a_warm_child_that_has_said_all_before_anybody_listens_has_it_in_its_log(work: Work) -> None:
    leases = [work.lease("sql", {"connection": "sqlite://", "query": "select"}, secrets=TOKEN) for _ in range(10)]

    for lease in leases:
        work.run(lease)

    assert ["incomplete input" in work.log(lease, "err").read_text() for lease in leases] == [True] * 10


def test_a_step_that_writes_nothing_has_no_log(work: Work) -> None:
    lease = knowing(work, "true")

    work.run(lease)

    assert not work.log(lease).exists()
    assert not work.log(lease, "err").exists()


def test_no_pipe_and_no_descriptor_is_left_behind(work: Work) -> None:
    work.run(knowing(work, PRINT))
    work.run(work.python("def main(): print(5)", secrets=TOKEN))
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        work.run(knowing(work, PRINT))
        work.run(work.python("def main(): print(5)", secrets=TOKEN))
        work.run(knowing(work, PRINT, cwd="nowhere"))

    assert len(os.listdir("/proc/self/fd")) == before
    folder = work.home / "workers" / work.name
    assert sorted(path.name for path in folder.iterdir() if path.is_fifo()) == ["child-1.err", "child-1.out"]


def test_no_descriptor_is_left_where_only_one_of_two_pipes_can_be_made(tmp_path: Path) -> None:
    with selectors.DefaultSelector() as selector:
        before = len(os.listdir("/proc/self/fd"))

        with pytest.raises(FileNotFoundError):
            RedactedLogs(selector, str(tmp_path / "out"), str(tmp_path / "nowhere" / "err"))

        assert (len(os.listdir("/proc/self/fd")), len(selector.get_map())) == (before, 0)
        assert os.listdir(tmp_path) == []


# -- processes -------------------------------------------------------------------------------------------------------

# In files: what is in the environment of a worker, every step has.
FILES = {"token": Secret(file="token"), "other": Secret(file="other")}
HIDDEN = "no-step-of-another-finds-this"
WHO = "import os\ndef main(**given): return os.getpid()"
KEEPS = """
import atexit, builtins, json, os
def main(token):
    builtins.left, json.left, os.environ["LEFT"] = token, [token], token
    json.dumps.__defaults__, main.cycle = ([token, main],), main
    json.file = open("left", "w+"); json.file.write(token); json.file.flush()
    atexit.register(print, token)
    return os.getpid()
"""
SEARCHES = """
import gc, os, sys
SECRET = "".join(reversed(TURNED))
def main(**given):
    found, own = [], set(map(id, given.values()))
    def look(where, value):
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
        if SECRET.encode() in data and id(value) not in own:
            found.append(where)
    look("environ", dict(os.environ))
    for pid in ("self", os.getppid()):
        look("process", open(f"/proc/{pid}/environ", "rb").read())
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()):
            if value is not SECRET and isinstance(value, (str, bytes, list)):
                look("module", value)
    for one in gc.get_objects():
        if isinstance(one, (list, tuple)) and any(isinstance(x, str) and x is not SECRET and SECRET in x for x in one):
            found.append("object")
    for fd in os.listdir("/proc/self/fd"):
        name = os.path.realpath(f"/proc/self/fd/{fd}")
        if os.path.isfile(name) and "/here/" in name:
            look("file", open(name, "rb").read())
    return sorted(set(found)), os.getpid()
""".replace("TURNED", repr(HIDDEN[::-1]))


def given(work: Work, code: str, *names: str, **fields: Any) -> Lease:
    """A Python task that has these secrets as arguments."""
    late = {name: [{"secret": f"secrets.{name}"}] for name in names}
    params = {"code": code, "args": {name: {"${}": name} for name in names}}
    return work.lease("python", params, **{"secrets": FILES, "late": late, "uid": "r1", **fields})


@pytest.fixture
def files(work: Work) -> None:
    (work.folder / "token").write_text(HIDDEN)
    (work.folder / "other").write_text("another-one-entirely")


@pytest.mark.usefixtures("files")
def test_python_steps_of_a_run_share_a_process_if_they_are_given_the_same_secrets(work: Work) -> None:
    rows: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), {}),
        (("token",), {}),
        (("other",), {}),
        (("token", "other"), {}),
        (("token",), {"uid": "r2"}),
        ((), {"uid": "r2"}),
        (("token",), {"version": "v2"}),
        ((), {"secrets": {}, "uid": "r3"}),
    ]

    ids = [[work.run(given(work, WHO, *names, **fields)).output for _ in range(2)] for names, fields in rows]
    child = work.run(given(work, WHO, "token", uid="r1.call.1", run_id=8)).output
    (work.folder / "token").write_text("the-newer-one")
    again = work.run(given(work, WHO, "token")).output

    assert [len(set(pair)) for pair in ids] == [1] * len(rows)
    assert len({*(first for first, _ in ids), again}) == len(rows) + 1
    assert child not in {first for first, _ in ids[2:]}


@pytest.mark.usefixtures("files")
def test_a_step_finds_nothing_that_a_step_with_another_secret_has_left(work: Work) -> None:
    kept = work.run(given(work, KEEPS, "token")).output

    same, _ = work.run(given(work, SEARCHES, "token")).output
    others = [
        work.run(given(work, SEARCHES, *names, **fields)).output
        for names, fields in [((), {}), (("other",), {}), (("other", "token"), {}), ((), {"secrets": {}, "uid": "r3"})]
    ]

    # Who was given the same finds all of it: this search can find something.
    assert {"module", "object", "file"} <= set(same)
    assert [found for found, _ in others] == [[]] * 4
    assert kept not in [pid for _, pid in others]


@pytest.mark.usefixtures("files")
def test_what_a_step_writes_when_its_process_ends_is_in_no_log(work: Work) -> None:
    report = work.run(given(work, KEEPS, "token"))

    work.executor._children.retire_surplus(time.monotonic() + SCOPE_SECONDS)
    work.wait_for(lambda: not is_alive(report.output))

    everything = b"\n".join(path.read_bytes() for path in work.home.rglob("*") if path.is_file())
    assert HIDDEN.encode() not in everything


WATCHES = """
import ctypes, os
def main(token):
    def umask(mask, before=os.umask):  # what our own code calls between two steps
        seen.append(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
        return before(mask)
    os.umask, os.seen = umask, (seen := [ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)])
"""


@pytest.mark.usefixtures("files")
def test_no_other_process_can_read_the_memory_of_an_idle_one_that_knew_a_secret(work: Work) -> None:
    work.run(given(work, WATCHES, "token"))

    assert work.run(given(work, "import os\ndef main(token): return os.seen[:2]", "token")).output == [1, 0]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ChildPool]:
    """The children of a worker with one slot. None is a process."""
    with selectors.DefaultSelector() as selector:
        found = ChildPool(1, selector, launch=lambda child: child._theirs.close(), on_message=lambda child: None)
        yield found
        found.forget_all()


def uses(pool: ChildPool, folder: Path, *scopes: str) -> list[int]:
    """The children that tasks of these scopes get, one after the other."""
    keys = []
    for scope in scopes:
        child = pool.take(ChildUse("v1", "python", scope=scope), str(folder))
        child.idle_since = time.monotonic()
        keys.append(child.key)
    return keys


def test_steps_that_take_turns_with_a_secret_and_without_start_two_processes(pool: ChildPool, tmp_path: Path) -> None:
    assert len(set(uses(pool, tmp_path, *["", "a"] * 5))) == 2


def test_only_a_few_processes_are_kept_for_steps_with_many_secrets(pool: ChildPool, tmp_path: Path) -> None:
    uses(pool, tmp_path, *(f"secret {number}" for number in range(20)))

    assert sum(pool.has_idle(ChildUse("v1", "python", scope=f"secret {number}")) for number in range(20)) == 4


def test_a_process_that_knows_a_secret_is_kept_for_a_moment(pool: ChildPool, tmp_path: Path) -> None:
    uses(pool, tmp_path, "", "a")
    now = time.monotonic()
    for child in pool:
        child.idle_since = now

    assert pool.retire_surplus(now) == now + SCOPE_SECONDS
    assert pool.has_idle(ChildUse("v1", "python", scope="a"))
    assert pool.retire_surplus(now + SCOPE_SECONDS) is None
    assert not pool.has_idle(ChildUse("v1", "python", scope="a"))
    assert pool.has_idle(ChildUse("v1", "python"))


# -- a disk on which there is no room ----------------------------------------------------------------------------------


def without_room(work: Work, lease: Lease) -> Lease:
    """Its log is on a disk that is full."""
    log = work.log(lease)
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    return lease


def test_what_a_task_printed_and_there_was_no_room_for_is_no_output(work: Work) -> None:
    lease = without_room(work, knowing(work, "echo 42"))

    report = work.run(lease)

    assert report.output is None
    assert told_of(report) == ("EXCEPTION", "its output cannot be stored: no space left on device")


def test_an_output_that_was_not_printed_counts_without_the_log(work: Work) -> None:
    lease = without_room(work, knowing(work, "echo talk; echo 42 > $MULLIGAN_OUTPUT"))

    assert work.run(lease).output == 42


def test_a_failure_counts_without_the_log(work: Work) -> None:
    lease = without_room(work, knowing(work, "echo talk; echo no >&2; exit 3"))

    assert told_of(work.run(lease)) == ("EXIT_NONZERO", "no")


def test_the_next_attempt_begins_with_nothing_lost(work: Work) -> None:
    work.run(without_room(work, knowing(work, "echo 42")))

    assert work.run(knowing(work, "echo 43")).output == "43"
