"""Paths of the user's that lead to the logs of an attempt: links, which the next attempt replaces."""

from __future__ import annotations

import os

from ..core.tasks import Task
from ..core.words import reason_of
from .folders import Logs


def link_logs(task: Task, logs: Logs) -> str:
    """Have the paths that a task names lead to its logs. Why one of them does not, else "": no step fails for that.

    To be asked when the logs have their names, and when it has ended: one that was short and wrote nothing has none.
    """
    said = []
    for name, path in task.logs.items():
        try:
            log, place = logs.out if name == "stdout" else logs.err, _whole(path, task)
            if os.path.exists(log):
                _lay(log, place)
            elif os.path.islink(place):
                os.unlink(place)  # it led to what another attempt wrote
        except (OSError, ValueError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            said.append(f"no link at '{path}' leads to its {name}: {why}")
    return "; ".join(said)


def _whole(path: object, task: Task) -> str:
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError("it is no path")
    return os.path.join(task.home or "/", path)


def _lay(log: str, path: str) -> None:
    """Most paths are new, and their folder is there: then this is one call of the system's."""
    try:
        os.symlink(log, path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _replace(log, path)
    except FileExistsError:
        _replace(log, path)


def _replace(log: str, path: str) -> None:
    """Whoever reads the path finds the log of before or this one. What is no link is the user's, and stays."""
    if os.path.islink(path):
        if os.readlink(path) == log:
            return
    elif os.path.lexists(path):
        raise ValueError("there is a file that is no link")
    beside = f"{path}.{os.getpid()}.new"
    os.symlink(log, beside)
    os.replace(beside, path)
