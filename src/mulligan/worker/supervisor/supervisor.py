"""The small process that starts all tasks of a worker, waits for them, and lets none of them outlive it.

It is the subreaper of everything below it: a daemon that forked twice or called `setsid` becomes its child.
Nothing of a task is left when its end is reported: background processes are killed first. When the worker exits, in
whatever way, the socket closes and everything is killed; the worker's lock file stays locked until then.

It runs as `python -I -S` and imports little: a process that is forked here counts this one's memory as its own until
it executes another program. So it stays at a few MB and uses C modules directly, because the Python modules over them
(`signal`, `socket`, `ctypes`) would import half of the library.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import time

from mulligan.worker.supervisor import processes, wall_clock
from mulligan.worker.supervisor.frames import RECEIVE_BYTES, FrameDecoder, encode_frame
from mulligan.worker.supervisor.spawning import ManagedProcess, become_subreaper, close_others, spawn
from mulligan.worker.supervisor.task_cgroups import VARIABLE, TaskCgroups

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGTERM, SIGCONT, SIGKILL = _signal.SIGTERM, _signal.SIGCONT, _signal.SIGKILL
# How often to check processes that must die and have not, and the memory of tasks that have a limit.
LINGER_SECONDS = 0.02
MEMORY_SECONDS = 0.1
# How often to wake a warm child that must end: Python handles a signal only between two system calls.
NUDGE_SECONDS = 0.1
# Memory is measured precisely, which is expensive, when it has grown by this factor.
GROWTH = 1.1
FDS_PER_MESSAGE_MAX = 16


class Supervisor:
    """Start, watch and end processes on behalf of the worker at the other end of the socket."""

    def __init__(self, sock_fd: int, worker: str, lease_seconds: float | None, grace_seconds: float) -> None:
        self._pid = os.getpid()
        self._sock = _socket.socket(fileno=sock_fd)
        self._sock.setblocking(False)
        self._worker = worker.encode("utf-8", "surrogateescape")
        self._watchdog_seconds = None if lease_seconds is None else lease_seconds * 2 / 3
        self._grace_seconds = grace_seconds
        self._renewed_at = time.monotonic()
        self._environment: dict[str, str] = {}
        self._folder = ""
        self._tasks: dict[int, ManagedProcess] = {}
        # Main processes that were not waited for yet: until then the kernel does not reuse their ids.
        self._by_pid: dict[int, ManagedProcess] = {}
        # Their sessions. A session that has members keeps its id when its leader is gone.
        self._by_session: dict[int, ManagedProcess] = {}
        self._cgroups = TaskCgroups()
        # Tasks that start when another one ends, and tasks to start now.
        self._queued: dict[int, tuple[Any, ...]] = {}
        self._promoted: list[tuple[int, tuple[Any, ...]]] = []
        self._decoder = FrameDecoder()
        self._fds: list[int] = []
        self._out = bytearray()
        self._is_dropping = False
        self._is_connected = True
        # The worker exits in an orderly way and leaves nothing behind.
        self._is_shutting_down = False
        self._next_check = 0.0
        self._pipe, wakeup = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(wakeup, False)
        _signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    # -- the loop

    def run(self) -> None:
        """Serve until the worker is gone, then kill everything below this process, also after an error in here."""
        try:
            while self._is_connected:
                if self._wait():
                    self._receive()
                self._reap()
                self._run_due()
                self._flush()
                self._start_promoted()
        finally:
            self._kill_everything()
            if not self._is_shutting_down:
                # The worker itself started some processes, such as the command of a secret.
                processes.kill_with_variable(b"MULLIGAN_WORKER", self._worker)
            self._cgroups.close_all()

    def _wait(self) -> bool:
        """Wait until there is something to do; return whether the socket is readable."""
        self._poll.register(self._sock.fileno(), select.POLLIN | select.POLLOUT if self._out else select.POLLIN)
        due = self._next_due()
        ready = dict(self._poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1))
        if self._pipe in ready:
            os.read(self._pipe, 4096)  # a signal
        return bool(ready.get(self._sock.fileno(), 0) & ~select.POLLOUT)

    def _receive(self) -> None:
        try:
            space = _socket.CMSG_SPACE(4 * FDS_PER_MESSAGE_MAX)
            data, ancillary, _, _ = self._sock.recvmsg(RECEIVE_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        for _, _, packed in ancillary:
            self._fds += [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed) - 3, 4)]
        if not data:
            self._is_connected = False
        for message in self._decoder.feed(data):
            getattr(self, "_on_" + message[0])(*message[1:])

    def _flush(self) -> None:
        if not self._out or not self._is_connected:
            return
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._is_connected = False

    def _send(self, *message: object) -> None:
        self._out += encode_frame(message)

    # -- messages from the worker

    def _on_environment(self, environment: dict[str, str]) -> None:
        """Set the environment of every task, so that it is not sent with each one."""
        # A worker that is started by a task stays in the control group of that task.
        self._environment = {name: value for name, value in environment.items() if name != VARIABLE}

    def _on_run(self, key: int, *command: object) -> None:
        self._start(key, command)

    def _on_run_fractional(self, key: int, *command: object) -> None:
        """Start a task that asks for less than one cpu: its end frees no slot for a queued task."""
        self._start(key, command)
        if key in self._tasks:
            self._tasks[key].is_fractional = True

    def _on_queue(self, key: int, *command: object) -> None:
        """Start it when another task ends, without a round trip to the worker."""
        self._queued[key] = command

    def _on_start_queued(self, key: int) -> None:
        """Start a queued task unless it was started meanwhile."""
        if key in self._queued:
            self._start(key, self._queued.pop(key))

    def _on_withdraw(self, key: int) -> None:
        """Give up a queued task unless it was started meanwhile."""
        if key in self._queued:
            self._drop_queued(key, "interrupted")

    def _on_stop(self, key: int, grace: float, reason: str) -> None:
        if key in self._queued:
            self._drop_queued(key, reason)
        elif key in self._tasks:
            self._stop(self._tasks[key], grace, reason)

    def _drop_queued(self, key: int, reason: str) -> None:
        """Give up a queued task."""
        del self._queued[key]
        self._report_unstarted(key, reason)

    def _report_unstarted(self, key: int, reason: str) -> None:
        now = wall_clock.now()
        self._send("ended", key, 0, SIGTERM, now, now, 0.0, 0, reason)

    def _on_sweep(self, key: int) -> None:
        """Kill the descendants of a process that stays alive, and report when all of them are dead."""
        if key in self._tasks:
            self._tasks[key].is_sweeping = True
            self._clean_up([self._tasks[key]])

    def _on_limit(self, key: int, memory: int | None) -> None:
        if key in self._tasks:
            task = self._tasks[key]
            task.memory, task.rough_peak, task.peak = memory, 0, 0

    def _on_renew(self, at: float) -> None:
        self._renewed_at = at

    def _on_shutdown(self) -> None:
        self._is_shutting_down = True

    def _on_drop(self) -> None:
        """Kill everything, and report when all of it is dead."""
        self._queued.clear()
        self._is_dropping = True
        for task in self._tasks.values():
            self._stop(task, 0.0, "dropped")
        self._report_if_dropped()

    def _report_if_dropped(self) -> None:
        if self._is_dropping and not self._tasks:
            self._is_dropping = False
            self._send("dropped")

    # -- starting

    def _start(self, key: int, command: tuple[Any, ...]) -> None:
        program, argv, environment, folder, stdin, out, err, timeout, memory = command
        stdin_fd = self._fds.pop(0) if stdin is None else -1
        cgroup = None
        try:
            if self._has_expired(time.monotonic()):
                # The worker was blocked for so long that another worker may hold the task by now.
                self._report_unstarted(key, "expired")
            elif self._change_folder(folder, key):
                cgroup = self._cgroups.enter(key) if memory is not None else None
                variables = {**self._environment, **environment}
                pid = spawn(program, argv, variables, stdin=stdin, stdin_fd=stdin_fd, out=out, err=err)
                self._tasks[key] = self._by_pid[pid] = self._by_session[pid] = ManagedProcess(key, pid, timeout, memory)
        except OSError as error:
            self._send("start_failed", key, "", error.errno, error.strerror)
        except ValueError as error:
            self._send("start_failed", key, "", 0, str(error))
        finally:
            task = self._tasks.get(key)
            has_limit = cgroup is not None and self._cgroups.leave(cgroup, memory, is_running=task is not None)
            if has_limit and task is not None:
                task.cgroup = cgroup
            if stdin_fd >= 0:
                os.close(stdin_fd)

    def _change_folder(self, folder: str, key: int) -> bool:
        """Change to the folder in which the next process starts. Usually it is the current one."""
        if folder == self._folder:
            return True
        try:
            os.chdir(folder)
        except (OSError, ValueError) as error:
            self._send("start_failed", key, folder, 0, getattr(error, "strerror", None) or str(error))
            return False
        self._folder = folder
        return True

    # -- ending

    def _reap(self) -> None:
        """Record every process that has died, also orphans that became our children."""
        ended = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            task = self._by_pid.pop(pid, None)
            if task is None:
                self._next_check = 0.0  # it may have been the last process that a task waits for
            else:
                task.has_exited = True
                cpu = usage.ru_utime + usage.ru_stime
                if self._is_out_of_memory(task):
                    task.stop_reason = task.stop_reason or "memory"
                # ru_maxrss covers only processes that were waited for; in a killed tree there may be none.
                task.usage = (status, task.started, wall_clock.now(), cpu, max(usage.ru_maxrss * 1024, task.peak))
                ended.append(task)
        if ended:
            self._clean_up(ended)

    def _is_out_of_memory(self, task: ManagedProcess) -> bool:
        """Whether the kernel killed a process in the task's control group: then that is why the task ends."""
        if task.cgroup is None or not task.cgroup.is_out_of_memory():
            return False
        # Read only now: while memory is free, the peak includes the page cache.
        task.peak = max(task.peak, task.cgroup.peak_bytes())
        return True

    def _clean_up(self, tasks: list[ManagedProcess]) -> None:
        """Report the tasks of which no process is left; kill what is left of the others."""
        if not any(task.is_sweeping for task in tasks):
            # One cheap read, which nearly always shows that there is no unknown process.
            children = processes.children_of_this_process()
            if children is not None and children <= self._by_pid.keys():
                for task in tasks:
                    self._report_exit(task)
                return
        snapshot = processes.snapshot()
        for task in tasks:
            left = [process for process in self._tree(task, snapshot) if task.has_exited or process.pid != task.pid]
            if left:
                self._kill_leftovers(task, left)
            else:
                self._report_exit(task)

    def _kill_leftovers(self, task: ManagedProcess, left: list[processes.Process]) -> None:
        """Give leftovers of a stopped task the rest of its grace period; kill other background processes at once."""
        now = time.monotonic()
        if task.kill_at is None or task.kill_at <= now or task.is_sweeping:
            processes.send_signal(left, SIGKILL)
        else:
            self._terminate(task, left)
        self._next_check = now + LINGER_SECONDS

    def _report_exit(self, task: ManagedProcess) -> None:
        if task.is_sweeping:
            task.is_sweeping = False
            self._send("swept", task.key)
        if not task.has_exited:
            return
        del self._tasks[task.key]
        if self._by_session.get(task.pid) is task:
            del self._by_session[task.pid]
        if task.cgroup is not None:
            self._cgroups.close(task.cgroup)
        frees_slot = task.key > 0 and not task.is_fractional
        self._send("ended", task.key, self._promote() if frees_slot else 0, *task.usage, task.stop_reason)
        self._report_if_dropped()

    def _promote(self) -> int:
        """Return the key of the task that starts because another one ended, or 0. The end is reported first."""
        if not self._queued:
            return 0
        key = next(iter(self._queued))
        self._promoted.append((key, self._queued.pop(key)))
        result: int = key
        return result

    def _start_promoted(self) -> None:
        promoted, self._promoted = self._promoted, []
        for key, command in promoted:
            self._start(key, command)

    def _stop(self, task: ManagedProcess, grace: float, reason: str) -> None:
        """Send SIGTERM to the whole tree, and SIGKILL after the grace period. A second call can only shorten it."""
        kill_at = time.monotonic() + grace
        task.kill_at = kill_at if task.kill_at is None else min(kill_at, task.kill_at)
        if task.stop_reason:
            return
        task.stop_reason = reason
        if not task.has_exited and grace > 0:
            self._terminate(task, self._tree(task, processes.snapshot()))

    def _terminate(self, task: ManagedProcess, tree: list[processes.Process]) -> None:
        """Send SIGTERM once to each process. One that is just being reparented may be found only next time."""
        new = [process for process in tree if process.identity not in task.terminated]
        task.terminated.update(process.identity for process in new)
        processes.send_signal(new, SIGTERM)
        processes.send_signal(new, SIGCONT)  # a stopped process would not receive it

    # -- ownership of processes

    def _tree(self, task: ManagedProcess, snapshot: dict[int, processes.Process]) -> list[processes.Process]:
        """Return the live processes of a task: those below its main process, and orphans that belong to it."""
        # Once the main process was waited for, its id may belong to another process.
        roots = [] if task.has_exited else [task.pid]
        for process in snapshot.values():
            # A parent that is missing exited during the snapshot: its children become ours in a moment.
            is_orphan = process.parent == self._pid or process.parent not in snapshot
            if is_orphan and process.pid not in self._by_pid and self._belongs_to(process, task, snapshot):
                roots.append(process.pid)
        return processes.descendants(snapshot, roots)

    def _belongs_to(
        self, process: processes.Process, task: ManagedProcess, snapshot: dict[int, processes.Process]
    ) -> bool:
        """Decide by session, then by environment. An orphan with neither belongs to the task if it is the only one."""
        owner = self._by_session.get(process.session)
        # A session leader that is alive after the task's own was waited for is another process with a reused id.
        if owner is not None and not (owner.has_exited and process.session in snapshot):
            return owner is task
        key = self._key_from(processes.environment_of(process.pid))
        if key in self._tasks:
            return key == task.key and processes.is_still_running(process)
        return process.parent == self._pid and len(self._tasks) == 1

    def _key_from(self, environment: dict[bytes, bytes]) -> int | None:
        if environment.get(b"MULLIGAN_WORKER") != self._worker:
            return None
        child, fence = environment.get(b"MULLIGAN_CHILD", b""), environment.get(b"MULLIGAN_FENCE", b"")
        if child.isdigit():
            return -int(child)
        return int(fence) if fence.isdigit() else None

    # -- time

    def _next_due(self) -> float | None:
        dues = [due for task in self._tasks.values() for due in self._due_times(task)]
        return min(dues) if dues else None

    def _due_times(self, task: ManagedProcess) -> list[float]:
        """Return the times at which the task has to be checked."""
        if task.has_exited or task.is_sweeping:
            return [self._next_check]
        times = []
        if task.memory is not None and not task.stop_reason:
            times.append(self._next_check)
        if task.kill_at is not None:
            times.append(task.kill_at if task.key > 0 else min(task.kill_at, task.wake_at))
        elif task.deadline is not None:
            times.append(task.deadline)
        if self._watchdog_seconds is not None and task.kill_at is None:
            times.append(self._renewed_at + self._watchdog_seconds)
        return times

    def _has_expired(self, now: float) -> bool:
        return self._watchdog_seconds is not None and self._renewed_at + self._watchdog_seconds <= now

    def _run_due(self) -> None:
        if not self._tasks:
            return
        now = time.monotonic()
        if self._has_expired(now):
            for key in list(self._queued):
                self._drop_queued(key, "expired")
        for task in self._tasks.values():
            self._run_due_for(task, now)
        if now < self._next_check:
            return
        if open_tasks := [task for task in self._tasks.values() if task.has_exited or task.is_sweeping]:
            self._next_check = now + LINGER_SECONDS
            self._clean_up(open_tasks)
        limited = [task for task in self._tasks.values() if task.memory is not None and not task.stop_reason]
        if limited:
            self._next_check = now + (LINGER_SECONDS if open_tasks else MEMORY_SECONDS)
            self._check_memory(limited)

    def _run_due_for(self, task: ManagedProcess, now: float) -> None:
        if task.kill_at is not None:
            if task.kill_at <= now and not task.has_exited:
                processes.send_signal(self._tree(task, processes.snapshot()), SIGKILL)
                task.kill_at = now + LINGER_SECONDS
            elif task.key < 0 and task.wake_at <= now and not task.has_exited:
                if (main := processes.find_process(task.pid)) is not None:
                    processes.send_signal([main], SIGCONT)
                task.wake_at = now + NUDGE_SECONDS
        elif task.deadline is not None and task.deadline <= now:
            self._stop(task, self._grace_seconds, "timeout")
        elif self._has_expired(now):
            # Another worker may get the task soon: no process of it may be left then.
            self._stop(task, 0.0, "expired")

    def _check_memory(self, tasks: list[ManagedProcess]) -> None:
        snapshot = processes.snapshot()
        for task in tasks:
            if self._is_out_of_memory(task) or self._exceeds_limit(task, snapshot):
                self._stop(task, 0.0, "memory")

    def _exceeds_limit(self, task: ManagedProcess, snapshot: dict[int, processes.Process]) -> bool:
        tree, limit = self._tree(task, snapshot), task.memory or 0
        resident = sum(process.resident_bytes for process in tree)
        if resident <= min(limit, task.rough_peak * GROWTH):
            return False
        task.rough_peak = max(task.rough_peak, resident)
        # The sum counts a shared page once for each process, which must not be a reason to kill.
        used = processes.proportional_bytes([process.pid for process in tree])
        task.peak = max(task.peak, used)
        return used > limit

    def _kill_everything(self) -> None:
        """Kill everything below this process, until nothing is left."""
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                # An orphan below us becomes our child, so without a child there is nothing below.
                return
            snapshot = processes.snapshot()
            processes.send_signal(processes.descendants(snapshot, [self._pid])[1:], SIGKILL)
            time.sleep(0.001)


def _ignore_signals() -> None:
    """Let the worker handle signals to the process group. Handlers, since ignored signals would be inherited."""
    for signal in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
        if _signal.getsignal(signal) != _signal.SIG_IGN:
            _signal.signal(signal, lambda *_: None)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)


def main(sock_fd: str, lock_fd: str, worker: str, lease_seconds: str, grace_seconds: str) -> None:
    kept = [int(fd) for fd in (sock_fd, lock_fd) if fd]
    close_others(kept)
    for fd in kept:
        os.set_inheritable(fd, False)
    become_subreaper()
    _ignore_signals()
    lease = float(lease_seconds) if lease_seconds else None
    Supervisor(int(sock_fd), worker, lease, float(grace_seconds)).run()
    # The worker waits for this exit: unloading the modules would take longer than all of the above.
    os._exit(0)
