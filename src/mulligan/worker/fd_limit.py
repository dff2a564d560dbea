"""How many descriptors a worker may have: as many as the system lets it. Its tasks have as many as it was given."""

from __future__ import annotations

import resource

# More nobody needs; some systems have no bound at all.
FDS_MAX = 1 << 16
# What this process was started with.
_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_fd_limit() -> None:
    """Raise our own bound: a task that may print a secret needs four, and there are many at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FDS_MAX if hard == resource.RLIM_INFINITY else min(hard, FDS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def restore_fd_limit(pid: int) -> None:
    """Let a process that we have started, and so all that it starts, have what we were given: more breaks old ones."""
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
    except OSError:
        pass  # it is gone already
