"""System calls that fail: `strace` has the n-th call of a kind refused, or kills the process in it."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

# Of fault that is counted here.
KINDS = ("call", "supervisor")
# Of the process that drives a run: its logs, artifacts, side files, lock, pipes. SQLite's own calls are among them.
FAULTS = (
    *("write.ENOSPC", "write.EIO", "write.EINTR", "write.KILL", "pwrite64.ENOSPC", "pwrite64.KILL"),
    *("fsync.EIO", "fsync.KILL", "fdatasync.EIO", "fdatasync.KILL"),
    *("openat.ENOSPC", "openat.EIO", "openat.EMFILE", "openat.KILL"),
    *("rename.ENOSPC", "rename.EIO", "rename.KILL", "mkdir.ENOSPC", "unlink.EIO", "link.EIO", "flock.EIO"),
)
# Of the process that starts tasks and ends them: it hears, starts, waits, tells, and reads in /proc what is left.
SUPERVISOR_FAULTS = (
    *("recvmsg.KILL", "recvmsg.ENOMEM", "clone.KILL", "clone.EAGAIN", "wait4.KILL", "sendto.KILL", "sendto.ENOMEM"),
    *("chdir.EIO", "openat.EMFILE", "openat.KILL", "read.EIO", "read.KILL"),
)
_LOOK_SECONDS = 0.002


def is_there() -> bool:
    return shutil.which("strace") is not None


def attach(pid: int, what: str, nth: int, told: Path) -> subprocess.Popen[bytes]:
    """Count the system calls of a process from now on; a file says when something was done to one."""
    call, outcome = what.split(".")
    effect = "signal=KILL" if outcome == "KILL" else f"error={outcome}"
    expressions = ("-e", f"trace={_names(call)}", "-e", f"inject={_names(call)}:{effect}:when={nth}")
    # It ends with the process that it watches; Ctrl-C is not for it.
    counter = subprocess.Popen(["strace", "-p", str(pid), "-o", told, *expressions], start_new_session=True, **_SILENT)
    status = Path(f"/proc/{pid}/status")
    while counter.poll() is None and "TracerPid:\t0\n" in status.read_text():
        time.sleep(_LOOK_SECONDS)
    return counter


_SILENT: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


def was_met(told: Path) -> bool:
    """Whether there was such a call."""
    text = told.read_text() if told.exists() else ""
    return "INJECTED" in text or "+++ killed" in text


def _names(call: str) -> str:
    """What a call is called: C libraries and processors differ. A "?" lets strace pass over one that is not there."""
    return ",".join(_ALSO.get(call, (call,)))


_ALSO = {
    "rename": ("?rename", "?renameat", "?renameat2"),
    "mkdir": ("?mkdir", "?mkdirat"),
    "unlink": ("?unlink", "?unlinkat"),
    "link": ("?link", "?linkat"),
    "clone": ("?clone", "?clone3", "?vfork"),
}
