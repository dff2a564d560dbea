"""Paths of the user's that lead to the logs of an attempt: links, which the next attempt replaces."""

from __future__ import annotations

import os

from ..core.tasks import Task
from ..core.words import reason_of
from .folders import Logs, make_private


def link_logs(task: Task, logs: Logs) -> str:
    """Have the paths that a task names lead to its logs. Why one of them does not, else "": no step fails for that."""
    said = []
    for name, path in task.logs.items():
        try:
            _link(logs.out if name == "stdout" else logs.err, os.path.join(task.home or "/", _text(path)))
        except (OSError, ValueError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            said.append(f"no link at '{path}' leads to its {name}: {why}")
    return "; ".join(said)


def keep_empty(logs: Logs) -> None:
    """A log in which nothing is has no file of its own; with a link to it, it gets one."""
    for path in logs:
        try:
            make_private(os.path.dirname(path))
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        except OSError:
            pass  # a link that leads nowhere says as much


def _text(path: object) -> str:
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError("it is no path")
    return path


def _link(log: str, path: str) -> None:
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
    if os.path.lexists(path) and not os.path.islink(path):
        raise ValueError("there is a file that is no link")
    beside = f"{path}.{os.getpid()}.new"
    os.symlink(log, beside)
    os.replace(beside, path)
