"""Runs the tasks of an engine on the workers of a Dask cluster. `mulligan.ports.Executor` documents the methods."""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.on_dask import name_dask_worker
from mulligan.core.model.program_calls import Delivery
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded
from mulligan.dask_executor import messages as m
from mulligan.dask_executor.cluster import (
    Cluster,
    Inbox,
    Joined,
    Lost,
    Member,
    Received,
    Suspected,
    Trouble,
)
from mulligan.dask_executor.cluster_capacity import ClusterCapacity, slots_of
from mulligan.dask_executor.session import interrupted, stopped_before_start
from mulligan.dask_executor.store_answers import LogWriter, StoreAnswers
from mulligan.errors import StoreUnavailable
from mulligan.ports import Clock, Lease, Offer
from mulligan.worker.folders import Folders, make_private, replace_private_file
from mulligan.worker.logs.log_links import link_logs, make_log_folders
from mulligan.worker.slots.task_limits import TaskLimits
from mulligan.worker.supervisor.fd_events import unwatch, watch_reads
from mulligan.worker.task_reports import report_start_error, with_log_warning

# How long a session may take to kill its tasks when this executor ends or drops them.
ENDING_SECONDS_MAX = 10.0
# Renew a heartbeat older than this share of the lease before starting anything: see `LocalExecutor`.
FRESH_SHARE = 1 / 3
# How often sessions hear that the driver is alive; with each of them they pass on logs and progress.
BEAT_SECONDS, BEATS_PER_LEASE = 1.0, 6


class DaskExecutor:
    """Sends each task to one Dask worker, and passes on what comes back. Only the driver touches the store."""

    def __init__(
        self,
        name: str,
        host: str,
        home: Path,
        *,
        address: str,
        lock: str,
        clock: Clock,
        answers: StoreAnswers,
        logs: LogWriter,
        lease_seconds: float,
        is_shared: bool,
        cpus_max: float | None = None,
        memory: int = 0,
        log_bytes_max: int,
        limits: TaskLimits | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.host = host
        self._folders = Folders(home)
        self._clock = clock
        self._answers = answers
        self._logs = logs
        self._lease_seconds = lease_seconds
        self._is_shared = is_shared
        self._memory = memory
        self._limits = limits or TaskLimits()
        self._say = say
        self._capacity = ClusterCapacity(cpus_max)
        self._members: dict[str, Member] = {}
        self._sessions = 0
        # Where a task was sent, by token. Tasks that wait for a Dask worker are in `_waiting`.
        self._sent: dict[int, tuple[Lease, str]] = {}
        self._waiting: dict[int, Lease] = {}
        self._done: list[tuple[Lease, Report]] = []
        self._renewed_at = self._beat_at = time.monotonic()
        self._inbox = Inbox()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._inbox.wake_up, selectors.EVENT_READ)
        self._watched: int | None = None
        # Members that have said what they were asked to say: `Dropped` or `Closed`.
        self._finished: set[str] = set()

        def hello(identity: dict[str, Any]) -> m.Hello:
            slots = slots_of(identity, memory)
            self._sessions += 1
            return m.Hello(
                name=f"{name}.{self._sessions}",
                cpus=slots.cpus,
                memory=slots.memory,
                gpus=slots.gpus,
                labels=slots.labels,
                now=clock.now(),
                lease_seconds=lease_seconds,
                log_bytes_max=log_bytes_max,
                home=str(home.absolute()),
                lock=lock,
            )

        self._cluster = Cluster(address, self._inbox, hello, lease_seconds=lease_seconds)
        try:
            self._cluster.open(say)
            self._take_in()
        except BaseException:
            self._selector.close()
            raise

    # -- capacity

    def fits(self, task: Task) -> bool:
        return self._limits.admits(task) and self._capacity.fits(task, self._clock.now())

    def may_hold(self, task: Task) -> bool:
        return False

    def can_ever_fit(self, task: Task) -> bool:
        return self._capacity.can_ever_fit(task)

    def missing_resources(self, task: Task) -> str:
        return self._capacity.missing_resources(task)

    def host_of(self, task: Task) -> str:
        return self._capacity.host_of(task) or self.host

    def offer(self) -> Offer:
        return self._limits.narrow(self._capacity.offer(self.host))

    def reserve(self, task: Task) -> None:
        self._limits.take()
        self._capacity.reserve(task, self._clock.now())

    def unreserve(self, task: Task) -> None:
        self._limits.give_back()
        self._capacity.release(task)

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        """No program waits here for an answer: its turn ends with what it has called."""

    def end_turn(self, token: int) -> None:
        """As for `go_on`: there is none."""

    @property
    def running(self) -> Collection[Lease]:
        return [*(lease for lease, _ in self._sent.values()), *self._waiting.values()]

    @property
    def trouble(self) -> str:
        """Each member of the cluster pauses by itself."""
        return ""

    @property
    def is_busy(self) -> bool:
        return bool(self._sent or self._waiting)

    # -- starting and stopping

    def start(self, leases: Iterable[Lease]) -> None:
        self._place((lease, self._capacity.place_of(lease.task)) for lease in leases)

    def _place(self, placed: Iterable[tuple[Lease, str]]) -> None:
        """Send tasks to their Dask workers. Those that have none wait for one."""
        by_address: dict[str, list[bytes]] = {}
        for lease, address in placed:
            if address not in self._members:
                self._waiting[lease.token] = lease
                continue
            self._sent[lease.token] = lease, address
            try:
                by_address.setdefault(address, []).append(m.encode_json(self._as_sent(lease)))
            except UnicodeError as error:
                self._end(lease, report_start_error(lease.task, error))
        for address, sent in by_address.items():
            self._members[address].channel.send(m.Start(sent))

    def _as_sent(self, lease: Lease) -> Lease:
        """Without what happens on this host: links to logs, which are here."""
        task = lease.task
        if not task.logs:
            return lease
        make_log_folders(task, self._folders)
        folders = {name: folder for name, folder in task.folders.items() if not name.startswith("logs.")}
        return replace(lease, task=replace(task, logs={}, folders=folders))

    def _place_again(self, leases: Iterable[Lease]) -> None:
        now = self._clock.now()
        self._place([(lease, self._capacity.move(lease.task, now)) for lease in leases])

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if grace_seconds is None:
            return
        if token in self._waiting:
            self._end(self._waiting[token], stopped_before_start(self._waiting[token].task))
        elif token in self._sent:
            self._send_to(self._sent[token][1], m.Stop(token, grace_seconds))

    def stop_all(self, grace_seconds: float) -> None:
        for lease in list(self._waiting.values()):
            self._end(lease, interrupted(lease.task))
        self._send_all(m.StopAll(grace_seconds))

    def drop_all(self) -> None:
        for lease in self.running:
            self._capacity.release(lease.task)
        self._sent.clear()
        self._waiting.clear()
        self._done.clear()
        self._await_all(m.Drop())
        self._done.clear()

    def close(self) -> None:
        self._await_all(m.Close())
        self._cluster.close()
        self._selector.close()
        self._inbox.wake_up.close()

    def _await_all(self, order: m.Order) -> None:
        """Send an order to all sessions, and wait until each has carried it out or is gone."""
        self._finished.clear()
        self._send_all(order)
        until = time.monotonic() + ENDING_SECONDS_MAX
        while (left := until - time.monotonic()) > 0 and not self._finished.issuperset(self._members):
            self._wait(left)
            try:
                self._take_in()
            except StoreUnavailable:
                self._inbox.events.popleft()

    def _send_to(self, address: str, order: m.Order) -> None:
        member = self._members.get(address)
        if member is not None:
            member.channel.send(order)

    def _send_all(self, order: m.Order) -> None:
        for address in self._members:
            self._send_to(address, order)

    # -- heartbeats

    def renew(self, at: float) -> None:
        self._renewed_at = at
        self._send_all(m.Renew(time.monotonic() - at))

    @property
    def must_renew(self) -> bool:
        fresh = self._lease_seconds * FRESH_SHARE if self._is_shared else math.inf
        return time.monotonic() - self._renewed_at > fresh

    def _beat(self) -> None:
        """Let the sessions know that the driver is alive, if no heartbeat of a shared store does."""
        now = time.monotonic()
        if not self._is_shared and now - self._beat_at >= min(BEAT_SECONDS, self._lease_seconds / BEATS_PER_LEASE):
            self._beat_at = now
            self._send_all(m.Renew(0.0))

    # -- what happened

    def watch(self, fd: int | None) -> None:
        if self._watched is not None:
            unwatch(self._selector, self._watched)
        if fd is not None:
            watch_reads(self._selector, fd, None)
        self._watched = fd

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        if not self._done and not self._inbox.events:
            self._wait(timeout)
        self._beat()
        try:
            self._take_in()
        except StoreUnavailable:
            if not self._done:
                raise
        done, self._done = self._done, []
        return done

    def _wait(self, timeout: float | None) -> None:
        self._selector.select(timeout)
        self._inbox.wake_up.clear()

    def _take_in(self) -> None:
        """Take in everything that has happened, in order. What the store does not accept now stays the first."""
        events = self._inbox.events
        while events:
            _HANDLERS[type(events[0])](self, events[0])
            events.popleft()

    def _on_joined(self, event: Joined) -> None:
        member = event.member
        self._members[member.address] = member
        self._capacity.add(member.address, slots_of(member.identity, self._memory), member.host)
        waiting, self._waiting = self._waiting, {}
        self._place_again(waiting.values())
        self._rebalance()

    def _on_suspected(self, event: Suspected) -> None:
        """Give it no more tasks."""
        if self._members.get(event.member.address) is event.member:
            del self._members[event.member.address]
            self._capacity.remove(event.member.address)

    def _on_lost(self, event: Lost) -> None:
        address = event.member.address
        worker = name_dask_worker(address, event.member.host)
        for lease, sent_to in list(self._sent.values()):
            if sent_to == address:
                self._end(lease, LeaseExpired(self._clock.now(), lease.task.place, lease.task.attempt, worker))

    def _on_trouble(self, event: Trouble) -> None:
        self._say(event.message)

    def _on_received(self, event: Received) -> None:
        try:
            self._on_notice(event, m.decode_notice(event.data))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # It is not what a session says. Its tasks are lost when it is known that they have ended.
            address = event.member.address
            self._say(f"the Dask worker at {address} sent what cannot be understood: {error}; it gets no tasks")
            self._cluster.refuse(event.member)

    def _on_notice(self, event: Received, notice: m.AnyNotice) -> None:
        if isinstance(notice, m.Ended):
            for token, encoded in notice.reports:
                lease, address = self._sent.get(token, (None, ""))
                # What another Dask worker has is not this one's to report.
                if lease is not None and address == event.member.address:
                    report = m.decode_report(encoded)
                    if report.at.tzinfo is None:
                        raise msgspec.ValidationError("a time without its zone")
                    self._end(lease, replace(report, place=lease.task.place, attempt=lease.task.attempt))
            self._rebalance()
        elif isinstance(notice, m.ProgressMade):
            if notice.token in self._sent:
                self._write_progress(self._sent[notice.token][0].task, notice.data)
        elif isinstance(notice, m.Written):
            self._logs.write(notice.chunks)
        elif isinstance(notice, m.Call):
            event.member.channel.send(self._answers.answer(notice))
        elif isinstance(notice, m.Returned):
            self._place_again([self._sent.pop(token)[0] for token in notice.tokens if token in self._sent])
        elif isinstance(notice, m.Leaving):
            self._capacity.remove(event.member.address)
        else:
            self._finished.add(event.member.address)

    def _write_progress(self, task: Task, data: bytes) -> None:
        """Put it where that of local tasks is."""
        path = self._folders.progress(task.run_id, task.place, task.attempt)
        # A result counts without it.
        with suppress(OSError):
            make_private(os.path.dirname(path))
            replace_private_file(path, data.decode(errors="replace"))

    def _rebalance(self) -> None:
        """Ask for tasks that wait at one Dask worker while another has nothing to do."""
        for address, tasks in self._capacity.misplaced().items():
            keys = {(task.run_id, task.place, task.attempt) for task in tasks}
            sent = ((token, lease.task) for token, (lease, to) in self._sent.items() if to == address)
            tokens = [token for token, task in sent if (task.run_id, task.place, task.attempt) in keys]
            self._send_to(address, m.GiveBack(tokens))

    def _end(self, lease: Lease, report: Any) -> None:
        """Free the capacity of a task, and queue its report for the engine."""
        self._sent.pop(lease.token, None)
        self._waiting.pop(lease.token, None)
        self._capacity.release(lease.task)
        if isinstance(report, TaskEnded):
            if (seconds := report.usage.get("wall_seconds")) is not None:
                self._capacity.record_duration(seconds)
            if lease.task.logs and (warning := link_logs(lease.task, self._folders)):
                report = with_log_warning(report, warning)
        now = self._clock.now()
        self._done.append((lease, replace(report, at=now) if report.at > now else report))


_HANDLERS: dict[type, Callable[[DaskExecutor, Any], None]] = {
    Joined: DaskExecutor._on_joined,
    Received: DaskExecutor._on_received,
    Suspected: DaskExecutor._on_suspected,
    Lost: DaskExecutor._on_lost,
    Trouble: DaskExecutor._on_trouble,
}
