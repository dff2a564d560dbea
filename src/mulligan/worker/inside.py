"""Paths that a value took part in, held against the file system: none is used that leads out of its folder.

`core.paths` judges the text of a path. Here links are followed as well: a link below the folder that leads elsewhere
lets no value out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mulligan.core.effects.tasks import Task
from mulligan.core.model.paths import TemplatedPath, path_problem
from mulligan.core.model.workflow import ITEMS_FILE
from mulligan.core.state.scope import FILE
from mulligan.errors import InputInvalid
from mulligan.language.shell import environment_value
from mulligan.worker.environment import folder_of
from mulligan.worker.folders import Folders

# For a path that begins with its value: behind a folder a value is no path of its own.
_HINT = "to let this value name any path, write ${any_path(…)} around it in the file"
# Of the addresses of databases: those that are files.
_FILE_SCHEMES = ("sqlite:///", "duckdb:///")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LeadsOut(InputInvalid):
    """A path with a value in it leads out of the folder that it must stay in."""


def check_paths(task: Task, folders: Folders) -> None:
    """LeadsOut where one of the paths that the task was given leads out of its folder. Makes and opens nothing."""
    for name, folder in task.folders.items():
        if name == "cwd":
            path = TemplatedPath(environment_value("cwd", task.cwd), folder)
            _real(name, path, task.home or "/", (folders.home,))
        elif name.startswith("logs."):
            text = task.logs[name.removeprefix("logs.")]
            if isinstance(text, str):  # else it is no path at all, and told as such
                log_folder(name, TemplatedPath(text, folder), task, folders)
        elif name.startswith(FILE):
            reads = task.reuse.reads if task.reuse else {}
            text = {**reads, **task.files}.get(name.removeprefix(FILE))
            if text is not None:
                _real(name.removeprefix(FILE), TemplatedPath(text, folder), task.home or "/", (folders.home,))
        else:
            _check_parameter(name, folder, task, folders)


def log_folder(name: str, path: TemplatedPath, task: Task, folders: Folders) -> tuple[str, str]:
    """Where the folder of a link to a log really is, below which folder. LeadsOut where no link may be.

    Neither may a value lead it to our own files, which are often below the folder of the run.
    """
    outputs = folders.outputs(task.run_id)
    root, real = _real(name, path, task.home or "/", (outputs,), is_link=True)
    home = os.path.realpath(folders.home)
    is_led_home = _is_inside(real, home) and not _is_inside(root, home)
    if is_led_home and not _is_inside(real, os.path.realpath(outputs)):
        raise LeadsOut(f"'{name}' is '{path.shown}', and that is in '{folders.home}', where the runs are kept")
    return root, real


def _check_parameter(name: str, folder: str, task: Task, folders: Folders) -> None:
    """A parameter of the action, or a variable that its text reads. These are relative to where the task runs."""
    value = task.params[name] if name in task.params else task.env.get(name)
    if not isinstance(value, str):
        return
    scheme = next((scheme for scheme in _FILE_SCHEMES if folder.lower().startswith(scheme)), "")
    if task.kind == "sql" and not scheme:
        return  # the address of a server, or one that is a value as a whole
    path = TemplatedPath(value[len(scheme) :], folder[len(scheme) :])
    label = "file" if name == ITEMS_FILE else name
    _real(label, path, folder_of(task), (task.home or "/", folders.home), hint="" if scheme else _HINT)


def _real(
    name: str, path: TemplatedPath, start: str, also: Iterable[str] = (), *, is_link: bool = False, hint: str = _HINT
) -> tuple[str, str]:
    """Where the path really leads (of a link: where its folder is), and below which folder that is.

    `start` is what the path is relative to. A path that begins with its value may also name something in `also`.
    """
    folder = _joined(start, path.folder)
    fault = path_problem(path)
    if not fault:
        whole = _joined(start, path.text)
        real = os.path.realpath(os.path.dirname(whole) if is_link else whole)
        for root in map(os.path.realpath, (folder, *(() if path.folder else also))):
            if _is_inside(real, root):
                return root, real
        fault = "it leads out"
    below = folder.rstrip("/") or "/"
    raise LeadsOut(f"'{name}' is '{path.shown}', and must stay in '{below}': {fault}", hint="" if path.folder else hint)


def _joined(start: str, path: str) -> str:
    """To `realpath` two slashes at the beginning are not one."""
    whole = os.path.join(start, path)
    return f"/{whole.lstrip('/')}" if whole.startswith("//") else whole


def _is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


@contextmanager
def opened_folder(root: str, folder: str) -> Iterator[int]:
    """A descriptor of `folder`, which is `root` or below it; made where it is not there. Both are real paths.

    OSError where a link stands in the way: it was put there after the path was looked at.
    """
    os.makedirs(root, exist_ok=True)
    fd = os.open(root, _FOLDER)
    try:
        for name in os.path.relpath(folder, root).split("/"):
            inner = _entered(name, fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _entered(name: str, fd: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
    except FileNotFoundError:
        try:
            os.mkdir(name, dir_fd=fd)
        except FileExistsError:
            pass  # another task was faster
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
