"""The process of a program: forked by a warm host, spoken to over a socket, and ended without unwinding."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mulligan.programs import messages as m

_PROGRAMS = """
from pathlib import Path

from mulligan import StepFailed, gather, now, program, sleep, step


@step
def fetch(day: str) -> list[int]: ...


@step(inline=True)
def double(number: int) -> int:
    return number * 2


@program
def nightly(day: str, folder: str):
    print("before fetch")
    try:
        rows = fetch(day)
        print("after fetch")
        total = double(sum(rows))
        sleep("1h")
        print("after sleep")
    except BaseException as error:
        Path(folder, "except").touch()
        raise
    finally:
        Path(folder, "finally").touch()
    return {"total": total}


@program
def broken():
    return {}["rows"]


@program
def stuck():
    while True:
        pass


@program
def threads():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        pool.submit(print)


@program
def processes():
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor() as pool:
        pool.submit(print)


@program
def forks():
    import os

    if os.fork() == 0:
        return fetch("in the copy")
    os.wait()
    return fetch("monday")


@program
def reads(path: str):
    for _ in range(3):
        Path(path).read_text()
    return fetch("monday")


@program
def starts(path: str):
    import subprocess
    import sqlite3

    subprocess.run(["true"], capture_output=True, stdin=subprocess.DEVNULL)
    sqlite3.connect(path).close()
    return fetch("monday")


@step(inline=True)
def shout(text: str) -> None:
    print("inline:", text)


@program
def prints():
    print("begins")
    fetch("monday")
    print("after fetch")
    double(1)
    print("after double")
    shout("loud")
    print("ends")
"""


class Host:
    """The host of the programs of these tests, as a worker has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hosted.py").write_text(_PROGRAMS, encoding="utf-8")
        self.installed = folder / "site-packages"
        (self.installed / "hosted_package").mkdir(parents=True)
        (self.installed / "hosted_package" / "programs.py").write_text(_PROGRAMS, encoding="utf-8")
        self.sock, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-m", "mulligan.programs.host", "0"], stdin=theirs)
        theirs.close()
        self._number = 0
        self._processes: list[Process] = []

    def begin(self, name: str, inputs: dict[str, Any] | None = None, **given: Any) -> Process:
        self._number += 1
        ours, theirs = socket.socketpair()
        log = str(self.folder / f"{self._number}.out")
        order = m.Fork(self._number, log, log, cwd=str(self.folder))
        socket.send_fds(self.sock, [m.frame_of_host(order)], [theirs.fileno()])
        theirs.close()
        process = Process(ours, self._number, Path(log))
        self._processes.append(process)
        call = given.pop("call", f"hosted:{name}")
        process.send(m.Begin(turn=1, call=call, inputs=inputs or {}, **given))
        return process

    def close(self) -> int:
        """Be a worker that is gone; return how the host has ended."""
        self.sock.close()
        status = self.process.wait(10)
        for process in self._processes:
            if process.sock.fileno() >= 0:
                with suppress(ConnectionResetError):
                    assert process.sock.recv(1) == b""
                process.sock.close()
        return status

    def exited(self) -> m.Exited:
        return m.decode_exited(received(self.sock))


class Process:
    """A program that runs, and its socket."""

    def __init__(self, sock: socket.socket, number: int, log: Path) -> None:
        self.sock = sock
        self.number = number
        self._log = log

    def send(self, message: m.ToProgram) -> None:
        self.sock.sendall(m.frame(message))

    def answer(self) -> Any:
        return m.decode_from_program(received(self.sock))

    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8")


def received(sock: socket.socket) -> bytes:
    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = sock.recv(size - len(data))
            assert more, "the other end is gone"
            data += more
        return data

    return exactly(int.from_bytes(exactly(m.LENGTH_BYTES), "big"))


@pytest.fixture(scope="module")
def shared_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("host"))
    yield host
    assert host.close() == 0


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    return {"day": "monday", "folder": str(tmp_path)}


def recorded(calls: tuple[m.Call, ...]) -> list[m.RecordedCall]:
    return [
        m.RecordedCall(one.id, one.name, one.name, one.kind, one.definition, one.digest, one.file, one.line)
        for one in calls
    ]


def test_a_program_speaks_in_turns_and_returns(shared_host: Host, inputs: dict[str, Any], tmp_path: Path):
    process = shared_host.begin("nightly", inputs)

    first = process.answer()
    assert [(one.name, one.kind, one.arguments) for one in first.calls] == [("fetch", "step", b'{"day":"monday"}')]
    assert (first.turn, first.at, len(first.definitions)) == (1, "hosted.py:20", 1)

    process.send(m.Deliver(2, (m.Delivery(first.calls[0].id, output=[1, 2]),)))
    second = process.answer()
    assert [(one.name, one.kind, one.output) for one in second.calls] == [("double", "inline", 6)]

    process.send(m.Deliver(3, (m.Delivery(second.calls[0].id, output=6),)))
    third = process.answer()
    assert [(one.name, one.arguments) for one in third.calls] == [("sleep", b'{"seconds":3600.0}')]

    process.send(m.Deliver(4, (m.Delivery(third.calls[0].id),)))
    ended = process.answer()
    assert (ended.turn, ended.how, ended.output) == (4, "returned", {"total": 6})
    assert shared_host.exited().status == 0
    assert process.printed().splitlines()[:3] == ["before fetch", "after fetch", "after sleep"]
    assert (tmp_path / "finally").exists()


def test_a_parked_program_ends_without_unwinding(shared_host: Host, inputs: dict[str, Any], tmp_path: Path):
    process = shared_host.begin("nightly", inputs)
    process.answer()

    process.sock.close()

    assert shared_host.exited() == m.Exited(
        process.number, cpu=pytest.approx(0, abs=60), peak=pytest.approx(0, abs=1e12)
    )
    assert list(tmp_path.iterdir()) == []


def test_a_cold_program_says_and_prints_what_is_new(shared_host: Host, inputs: dict[str, Any], tmp_path: Path):
    warm = shared_host.begin("nightly", inputs)
    first = warm.answer()
    warm.sock.close()
    shared_host.exited()
    history = tmp_path / "history"
    history.write_bytes(m.encode_history(recorded(first.calls), [m.Delivery(first.calls[0].id, output=[4])]))

    process = shared_host.begin("nightly", inputs, history=str(history))
    answer = process.answer()

    assert [(one.name, one.output) for one in answer.calls] == [("double", 8)]
    assert process.printed().splitlines() == ["after fetch"]
    process.sock.close()
    shared_host.exited()


def test_the_end_of_an_inline_step_is_part_of_what_is_replayed(shared_host: Host, tmp_path: Path):
    fetched, doubled = m.CallId("", 0), m.CallId("", 1)
    arguments = (b'{"day":"monday"}', b'{"number":1}')
    calls = [
        m.RecordedCall(fetched, "fetch", "fetch", digest=m.digest_of(arguments[0])),
        m.RecordedCall(doubled, "double", "double", "inline", digest=m.digest_of(arguments[1])),
    ]
    history = tmp_path / "history"
    # It was retried, for so long that its program had no process any more.
    ends = [m.Delivery(fetched, output=[]), m.Delivery(doubled, output=2)]
    history.write_bytes(m.encode_history(calls, ends))

    process = shared_host.begin("prints", history=str(history))
    shouted = process.answer()
    process.send(m.Deliver(2, (m.Delivery(shouted.calls[0].id),)))
    assert process.answer().how == "returned"

    assert process.printed().splitlines() == ["after double", "inline: loud", "ends"]
    shared_host.exited()


def test_a_difference_ends_the_process_before_anything_else_runs(
    shared_host: Host, inputs: dict[str, Any], tmp_path: Path
):
    call = m.RecordedCall(m.CallId("", 0), "load", "load", digest="other", file="nightly.py", line=3)
    history = tmp_path / "history"
    history.write_bytes(m.encode_history([call], []))

    process = shared_host.begin("nightly", inputs, history=str(history))
    ended = process.answer()

    assert ended.failure.code == "NONDETERMINISTIC"
    assert ended.failure.message == (
        "'load' (called at nightly.py:3) is recorded, and now 'fetch' is called, at hosted.py:20"
    )
    assert ended.at == "hosted.py:20"
    assert shared_host.exited().status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


def test_a_program_that_uses_too_much_processor_time_is_ended(shared_host: Host):
    process = shared_host.begin("stuck", timeout=0.05)

    ended = process.answer()

    assert (ended.failure.code, ended.at.partition(":")[0]) == ("TIMEOUT", "hosted.py")
    assert ended.failure.message == "the program has used 0.05s of processor time without calling anything"
    shared_host.exited()


def test_a_program_is_killed(shared_host: Host):
    process = shared_host.begin("stuck")

    shared_host.sock.sendall(m.frame_of_host(m.Kill(process.number)))

    assert shared_host.exited().signal == signal.SIGKILL


def test_a_module_that_cannot_be_imported_is_a_failure_of_the_program(shared_host: Host):
    process = shared_host.begin("missing")

    ended = process.answer()

    assert (ended.how, ended.failure.code) == ("raised", "EXCEPTION")
    assert "AttributeError: module 'hosted' has no attribute 'missing'" in ended.failure.message
    shared_host.exited()


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_threads_are_refused(shared_host: Host, name: str):
    process = shared_host.begin(name)

    ended = process.answer()

    assert ended.failure.code == "EXCEPTION"
    assert "a program cannot start threads" in ended.failure.message
    shared_host.exited()


def test_a_copy_of_the_process_cannot_speak_for_the_program(shared_host: Host):
    process = shared_host.begin("forks")

    idle = process.answer()

    assert [call.arguments for call in idle.calls] == [b'{"day":"monday"}']
    assert "a copy of the program's process (os.fork) cannot call steps" in process.printed()
    process.sock.close()
    shared_host.exited()


def test_what_a_program_does_itself_is_said_once_for_each_line(shared_host: Host):
    process = shared_host.begin("reads", {"path": str(shared_host.folder / "hosted.py")})

    process.answer()
    process.sock.close()
    shared_host.exited()

    assert process.printed().splitlines() == [
        "warning: hosted.py:73: the program opens a file itself, and a replay does it again; do it in a step"
    ]


def test_a_program_in_an_installed_package_is_watched_as_one_in_a_file(shared_host: Host):
    package = {"call": "hosted_package.programs:reads", "import_from": str(shared_host.installed)}
    process = shared_host.begin("reads", {"path": str(shared_host.folder / "hosted.py")}, **package)

    process.answer()
    process.sock.close()
    shared_host.exited()

    assert process.printed().splitlines() == [
        "warning: programs.py:73: the program opens a file itself, and a replay does it again; do it in a step"
    ]
    package["call"] = "hosted_package.programs:threads"
    assert "a program cannot start threads" in shared_host.begin("threads", **package).answer().failure.message
    shared_host.exited()


def test_a_process_and_a_database_are_called_what_they_are(shared_host: Host):
    process = shared_host.begin("starts", {"path": str(shared_host.folder / "rows.db")})

    process.answer()
    process.sock.close()
    shared_host.exited()

    found = [line.partition("the program ")[2].partition(" itself")[0] for line in process.printed().splitlines()]
    assert found == ["starts a process", "opens a database"]


def test_a_program_that_has_raised_leaves_its_traceback_in_the_log(shared_host: Host):
    process = shared_host.begin("broken")

    assert process.answer().failure.message == "KeyError: 'rows'"
    shared_host.exited()

    assert 'return {}["rows"]' in process.printed()
    assert process.printed().endswith("KeyError: 'rows'\n")


def test_a_host_ends_its_programs_when_the_worker_is_gone(tmp_path: Path):
    host = Host(tmp_path)
    host.begin("stuck")

    assert host.close() == 0
