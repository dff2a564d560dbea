"""Paths of the user's that lead to the logs of an attempt: links, which the next attempt replaces.

Nothing is ever replaced that is not such a link. A path in which a value stands stays in its folder: see `inside`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mulligan.core.effects.tasks import Task
from mulligan.core.model.formatting import error_reason
from mulligan.core.model.paths import TemplatedPath
from mulligan.errors import InputInvalid
from mulligan.worker.folders import Folders
from mulligan.worker.inside import log_folder, opened_folder

# Where such a link leads: see `Folders.logs`.
_LOG = re.compile(r"(?P<home>/.*)/runs/[0-9]+/logs/[^/]+#[0-9]+\.(?:out|err)", re.DOTALL)


def link_logs(task: Task, folders: Folders) -> str:
    """Have the paths that a task names lead to its logs. Why one of them does not, else "": no step fails for that.

    To be asked when the logs have their names, and when it has ended: one that was short and wrote nothing has none.
    """
    said = []
    logs = folders.logs(task.run_id, task.place, task.attempt)
    for name, path in task.logs.items():
        log = logs.out if name == "stdout" else logs.err
        try:
            with _spot(name, path, task, folders) as spot:
                _link(log, spot)
        except (OSError, ValueError, InputInvalid) as error:
            why = error_reason(error) if isinstance(error, OSError) else str(error)
            said.append(f"no link at '{path}' leads to its {name}: {why}")
    return "; ".join(said)


class _Spot(NamedTuple):
    """Where a link is to be: a name in a folder that is open; without one, a path whose folder may not be there."""

    name: str
    folder: int | None = None


@contextmanager
def _spot(name: str, path: object, task: Task, folders: Folders) -> Iterator[_Spot]:
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError("it is no path")
    folder = task.folders.get(f"logs.{name}")
    if folder is None:
        yield _Spot(os.path.join(task.home or "/", path))
        return
    last = os.path.basename(path)
    if last in ("", "."):
        raise ValueError("it is no path")
    root, real = log_folder(f"logs.{name}", TemplatedPath(path, folder), task, folders)
    with opened_folder(root, real) as fd:
        yield _Spot(last, fd)


def _link(log: str, spot: _Spot) -> None:
    """Most paths are new, and their folder is there: then this is one call of the system's."""
    if not os.path.exists(log):
        # What is there led to what another attempt wrote.
        if _target(spot) is not None and _is_ours(spot, log):
            os.unlink(spot.name, dir_fd=spot.folder)
        return
    try:
        os.symlink(log, spot.name, dir_fd=spot.folder)
    except FileNotFoundError:
        if spot.folder is not None:
            raise
        os.makedirs(os.path.dirname(spot.name), exist_ok=True)
        _replace(log, spot)
    except FileExistsError:
        _replace(log, spot)


def _replace(log: str, spot: _Spot) -> None:
    """Whoever reads the path finds the log of before or this one. What is no link of ours stays."""
    target = _target(spot)
    if target == log:
        return
    if target is None and _is_there(spot):
        raise ValueError("there is a file that is no link")
    if target is not None and not _is_ours(spot, log):
        raise ValueError("there is a link that Mulligan did not make")
    beside = f"{spot.name}.{os.getpid()}.new"
    os.symlink(log, beside, dir_fd=spot.folder)
    os.replace(beside, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)


def _is_there(spot: _Spot) -> bool:
    return os.access(spot.name, os.F_OK, dir_fd=spot.folder, follow_symlinks=False)


def _target(spot: _Spot) -> str | None:
    """Where the link leads that is there; None where none is."""
    try:
        return os.readlink(spot.name, dir_fd=spot.folder)
    except OSError:
        return None


def _is_ours(spot: _Spot, log: str) -> bool:
    """Whether it leads to a log below the same home; or to one that is gone, since a home may be moved or emptied."""
    found, own = _LOG.fullmatch(_target(spot) or ""), _LOG.fullmatch(log)
    if found is None or own is None:
        return False
    if os.path.realpath(found["home"]) == os.path.realpath(own["home"]):
        return True
    try:
        os.lstat(found[0])
    except FileNotFoundError:
        return True
    except OSError:
        pass  # nobody can tell
    return False
