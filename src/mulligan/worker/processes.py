"""Processes as /proc shows them: who descends from whom, what they hold, and how they are ended.

The kernel gives the id of a process that is gone to another one. So a process is remembered by its id and its start
time, and is signalled only while both still belong together.

Loaded by the supervisor too, which must stay small: nothing is imported that it does not need.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time
from _collections_abc import Callable, Iterable

SIGKILL = 9
# How long one waits for a process that is just becoming another program to be that program.
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
        # Since the machine started. Ids are not given out again within one tick, which is 10 ms.
        self.start_ticks = start_ticks

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process has, before or after it."""
        return self.pid, self.start_ticks


def snapshot() -> dict[int, Process]:
    """Every live process that can be seen, by its id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := find_process(int(name))) is not None:
            found[process.pid] = process
    return found


def find_process(pid: int) -> Process | None:
    """The process, or None if it is gone or only waits for its parent to notice."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[21]) * PAGE_BYTES, int(fields[19]))


def is_still_running(process: Process) -> bool:
    """Whether this very process is there, and not another one that was given its id."""
    found = find_process(process.pid)
    return found is not None and found.start_ticks == process.start_ticks


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what its parent has not noticed yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return find_process(pid) is not None or not os.path.exists("/proc/self/stat")


def descendants(processes: dict[int, Process], roots: list[int]) -> list[Process]:
    """The live ones among `roots`, and all that come from them, parents first.

    They are signalled in this order: a shell that sees its command die first would go on with the next one.
    """
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found = list(roots)
    for pid in found:
        found += children.get(pid, ())
    return [processes[pid] for pid in found if pid in processes]


def children_of_this_process() -> set[int] | None:
    """The direct children, zombies too, with one cheap read; None where the kernel does not tell."""
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
    """The environment that the process was started with; empty if it is gone or not ours to read.

    In the middle of an exec the old one is gone and the new one not there: whoever believed that would let it live.
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
    """Whether one that showed none has one by now, or is about to: it has memory, and nothing is known of that yet."""
    fields = _stat(pid)
    if fields is None:
        return False
    size, start, end = int(fields[20]), int(fields[47]), int(fields[48])
    return size > 0 and (start == 0 or start != end)


def proportional_bytes(pids: list[int]) -> int:
    """What the processes hold together, where a page that several hold counts once. Dearer than the plain sum."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as lines:
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return total


def send_signal(processes: Iterable[Process], signal: int) -> None:
    """Signal each. One that has gone is passed over, also where another process has its id now."""
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
            # The handle was there before the look: what was looked at is what is signalled, even if it ends just now.
            _signal.pidfd_send_signal(handle, signal)
    finally:
        if handle is not None:
            os.close(handle)


def _open_pidfd(pid: int) -> int | None:
    """A descriptor of the process that has this id now; None where none can be had.

    Without one (no such call, no descriptor left) the id may pass to another process between the look and the signal,
    a moment in which the kernel would have to give out all its other ids.
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
    """Kill every process that was started with `name=value` in its environment, and what comes from them.

    They are nobody's children here, so nothing tells of their death: it is looked for. False if one does not die.
    """
    return kill_all(lambda: find_with_variable(name, value), patience_seconds)


def kill_worker_processes(worker: str) -> bool:
    """Kill what a dead worker of this host left running: needed when its supervisor was killed with it."""
    return kill_with_variable(b"MULLIGAN_WORKER", os.fsencode(worker))


def kill_all(find: Callable[[], list[Process]], patience_seconds: float) -> bool:
    """Kill what `find` finds, until it finds nothing and all that it found are dead. False if one does not die."""
    until = time.monotonic() + patience_seconds
    # One that is dying has no environment any more, and is not dead yet. Who is not there before one looks for the
    # others leaves no child that is not seen.
    dying: dict[tuple[int, int], Process] = {}
    while found := [*filter(is_still_running, dying.values()), *find()]:
        if time.monotonic() > until:
            return False
        send_signal(found, SIGKILL)
        dying.update((process.identity, process) for process in found)
        time.sleep(0.002)
    return True


def find_with_variable(name: bytes, value: bytes) -> list[Process]:
    """All processes but this one that were started with `name=value` in their environment, and what comes from them."""
    processes = snapshot()
    # The environment is read later than the rest: by then the id may be another's, who has other children.
    roots = [
        process.pid
        for process in processes.values()
        if environment_of(process.pid).get(name) == value and is_still_running(process)
    ]
    return [process for process in descendants(processes, roots) if process.pid != os.getpid()]


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on; None if there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        line = os.read(fd, 4096)
    except OSError:
        return None  # it went while it was looked at
    finally:
        os.close(fd)
    # The name of the program is in brackets and may hold anything, brackets too.
    return line[line.rindex(b")") + 2 :].split()


def _read_all(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)
