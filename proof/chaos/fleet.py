"""Workers with a way to the server each, and what can be done to them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import cache

import msgspec

from mulligan.worker.supervisor.processes import Process, find_process, send_signal, snapshot
from proof.chaos.proxy import HttpProxy, Proxy
from proof.stage import Stage


class Sample(msgspec.Struct, frozen=True):
    """What a worker holds: bytes of memory, open files."""

    resident_bytes: int
    files: int


class Worker:
    """A place for a worker, its way to the server, and the process that is there now."""

    def __init__(self, number: int, stage: Stage, proxy: Proxy) -> None:
        self.number = number
        self.stage = stage
        self.proxy = proxy
        self.said = stage.folder / f"worker-{number}"
        # Those of the process that is there now.
        self.samples: list[Sample] = []
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """`faulthandler` shows where it is when it is aborted, and nowhere else."""
        return {"MULLIGAN_STORE": self.proxy.url, "PYTHONFAULTHANDLER": "1"}

    @property
    def words(self) -> tuple[str, ...]:
        return ("worker", "--parallel", "2")

    @property
    def within(self) -> tuple[str, ...]:
        """What it is run by."""
        return ()

    def start(self) -> None:
        with self.said.open("a") as said:
            options = {"environment": self.environment, "stdout": subprocess.DEVNULL, "stderr": said}
            options |= {"within": self.within}
            self._said_before = said.tell()
            self.process = self.stage.start(*self.words, **options)
        self.samples = []

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    @property
    def may_have_ended(self) -> bool:
        """Whether there is a good reason for its end."""
        return False

    @property
    def supervisors(self) -> list[Process]:
        """A worker's only children; more than one while it starts anew."""
        return [process for process in snapshot().values() if process.parent == self.pid]

    @property
    def alone(self) -> list[Process]:
        """Its own process, if it runs."""
        return [process for process in (find_process(self.pid),) if process is not None]

    def sample(self) -> None:
        process = find_process(self.pid)
        if process is not None:
            with suppress(OSError):
                files = len(os.listdir(f"/proc/{self.pid}/fd"))
                self.samples.append(Sample(process.resident_bytes, files))

    # -- what can happen to it

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def kill_with_supervisor(self) -> None:
        """Kill both at once: nothing is left that ends what they ran."""
        send_signal(self.alone, signal.SIGSTOP)
        send_signal(self.supervisors, signal.SIGKILL)
        self.kill()

    def kill_supervisor(self) -> None:
        send_signal(self.supervisors, signal.SIGKILL)

    def stop(self) -> Callable[[], None]:
        """Until what is returned is called."""
        return stopped(self.alone)

    def stop_with_supervisor(self) -> Callable[[], None]:
        return stopped([*self.alone, *self.supervisors])

    def stop_supervisor(self) -> Callable[[], None]:
        return stopped(self.supervisors)


def stopped(processes: list[Process]) -> Callable[[], None]:
    """Until what is returned is called."""
    send_signal(processes, signal.SIGSTOP)
    return lambda: send_signal(processes, signal.SIGCONT)


class RemoteWorker(Worker):
    """A worker without a database: it asks the HTTP server, from a home of its own.

    Where a process can have mounts of its own it is on another host, as far as files go: there the home of the server
    is an empty folder.
    """

    def __init__(self, number: int, stage: Stage, proxy: Proxy, token: str) -> None:
        self._token = token
        self._is_apart = not why_not_apart()
        super().__init__(number, stage, proxy)

    @property
    def environment(self) -> dict[str, str]:
        home = self.stage.folder / f"remote-{self.number}"
        return {"MULLIGAN_STORE": "", "MULLIGAN_HOME": str(home), "MULLIGAN_TOKEN": self._token}

    @property
    def words(self) -> tuple[str, ...]:
        return ("worker", "--parallel", "2", "--server", self.proxy.url)

    @property
    def within(self) -> tuple[str, ...]:
        return (*_APART, str(self.stage.home.folder)) if self._is_apart else ()

    @property
    def may_have_ended(self) -> bool:
        """If something else answered before its server ever did, the address may be wrong, and it says so."""
        with self.said.open() as said:
            said.seek(self._said_before)
            words = said.read()
        return " is up" not in words and "is it the address of a server of Mulligan?" in words


# Runs the rest of its words, without a folder. It is the same process, so that signals reach what it runs. What it
# starts to mount something may be killed, as children of workers are.
_APART = ("unshare", "--mount", "sh", "-c", 'until mount -t tmpfs -o ro none "$0"; do sleep 0.1; done; exec "$@"')


@cache
def why_not_apart() -> str:
    """Why no process can have mounts of its own here; "" if it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    with tempfile.TemporaryDirectory() as folder:
        words = ("unshare", "--mount", "mount", "-t", "tmpfs", "-o", "ro", "none", folder)
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr.strip()


class Fleet:
    """Workers at their places, for as long as the context lasts."""

    def __init__(self, stage: Stage, url: str, count: int) -> None:
        self._exits = ExitStack()
        self._stage = stage
        self.workers: list[Worker] = [Worker(n, stage, self._exits.enter_context(Proxy(url))) for n in range(count)]
        # Workers that died without being killed.
        self.deaths: list[str] = []

    def add_remote(self, port: int, token: str) -> RemoteWorker:
        """One more, over HTTP, to the server at this port."""
        proxy = self._exits.enter_context(HttpProxy(port))
        self.workers.append(found := RemoteWorker(len(self.workers), self._stage, proxy, token))
        return found

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
        self._exits.close()

    def look(self) -> None:
        """One that has ended by itself is noted, and another takes its place."""
        for worker in self.workers:
            if worker.is_dead:
                if not worker.may_have_ended:
                    code = worker.process.returncode
                    self.deaths.append(f"worker {worker.number} ended with {code}: see {worker.said}")
                worker.start()

    def sample(self) -> None:
        for worker in self.workers:
            worker.sample()

    def heal(self) -> None:
        """Everything can be reached, and nothing of what was cut before is left."""
        for worker in self.workers:
            worker.proxy.heal()
            worker.proxy.cut()

    def end(self, seconds: float) -> Iterable[str]:
        """In order; what is wrong with those that do not."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                code = worker.process.wait(seconds)
            except subprocess.TimeoutExpired:
                worker.process.send_signal(signal.SIGABRT)
                yield f"worker {worker.number} does not end when it is told to: see {worker.said}"
            else:
                if code:
                    yield f"worker {worker.number} ended with {code} when it was told to: see {worker.said}"


def growth_of(samples: list[Sample]) -> str:
    """Describe how much more memory a worker uses at its end than in the middle; "" if it is about the same."""
    if len(samples) < SAMPLES_MIN:
        return ""
    early, late = samples[len(samples) // 2], samples[-1]
    if late.resident_bytes > GROWTH_MAX * early.resident_bytes + SLACK_BYTES:
        return f"its memory went from {early.resident_bytes >> 20} to {late.resident_bytes >> 20} MiB"
    if late.files > early.files + SLACK_FILES:
        return f"its open files went from {early.files} to {late.files}"
    return ""


# Fewer samples say nothing: on a busy machine it may still be loading what it needs.
SAMPLES_MIN = 24
GROWTH_MAX, SLACK_BYTES, SLACK_FILES = 1.3, 16 << 20, 20
