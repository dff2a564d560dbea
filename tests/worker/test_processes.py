"""Processes as /proc shows them, looked at in the moments in which it shows the least."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import forked_supervisor
from tests.support.work import Work

from mulligan.worker.supervisor import processes, supervisor_client
from mulligan.worker.supervisor.spawning import ManagedProcess
from mulligan.worker.supervisor.supervisor import (
    Supervisor,
)

LOOKS = 500


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[int]:
    """A process that does nothing but become another program."""
    script = tmp_path / "restless"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o700)
    pid = os.posix_spawn(script, [str(script)], {"MARK": "restless"})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_process_that_is_becoming_another_program_is_known_by_its_environment(restless: int) -> None:
    looks = [processes.environment_of(restless) for _ in range(LOOKS)]

    assert [look for look in looks if look.get(b"MARK") != b"restless"] == []


def test_a_process_that_was_given_no_environment_has_none_and_nobody_waits_for_it() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    try:
        while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pass
        assert processes.environment_of(pid) == {}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_that_is_dead_or_never_was_has_no_environment(restless: int) -> None:
    os.kill(restless, signal.SIGKILL)
    while processes.find_process(restless) is not None:
        pass

    assert processes.environment_of(restless) == processes.environment_of(1 << 30) == {}


def test_a_process_in_the_middle_of_becoming_another_program_is_killed(tmp_path: Path) -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exec sleep 1000"], {"MARK": str(tmp_path)})
    try:
        assert processes.kill_with_variable(b"MARK", os.fsencode(tmp_path))
        assert processes.find_process(pid) is None
    finally:
        os.waitpid(pid, 0)


# -- ids that are given out again ------------------------------------------------------------------------------------


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that nobody has any reason to signal."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def remembered(pid: int, *, ticks_earlier: int) -> processes.Process:
    """A process that had this id before: it started earlier than the one that has it now."""
    now = processes.find_process(pid)
    assert now is not None
    return processes.Process(pid, now.parent, now.session, now.resident_bytes, now.start_ticks - ticks_earlier)


def test_a_process_that_was_given_the_id_of_one_that_is_gone_is_not_signalled(bystander: int) -> None:
    gone = remembered(bystander, ticks_earlier=1)

    processes.send_signal([gone], signal.SIGKILL)

    assert not processes.is_still_running(gone)
    assert os.waitid(os.P_PID, bystander, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def test_a_process_that_is_the_one_remembered_is_signalled(bystander: int) -> None:
    processes.send_signal([remembered(bystander, ticks_earlier=0)], signal.SIGKILL)

    ended = os.waitid(os.P_PID, bystander, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == signal.SIGKILL


def test_an_id_that_changes_hands_while_the_marked_die_is_neither_signalled_nor_waited_for(bystander: int) -> None:
    # The first look finds a marked process; at the second its id is the bystander's.
    looks = [[remembered(bystander, ticks_earlier=1)], []]

    assert processes.kill_all(lambda: looks.pop(0), patience_seconds=5.0)
    assert looks == []
    assert os.waitid(os.P_PID, bystander, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def test_where_the_kernel_gives_no_handles_the_start_time_is_compared_all_the_same(
    bystander: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    processes.send_signal([remembered(bystander, ticks_earlier=1)], signal.SIGKILL)
    assert os.waitid(os.P_PID, bystander, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    processes.send_signal([remembered(bystander, ticks_earlier=0)], signal.SIGTERM)
    ended = os.waitid(os.P_PID, bystander, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == signal.SIGTERM


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    ours, theirs = socket.socketpair()
    before = signal.set_wakeup_fd(-1)
    made = Supervisor(theirs.detach(), "worker", None, 1.0)
    yield made
    made._sock.close()
    ours.close()
    os.close(made._pipe)
    os.close(signal.set_wakeup_fd(before))


def seen(*found: tuple[int, int, int]) -> dict[int, processes.Process]:
    """A table of processes: id, parent, session."""
    return {pid: processes.Process(pid, parent, session, 0, 0) for pid, parent, session in found}


US, INIT = os.getpid(), 1
# Beyond what the kernel gives out: none of these is the id of a process.
MAIN, OTHER, LEFT, UNSEEN = range(1 << 30, (1 << 30) + 4)


@pytest.mark.parametrize(
    ("is_done", "table", "expected"),
    [
        (False, [(MAIN, US, MAIN), (LEFT, MAIN, MAIN)], {MAIN, LEFT}),
        # What the main process left in its session is the task's: nobody else is given an id that a session has.
        (True, [(LEFT, US, MAIN)], {LEFT}),
        # A process that was given the id of the main process when that had been waited for, and its child.
        (True, [(INIT, UNSEEN, INIT), (MAIN, INIT, INIT), (OTHER, MAIN, INIT)], set()),
        # One that began a session under it, and whose child fell to nobody who was seen.
        (True, [(INIT, UNSEEN, INIT), (MAIN, INIT, MAIN), (OTHER, UNSEEN, MAIN)], set()),
    ],
)
def test_a_task_is_never_taken_to_own_whoever_was_given_the_id_of_its_main_process(
    supervisor: Supervisor, is_done: bool, table: list[tuple[int, int, int]], expected: set[int]
) -> None:
    task = ManagedProcess(1, MAIN, None, None)
    task.has_exited = is_done
    supervisor._tasks[1] = supervisor._by_session[MAIN] = task
    if not is_done:
        supervisor._by_pid[MAIN] = task

    tree = supervisor._tree(task, seen(*table))

    assert {process.pid for process in tree} == expected


# What a step may see of the start of its process.
START = """
import os, signal, sys, threading
def main():
    handlers = {str(one): signal.getsignal(one) for one in signal.valid_signals()}
    streams = (sys.stdin, sys.stdout, sys.stderr)
    with open("/proc/self/environ", encoding="utf-8") as variables:
        shown = [one.partition("=")[0] for one in variables.read().split("\\0") if one]
    return {
        "modules": sorted(sys.modules),
        "path": sys.path,
        "argv": sys.argv,
        "flags": list(sys.flags),
        "variables": sorted(os.environ),
        "variables of the kernel": sorted(shown),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "handlers": {name: getattr(one, "__qualname__", str(one)) for name, one in handlers.items()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "umask": [os.umask(0o22), os.umask(0o22)][0],
        "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
        "streams": [[one.encoding, one.errors, one.line_buffering, one.write_through] for one in streams],
        "threads": threading.active_count(),
        "imported": sorted(vars(sys.modules["mulligan"])),
    }
"""


@pytest.mark.skipif(forked_supervisor.CLONE is None, reason="children are forked on Linux alone")
def test_a_child_that_is_forked_for_a_test_starts_as_one_that_a_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for name, start in (
        ("started", supervisor_client.start_supervisor),
        ("forked", forked_supervisor.start_supervisor),
    ):
        monkeypatch.setattr(supervisor_client, "start_supervisor", start)
        (tmp_path / name).mkdir()
        work = Work(tmp_path / name)
        seen.append(work.run_python(START, home="/").output)
        work.close()
        assert work.remaining() == []

    started, forked = seen
    assert {key: value for key, value in forked.items() if value != started[key]} == {}
