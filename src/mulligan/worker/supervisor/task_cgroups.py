"""A control group for each task that has a memory limit, so that the kernel enforces it.

Loaded by the supervisor, which must stay small: import only what it needs.

A group that we may write to is not necessarily ours: the init or batch system that put us there counts and limits by
it, and removes it when we are gone. Subgroups are created only where that was delegated: below the group that
$MULLIGAN_CGROUP names, one that systemd has marked (`Delegate=yes`), or the root of the visible tree, as in a
container. Everywhere else, and after any error, the supervisor polls memory instead.
"""

from __future__ import annotations

import os

from mulligan.worker.supervisor import processes

VARIABLE = "MULLIGAN_CGROUP"
ROOT = "/sys/fs/cgroup"
# Groups of tasks are named PREFIX-SUPERVISOR-KEY, that of the worker PREFIX-worker.
PREFIX = "mulligan"
DELEGATION_MARKS = ("user.delegate", "trusted.delegate")
# Processes may be created while others are moved.
MOVES_MAX = 10


class TaskCgroup:
    """The control group of one task, which contains the task and its descendants from the first instruction on."""

    __slots__ = ("_is_unified", "folder")

    def __init__(self, folder: str, is_unified: bool) -> None:
        self.folder = folder
        # Version 2, with one tree for all controllers.
        self._is_unified = is_unified

    def limit(self, memory: int) -> None:
        """Limit its memory, and forbid swap if the kernel supports that."""
        if self._is_unified:
            _write_if_supported(f"{self.folder}/memory.oom.group", "1")
            _write_if_supported(f"{self.folder}/memory.swap.max", "0")
            _write(f"{self.folder}/memory.max", str(memory))
        else:
            _write(f"{self.folder}/memory.limit_in_bytes", str(memory))
            _write_if_supported(f"{self.folder}/memory.memsw.limit_in_bytes", str(memory))

    def is_out_of_memory(self) -> bool:
        """Whether the kernel killed a process in it because memory ran out."""
        content = _read(f"{self.folder}/{'memory.events' if self._is_unified else 'memory.oom_control'}")
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in content.splitlines())

    def peak_bytes(self) -> int:
        """Return its peak memory, page cache included; 0 if the kernel does not report it."""
        content = _read(f"{self.folder}/{'memory.peak' if self._is_unified else 'memory.max_usage_in_bytes'}").strip()
        return int(content) if content.isdigit() else 0

    def join(self) -> None:
        """Move this process into it: what it starts from now on is in it."""
        _write(f"{self.folder}/cgroup.procs", "0")

    def remove(self) -> bool:
        """Return whether it is gone. A group that contains processes stays."""
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class CgroupParent:
    """A group that may be divided, and the one in which this process is."""

    __slots__ = ("folder", "is_unified", "own")

    def __init__(self, folder: str, own: str, is_unified: bool) -> None:
        self.folder = folder
        self.own = own
        self.is_unified = is_unified


class TaskCgroups:
    """The control groups of one supervisor's tasks. Without delegation there are none."""

    def __init__(self, parent: CgroupParent | None = None) -> None:
        # Without an argument it is looked up when the first group is needed: most workers need none.
        self._parent = parent
        self._is_prepared = False
        self._cgroups: list[TaskCgroup] = []
        # Groups that could not be removed yet.
        self._stale: list[TaskCgroup] = []

    def enter(self, key: int) -> TaskCgroup | None:
        """Create a group and move this process into it, so that its next child starts there; None if that fails."""
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
        """Move back, then set the limit: it must not kill this process. Return False if there is no limit."""
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
        """Remove it, and those that could not be removed before."""
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
    """Whether groups can be created now. Removes groups that dead supervisors left behind."""
    try:
        _remove_leftovers(parent.folder)
    except OSError:
        return False
    return not parent.is_unified or _enable_memory(parent)


# -- delegation ------------------------------------------------------------------------------------------------------


def find_parent(named: str = "", root: str = ROOT, lines: str | None = None) -> CgroupParent | None:
    """Return the group below which others may be created, as far as that is known without creating one."""
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
    """Return the same, unless processes in it other than those of this worker prevent its use."""
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
            continue  # not marked, or not readable
    return False


def _enable_memory(parent: CgroupParent) -> bool:
    """Version 2: enable memory limits for subgroups. A group that does so may not contain processes itself."""
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
    """Move the worker's processes into a subgroup, unless the group contains other processes too."""
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
    """Remove the groups of supervisors that were killed. The kernel keeps those that are in use."""
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
        pass  # this kernel does not have the file
