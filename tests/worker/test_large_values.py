"""Large values: nothing that a task is given or gives keeps the worker's loop from everything else."""

from __future__ import annotations

import ast
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.work import PATIENCE_SECONDS, Announcements, Work

import mulligan.worker
from mulligan.core.deciding.classify import classify
from mulligan.core.model.artifacts import Artifact, is_artifact, make_reference, parse_reference
from mulligan.core.model.reports import LeaseExpired, TaskEnded, TaskInterrupted
from mulligan.core.model.workflow import Secret
from mulligan.errors import StoreUnavailable
from mulligan.ports import Lease
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.artifact_memory import ArtifactMemory
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.supervisor.send_buffer import SendBuffer

# By day: none of these tests is about how a child starts.

LARGE = 2 * LOOP_BYTES_MAX
SECRET = "hunter2&co-never-told"


@pytest.fixture
def files(tmp_path: Path) -> ArtifactFiles:
    return ArtifactFiles(tmp_path / "artifacts")


class Unread:
    """Artifacts whose contents the worker itself must not read or write."""

    def __init__(self, artifacts: ArtifactFiles) -> None:
        self._artifacts = artifacts

    def fetch(self, artifact: Artifact) -> bytes:
        raise AssertionError(f"the loop reads {artifact.name}")

    def keep(self, name: str, data: bytes, format: str) -> Artifact:
        raise AssertionError(f"the loop writes {name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)


@pytest.fixture
def keeping(tmp_path: Path, files: ArtifactFiles) -> Iterator[Work]:
    """A worker with a place for artifacts, which it does not read or write itself."""
    found = Work(tmp_path, artifacts=Unread(files))
    yield found
    found.close()
    assert found.remaining() == []


@pytest.fixture(autouse=True)
def _never_for_ever() -> Iterator[None]:
    """A loop that waits for a reader would wait for ever."""

    def ring(*_: object) -> None:
        raise AssertionError("the loop waits for somebody")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 2 * PATIENCE_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that reads nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def until(found: Callable[[], list[int]]) -> list[int]:
    """What is found once there is any; the loop does not turn meanwhile."""
    while not (pids := found()):
        os.sched_yield()
    return pids


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def worker_files(work: Work) -> list[str]:
    """What lies in the worker's folder under a name for large values."""
    folder = work.home / "workers" / work.name
    return [path.name for path in folder.iterdir() if path.name.startswith("large") or path.name.endswith("result")]


def content_of(report: TaskEnded, files: ArtifactFiles) -> bytes:
    assert is_artifact(report.output), report
    return files.fetch(parse_reference(report.output))


# -- nobody is waited for ---------------------------------------------------------------------------------------------

GET_PID = "import os\ndef main(**values): return os.getpid()"


def test_a_child_that_does_not_read_keeps_nobody_waiting(work: Work) -> None:
    pid = work.run_python(GET_PID).output

    with stopped(pid):
        work.start(work.python("def main(text): return len(text)", {"text": "x" * LARGE}))
        meanwhile = work.run_shell("echo heard")
    (report,) = work.reports()

    assert meanwhile.output == "heard"
    assert isinstance(report, TaskEnded) and report.output == LARGE


def test_a_child_that_does_not_read_can_be_stopped(work: Work) -> None:
    pid = work.run_python(GET_PID).output

    with stopped(pid):
        work.start(work.python("def main(text): return len(text)", {"text": "x" * LARGE}))
        work.executor.stop_all(0.0)
        (report,) = work.reports()

    assert isinstance(report, TaskInterrupted)


def test_a_supervisor_that_does_not_read_keeps_nobody_waiting(work: Work) -> None:
    work.run_shell("true")
    values = {f"V{number}": "x" * 90_000 for number in range(10)}

    with stopped(work.executor._supervisor.pid):
        work.start(work.shell("echo $V9 | wc -c", env=values), work.python("def main(): return 2"))
        nothing = work.executor.collect(0.0)
    reports = work.reports(2)

    assert nothing == []
    assert sorted(str(report.output) for report in reports if isinstance(report, TaskEnded)) == ["2", "90001"]


HALF_AN_ANSWER = """
import os, stat, time
def main(pipe):
    for fd in range(3, 100):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, b"\\xff\\x00\\x00")
        except OSError:
            continue
    open(pipe, "w").write("written\\n")
    time.sleep(1000)
"""


def test_a_child_that_writes_half_an_answer_keeps_nobody_waiting(work: Work, announcements: Announcements) -> None:
    lease = work.python(HALF_AN_ANSWER, {"pipe": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    meanwhile = work.run_shell("echo heard")
    work.executor.stop(lease.token, 0.0)
    (report,) = work.reports()

    assert meanwhile.output == "heard"
    assert isinstance(report, TaskEnded) and report.outcome.is_stopped


def test_what_is_sent_arrives_in_order_with_its_descriptors_however_slowly_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    buffer = SendBuffer(ours)

    buffer.send(b"a" * LARGE)
    buffer.send(b"b", write_end)
    is_waiting, found, fds = buffer.has_pending, b"", []
    while len(found) <= LARGE:
        data, received, _, _ = socket.recv_fds(theirs, 1 << 16, 1)
        found, fds = found + data, fds + received
        buffer.flush()

    assert is_waiting and not buffer.has_pending
    assert found == b"a" * LARGE + b"b"
    os.write(fds[0], b"through")
    assert os.read(read_end, 10) == b"through"
    os.close(fds[0])
    assert os.read(read_end, 1) == b""  # ours is closed as well
    os.close(read_end)
    ours.close()
    theirs.close()


def test_what_nobody_can_read_any_more_is_forgotten_with_its_descriptors() -> None:
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    buffer = SendBuffer(ours)
    buffer.send(b"a" * LARGE)
    buffer.send(b"b", write_end)

    theirs.close()
    with pytest.raises(OSError, match="Broken pipe"):
        buffer.flush()

    assert not buffer.has_pending
    assert os.read(read_end, 1) == b""  # nobody has its other end
    os.close(read_end)
    ours.close()


# -- what a task reads ------------------------------------------------------------------------------------------------


def large_text(files: ArtifactFiles) -> dict[str, Any]:
    return make_reference(files.keep("17/text/1/1/output.txt", b"x" * LARGE, "text"))


def large_rows(files: ArtifactFiles) -> dict[str, Any]:
    data = msgspec.json.encode(["ü" * 100] * (LARGE // 200))
    return make_reference(files.keep("17/rows/1/1/output.json", data, "json"))


def test_the_child_of_a_step_reads_its_arguments_itself(keeping: Work, files: ArtifactFiles) -> None:
    code = "def main(text, deep, again):\n    again.clear()\n    return [len(text), len(deep[0]['rows']), len(again)]"
    rows = large_rows(files)

    told = keeping.run_python(code, {"text": large_text(files), "deep": [{"rows": rows}], "again": rows})

    assert told.output == [LARGE, LARGE // 200, 0]


def test_an_artifact_that_is_in_no_file_is_put_into_one_for_its_step_alone(tmp_path: Path) -> None:
    memory = ArtifactMemory({}, JumpingClock())
    work = Work(tmp_path, artifacts=memory)
    code = """
import os
def main(folder, text):
    names = [name for name in os.listdir(folder) if "large" in name]
    return [(name, oct(os.stat(f"{folder}/{name}").st_mode)) for name in names], len(text)
"""
    folder = str(work.home / "workers" / work.name)

    told = work.run_python(
        code, {"folder": folder, "text": make_reference(memory.keep("17/a/1/1/o.txt", b"abc", "text"))}
    )
    left = worker_files(work)
    work.close()

    assert told.output == [[["large-1", oct(stat.S_IFREG | 0o600)]], 3]
    assert left == []


SPOILT = {
    "gone": (lambda path: path.unlink(), "is gone"),
    "cut": (lambda path: os.truncate(path, 5), f"is damaged: it has 5 bytes instead of {LARGE}"),
    "grown": (
        lambda path: os.truncate(path, LARGE + 9),
        f"is damaged: it has {LARGE + 1} bytes instead of {LARGE}",
    ),
    "changed": (lambda path: path.write_bytes(b"y" * LARGE), "is damaged: its content has changed"),
}


@pytest.mark.parametrize(("spoilt", "kind"), [*((spoilt, "python") for spoilt in SPOILT), ("changed", "shell")])
def test_an_argument_that_is_not_what_was_kept_is_an_invalid_input(
    keeping: Work, files: ArtifactFiles, spoilt: str, kind: str
) -> None:
    text = large_text(files)
    spoil, reason = SPOILT[spoilt]
    spoil(Path(files.path(parse_reference(text))))

    told = keeping.run_python("def main(text): pass", {"text": text}) if kind == "python" else None
    told = told or keeping.run_shell("cat", stdin=text)

    message = f"a value that it reads is not available: artifact '17/text/1/1/output.txt' {reason}"
    assert (told.outcome.code, told.outcome.message) == ("INPUT_INVALID", message)


def test_a_pipe_in_the_place_of_an_argument_keeps_nobody_waiting(keeping: Work, files: ArtifactFiles) -> None:
    text = large_text(files)
    path = files.path(parse_reference(text))
    os.unlink(path)
    os.mkfifo(path)

    told = keeping.run_python("def main(text): pass", {"text": text})

    assert told.outcome.code == "INPUT_INVALID"
    assert "cannot be read: it is not a file" in told.outcome.message


def test_what_a_command_is_fed_is_written_by_a_child(keeping: Work, files: ArtifactFiles) -> None:
    fed = keeping.run_shell("wc -c", stdin=large_text(files))
    listed = keeping.run_shell("wc -c; stat -L -c %a /dev/stdin", stdin=[large_rows(files), 1])

    assert int(fed.output) == LARGE
    assert listed.output.split() == [str(len(msgspec.json.encode([["ü" * 100] * (LARGE // 200), 1]))), "600"]
    assert worker_files(keeping) == []


def test_what_an_agent_is_asked_is_written_by_a_child(
    keeping: Work, files: ArtifactFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping.executor._programs._environment["MULLIGAN_AGENT_CLAUDE"] = 'wc -c <"$MULLIGAN_PROMPT_FILE"; wc -c'  # type: ignore[index]

    told = keeping.run(keeping.lease("agent", {"prompt": large_text(files)}))

    assert told.output["content"].split() == [str(LARGE), str(LARGE)]
    assert worker_files(keeping) == []


def test_a_command_that_is_stopped_before_its_input_is_written_never_starts(
    keeping: Work, files: ArtifactFiles
) -> None:
    lease = keeping.shell("cat", stdin=large_text(files))

    keeping.start(lease)
    keeping.executor.stop_all(0.0)
    (report,) = keeping.reports()
    after = keeping.run_shell("cat", stdin="another")
    keeping.run_python("def main(): pass")

    assert isinstance(report, TaskInterrupted)
    assert after.output == "another"


def test_a_value_too_large_for_the_environment_is_not_even_read(keeping: Work, files: ArtifactFiles) -> None:
    told = keeping.run_shell("true", env={"V": large_text(files)})

    assert told.outcome.code == "INPUT_INVALID"
    assert told.outcome.message.startswith(f"the value of 'V' has {LARGE} bytes, and an environment variable holds")


# -- what a task gives ------------------------------------------------------------------------------------------------

SHELL = {
    "text": (f"head -c {LARGE} /dev/zero | tr '\\0' x; echo", "text", b"x" * LARGE, "output.txt"),
    "lines": (f"yes abc | head -c {LARGE}", "lines", msgspec.json.encode(["abc"] * (LARGE // 4)), "output.json"),
    "json": (
        f"printf '[ \"'; head -c {LARGE} /dev/zero | tr '\\0' x; echo '\" ]'",
        "json",
        b'["' + b"x" * LARGE + b'"]',
        "output.json",
    ),
    "written": (
        f"""{{ printf '"'; head -c {LARGE} /dev/zero | tr '\\0' x; printf '"'; }} >"$MULLIGAN_OUTPUT"; echo log""",
        "text",
        b"x" * LARGE,
        "output.txt",
    ),
}


# What each prints beside the large part.
SURROUNDED = {"text": 1, "lines": 0, "json": 7}


@pytest.mark.parametrize("way", SHELL)
def test_the_large_output_of_a_command_is_kept_by_a_child(keeping: Work, files: ArtifactFiles, way: str) -> None:
    text, capture, kept, name = SHELL[way]
    lease = keeping.shell(text, capture=capture)

    told = keeping.run(lease)

    assert content_of(told, files) == kept
    assert parse_reference(told.output).name.endswith(name)
    assert keeping.log(lease).stat().st_size == (len("log\n") if way == "written" else LARGE + SURROUNDED[way])
    assert worker_files(keeping) == []


def test_the_large_result_of_a_function_is_kept_by_a_child(keeping: Work, files: ArtifactFiles) -> None:
    text = keeping.run_python(f"def main(): return 'x' * {LARGE}")
    rows = keeping.run_python(f"def main(): return [1.5, 'ü' * {LARGE}]")

    assert content_of(text, files) == b"x" * LARGE
    assert content_of(rows, files) == msgspec.json.encode([1.5, "ü" * LARGE])
    assert stat.S_IMODE(os.stat(files.path(parse_reference(text.output))).st_mode) == 0o600
    assert worker_files(keeping) == []


def test_what_was_large_only_by_its_blanks_stays_in_the_log(keeping: Work) -> None:
    told = keeping.run_shell(f"echo '['; head -c {LARGE} /dev/zero | tr '\\0' ' '; echo '1]'", capture="json")

    assert told.output == [1]


INVALID = {
    "shell": (lambda work: work.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x", capture="json"), "is not JSON"),
    "deep": (lambda work: work.shell(f"head -c {LARGE} /dev/zero | tr '\\0' '['", capture="json"), "nested too deep"),
    "number": (lambda work: work.python(f"def main(): return ['x' * {LARGE}, 2**70]"), "more than 64 bits"),
}


@pytest.mark.parametrize("way", INVALID)
def test_a_large_output_that_cannot_be_taken_is_said_to_be_so(keeping: Work, way: str) -> None:
    lease, reason = INVALID[way]

    failure, _ = classify(keeping.run(lease(keeping)).outcome)

    assert failure is not None and failure.code == "OUTPUT_INVALID"
    assert reason in failure.message
    assert worker_files(keeping) == []


def knowing(work: Work, kind: str, params: dict[str, Any]) -> Lease:
    secret = {"token": Secret(env="DEPLOY_TOKEN")}
    return work.lease(kind, params, secrets=secret, late={"env.TOKEN": [{"secret": "secrets.token"}]})


TELLING = {
    "shell": {"text": f"head -c {LOOP_BYTES_MAX_REDACTED} /dev/zero | tr '\\0' x; echo \"$TOKEN\""},
    "python": {
        "code": "import os\ndef main():\n    token = os.environ['TOKEN']\n"
        f"    return ['x' * {LOOP_BYTES_MAX_REDACTED}, {{token: token}}]"
    },
}


@pytest.mark.parametrize("kind", TELLING)
def test_no_secret_is_in_a_large_output_nor_left_in_a_file(
    keeping: Work, files: ArtifactFiles, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    keeping.executor._secrets._environment["DEPLOY_TOKEN"] = SECRET  # type: ignore[index]

    told = keeping.run(knowing(keeping, kind, TELLING[kind]))
    left = [path for path in keeping.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    assert b"***" in content_of(told, files)
    assert SECRET.encode() not in content_of(told, files)
    assert left == [] and worker_files(keeping) == []


def test_a_child_that_is_killed_while_it_keeps_an_output_costs_nothing(keeping: Work, files: ArtifactFiles) -> None:
    lease = keeping.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x")
    keeping.start(lease)
    keeping.wait_for(lambda: keeping.executor._children.running_jobs())
    pids = until(lambda: [pid for pid in keeping.leftovers() if b"MULLIGAN_CHILD=" in environment_of(pid)])

    os.kill(pids[0], signal.SIGKILL)
    held = list(keeping.executor.running)
    (report,) = keeping.reports()

    assert held == [lease]
    assert isinstance(report, TaskEnded) and content_of(report, files) == b"x" * LARGE


def test_many_large_outputs_are_kept_a_few_at_a_time(keeping: Work, files: ArtifactFiles) -> None:
    leases = [keeping.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x") for _ in range(5)]
    keeping.start(*leases)

    reports, running = [], set()
    while len(reports) < len(leases):
        reports += [report for _, report in keeping.executor.collect(1.0)]
        running.add(len(keeping.executor._children.running_jobs()))

    assert max(running) <= 2  # as many as it has processors
    assert all(isinstance(report, TaskEnded) and is_artifact(report.output) for report in reports)
    assert worker_files(keeping) == []


def test_a_supervisor_that_is_killed_while_an_output_is_kept_costs_nothing(keeping: Work, files: ArtifactFiles) -> None:
    keeping.start(keeping.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x"))
    keeping.wait_for(lambda: keeping.executor._large.storing)

    os.kill(keeping.executor._supervisor.pid, signal.SIGKILL)
    (report,) = keeping.reports()

    assert isinstance(report, TaskEnded) and content_of(report, files) == b"x" * LARGE


def test_a_supervisor_that_is_killed_while_an_input_is_written_loses_the_task(
    keeping: Work, files: ArtifactFiles
) -> None:
    keeping.start(keeping.shell("cat", stdin=large_text(files)))

    os.kill(keeping.executor._supervisor.pid, signal.SIGKILL)
    (report,) = keeping.reports()
    keeping.run_python("def main(): pass")

    assert isinstance(report, LeaseExpired)


def test_what_is_dropped_while_its_output_is_kept_is_told_to_nobody(keeping: Work) -> None:
    keeping.start(keeping.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x"))
    keeping.wait_for(lambda: keeping.executor._large.storing)

    keeping.executor.drop_all()

    assert keeping.executor.collect(0.0) == []
    assert list(keeping.executor.running) == []


class Away(Unread):
    """The same, of a store that does not answer until `is_back`."""

    is_back = False

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        if not self.is_back:
            raise StoreUnavailable("the server does not answer")
        return self._artifacts.keep_file(artifact, path)


def test_while_the_store_is_away_a_large_output_waits_in_its_file(tmp_path: Path, files: ArtifactFiles) -> None:
    away = Away(files)
    work = Work(tmp_path, artifacts=away)
    lease = work.shell(f"head -c {LARGE} /dev/zero | tr '\\0' x")
    work.start(lease)

    with pytest.raises(StoreUnavailable):
        work.reports()
    held = list(work.executor.running)
    away.is_back = True
    (report,) = work.reports()
    left = worker_files(work)
    work.close()

    assert held == [lease]
    assert isinstance(report, TaskEnded) and content_of(report, files) == b"x" * LARGE
    assert left == []


def test_a_worker_without_a_place_for_artifacts_gives_large_outputs_as_they_are(work: Work) -> None:
    shell = work.run_shell(f"head -c {LARGE} /dev/zero | tr '\\0' x")
    python = work.run_python(f"def main(): return ['x' * {LARGE}]")

    assert (shell.output, python.output) == ("x" * LARGE, ["x" * LARGE])
    assert worker_files(work) == []


# -- any interpreter --------------------------------------------------------------------------------------------------

CHILD_MODULES = (
    *(f"worker.child.{name}" for name in ("child_main", "step_errors", "json_encoding")),
    *(f"worker.child.{name}" for name in ("kernel_state", "step_loop")),
    *("step_context.artifacts", "step_context.errors", "step_context.log_records", "step_context.step_generators"),
    *("step_context.debugger", "step_context.trace_frames"),
    *(f"values.{name}" for name in ("annotations", "artifact_contents", "decoding", "durations", "encoding", "files")),
    *("values.exception_names", "values.pandas_tables", "values.table_previews", "values.tables"),
)
STANDARD = (
    *("__future__", "collections.abc", "concurrent.futures", "contextlib", "datetime"),
    *("importlib.machinery", "types", "typing"),
)


@pytest.mark.parametrize("name", CHILD_MODULES)
def test_what_a_child_loads_is_understood_by_python_3_9_and_needs_no_package(name: str) -> None:
    text = Path(mulligan.worker.__path__[0]).parent.joinpath(*name.split(".")).with_suffix(".py").read_text("utf-8")

    imported = [node for node in ast.walk(ast.parse(text, feature_version=(3, 9))) if isinstance(node, ast.ImportFrom)]

    modules = {node.module.removeprefix("mulligan.") for node in imported if node.module}
    assert modules <= {*CHILD_MODULES, *STANDARD, "step_context", "values", "itertools", "pathlib", "os"}
