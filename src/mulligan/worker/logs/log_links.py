"""Links from paths that the user names to the logs of an attempt. The next attempt replaces them.

Nothing but such a link is ever replaced. A path that contains a value stays in its folder: see `path_containment`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.text.paths import TemplatedPath
from mulligan.errors import InputInvalid
from mulligan.worker.folders import Folders
from mulligan.worker.outputs.path_containment import open_folder_inside, resolve_log_folder

# The target of such a link: see `Folders.logs`.
_LOG = lazy_regex(r"(?P<home>/.*)/runs/[0-9]+/logs/[^/]+#[0-9]+\.(?:out|err)", re.DOTALL)


def link_logs(task: Task, folders: Folders) -> str:
    """Link the paths that a task names to its logs. Return why one cannot be linked, or "": no step fails for that.

    Call it when the logs are named, and when the task has ended: a short task without output has no logs.
    """
    problems = []
    logs = folders.logs(task.run_id, task.place, task.attempt)
    for name, path in task.logs.items():
        log = logs.out if name == "stdout" else logs.err
        try:
            with _open_link_path(name, path, task, folders) as link:
                _write_link(log, link)
        except (OSError, ValueError, InputInvalid) as error:
            why = error_reason(error) if isinstance(error, OSError) else str(error)
            problems.append(f"cannot link '{path}' to its {name}: {why}")
    return "; ".join(problems)


def make_log_folders(task: Task, folders: Folders) -> None:
    """Create the folders of the links before the task starts, so that it may write beside its logs.

    A folder that cannot be created is reported by `link_logs`.
    """
    made: set[str] = set()
    for name, path in task.logs.items():
        parent = os.path.dirname(path) if isinstance(path, str) else ""
        if parent in made:
            continue
        made.add(parent)
        try:
            with _open_link_path(name, path, task, folders) as link:
                if link.folder is None:
                    os.makedirs(os.path.dirname(link.name), exist_ok=True)
        except (OSError, ValueError, InputInvalid):
            pass


class _LinkPath(msgspec.Struct, frozen=True):
    """Where to create a link: a name in an open folder; or, without one, a path whose folder may not exist."""

    name: str
    folder: int | None = None


@contextmanager
def _open_link_path(name: str, path: object, task: Task, folders: Folders) -> Iterator[_LinkPath]:
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError("it is not a path")
    folder = task.folders.get(f"logs.{name}")
    if folder is None:
        yield _LinkPath(os.path.join(task.started_in or "/", path))
        return
    last = os.path.basename(path)
    if last in ("", "."):
        raise ValueError("it is not a path")
    root, real = resolve_log_folder(f"logs.{name}", TemplatedPath(path, folder), task, folders)
    with open_folder_inside(root, real) as fd:
        yield _LinkPath(last, fd)


def _write_link(log: str, link: _LinkPath) -> None:
    """Create or update the link. Usually the path is new and its folder exists: then this is one system call."""
    if not os.path.exists(log):
        # The existing link leads to the log of another attempt.
        if _target(link) is not None and _is_ours(link, log):
            os.unlink(link.name, dir_fd=link.folder)
        return
    try:
        os.symlink(log, link.name, dir_fd=link.folder)
    except FileNotFoundError:
        if link.folder is not None:
            raise
        os.makedirs(os.path.dirname(link.name), exist_ok=True)
        _replace(log, link)
    except FileExistsError:
        _replace(log, link)


def _replace(log: str, link: _LinkPath) -> None:
    """Replace our own link atomically. Leave anything else alone."""
    target = _target(link)
    if target == log:
        return
    if target is None and _exists(link):
        raise ValueError("there is a file that is not a link")
    if target is not None and not _is_ours(link, log):
        raise ValueError("there is a link that Mulligan did not create")
    beside = f"{link.name}.{os.getpid()}.new"
    os.symlink(log, beside, dir_fd=link.folder)
    os.replace(beside, link.name, src_dir_fd=link.folder, dst_dir_fd=link.folder)


def _exists(link: _LinkPath) -> bool:
    return os.access(link.name, os.F_OK, dir_fd=link.folder, follow_symlinks=False)


def _target(link: _LinkPath) -> str | None:
    """Return where the existing link leads; None if there is none."""
    try:
        return os.readlink(link.name, dir_fd=link.folder)
    except OSError:
        return None


def _is_ours(link: _LinkPath, log: str) -> bool:
    """Whether it leads to a log below the same home, or to a log that is gone: a home may be moved or emptied."""
    target, own = _LOG.fullmatch(_target(link) or ""), _LOG.fullmatch(log)
    if target is None or own is None:
        return False
    if os.path.realpath(target["home"]) == os.path.realpath(own["home"]):
        return True
    try:
        os.lstat(target[0])
    except FileNotFoundError:
        return True
    except OSError:
        pass  # unknown
    return False
