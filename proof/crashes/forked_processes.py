"""Processes that live beside each other, each of which may have a moment at which it dies.

`command_runner` runs one command line after the other, to its end. Here a server, workers, a sender and a Dask cluster
run at the same time. As there they are forked from one process that has everything loaded: `python -m
proof.crashes.forked_processes` reads an order from each line of stdin, and answers with the id of the new process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from mulligan.cli import main
from mulligan.ports import fault_listeners
from mulligan.worker.supervisor.processes import find_process, is_still_running, send_signal
from proof.crashes import boundaries
from proof.crashes.disk import die
from proof.crashes.faults import Fault
from proof.stage import DEADLINE_SECONDS, PIPE, Stage, wait_until

# What the processes import when they need it. Dask takes a second, and is loaded where it is used.
LOADED = (
    *(
        "mulligan.cli.operating.worker",
        "mulligan.cli.operating.server",
        "mulligan.api.processes.server",
        "mulligan.api.processes.background",
    ),
    *("mulligan.dashboard.pages", "mulligan.mcp_server.http_route", "mulligan.service.server.notices.sender"),
    *("mulligan.service.server.notices.webhooks", "mulligan.store.sqlite.sqlite", "mulligan.store.postgres.postgres"),
    *("mulligan.store.http.http_store", "mulligan.service.driving.local_worker"),
)
LOADED_WITH_DASK = ("distributed", "mulligan.dask_executor.executor", "mulligan.dask_executor.dask_worker")


class ForkedProcess:
    """A process, what it says, and whether its moment came."""

    def __init__(self, pid: int, out: Path) -> None:
        self.pid = pid
        self.out = out
        self._found = find_process(pid)

    @property
    def is_alive(self) -> bool:
        return self._found is not None and is_still_running(self._found)

    @property
    def has_met_its_moment(self) -> bool:
        return self.out.with_suffix(".met").exists()

    def said(self) -> str:
        """What it wrote on stderr."""
        return self.out.with_suffix(".err").read_text()

    def first_line(self) -> str:
        """The first line on stdout; "" if it died before."""
        wait_until(lambda: "\n" in self.out.read_text() or not self.is_alive, lambda: f"it says nothing: {self.said()}")
        return self.out.read_text().partition("\n")[0]

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def end(self, seconds: float = DEADLINE_SECONDS) -> str:
        """Ask it to end, and wait; what is wrong with its end."""
        self._send(signal.SIGTERM)
        until = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > until:
                self.kill()
                return f"it does not end after SIGTERM: {self.said()}"
            time.sleep(0.005)
        return ""

    def _send(self, number: signal.Signals) -> None:
        if self._found is not None:
            send_signal([self._found], number)


class ForkedProcesses:
    """Starts processes on stages."""

    def __init__(self, forker: subprocess.Popen[str]) -> None:
        self._forker = forker

    def start(
        self,
        stage: Stage,
        name: str,
        *words: object,
        program: str = "mulligan",
        fault: Fault | None = None,
        environment: Mapping[str, str] = {},
    ) -> ForkedProcess:
        """One process, whose papers are in the folder of the stage under its name."""
        out = stage.folder / f"{name}.out"
        order = {
            "program": program,
            "words": [str(word) for word in words],
            "folder": str(stage.folder),
            "environment": {**stage.environment, **environment},
            "out": str(out),
            "point": fault.what if fault else "",
            "nth": fault.nth if fault else 0,
        }
        assert self._forker.stdin is not None and self._forker.stdout is not None
        print(json.dumps(order), file=self._forker.stdin, flush=True)
        answer = self._forker.stdout.readline()
        assert answer, "the process that forks has ended"
        return ForkedProcess(int(answer), out)


@contextmanager
def forked_processes(stage: Stage, *, has_dask: bool = False, defect: str = "") -> Iterator[ForkedProcesses]:
    """`defect`: "module:function", called in every process before it begins, to break the product on purpose."""
    words = ("-m", "proof.crashes.forked_processes", "dask" if has_dask else "plain", defect)
    # Ctrl-C is for the parent: this process ends when no more orders come.
    options = {"stdin": PIPE, "stderr": None, "start_new_session": True}
    with stage.start_program(*words, **options) as process:
        yield ForkedProcesses(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


# -- the process that forks ------------------------------------------------------------------------------------------


def serve(kind: str, defect: str) -> None:
    for module in (*LOADED, *(LOADED_WITH_DASK if kind == "dask" else ())):
        import_module(module)
    if defect:
        module, _, function = defect.partition(":")
        getattr(import_module(module), function)()
    # The kernel takes away what has died.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    started = []
    for line in sys.stdin:
        order = json.loads(line)
        _prepare(Path(order["out"]))
        pid = os.fork()
        if pid == 0:
            become(order)
        started.append(find_process(pid))
        print(pid, flush=True)
    # Another process may have the id of one that has ended.
    send_signal([process for process in started if process is not None], signal.SIGKILL)


def _prepare(out: Path) -> None:
    for suffix in (".out", ".err"):
        out.with_suffix(suffix).touch(0o600)
    out.with_suffix(".met").unlink(missing_ok=True)


def become(order: dict[str, Any]) -> NoReturn:
    """This process is what was asked for, from now on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    out = Path(order["out"])
    streams = ((0, os.devnull, os.O_RDONLY), (1, out, _TRUNCATED), (2, out.with_suffix(".err"), _APPENDED))
    for fd, path, flags in streams:
        os.dup2(os.open(path, flags, 0o600), fd)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    if order["point"]:
        boundaries.install(order["point"])
        fault_listeners.append(Moment(order["point"], order["nth"], out.with_suffix(".met")).passed)
    code = 70
    try:
        code = PROGRAMS[order["program"]](order["words"]) or 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


_TRUNCATED = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Moment:
    """Kills this process at the n-th pass of a point, in whatever thread."""

    def __init__(self, point: str, nth: int, met: Path) -> None:
        self._point = point
        self._left = nth
        self._met = met

    def passed(self, name: str) -> None:
        if name == self._point:
            self._left -= 1
            if self._left == 0:
                self._met.touch()
                die()


# -- what a process can be -------------------------------------------------------------------------------------------


def _mulligan(words: list[str]) -> int | None:
    sys.argv = ["mulligan", *words]
    main.main()


def _server(words: list[str]) -> int | None:
    """`mulligan server` without its children: those are processes of their own here, which may die too."""
    server: Any = import_module("mulligan.api.processes.server")
    server._children = lambda *_: []
    return _mulligan(["server", *words])


def _background(words: list[str]) -> int | None:
    import_module("mulligan.api.processes.background").main(*words)
    return 0


def _scheduler(words: list[str]) -> int | None:
    distributed: Any = import_module("distributed")

    async def serve() -> None:
        async with distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            print(scheduler.address, flush=True)
            await scheduler.finished()

    asyncio.run(serve())
    return 0


def _dask_worker(words: list[str]) -> int | None:
    distributed: Any = import_module("distributed")

    async def serve() -> None:
        options = {"nthreads": 2, "memory_limit": "1GiB", "dashboard": False, "host": "127.0.0.1"}
        async with distributed.Worker(words[0], name=words[1], local_directory=words[2], **options) as worker:
            print(worker.address, flush=True)
            await worker.finished()

    asyncio.run(serve())
    return 0


PROGRAMS: dict[str, Callable[[list[str]], int | None]] = {
    "mulligan": _mulligan,
    "server": _server,
    "background": _background,
    "scheduler": _scheduler,
    "dask_worker": _dask_worker,
}


if __name__ == "__main__":
    try:
        serve(*sys.argv[1:3])
    except BrokenPipeError:
        pass  # the parent has gone
