"""Control groups of tasks: in one of its own the kernel keeps a task to its memory, to the page.

Loaded by the supervisor, which must stay small: nothing is imported that it does not need.

That a group can be written does not make it ours: whoever has put us there (an init system, a batch system) counts
in it, limits it, and removes it when we are gone. Only what was handed over is divided: the group that
$MULLIGAN_CGROUP names, one that systemd has marked (`Delegate=yes`), or the root of all that can be seen from here, as
in a container. Everywhere else, and wherever anything goes wrong, memory is watched.
"""

from __future__ import annotations

import os

from mulligan.worker import processes

VARIABLE = "MULLIGAN_CGROUP"
ROOT = "/sys/fs/cgroup"
# The groups of tasks are called after it, their supervisor and their key; the one of the worker, `…-worker`.
PREFIX = "mulligan"
DELEGATION_MARKS = ("user.delegate", "trusted.delegate")
# Processes may be born while others are moved.
MOVES_MAX = 10


class TaskCgroup:
    """The control group of one task: it is in there from its first instruction on, with all that comes from it."""

    __slots__ = ("_is_unified", "folder")

    def __init__(self, folder: str, is_unified: bool) -> None:
        self.folder = folder
        # Of version 2, where one tree has all controllers.
        self._is_unified = is_unified

    def limit(self, memory: int) -> None:
        """Keep all that is in it to so many bytes, and let nothing go to swap where that can be said."""
        if self._is_unified:
            _write_if_supported(f"{self.folder}/memory.oom.group", "1")
            _write_if_supported(f"{self.folder}/memory.swap.max", "0")
            _write(f"{self.folder}/memory.max", str(memory))
        else:
            _write(f"{self.folder}/memory.limit_in_bytes", str(memory))
            _write_if_supported(f"{self.folder}/memory.memsw.limit_in_bytes", str(memory))

    def is_out_of_memory(self) -> bool:
        """Whether the kernel has killed in it for want of memory."""
        content = _read(f"{self.folder}/{'memory.events' if self._is_unified else 'memory.oom_control'}")
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in content.splitlines())

    def peak_bytes(self) -> int:
        """The most that was in it, files that the kernel kept in memory too; 0 where that is not told."""
        content = _read(f"{self.folder}/{'memory.peak' if self._is_unified else 'memory.max_usage_in_bytes'}").strip()
        return int(content) if content.isdigit() else 0

    def join(self) -> None:
        """Go in there: what this process starts from now on is in it."""
        _write(f"{self.folder}/cgroup.procs", "0")

    def remove(self) -> bool:
        """Whether it is gone. One that somebody is in stays."""
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class CgroupParent:
    """A group that is ours to divide, and the one in which this process lives."""

    __slots__ = ("folder", "is_unified", "own")

    def __init__(self, folder: str, own: str, is_unified: bool) -> None:
        self.folder = folder
        self.own = own
        self.is_unified = is_unified


class TaskCgroups:
    """The groups of one supervisor's tasks. Where none may be made, nobody gets one."""

    def __init__(self, parent: CgroupParent | None = None) -> None:
        # Looked for when the first one is wanted, if nobody says it: most workers never want any.
        self._parent = parent
        self._is_prepared = False
        self._cgroups: list[TaskCgroup] = []
        # Of those, what nobody needs any more and would not go.
        self._stale: list[TaskCgroup] = []

    def enter(self, key: int) -> TaskCgroup | None:
        """A new group with this process in it, so that what it starts is born there; None where there is none."""
        parent = self._prepared_parent()
        if parent is None:
            return None
        cgroup = TaskCgroup(f"{parent.folder}/{PREFIX}-{os.getpid()}-{key}", parent.is_unified)
        try:
            os.mkdir(cgroup.folder)
            cgroup.join()
        except OSError:
            cgroup.remove()
            return None
        self._cgroups.append(cgroup)
        return cgroup

    def leave(self, cgroup: TaskCgroup, memory: int, is_running: bool) -> bool:
        """Go back, and set the limit only then: it must not kill who made it. False: it holds nobody to anything."""
        assert self._parent is not None
        try:
            _write(f"{self._parent.own}/cgroup.procs", "0")
            if is_running:
                cgroup.limit(memory)
                return True
        except OSError:
            pass
        self.close(cgroup)
        return False

    def close(self, cgroup: TaskCgroup) -> None:
        """Remove it, and those that would not go before."""
        self._cgroups.remove(cgroup)
        self._stale = [one for one in (*self._stale, cgroup) if not one.remove()]

    def close_all(self) -> None:
        for cgroup in (*self._stale, *self._cgroups):
            cgroup.remove()

    def _prepared_parent(self) -> CgroupParent | None:
        if not self._is_prepared:
            self._is_prepared = True
            self._parent = self._parent or find_parent(os.environ.get(VARIABLE, ""))
            if self._parent is not None and not _prepare(self._parent):
                self._parent = None
        return self._parent


def _prepare(parent: CgroupParent) -> bool:
    """Whether groups can be made there now. Those that others have left behind are removed."""
    try:
        _remove_leftovers(parent.folder)
    except OSError:
        return False
    return not parent.is_unified or _enable_memory(parent)


# -- whose is what ---------------------------------------------------------------------------------------------------


def find_parent(named: str = "", root: str = ROOT, lines: str | None = None) -> CgroupParent | None:
    """The group below which others may be made, as far as that can be told without making any."""
    for line in (_read("/proc/self/cgroup") if lines is None else lines).splitlines():
        _, controllers, path = line.split(":", 2)
        is_unified = not controllers
        if not is_unified and "memory" not in controllers.split(","):
            continue
        own = f"{root}{'' if is_unified else '/memory'}{path}".rstrip("/")
        folder = named.rstrip("/") or own
        if _has_memory_controller(folder, is_unified) and (named or path == "/" or _is_delegated(own)):
            return CgroupParent(folder, own, is_unified) if os.access(folder, os.W_OK) else None
    return None


def find_usable_parent(worker: int) -> CgroupParent | None:
    """The same, where the processes that are there now do not stand in the way of the worker with this id."""
    parent = find_parent(os.environ.get(VARIABLE, ""))
    if parent is None or not parent.is_unified or parent.folder != parent.own or _is_memory_enabled(parent):
        return parent
    return parent if _belong_to(worker, _processes_in(parent)) else None


def _has_memory_controller(folder: str, is_unified: bool) -> bool:
    if is_unified:
        return "memory" in _read(f"{folder}/cgroup.controllers").split()
    return os.access(f"{folder}/memory.limit_in_bytes", os.F_OK)


def _is_delegated(folder: str) -> bool:
    for mark in DELEGATION_MARKS:
        try:
            if os.getxattr(folder, mark) == b"1":
                return True
        except (OSError, AttributeError):
            continue  # no such mark, or not for us to see
    return False


def _enable_memory(parent: CgroupParent) -> bool:
    """Version 2: let the groups below have limits. One that does so may hold no processes itself."""
    if _is_memory_enabled(parent):
        return True
    try:
        if parent.folder == parent.own:
            _move_worker_aside(parent)
        _write(f"{parent.folder}/cgroup.subtree_control", "+memory")
    except OSError:
        return False
    return True


def _is_memory_enabled(parent: CgroupParent) -> bool:
    return "memory" in _read(f"{parent.folder}/cgroup.subtree_control").split()


def _processes_in(parent: CgroupParent) -> list[int]:
    return [int(pid) for pid in _read(f"{parent.folder}/cgroup.procs").split()]


def _belong_to(worker: int, pids: list[int]) -> bool:
    return set(pids) <= {process.pid for process in processes.descendants(processes.snapshot(), [worker])}


def _move_worker_aside(parent: CgroupParent) -> None:
    """Move the worker and all that is its into a group below, unless somebody else is there too."""
    aside = f"{parent.folder}/{PREFIX}-worker"
    for _ in range(MOVES_MAX):
        pids = _processes_in(parent)
        if not pids or not _belong_to(os.getppid(), pids):
            return
        if not os.path.isdir(aside):
            os.mkdir(aside)
        for pid in pids:
            _write(f"{aside}/cgroup.procs", str(pid))
        parent.own = aside


def _remove_leftovers(folder: str) -> None:
    """The groups of supervisors that were killed before they could. The kernel keeps those that are in use."""
    for name in os.listdir(folder):
        prefix, _, rest = name.partition("-")
        supervisor = rest.partition("-")[0]
        if prefix == PREFIX and supervisor.isdigit() and not processes.is_running(int(supervisor)):
            TaskCgroup(f"{folder}/{name}", False).remove()


# -- files -----------------------------------------------------------------------------------------------------------


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _write_if_supported(path: str, text: str) -> None:
    try:
        _write(path, text)
    except OSError:
        pass  # this kernel has no such thing
