"""Check that paths which contain a value stay in their folder on the disk.

`core.model.paths` checks the text of a path. This follows links as well: a link inside the folder that leads elsewhere
does not let a value out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.core.model.text.paths import TemplatedPath, path_problem
from mulligan.core.model.workflow import ITEMS_FILE
from mulligan.core.state.scope import FILE
from mulligan.errors import InputInvalid
from mulligan.language.shell.shell import environment_value
from mulligan.worker.environment import working_folder_of
from mulligan.worker.folders import Folders

# Only for a path that starts with its value: after a folder, `any_path` would not help.
_HINT = "to let this value name any path, write ${any_path(…)} around it in the file"
# The database URLs that are files.
_FILE_SCHEMES = ("sqlite:///", "duckdb:///")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PathEscapes(InputInvalid):
    """A path with a value in it leads out of its folder."""


def check_paths(task: Task, folders: Folders) -> None:
    """Raise PathEscapes if a path of the task leads out of its folder. Creates and opens nothing."""
    for name, folder in task.folders.items():
        if name == "cwd":
            path = TemplatedPath(environment_value("cwd", task.cwd), folder)
            _resolve(name, path, task.home or "/", (folders.home,))
        elif name.startswith("logs."):
            text = task.logs[name.removeprefix("logs.")]
            if isinstance(text, str):  # otherwise it is not a path, which is reported elsewhere
                resolve_log_folder(name, TemplatedPath(text, folder), task, folders)
        elif name.startswith(FILE):
            reads = task.reuse.reads if task.reuse else {}
            text = {**reads, **task.files}.get(name.removeprefix(FILE))
            if text is not None:
                _resolve(name.removeprefix(FILE), TemplatedPath(text, folder), task.home or "/", (folders.home,))
        else:
            _check_parameter(name, folder, task, folders)


def resolve_log_folder(name: str, path: TemplatedPath, task: Task, folders: Folders) -> tuple[str, str]:
    """Return the folder that must contain a link to a log, and the real folder of the link, or raise PathEscapes.

    A value must not lead it to our own files either, which are often below the folder of the run.
    """
    outputs = folders.outputs(task.run_id)
    root, real = _resolve(name, path, task.started_in or "/", (outputs,), is_link=True)
    home = os.path.realpath(folders.home)
    is_in_home = _is_inside(real, home) and not _is_inside(root, home)
    if is_in_home and not _is_inside(real, os.path.realpath(outputs)):
        raise PathEscapes(f"'{name}' is '{path.shown}', which is inside '{folders.home}', where runs are stored")
    return root, real


def _check_parameter(name: str, folder: str, task: Task, folders: Folders) -> None:
    """Check a parameter of the action, or a variable that its text reads. They are relative to the working folder."""
    value = task.params[name] if name in task.params else task.env.get(name)
    if not isinstance(value, str):
        return
    scheme = next((scheme for scheme in _FILE_SCHEMES if folder.lower().startswith(scheme)), "")
    if traits(task.kind, task.params).query and not scheme:
        return  # the URL of a server, or a URL that is entirely a value
    path = TemplatedPath(value[len(scheme) :], folder[len(scheme) :])
    label = "file" if name == ITEMS_FILE else name
    _resolve(label, path, working_folder_of(task), (task.home or "/", folders.home), hint="" if scheme else _HINT)


def _resolve(
    name: str, path: TemplatedPath, start: str, also: Iterable[str] = (), *, is_link: bool = False, hint: str = _HINT
) -> tuple[str, str]:
    """Return the folder that must contain the path, and the real path (for a link, that of its folder).

    `start` is what the path is relative to. A path that starts with its value may also be below a folder in `also`.
    """
    folder = _join(start, path.folder)
    fault = path_problem(path)
    if not fault:
        whole = _join(start, path.text)
        real = os.path.realpath(os.path.dirname(whole) if is_link else whole)
        for root in map(os.path.realpath, (folder, *(() if path.folder else also))):
            if _is_inside(real, root):
                return root, real
        fault = "it leads out"
    below = folder.rstrip("/") or "/"
    raise PathEscapes(
        f"'{name}' is '{path.shown}', which must stay in '{below}': {fault}", hint="" if path.folder else hint
    )


def _join(start: str, path: str) -> str:
    """Join two paths. `realpath` does not collapse two leading slashes."""
    whole = os.path.join(start, path)
    return f"/{whole.lstrip('/')}" if whole.startswith("//") else whole


def _is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


@contextmanager
def open_folder_inside(root: str, folder: str) -> Iterator[int]:
    """Open `folder`, which is `root` or below it, and create it if needed. Both are real paths.

    Raises OSError if there is a link on the way: it was created after the path was checked.
    """
    os.makedirs(root, exist_ok=True)
    fd = os.open(root, _FOLDER)
    try:
        for name in os.path.relpath(folder, root).split("/"):
            inner = _open_subfolder(name, fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _open_subfolder(name: str, fd: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
    except FileNotFoundError:
        try:
            os.mkdir(name, dir_fd=fd)
        except FileExistsError:
            pass  # another task created it
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
