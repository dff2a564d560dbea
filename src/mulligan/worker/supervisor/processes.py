"""Processes as /proc shows them: descendants, memory, environment, signals.

The kernel reuses the ids of dead processes. So a process is identified by its id and start time, and is signalled only
while both still match.

Loaded by the supervisor too, which must stay small: import only what it needs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time
from _collections_abc import Callable, Iterable

SIGKILL = 9
# How long to wait for a process in the middle of `exec`.
EXEC_SECONDS = 5.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process:
    """One line of /proc/PID/stat: a process that is not a zombie."""

    __slots__ = ("parent", "pid", "resident_bytes", "session", "start_ticks")

    def __init__(self, pid: int, parent: int, session: int, resident_bytes: int, start_ticks: int) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.resident_bytes = resident_bytes
        # Since boot. Ids are not reused within one tick, which is 10 ms.
        self.start_ticks = start_ticks

    @property
    def identity(self) -> tuple[int, int]:
        """Identify the process among all that ever had its id."""
        return self.pid, self.start_ticks


def snapshot() -> dict[int, Process]:
    """Return every live process that can be seen, by its id."""
    results = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := find_process(int(name))) is not None:
            results[process.pid] = process
    return results


def find_process(pid: int) -> Process | None:
    """Return the process, or None if it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        resident_bytes=int(fields[21]) * PAGE_BYTES,
        start_ticks=int(fields[19]),
    )


def is_still_running(process: Process) -> bool:
    """Whether this very process is alive, not another one with its id."""
    results = find_process(process.pid)
    return results is not None and results.start_ticks == process.start_ticks


def is_running(pid: int) -> bool:
    """Whether there is such a process, not counting zombies."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return find_process(pid) is not None or not os.path.exists("/proc/self/stat")


def descendants(processes: dict[int, Process], roots: list[int]) -> list[Process]:
    """Return the live processes among `roots` and all their descendants, parents first.

    Signals are sent in this order: a shell whose command dies first would run the next one.
    """
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    results = list(roots)
    for pid in results:
        results += children.get(pid, ())
    return [processes[pid] for pid in results if pid in processes]


def children_of_this_process() -> set[int] | None:
    """Return the direct children, including zombies, with one cheap read; None if the kernel does not support it."""
    pid = os.getpid()
    try:
        fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
    except OSError:
        return None
    try:
        return {int(word) for word in _read_all(fd).split()}
    finally:
        os.close(fd)


def environment_of(pid: int) -> dict[bytes, bytes]:
    """Return the environment with which the process was started; empty if it is gone or not readable.

    In the middle of an exec it is briefly empty, and a process with an empty environment would be spared by mistake.
    """
    until = time.monotonic() + EXEC_SECONDS
    while (text := _environ(pid)) == b"" and _has_environment(pid) and time.monotonic() < until:
        time.sleep(0.0002)
    pairs = (entry.partition(b"=") for entry in (text or b"").split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _environ(pid: int) -> bytes | None:
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return None
    try:
        return _read_all(fd)
    except OSError:
        return None
    finally:
        os.close(fd)


def _has_environment(pid: int) -> bool:
    """Whether a process with an empty environment has one by now, or will: it has memory that is not set up yet."""
    fields = _stat(pid)
    if fields is None:
        return False
    size, start, end = int(fields[20]), int(fields[47]), int(fields[48])
    return size > 0 and (start == 0 or start != end)


def proportional_bytes(pids: list[int]) -> int:
    """Return what the processes use together, counting a shared page once. More expensive than the plain sum."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as lines:
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
        except OSError:
            continue  # it is gone, or not readable
    return total


def send_signal(processes: Iterable[Process], signal: int) -> None:
    """Signal each process. Skip one that is gone, even if another process has its id now."""
    for process in processes:
        try:
            _send_signal(process, signal)
        except (ProcessLookupError, PermissionError):
            continue


def _send_signal(process: Process, signal: int) -> None:
    handle = _open_pidfd(process.pid)
    try:
        if not is_still_running(process):
            return
        if handle is None:
            os.kill(process.pid, signal)
        else:
            # The handle is older than the check, so it refers to the process that was checked, even if that ends now.
            _signal.pidfd_send_signal(handle, signal)
    finally:
        if handle is not None:
            os.close(handle)


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor of the process that has this id now; None if there can be none.

    Without one (no such system call, no descriptor left) the id could be reused between the check and the signal. For
    that the kernel would have to use up all other ids in that moment.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def kill_with_variable(name: bytes, value: bytes, patience_seconds: float = 5.0) -> bool:
    """Kill every process that was started with `name=value` in its environment, and its descendants.

    They are not our children, so their death is polled. Return False if one does not die.
    """
    return kill_all(lambda: find_with_variable(name, value), patience_seconds)


def kill_worker_processes(worker: str) -> bool:
    """Kill what a dead worker of this host left running: needed if its supervisor was killed with it."""
    return kill_with_variable(b"MULLIGAN_WORKER", os.fsencode(worker))


def kill_all(find: Callable[[], list[Process]], patience_seconds: float) -> bool:
    """Kill what `find` returns until it returns nothing and all of it is dead. Return False if one does not die."""
    until = time.monotonic() + patience_seconds
    # A dying process has no environment any more but is not dead yet. Check those first: a process that is dead before
    # the search starts leaves no child that the search could miss.
    dying: dict[tuple[int, int], Process] = {}
    while results := [*filter(is_still_running, dying.values()), *find()]:
        if time.monotonic() > until:
            return False
        send_signal(results, SIGKILL)
        dying.update((process.identity, process) for process in results)
        time.sleep(0.002)
    return True


def find_with_variable(name: bytes, value: bytes) -> list[Process]:
    """Return the other processes that were started with `name=value` in their environment, and their descendants."""
    processes = snapshot()
    # The environment is read after the snapshot: by then the id may belong to another process with other children.
    roots = [
        process.pid
        for process in processes.values()
        if environment_of(process.pid).get(name) == value and is_still_running(process)
    ]
    return [process for process in descendants(processes, roots) if process.pid != os.getpid()]


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third on; None if there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        line = os.read(fd, 4096)
    except OSError:
        return None  # it exited meanwhile
    finally:
        os.close(fd)
    # The program's name is in brackets and may contain anything, even brackets.
    return line[line.rindex(b")") + 2 :].split()


def _read_all(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)
