"""The limit of open descriptors: raised for the worker, unchanged for its tasks."""

from __future__ import annotations

import resource

# Some systems have no limit at all.
FDS_MAX = 1 << 16
# The limit with which this process was started.
_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_fd_limit() -> None:
    """Raise our own limit: a task that may print a secret needs four descriptors, and many run at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FDS_MAX if hard == resource.RLIM_INFINITY else min(hard, FDS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def restore_fd_limit(pid: int) -> None:
    """Give a process that we started, and its children, the limit that we inherited: some programs break with more."""
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
    except OSError:
        pass  # it has exited
