"""The hands of an engine: takes leases, has their tasks run, and says what became of them.

One thread and one loop: `collect` waits for the supervisor, for the warm children and for what the engine watches.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.errors import StoreUnavailable
from mulligan.ports import Artifacts, Clock, FindResults, Lease, Offer
from mulligan.worker import wall
from mulligan.worker.actions import python
from mulligan.worker.actions.calls import is_built_in
from mulligan.worker.actions.kinds import SPAWNED, called
from mulligan.worker.children import Answer, Child, ChildBroke, ChildRaves, Step
from mulligan.worker.descriptors import take_all
from mulligan.worker.ended import CANNOT_START, Ended, not_started, unable, warned
from mulligan.worker.endings import Endings, never_started
from mulligan.worker.environment import of_worker
from mulligan.worker.flood import LOG_BYTES_MAX, Flood
from mulligan.worker.folders import Folders, remove_folder
from mulligan.worker.inside import check_paths
from mulligan.worker.jobs import Jobs
from mulligan.worker.large_values import LargeValues
from mulligan.worker.leftovers import kill_leftovers
from mulligan.worker.listening import forget, listen
from mulligan.worker.lookups import NotYet
from mulligan.worker.outputs import Large
from mulligan.worker.pool import Pool
from mulligan.worker.programs import Programs
from mulligan.worker.redactor import Redactor
from mulligan.worker.reusing import Reusing
from mulligan.worker.room import Lookahead, Room
from mulligan.worker.running import Running
from mulligan.worker.secrets import Secrets
from mulligan.worker.supervision import Supervision, SupervisorGone
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_files import TaskFiles
from mulligan.worker.timing import seconds_left, timed_here

# From then on the log of a python step can be found under its attempt's name while it runs.
LOGS_NAMED_AFTER_SECONDS = 0.2
DROP_SECONDS_MAX = 10.0
# A heartbeat older than this share of the lease is renewed before anything is started. The supervisor ends all at two
# thirds; in quiet times none is so old.
FRESH_SHARE = 1 / 3
# A child whose socket is closed is dying, and has so long for it; else its step has closed what is not its own.
CUT_OFF_SECONDS = 1.0
# A child that died idle is noticed when it is given a step. Several at once: the supervisor is dead as well.
GIVE_ATTEMPTS_MAX = 5


class LocalExecutor:
    """Runs tasks as processes of this host. See `mulligan.ports.Hands` for the promises."""

    def __init__(
        self,
        name: str,
        host: str,
        home: Path,
        *,
        cpus: float,
        memory: int,
        gpus: int = 0,
        labels: tuple[str, ...] = (),
        lock_fd: int | None = None,
        lease_seconds: float | None = None,
        grace_seconds: float = 10.0,
        lookahead: int | None = None,
        artifacts: Artifacts | None = None,
        results: FindResults | None = None,
        clock: Clock | None = None,
        is_direct: bool = True,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        take_all()
        self.name = name
        self.host = host
        # By which tasks have their deadlines and reports their times.
        self._clock = clock
        self._folders = Folders(home)
        self._folder = self._folders.worker(name)
        self._task_files = TaskFiles(self._folders, name)
        self._flood = Flood(self._task_files, log_bytes_max)
        self._environment = of_worker(name, dict(os.environ))
        self._selector = selectors.DefaultSelector()
        self._secrets = Secrets(self._environment, self._selector, self._start_what_wants)
        self._boundary = TaskBoundary(self._secrets, artifacts)
        self._room = Room(cpus, memory, gpus, labels, self._environment)
        self._programs = Programs(self._environment, is_direct=is_direct)
        self._endings = Endings(name, self._task_files, self._flood, self._programs)
        self._lookahead = Lookahead(2 * int(cpus), more=3) if lookahead is None else Lookahead(lookahead)
        # Taken beyond the room, oldest first: the supervisor starts one when another one ends.
        self._waiting: dict[int, Task] = {}
        # Taken, and to be started as soon as their secrets are known, or the store gives what they read.
        self._wanting: set[int] = set()
        # Ended, and to be told as soon as the store keeps what they gave.
        self._unkept: list[tuple[Running, TaskEnded]] = []
        # Why the store does neither now.
        self._away: StoreUnavailable | None = None
        self._launch = lambda: Supervision(
            name,
            self._environment,
            self._selector,
            self._hear_supervisor,
            lock_fd=lock_fd,
            lease_seconds=lease_seconds,
            grace=grace_seconds,
        )
        self._fresh_seconds = math.inf if lease_seconds is None else lease_seconds * FRESH_SHARE
        self._renewed_at = time.monotonic()
        self._grace_seconds = grace_seconds
        self._running: dict[int, Running] = {}
        self._done: list[tuple[Lease, Report]] = []
        # Nothing is to be done before then if nobody speaks.
        self._next_due = math.inf
        self._watched: int | None = None
        self._children = Pool(cpus, self._selector, lambda child: child.launch(self._supervisor), self._hear_child)
        self._jobs = Jobs(self._children, self._folder, at_once_max=max(1, int(cpus)))
        self._large = LargeValues(self._jobs, self._boundary, self._task_files, self._on_prepared, self._tell)
        self._reusing = Reusing(self._jobs, results, artifacts, self._start_what_wants, self._tell)
        self._supervisor = self._launch()
        self._is_dropped = True

    # -- room

    def fits(self, task: Task) -> bool:
        return self._room.fits(task) or self._lookahead.fits(task)

    def can_ever_fit(self, task: Task) -> bool:
        return self._room.can_ever(task)

    def missing_resources(self, task: Task) -> str:
        return self._room.lacking(task)

    def offer(self) -> Offer:
        return self._room.offer(self.host)

    def reserve(self, task: Task) -> None:
        if not self._room.fits(task) and self._lookahead.fits(task):
            self._lookahead.take(task)
        else:
            self._room.take(task)

    def unreserve(self, task: Task) -> None:
        if not self._lookahead.give_back(task):
            self._room.give_back(task)

    @property
    def running(self) -> Collection[Lease]:
        ended = (*self._reusing.recording, *self._large.kept, *(running for running, _ in self._unkept))
        return [running.lease for running in (*self._running.values(), *ended)]

    @property
    def is_busy(self) -> bool:
        """Whether anything has not come to its end."""
        return bool(self._running)

    # -- starting

    def start(self, leases: Iterable[Lease]) -> None:
        orders = [order for lease in leases if (order := self._start(lease)) is not None]
        if orders:
            self._supervisor.send(*orders)

    def _start(self, lease: Lease) -> tuple | None:
        """What the supervisor is told, if it is for the supervisor to start. What cannot start has ended."""
        task = lease.task
        running = self._running.get(lease.token) or self._take(lease)
        try:
            self._task_files.make_ready()
            inward = self._boundary.inward(lease, is_called=task.kind not in SPAWNED)
            running.own = timed_here(self._room.equipped(inward), self._clock)
            if running.own.task.folders:
                check_paths(running.own.task, self._folders)
            if (found := self._reusing.find(running)) is not None:
                self._end(lease.token, found)
                return None
            self._task_files.lay_out(running)
            self._large.find(running)
            redactor = self._boundary.redactor(lease)
            if task.kind in SPAWNED:
                self._folders.make_run(task.run_id)
                if redactor is not None:
                    self._task_files.lay_pipes(running, redactor, self._selector)
                return self._order(running)
            self._start_call(running, redactor)
        except NotYet:
            self._wanting.add(lease.token)
            self._wake_for(self._secrets.keep_time(time.monotonic()))
        except StoreUnavailable as error:
            self._wanting.add(lease.token)
            self._away = error
        except CANNOT_START as error:
            if isinstance(error, FileNotFoundError) and self._task_files.is_made_again(self._running.values()):
                return self._start(self._running.pop(lease.token).lease)
            self._end(lease.token, unable(task, error))
        return None

    def _on_prepared(self, running: Running, refusal: TaskEnded | None) -> None:
        """The files of a process that is to be started are written, or cannot be."""
        if refusal is None:
            self._start_what_wants()
        else:
            self._end(running.lease.token, refusal)

    def _start_what_wants(self) -> None:
        """A secret has been looked up, or the store may be back. Who wants something else waits on."""
        tokens, self._wanting = self._wanting, set()
        self.start([self._running[token].lease for token in sorted(tokens)])

    def _take(self, lease: Lease) -> Running:
        running = Running(lease, lease, self._task_files.take())
        self._running[lease.token] = running
        return running

    def _order(self, running: Running) -> tuple:
        lease = running.own
        action = SPAWNED[lease.task.kind]
        order, running.is_direct = action.order(lease, running.sides, self._folders, self._programs)
        if not self._lookahead.holds(lease.task):
            self._name_logs_later(running, time.monotonic())
            return ("run" if lease.task.cpus >= 1.0 else "part", lease.token, *order)
        self._waiting[lease.token] = lease.task
        return ("next", lease.token, *order)

    def _start_call(self, running: Running, redactor: Redactor | None) -> None:
        lease = running.own
        action = called(lease.task)
        order = msgspec.structs.replace(action.order(lease, running.sides, self._folders), files=running.files)
        left = seconds_left(lease.task)
        interpreter = action.interpreter_of(lease.task, self._programs)
        apart = action.kept_apart_by(lease.task)
        if lease.task.gpus:
            # What once looks for GPUs keeps those it found: a child of its own, and no other step in it.
            apart += f" {lease.token}"
        for _ in range(GIVE_ATTEMPTS_MAX):
            began = wall.seconds()
            child = self._children.take(apart, interpreter, self._folder, is_veiled=redactor is not None)
            now = time.monotonic()
            step = Step(lease, began, None if left is None else now + left)
            if redactor is not None and child.pipes is not None:
                # Before it has the step: it may have written to its end by the time that we are back.
                child.pipes.begin(redactor, self._task_files.logs(lease.task))
            try:
                self._children.give(child, step, order)
            except ChildBroke:
                self._children.let_go(child)
                continue
            running.child, running.pipes = child.key, child.pipes
            child.is_leaving = lease.task.gpus > 0 or (redactor is not None and not is_built_in(lease.task))
            self._name_logs_later(running, now)
            self._wake_for(step.due)
            if lease.task.memory is not None:
                self._supervisor.send(("limit", child.key, lease.task.memory))
            return
        self._end(lease.token, self._endings.lost(lease.task))

    # -- stopping

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if grace_seconds is not None and token in self._running:
            self._stop(self._running[token], grace_seconds, "stopped")

    def stop_all(self, grace_seconds: float) -> None:
        # Those that wait come first: the end of another would start them.
        for running in sorted(self._running.values(), key=lambda running: running.lease.token not in self._waiting):
            self._stop(running, grace_seconds, "interrupted")

    def _stop(self, running: Running, grace_seconds: float, why: str) -> None:
        if running.lease.token in self._wanting:
            self._end(running.lease.token, self._endings.told(running, never_started(why)))
            return
        if running.child in self._children:
            self._children[running.child].is_leaving = True
        self._supervisor.send(("stop", running.child or running.lease.token, grace_seconds, why))

    def drop_all(self) -> None:
        dropped = list(self._running.values())
        for running in dropped:
            self.unreserve(running.lease.task)
        self._running.clear()
        self._waiting.clear()
        self._wanting.clear()
        self._unkept.clear()
        self._large.forget_all()
        self._reusing.forget_all()
        self._jobs.forget_all()
        self._done.clear()
        self._children.retire_all()
        self._next_due = math.inf
        self._is_dropped = False
        self._supervisor.send(("drop",))
        until = time.monotonic() + DROP_SECONDS_MAX
        while not self._is_dropped and time.monotonic() < until:
            self._wait(until - time.monotonic())
        for running in dropped:
            self._task_files.clear(running)

    def renew(self, at: float) -> None:
        self._renewed_at = at
        self._supervisor.send(("renew", at))

    @property
    def must_renew(self) -> bool:
        return time.monotonic() - self._renewed_at > self._fresh_seconds

    def close(self) -> None:
        self._supervisor.close()
        self._children.forget_all()
        self._secrets.close()
        self._selector.close()
        remove_folder(self._folder)

    # -- hearing

    def watch(self, fd: int | None) -> None:
        if self._watched is not None:
            forget(self._selector, self._watched)
        if fd is not None:
            listen(self._selector, fd, None)
        self._watched = fd

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        if not self._done:
            self._wait(timeout)
        self._keep_time()
        self._fill()
        if self._away is not None:
            self._ask_again()
        done, self._done = self._done, []
        return done

    def _ask_again(self) -> None:
        """The store was away when it was to keep an output, or to give one. That it still is comes after other news."""
        self._away = None
        unkept, self._unkept = self._unkept, []
        for running, report in unkept:
            self._tell(running, report)
        self._start_what_wants()
        if self._away is not None and not self._done:
            raise self._away

    def _wait(self, timeout: float | None) -> None:
        if self._next_due < math.inf:
            patience = max(0.0, self._next_due - time.monotonic())
            timeout = patience if timeout is None else min(timeout, patience)
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                key.data()

    def _end(self, token: int, report: Report) -> None:
        """The task is over: its room is free, and the engine is told."""
        if self._clock is not None:
            report = replace(report, at=self._clock.now())
        running = self._running.pop(token)
        self._waiting.pop(token, None)
        self._wanting.discard(token)
        self.unreserve(running.lease.task)
        self._large.give_up(running)
        self._reusing.give_up(running)
        if isinstance(report, TaskEnded):
            report = self._large.set_aside(running, report)
        self._task_files.clear(running)
        # A result that is taken over was looked at when it was kept, and may refer to an artifact of another run.
        if isinstance(report, TaskEnded) and not report.reused_run_id:
            if running.log_warning:
                report = warned(report, running.log_warning)
            recorded = self._reusing.record(running, report)
            if recorded is not None:
                self._tell(running, recorded)
        else:
            self._done.append((running.lease, report))

    def _tell(self, running: Running, report: TaskEnded) -> None:
        """What is large is kept first. While the store is away that waits: the work is done, and not to be lost."""
        if isinstance(report.output, Large):
            self._large.keep(running, report, report.output)
            return
        try:
            self._done.append((running.lease, self._boundary.outward(running.own, report)))
        except StoreUnavailable as error:
            self._unkept.append((running, report))
            self._away = error

    def _hear_supervisor(self) -> None:
        try:
            messages = self._supervisor.receive()
        except SupervisorGone:
            self._replace_supervisor()
            return
        for kind, *rest in messages:
            _HEARD[kind](self, *rest)

    def _replace_supervisor(self) -> None:
        """It was killed. What it ran is found by its environment and killed; all of it is lost."""
        self._supervisor.close()
        jobs = self._children.jobs()
        self._children.forget_all()
        kill_leftovers(self.name)
        for token in list(self._running):
            self._end(token, self._endings.lost(self._running[token].lease.task))
        self._supervisor = self._launch()
        self._supervisor.send(("renew", self._renewed_at))
        self._is_dropped = True
        for job in jobs:
            self._jobs.begin(job)

    def _on_ended(self, key: int, promoted: int, *measured: Any) -> None:
        ended = Ended(*measured)
        if key in self._children:
            self._on_child_ended(self._children[key], ended)
        elif key in self._running:
            if key not in self._waiting:
                self._lookahead.measure(ended.ended - ended.started)
            self._end(key, self._endings.told(self._running[key], ended))
        if promoted in self._waiting:
            self._promote(promoted)

    def _promote(self, token: int) -> None:
        """One that waited has a place of its own now."""
        task = self._waiting.pop(token)
        self._lookahead.give_back(task)
        self._room.take(task)
        self._name_logs_later(self._running[token], time.monotonic())

    def _fill(self) -> None:
        """Let the supervisor start what waits wherever there is room: not only a shell task makes some when it ends."""
        while self._waiting:
            token, task = next(iter(self._waiting.items()))
            if not self._room.fits(task):
                return
            self._promote(token)
            self._supervisor.send(("go", token))

    def _on_refused(self, key: int, what: str, number: int, text: str) -> None:
        """It could not be started."""
        token = key
        if key in self._children:
            child = self._children[key]
            token = child.step.lease.token if child.step else 0
            self._children.forget(child)
            if child.job is not None:
                self._task_files.is_made_again(self._running.values())
                self._jobs.lost(child)
        if token not in self._running:
            return
        running = self._running[token]
        if not what and self._task_files.is_made_again(self._running.values()):
            if running.pipes is not None:
                running.pipes.close()
            self.start([self._running.pop(token).lease])
            return
        if running.is_direct and not what:
            self._programs.refuse_direct(running.own.task.params["text"])
            self._supervisor.send(self._order(running))
            return
        self._end(token, not_started(running.lease.task, what, number, text))

    def _on_swept(self, key: int) -> None:
        """Nothing is left of what a step in a child had started."""
        for token, running in list(self._running.items()):
            if running.child == key and running.held is not None:
                self._end(token, running.held)

    def _on_dropped(self) -> None:
        self._is_dropped = True

    # -- children

    def _hear_child(self, child: Child) -> None:
        try:
            answer = child.receive()
        except ChildRaves:
            self._children.let_go(child)
            self._supervisor.send(("stop", child.key, 0.0, "raves"))
            return
        except ChildBroke:
            self._children.let_go(child)
            self._wait_for_its_end(child)
            return
        if answer is not None and child.job is not None:
            if not self._jobs.answered(child, answer):
                self._supervisor.send(("stop", child.key, 0.0, "worn"))
        elif answer is not None and child.step is not None:
            self._on_answer(child, child.step, answer)

    def _wait_for_its_end(self, child: Child) -> None:
        """It says no more. Most likely it is dying, and how is for the supervisor to say."""
        if child.step is None:
            self._supervisor.send(("stop", child.key, 0.0, "cut off"))
        else:
            child.step.cut_off_at = time.monotonic() + CUT_OFF_SECONDS
            self._wake_for(child.step.cut_off_at)

    def _on_answer(self, child: Child, step: Step, answer: Answer) -> None:
        lease = step.lease
        running = self._running[lease.token]
        if answer.out or answer.err:
            child.name_logs(self._task_files.logs(running.lease.task), answer.out > 0, answer.err > 0)
        if child.pipes is not None:
            child.pipes.drain()
        child.end_step()
        if answer.filed:
            path = self._jobs.new_path()
            child.take_result(path)
            answer = msgspec.structs.replace(answer, output=Large(path, "result"))
        ended = Ended(0, step.started, wall.seconds(), answer.cpu, answer.peak)
        told = python.read_answer(running.own, self._folders, running.sides, answer, ended)
        if lease.task.memory is not None:
            self._supervisor.send(("limit", child.key, None))
        if not (child.is_leaving or answer.worn or answer.forked):
            self._end(lease.token, told)
            return
        # The end is told when nothing is left of what the step has started.
        running.held, running.named_at = told, None
        if answer.worn:
            child.is_leaving = True
        self._supervisor.send(("stop", child.key, 0.0, "worn") if child.is_leaving else ("sweep", child.key))

    def _on_child_ended(self, child: Child, ended: Ended) -> None:
        step = child.step
        if step is not None:
            child.name_logs(self._task_files.logs(step.lease.task))
            child.end_step()
        self._children.forget(child)
        if child.job is not None:
            self._jobs.lost(child)
        self._on_swept(child.key)
        if step is None or step.lease.token not in self._running:
            return
        if ended.ended < step.started:
            # It was gone before it got the step, and nobody had noticed.
            self._start_call(self._running[step.lease.token], self._boundary.redactor(step.lease))
            return
        own = msgspec.structs.replace(ended, started=step.started)
        self._end(step.lease.token, self._endings.told(self._running[step.lease.token], own))

    # -- time

    def _name_logs_later(self, running: Running, now: float) -> None:
        running.named_at = now + LOGS_NAMED_AFTER_SECONDS
        self._wake_for(running.named_at)

    def _wake_for(self, due: float | None) -> None:
        if due is not None and due < self._next_due:
            self._next_due = due

    def _keep_time(self) -> None:
        """Do what is due. What has ended before it was wakes us once for nothing, and nobody has to keep account."""
        now = time.monotonic()
        if now < self._next_due:
            return
        self._next_due = self._secrets.keep_time(now)
        for running in self._running.values():
            if running.named_at is not None and running.named_at <= now:
                self._name_logs(running, now)
            self._wake_for(running.named_at)
            if running.weighed_at is not None and running.weighed_at <= now and self._flood.is_flooding(running, now):
                self._stop(running, 0.0, "flood")
            self._wake_for(running.weighed_at)
        for child, step in self._children.busy():
            if step.due is not None and step.due <= now:
                step.due = None
                child.is_leaving = True
                self._supervisor.send(("stop", child.key, self._grace_seconds, "timeout"))
            if step.cut_off_at is not None and step.cut_off_at <= now:
                step.cut_off_at = None
                self._supervisor.send(("stop", child.key, 0.0, "cut off"))
            self._wake_for(step.due)
            self._wake_for(step.cut_off_at)

    def _name_logs(self, running: Running, now: float) -> None:
        """It runs for a while now: its logs can be found under the name of its attempt."""
        running.named_at, running.weighed_at = None, self._flood.next_look(now)
        if not self._task_files.name_logs(running, self._children[running.child] if running.child else None):
            self._name_logs_later(running, now)
        self._task_files.link_logs(running)


_HEARD: dict[str, Callable[..., None]] = {
    "ended": LocalExecutor._on_ended,
    "refused": LocalExecutor._on_refused,
    "swept": LocalExecutor._on_swept,
    "dropped": LocalExecutor._on_dropped,
}
