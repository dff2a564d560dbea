"""What a driver has inside a Dask worker: a thread with a local executor, for as long as their connection lasts."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.on_dask import SCHEDULER, wants_client
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import CallsMade, Report, TaskInterrupted
from mulligan.dask_executor import messages as m
from mulligan.dask_executor.channel import Channel, WakeUp
from mulligan.dask_executor.driver_store import (
    DriverArtifacts,
    DriverContents,
    DriverHistory,
    DriverLogs,
    DriverResults,
)
from mulligan.errors import StoreUnavailable, error_by_code
from mulligan.ports import Lease
from mulligan.store.clock import ProcessClock
from mulligan.worker.exit_reader import SIGTERM
from mulligan.worker.folders import Folders, make_private, open_regular_file
from mulligan.worker.local_executor import LocalExecutor
from mulligan.worker.logs.progress_records import READ_BYTES
from mulligan.worker.task_reports import make_report

# The pause before the driver is asked again whose store does not answer.
STORE_SECONDS = 0.2
# What a Dask worker that closes gives its tasks to end.
LEAVING_GRACE_SECONDS = 1.0
# How long the last reports may take to be sent.
FLUSH_SECONDS_MAX = 5.0


class DriverGone(Exception):
    """The connection to the driver has ended."""


class Session:
    """Runs the tasks of one driver. All methods but `run` belong to the event loop of the Dask worker.

    Tasks beyond what fits wait here: the driver sends a few ahead, so that no slot waits for it. When the connection
    ends, for whatever reason, everything that runs is killed at once.
    """

    def __init__(
        self, comm: Any, hello: m.Hello, host: str, folder: Path, *, scheduler: str, tls_variables: Mapping[str, str]
    ) -> None:
        self.name = hello.name
        self._hello = hello
        self._host = host
        # What a client of the cluster needs inside a step.
        self._scheduler = scheduler
        self._tls_variables = tls_variables
        self._home = folder / hello.name
        self._folders = Folders(self._home)
        self._incoming: deque[bytes] = deque()
        self._wake_up = WakeUp()
        self._channel = Channel(comm, self._receive)
        self._is_over = False
        self._is_leaving = False
        # Of the thread.
        self._backlog: deque[m.AnyOrder] = deque()
        self._queue: dict[int, Lease] = {}
        self._call_number = 0
        self._shared_outputs: set[int] = set()
        # What was passed on last, by token.
        self._progress: dict[int, bytes] = {}
        self._executor: LocalExecutor

    async def run(self) -> None:
        """Run tasks until the connection ends. Nothing runs any more when this returns."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def work() -> None:
            try:
                self._work()
            finally:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(ended.set)

        # A daemon: the end of the process does not wait for it, and its supervisor then kills what runs.
        threading.Thread(target=work, name=f"mulligan {self.name}", daemon=True).start()
        connection = asyncio.create_task(self._channel.run())
        thread_end = asyncio.create_task(ended.wait())
        await asyncio.wait((connection, thread_end), return_when=asyncio.FIRST_COMPLETED)
        if not connection.done():
            await self._channel.flush(FLUSH_SECONDS_MAX)
            self._channel.abort()
        self._end()
        await thread_end
        await connection
        self._wake_up.close()

    @property
    def is_ending(self) -> bool:
        """Whether the connection has ended: what runs is being killed."""
        return self._is_over or self._channel.is_closed

    def leave(self) -> None:
        """Stop all tasks, report them as interrupted, and end: the Dask worker closes."""
        self._is_leaving = True
        self._wake_up.set()

    def _end(self) -> None:
        self._is_over = True
        self._wake_up.set()

    def _receive(self, data: bytes) -> None:
        self._incoming.append(data)
        self._wake_up.set()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        hello = self._hello
        clock = ProcessClock()
        clock.set(hello.now)
        make_private(str(self._home))
        self._executor = LocalExecutor(
            name=self.name,
            host=self._host,
            home=self._home,
            cpus=hello.cpus,
            memory=hello.memory,
            gpus=hello.gpus,
            labels=hello.labels,
            lease_seconds=hello.lease_seconds,
            artifacts=DriverArtifacts(self._ask),
            results=DriverResults(self._ask),
            read_history=DriverHistory(self._ask),
            read_content=DriverContents(self._ask),
            clock=clock,
            log_bytes_max=hello.log_bytes_max,
            shipped_logs=lambda: logs,
        )
        logs = DriverLogs(self._ask, lambda chunks: self._channel.send(m.Written(chunks)), self._running_runs)
        try:
            self._executor.watch(self._wake_up.fileno())
            while not self._is_over:
                self._turn()
        except DriverGone:
            pass
        finally:
            self._executor.close()
            self._channel.send(m.Closed())
            self._remove_home()

    def _turn(self) -> None:
        try:
            ended = self._executor.collect(None)
        except StoreUnavailable:
            # The driver waits for its store, and so do we.
            ended = []
            self._wake_up.wait(STORE_SECONDS)
        self._wake_up.clear()
        if ended:
            self._send_ended(ended)
        while (order := self._next_order()) is not None:
            _HANDLERS[type(order)](self, order)
        if self._is_leaving and not self._is_over:
            self._leave()
        self._start_queued()

    def _send_ended(self, ended: Iterable[tuple[Lease, Report]]) -> None:
        """Report ended tasks, after the progress that they have made."""
        reports = []
        for lease, report in ended:
            self._send_progress(lease)
            self._progress.pop(lease.token, None)
            if isinstance(report, CallsMade):
                # The driver is far away: a program goes on in its next turn.
                self._executor.end_turn(lease.token)
                report = report.as_end
            reports.append((lease.token, m.encode_json(report)))
        self._channel.send(m.Ended(reports))

    def _send_progress(self, lease: Lease) -> None:
        """Pass on how far a task said that it is, if that has changed."""
        task = lease.task
        path = self._folders.progress(task.run_id, task.place, task.attempt)
        # Most tasks say nothing, and exceptions are expensive.
        if not os.access(path, os.F_OK):
            return
        with suppress(OSError), open_regular_file(path) as file:
            data = file.read(READ_BYTES)
            if self._progress.get(lease.token) != data:
                self._progress[lease.token] = data
                self._channel.send(m.ProgressMade(lease.token, data))

    def _next_order(self) -> m.AnyOrder | None:
        if self._backlog:
            return self._backlog.popleft()
        return m.decode_order(self._incoming.popleft()) if self._incoming else None

    def _on_start(self, order: m.Start) -> None:
        leases = map(m.decode_lease, order.leases)
        self._queue.update((lease.token, self._with_cluster(lease)) for lease in leases)

    def _with_cluster(self, lease: Lease) -> Lease:
        """With the address of the scheduler, if the step wants a client."""
        task = lease.task
        if "on" not in task.params or not wants_client(task.params):
            return lease
        params = {**task.params, SCHEDULER: self._scheduler}
        return replace(lease, task=replace(task, params=params, env={**self._tls_variables, **task.env}))

    def _start_queued(self) -> None:
        """Start what fits, the oldest first."""
        fitting = []
        for token, lease in list(self._queue.items()):
            if not self._executor.fits(lease.task):
                if lease.task.is_small:
                    break
                continue
            del self._queue[token]
            self._executor.reserve(lease.task)
            self._share_outputs(lease.task.run_id)
            fitting.append(lease)
        if fitting:
            self._executor.start(fitting)

    def _on_stop(self, order: m.Stop) -> None:
        lease = self._queue.pop(order.token, None)
        if lease is None:
            self._executor.stop(order.token, order.grace_seconds)
        else:
            self._send_ended([(lease, stopped_before_start(lease.task))])

    def _on_stop_all(self, order: m.StopAll) -> None:
        queued, self._queue = self._queue, {}
        if queued:
            self._send_ended((lease, interrupted(lease.task)) for lease in queued.values())
        self._executor.stop_all(order.grace_seconds)

    def _on_give_back(self, order: m.GiveBack) -> None:
        returned = [token for token in order.tokens if self._queue.pop(token, None) is not None]
        if returned:
            self._channel.send(m.Returned(returned))

    def _on_drop(self, order: m.Drop) -> None:
        self._queue.clear()
        self._executor.drop_all()
        self._channel.send(m.Dropped())

    def _on_close(self, order: m.Close) -> None:
        self._is_over = True

    def _on_renew(self, order: m.Renew) -> None:
        self._executor.renew(time.monotonic() - order.age_seconds)
        for lease in self._executor.running:
            self._send_progress(lease)

    def _on_answer(self, order: m.Answer) -> None:
        """The answer to a call that has ended with an error."""

    def _leave(self) -> None:
        """Report what runs as interrupted: it runs again elsewhere, and spends nothing."""
        self._channel.send(m.Leaving())
        self._on_stop_all(m.StopAll(LEAVING_GRACE_SECONDS))
        while self._executor.running and not self._is_over:
            with suppress(StoreUnavailable):
                self._send_ended(self._executor.collect(LEAVING_GRACE_SECONDS))
            self._wake_up.clear()
        self._is_over = True

    # -- the driver's store

    def _ask(self, name: str, /, **arguments: Any) -> Any:
        """Ask the driver's store, and wait for the answer. Heartbeats are taken in meanwhile."""
        self._call_number += 1
        self._channel.send(m.Call(self._call_number, name, arguments))
        while True:
            while self._incoming:
                order = m.decode_order(self._incoming.popleft())
                if isinstance(order, m.Answer) and order.number == self._call_number:
                    return _value_of(order)
                if isinstance(order, m.Renew):
                    self._on_renew(order)
                else:
                    self._backlog.append(order)
            if self._is_over or self._channel.is_closed:
                raise DriverGone
            self._wake_up.wait(None)

    # -- files

    def _running_runs(self) -> Iterable[int]:
        return {lease.task.run_id for lease in self._executor.running}

    def _share_outputs(self, run_id: int) -> None:
        """Let a step write to the folder for outputs of the driver's home, if this host has that folder."""
        if run_id in self._shared_outputs or not os.path.exists(self._hello.lock):
            return
        self._shared_outputs.add(run_id)
        ours, theirs = self._folders.outputs(run_id), Folders(Path(self._hello.home)).outputs(run_id)
        with suppress(OSError):
            make_private(theirs)
            make_private(os.path.dirname(ours))
            os.symlink(theirs, ours)

    def _remove_home(self) -> None:
        """Remove everything but what steps have left in their folder for outputs."""
        with suppress(OSError):
            for run in os.scandir(self._home / "runs"):
                output = f"{run.path}/output"
                if not os.path.islink(output) and os.path.isdir(output) and os.listdir(output):
                    return
        shutil.rmtree(self._home, ignore_errors=True)


def stopped_before_start(task: Task) -> Any:
    """The report of a task that was stopped while it waited."""
    return make_report(task, Outcome(exit_code=None, signal=SIGTERM, is_stopped=True))


def interrupted(task: Task) -> TaskInterrupted:
    return TaskInterrupted(datetime.now(UTC), task.place, task.attempt)


def _value_of(answer: m.Answer) -> Any:
    if answer.error is None:
        return answer.value
    code, message, hint = answer.error
    raise error_by_code(code)(message, hint=hint)


_HANDLERS: dict[type, Callable[[Session, Any], None]] = {
    m.Start: Session._on_start,
    m.Stop: Session._on_stop,
    m.StopAll: Session._on_stop_all,
    m.GiveBack: Session._on_give_back,
    m.Drop: Session._on_drop,
    m.Close: Session._on_close,
    m.Renew: Session._on_renew,
    m.Answer: Session._on_answer,
}
