"""The worker dies, its supervisor dies, or both: nothing of theirs lives on, and the lock says when."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
from tests.support.work import PATIENCE_SECONDS, Announcements, Work, is_alive, kill, watched

from mulligan.core.model.reports import LeaseExpired
from mulligan.worker.lock import acquire, state_of
from mulligan.worker.supervisor.processes import kill_worker_processes
from mulligan.worker.supervisor.supervisor_client import SupervisorClient

from .test_ends import ESCAPES, LONG, escape

# A worker in a process of its own, that can be killed. It says when its tasks run.
WORKER = """
import sys
from pathlib import Path
sys.path[:0] = [{src!r}, {tests!r}]
from tests.support.work import Work
from mulligan.core.model.workflow import Secret
from mulligan.worker.lock import acquire
lock = acquire(Path({folder!r}), "worker")
work = Work(Path({folder!r}), lock_fd=lock.fd)
work.start(work.shell({text!r}), work.python({code!r}))
work.start(work.shell("true", secrets=dict(token=Secret(command={command!r}))))
print(work.name, work.executor._supervisor.pid, flush=True)
while True:
    work.executor.collect(None)
"""


class OtherWorker:
    """A worker in another process, with a task in the shell, one in a warm child, and one that waits for a secret."""

    def __init__(self, folder: Path, announcements: Announcements, how: str) -> None:
        root = Path(__file__).parents[2]
        code = (
            "import os, time\ndef main():\n"
            f"  open({str(announcements.path)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(1000)"
        )
        program = WORKER.format(
            src=str(root / "src"),
            tests=str(root),
            folder=str(folder),
            text=f"{escape(how, announcements)} {LONG}; :",
            code=code,
            command=f"echo $$ > {announcements.path}; {LONG}",
        )
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=PIPE, stderr=STDOUT, text=True)
        assert self.process.stdout is not None
        self.name, supervisor = self.process.stdout.readline().split()
        self.supervisor = int(supervisor)
        self.lock = str(folder / "worker.lock")
        self.pids = announcements.numbers(3)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Start = Callable[[str], OtherWorker]


@pytest.fixture
def start(tmp_path: Path, announcements: Announcements) -> Iterator[Start]:
    """Starts another worker; nothing of it is left in the end, whatever the test came to."""
    started: list[OtherWorker] = []

    def start(how: str) -> OtherWorker:
        started.append(OtherWorker(tmp_path, announcements, how))
        return started[-1]

    yield start
    for other in started:
        other.kill()
        assert other.process.stdout is not None
        other.process.stdout.close()
        assert kill_worker_processes(other.name)


@pytest.mark.parametrize("how", ESCAPES)
def test_after_kill_9_of_the_worker_nothing_of_it_lives_and_its_lock_is_free(start: Start, how: str) -> None:
    other = start(how)

    with watched(*other.pids) as are_dead, watched(other.supervisor) as is_supervisor_gone:
        was_free = state_of(other.lock) == "free"
        other.kill()

        assert are_dead()
        assert is_supervisor_gone()
        assert (was_free, (state_of(other.lock) == "free")) == (False, True)


def test_the_lock_is_held_until_the_last_process_is_dead(start: Start) -> None:
    other = start("daemon")
    with watched(other.supervisor) as is_supervisor_gone:
        # One that is stopped cannot kill: as if the kernel took its time to end the tasks.
        subprocess.run(["kill", "-STOP", str(other.supervisor)], check=True)
        other.kill()

        assert ((state_of(other.lock) == "free"), [is_alive(pid) for pid in other.pids]) == (False, [True] * 3)

        subprocess.run(["kill", "-CONT", str(other.supervisor)], check=True)
        assert is_supervisor_gone()
        assert ((state_of(other.lock) == "free"), [is_alive(pid) for pid in other.pids]) == (True, [False] * 3)


def test_whoever_reads_what_a_worker_says_does_not_wait_for_its_supervisor(start: Start) -> None:
    other = start("child")
    subprocess.run(["kill", "-STOP", str(other.supervisor)], check=True)
    other.kill()

    assert other.process.stdout is not None
    assert other.process.stdout.read() == ""


def test_what_is_left_when_worker_and_supervisor_are_killed_at_once_is_found(
    start: Start,
) -> None:
    other = start("deaf")
    subprocess.run(["kill", "-STOP", str(other.process.pid)], check=True)
    kill(other.supervisor)
    other.kill()

    with watched(*other.pids) as are_dead:
        assert kill_worker_processes(other.name)

        assert are_dead()


def test_leftovers_of_a_worker_with_another_name_are_left_alone(work: Work, announcements: Announcements) -> None:
    lease = work.shell(f"echo $$ > {announcements.path}; {LONG}; :")
    work.start(lease)
    (pid,) = announcements.numbers(1)

    assert kill_worker_processes(work.name[:-1])

    assert is_alive(pid)
    work.executor.drop_all()


def test_when_the_supervisor_is_killed_its_tasks_are_killed_and_lost_and_the_worker_goes_on(
    work: Work, announcements: Announcements
) -> None:
    shell = work.shell(f"{escape('deaf', announcements)} {LONG}")
    python = work.python(
        "import os, time\ndef main(pipe):\n  open(pipe, 'w').write(f'{os.getpid()}\\n'); time.sleep(1000)",
        {"pipe": str(announcements.path)},
    )
    work.start(shell, python)
    pids = announcements.numbers(2)

    kill(work.executor._supervisor.pid)
    reports = work.reports(2)

    assert [pid for pid in pids if is_alive(pid)] == []
    assert sorted(reports, key=lambda report: report.place) == [
        LeaseExpired(report.at, lease.task.place, 1, work.name)
        for report, lease in zip(sorted(reports, key=lambda report: report.place), (shell, python), strict=True)
    ]
    assert work.run_shell("echo on").output == "on"
    assert work.run_python("def main(): return 'on'").output == "on"


def test_what_is_started_while_the_supervisor_is_dead_is_lost_not_forgotten(work: Work) -> None:
    with watched(work.executor._supervisor.pid) as is_gone:
        kill(work.executor._supervisor.pid)
        assert is_gone()

    work.start(work.shell("true"), work.python("def main(): pass"))

    assert [type(report) for report in work.reports(2)] == [LeaseExpired, LeaseExpired]
    assert work.run_shell("echo on").output == "on"


def test_a_task_does_not_hold_the_lock(tmp_path: Path, announcements: Announcements) -> None:
    lock = acquire(tmp_path, "lock")
    work = Work(tmp_path, lock_fd=lock.fd)

    code = "import os\ndef main(): return os.popen(f'ls -l /proc/{os.getpid()}/fd').read()"
    found = work.run_shell("ls -l /proc/$$/fd; :").output + work.run_python(code).output

    assert "lock.lock" not in found
    work.close()
    lock.release()


def test_a_task_whose_worker_was_killed_before_it_started_keeps_nobody_waiting(tmp_path: Path) -> None:
    selector = selectors.DefaultSelector()
    supervisor = SupervisorClient(
        "nobody", {}, selector, lambda: None, lock_fd=None, lease_seconds=None, grace_seconds=1.0
    )
    pipe = str(tmp_path / "out")
    os.mkfifo(pipe)

    supervisor.send(("run", 1, "/bin/true", ["true"], {}, "/", "/dev/null", pipe, "/dev/null", None, None))
    is_heard = bool(select.select([supervisor], [], [], PATIENCE_SECONDS)[0])
    # Whoever waits for a reader has one now.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    heard = supervisor.receive()
    supervisor.close()
    os.close(reader)

    assert is_heard
    assert [message[:2] for message in heard] == [("ended", 1)]
