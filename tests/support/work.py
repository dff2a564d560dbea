"""A worker at work: real processes, and ways to wait for facts instead of for time."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.ports import Lease
from mulligan.worker.local_executor import LocalExecutor
from mulligan.worker.supervisor import processes

# Longer than anything here takes on a machine that has much else to do.
PATIENCE_SECONDS = 30.0
GIB = 1 << 30


def no_history(run_id: int, delivered: int) -> ProgramHistory:
    raise AssertionError("nothing is recorded of these programs")


class Work:
    """Hands in a folder of their own, and tasks for them."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.home = folder / "home"
        self.folder = folder / "here"
        self.folder.mkdir(exist_ok=True)
        self.name = f"worker-{folder.name}-{os.getpid()}"
        self.executor = LocalExecutor(
            self.name, "here", self.home, **{"cpus": 2, "memory": 4 * GIB, "read_history": no_history, **options}
        )
        self._token = 0

    # -- tasks

    def lease(self, kind: str, params: dict[str, Any], **fields: Any) -> Lease:
        self._token += 1
        known = {"run_id": 7, "place": f"step{self._token}", "attempt": 1, "visit": 1, "home": str(self.folder)}
        known |= {"workflow": "nightly", "version": "v1", "step": fields.get("place", f"step{self._token}")}
        return Lease(Task(kind=kind, params=params, **{**known, **fields}), self.name, self._token)

    def shell(self, text: str, **fields: Any) -> Lease:
        params = {name: fields.pop(name) for name in ("stdin", "interpreter", "strict") if name in fields}
        return self.lease("shell", {"text": text, **params}, **fields)

    def python(self, code: str, args: dict[str, Any] | None = None, **fields: Any) -> Lease:
        return self.lease("python", {"code": code, **({"args": args} if args is not None else {})}, **fields)

    # -- running them

    def start(self, *leases: Lease) -> None:
        for lease in leases:
            self.executor.reserve(lease.task)
        self.executor.start(leases)

    def reports(self, count: int = 1) -> list[Report]:
        """The next reports, as they come."""
        found: list[Report] = []
        until = time.monotonic() + PATIENCE_SECONDS
        while len(found) < count:
            assert time.monotonic() < until, "nothing ended"
            found += [report for _, report in self.executor.collect(1.0)]
        return found

    def run(self, lease: Lease) -> TaskEnded:
        self.start(lease)
        (report,) = self.reports()
        assert isinstance(report, TaskEnded)
        return report

    def run_shell(self, text: str, **fields: Any) -> TaskEnded:
        return self.run(self.shell(text, **fields))

    def run_python(self, code: str, args: dict[str, Any] | None = None, **fields: Any) -> TaskEnded:
        return self.run(self.python(code, args, **fields))

    def time_is_up(self, lease: Lease, grace_seconds: float) -> None:
        """What its executor does at the end of its time. With a short `timeout` it might not have begun by then."""
        self.executor._stop(self.executor._running[lease.token], grace_seconds, "timeout")

    # -- what is there

    def log(self, lease: Lease, which: str = "out") -> Path:
        task = lease.task
        return Path(getattr(self.executor._folders.logs(task.run_id, task.place, task.attempt), which))

    def wait_for(self, fact: Callable[[], Any]) -> Any:
        """What the fact comes to once it is true; the hands work meanwhile, and nothing may end."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := fact()):
            assert time.monotonic() < until, "it never came true"
            assert self.executor.collect(0.01) == []
        return found

    def leftovers(self) -> list[int]:
        return [process.pid for process in processes.find_with_variable(b"MULLIGAN_WORKER", self.name.encode())]

    def remaining(self) -> list[int]:
        """Processes of this worker that stay. One that is just ending is none."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := self.leftovers()) and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def renew_until(self, fact: Callable[[], Any]) -> None:
        """The lease is renewed until the fact is true, and then no more."""

        def renewed_and_true() -> Any:
            self.executor.renew(time.monotonic())
            return fact()

        self.wait_for(renewed_and_true)

    def close(self) -> None:
        self.executor.close()


class Announcements:
    """A named pipe: processes write lines into it, and a test waits for them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "announcements"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._text = ""

    @property
    def are_there(self) -> bool:
        """Whether anything has been written that nobody has read."""
        return _is_readable(self._fd)

    def numbers(self, count: int) -> list[int]:
        return [int(line) for line in self.lines(count)]

    def lines(self, count: int) -> list[str]:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while self._text.count("\n") < count:
            assert poll.poll(PATIENCE_SECONDS * 1000), "nobody wrote"
            self._text += os.read(self._fd, 65536).decode()
        *lines, self._text = self._text.split("\n")
        return lines

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def watched(*pids: int) -> Iterator[Callable[[], bool]]:
    """Whether all of these are dead, waiting for it. The descriptors are taken now: no other process is meant."""
    fds = [os.pidfd_open(pid) for pid in pids]

    def are_dead() -> bool:
        return all(_is_readable(fd) for fd in fds)

    try:
        yield are_dead
    finally:
        for fd in fds:
            os.close(fd)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(PATIENCE_SECONDS * 1000))


def is_alive(pid: int) -> bool:
    return processes.find_process(pid) is not None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
