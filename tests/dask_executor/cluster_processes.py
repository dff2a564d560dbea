"""A Dask cluster of real processes: one process has everything loaded, and forks a scheduler, workers and drivers.

It reads a line of JSON for each process to start, and answers with its id and what it says first: its address.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, NoReturn

from mulligan.worker.supervisor.processes import find_process, send_signal

ROOT = Path(__file__).parents[2]


class Process:
    """A process of the cluster."""

    def __init__(self, pid: int, address: str) -> None:
        self.pid = pid
        self.address = address
        self._found = find_process(pid)

    def kill(self) -> None:
        # It may have ended, and another process may have its id.
        if self._found is not None:
            send_signal([self._found], signal.SIGKILL)


class Processes:
    """Starts processes, and kills all of them in the end."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(folder), "DASKTEST_SECRET": "swordfish-9137"}
        # Settings of Dask for the processes that are started from now on.
        self.settings: dict[str, Any] = {}
        self._log = (folder / "cluster.log").open("ab")
        self._host = subprocess.Popen(
            [sys.executable, "-m", "tests.dask_executor.cluster_processes"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def _start(self, what: str, **options: Any) -> Process:
        assert self._host.stdin is not None and self._host.stdout is not None
        self._host.stdin.write(json.dumps({"what": what, "settings": self.settings, **options}) + "\n")
        self._host.stdin.flush()
        return Process(**json.loads(self._host.stdout.readline()))

    def scheduler(self, **options: Any) -> Process:
        return self._start("scheduler", options=options)

    def worker(
        self, scheduler: Process, version: str | None = None, *, report: str | None = None, **options: Any
    ) -> Process:
        """A worker; with a `version`, one that has another version of Mulligan, and none with "".

        With a `report`, one that says this of each task that ends.
        """
        known = {"nthreads": 2, "memory_limit": "1GiB"}
        given = {**known, **options}
        return self._start("worker", address=scheduler.address, version=version, report=report, options=given)

    def retire(self, scheduler: Process, worker: Process) -> None:
        """Close a worker in an orderly way, as an adaptive cluster does."""
        self._start("retire", address=scheduler.address, worker=worker.address)

    def mulligan(self, folder: Path, *words: str) -> Process:
        """Run a command. Its output is in `output.txt`, its exit code in `code.txt` once it has ended."""
        return Process(int(self._start("mulligan", folder=str(folder), words=words).address), "")

    def close(self) -> None:
        assert self._host.stdin is not None and self._host.stdout is not None
        self._host.stdin.close()
        self._host.wait()
        self._host.stdout.close()
        self._log.close()


# -- the process that forks ------------------------------------------------------------------------------------------


def main() -> None:
    import dask
    from distributed import Client, Scheduler, Worker

    import mulligan.dask_executor.dask_worker
    import mulligan.dask_executor.executor
    import mulligan.dask_executor.messages
    import mulligan.service
    import mulligan.service.driving.dask_worker
    from mulligan.cli.main import main as command

    assert mulligan.dask_executor.dask_worker and mulligan.service

    async def scheduler(say: IO[str], options: dict[str, Any]) -> None:
        async with Scheduler(host="127.0.0.1", dashboard=False, **{"port": 0, **options}) as server:
            print(server.address, file=say, flush=True)
            await server.finished()

    async def worker(
        say: IO[str], address: str, version: str | None, report: str | None, options: dict[str, Any]
    ) -> None:
        if report is not None:
            mulligan.dask_executor.messages.encode_json = lambda _: report.encode()
        if version:
            mulligan.dask_executor.dask_worker.__version__ = version
        elif version is not None:
            sys.modules["mulligan.dask_executor.dask_worker"] = None  # type: ignore[assignment]
        async with Worker(address, host="127.0.0.1", dashboard=False, **options) as server:
            print(server.address, file=say, flush=True)
            await server.finished()

    async def retire(say: IO[str], address: str, worker: str) -> None:
        async with Client(address, asynchronous=True) as client:
            await client.retire_workers([worker])
            print(worker, file=say, flush=True)

    def run(say: IO[str], order: dict[str, Any]) -> int:
        what = order.pop("what")
        dask.config.set(order.pop("settings"))
        if what == "mulligan":
            os.chdir(order["folder"])
            out = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            if (pid := os.fork()) == 0:
                sys.argv = ["mulligan", *order["words"]]
                command()
            print(pid, file=say, flush=True)
            status = os.waitpid(pid, 0)[1]
            Path("code.tmp").write_text(str(os.waitstatus_to_exitcode(status)), encoding="utf-8")
            os.rename("code.tmp", "code.txt")
            return 0
        asyncio.run({"scheduler": scheduler, "worker": worker, "retire": retire}[what](say, **order))
        return 0

    # What a killed process leaves is nobody's business here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    started = []
    for line in sys.stdin:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _leave(run, writer, json.loads(line))
        os.close(writer)
        started.append(find_process(pid))
        with open(reader, encoding="utf-8") as said:
            address = said.readline().strip()
        print(json.dumps({"pid": pid, "address": address}), flush=True)
    send_signal([process for process in started if process is not None], signal.SIGKILL)


def _leave(run: Any, writer: int, order: dict[str, Any]) -> NoReturn:
    code = 70
    try:
        os.close(0)
        with open(writer, "w", encoding="utf-8") as say:
            code = run(say, order)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
