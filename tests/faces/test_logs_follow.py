"""`mulligan logs -f`: what attempts write, as they write it, through retries, until the step or the run has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, workflow

from mulligan.service.home import find_home
from mulligan.service.logs.log_following import LogPiece, LogSelection, Tail, follow_logs
from mulligan.service.service import Service

TWICE = """\
name: twice
steps:
  - {step: first, shell: echo one}
  - step: flaky
    needs: [first]
    shell: 'echo said; echo told >&2; mkdir tried'
    retry: {max_retries: 1, delay: 0s}
  - {step: other, needs: [flaky], shell: "printf 'a\\nb'"}
"""


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    found = Service(find_home())
    yield found
    found.close()


def lines(pieces: Iterator[LogPiece]) -> list[tuple[str, int, str, bytes]]:
    return [(piece.where, piece.attempt, piece.stream, piece.data) for piece in pieces if piece.stream is not None]


# -- one file --------------------------------------------------------------------------------------------------------


def read(tail: Tail, *, by_line: bool = True, is_last: bool = False) -> bytes:
    return b"".join(tail.read(by_line=by_line, is_last=is_last))


def test_a_log_is_read_from_when_it_is_there_and_on_as_it_grows(tmp_path: Path):
    path = tmp_path / "a.out"
    tail = Tail(str(path), "stdout")

    assert read(tail) == b""
    path.write_bytes(b"one\n")
    assert read(tail) == b"one\n"
    path.write_bytes(b"one\ntwo\n")
    assert read(tail) == b"two\n"
    assert read(tail) == b""


def test_a_line_without_its_end_waits_for_it_until_nothing_more_comes(tmp_path: Path):
    path = tmp_path / "a.out"
    tail = Tail(str(path), "stdout")

    path.write_bytes(b"one\ntw")
    assert read(tail) == b"one\n"
    path.write_bytes(b"one\ntwo\nthr")
    assert read(tail) == b"two\n"
    assert read(tail) == b""
    assert read(tail, is_last=True) == b"thr\n"


def test_of_one_attempt_alone_a_line_without_its_end_is_shown_when_nothing_has_come_since(tmp_path: Path):
    path = tmp_path / "a.out"
    path.write_bytes(b"50%")
    tail = Tail(str(path), "stdout")

    assert read(tail, by_line=False) == b""
    assert read(tail, by_line=False) == b"50%"
    path.write_bytes(b"50%\r100%\n")
    assert read(tail, by_line=False) == b"\r100%\n"


def test_a_log_that_was_cut_off_or_replaced_is_read_from_its_start(tmp_path: Path):
    path = tmp_path / "a.out"
    tail = Tail(str(path), "stdout")
    path.write_bytes(b"a long line\n")
    read(tail)

    path.write_bytes(b"cut\n")
    assert read(tail) == b"cut\n"
    (tmp_path / "new").write_bytes(b"another file\n")
    (tmp_path / "new").rename(path)
    assert read(tail) == b"another file\n"


def test_what_is_no_file_is_not_read(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"secret\n")
    (tmp_path / "a.out").symlink_to(tmp_path / "secret")

    assert read(Tail(str(tmp_path / "a.out"), "stdout"), is_last=True) == b""


# -- runs that have ended --------------------------------------------------------------------------------------------


def test_of_a_whole_run_each_line_says_whose_it_is(folder: Path):
    ran(TWICE.replace("mkdir tried", "mkdir tried 2>/dev/null || exit 0; exit 1"))

    said = mulligan("logs", "-f")

    assert said.out == "first | one\nflaky | said\nflaky | said\nother | a\nother | b\n"
    assert said.err == "flaky | told\n-- run 1, 'flaky', attempt 2\nflaky | told\n"
    assert said.code == 0


def test_of_a_step_its_last_attempt_is_followed_or_the_one_that_is_named(service: Service):
    ran(TWICE.replace("mkdir tried", "mkdir tried 2>/dev/null || exit 0; exit 1"))

    last = lines(follow_logs(service.reader, 1, LogSelection("flaky"), by_line=False))
    first = lines(follow_logs(service.reader, 1, LogSelection("flaky", attempt=1), by_line=False))

    assert last == [("flaky", 2, "stdout", b"said\n"), ("flaky", 2, "stderr", b"told\n")]
    assert first == [("flaky", 1, "stdout", b"said\n"), ("flaky", 1, "stderr", b"told\n")]


def test_runs_that_were_called_are_followed_with_their_callers_named(folder: Path):
    workflow("name: inner\nsteps:\n  - {step: greet, shell: echo hello}\n", "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")

    assert mulligan("logs", 1, "-f").out == "call/greet | hello\n"


def test_of_the_items_of_a_map_step_each_line_says_whose_it_is(folder: Path):
    ran("name: m\nsteps:\n  - {step: check, map: {over: [1, 2]}, do: [{shell: 'echo item ${item}'}]}\n")

    said = mulligan("logs", "check", "-f")

    assert sorted(said.out.splitlines()) == ["check[0] | item 1", "check[1] | item 2"]
    assert mulligan("logs", "check", "-f", "--item", 1).out == "item 2\n"


def test_as_json_each_line_is_an_object(folder: Path):
    ran("name: hello\nsteps:\n  - {step: greet, shell: 'echo hello; echo oh >&2'}\n")

    said = mulligan("logs", "greet", "-f", "--json")

    about = {"run_id": 1, "place": "greet", "attempt": 1}
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {**about, "stream": "stdout", "text": "hello"},
        {**about, "stream": "stderr", "text": "oh"},
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("load",), "error[attempt.unknown]"),
        (("laod",), "error[step.unknown]"),
        (("--handler",), "error[usage]"),
    ],
)
def test_what_can_never_be_followed_is_refused(folder: Path, words: tuple[str, ...], code: str):
    ran("name: broken\nsteps:\n  - {step: fetch, shell: exit 7}\n  - {step: load, needs: [fetch], shell: 'true'}\n")

    said = mulligan("logs", "-f", *words)

    assert said.code == 2
    assert said.err.startswith(code)


# -- runs that go on -------------------------------------------------------------------------------------------------


def test_what_is_written_is_shown_while_the_step_runs_and_its_retry_follows(service: Service, folder: Path):
    waits = "until [ -e go ]; do sleep 0.02; done"
    workflow(f"""\
name: slow
steps:
  - step: slow
    shell: 'echo before; {waits}; rm go; echo after; mkdir tried'
    retry: {{max_retries: 1, delay: 0s}}
  - {{step: next, needs: [slow], shell: echo next}}
""")
    (folder / "tried").mkdir()
    run = process("run", "flow.yaml")
    while not service.home.is_there or not service.reader.runs():
        time.sleep(0.005)
    pieces = follow_logs(service.reader, 1, LogSelection("slow"), by_line=True)

    before = list(takewhile(lambda piece: piece.data != b"before\n", pieces))
    (folder / "go").touch()
    after = list(takewhile(lambda piece: piece.data != b"before\n", pieces))
    (folder / "tried").rmdir()
    (folder / "go").touch()
    rest = lines(pieces)

    assert [(piece.attempt, piece.stream) for piece in before] == [(1, None)]
    assert (1, b"after\n") in [(piece.attempt, piece.data) for piece in after]
    assert rest == [("slow", 2, "stdout", b"after\n")]
    assert run.communicate()[0] is not None
    assert run.returncode == 0


def test_a_run_that_nobody_drives_is_said_to_be_so(service: Service):
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")
    time = iter(range(0, 1000, 10))

    piece = next(follow_logs(service.reader, 1, LogSelection(), by_line=True, monotonic=lambda: float(next(time))))

    assert (piece.run_id, piece.place, piece.text) == (1, "", "nothing is running it")


def test_a_step_that_wrote_nothing_is_said_to_have_written_nothing(folder: Path):
    ran("name: silent\nsteps:\n  - {step: quiet, shell: 'true'}\n")

    assert tuple(mulligan("logs", "quiet", "-f")) == (0, "", "-- run 1, 'quiet', attempt 1: it wrote nothing\n")
    assert tuple(mulligan("logs", "-f")) == (0, "", "")
