"""A target in which a value becomes part of a path: nothing outside of its folder may be touched or entered.

The first byte chooses the position of the value, the others are the value. It takes the way of any value: from the
file into the run, the task and the executor. Then the file system is checked, not the guard.

Whatever the guard lets through, the value stays in a folder of ours: an absolute path is made one below that folder,
and there are no more '..' in it than the folder is deep.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid
from mulligan.language.expressions import Cel
from mulligan.language.loading import load_text
from mulligan.testing.history import History
from mulligan.worker.environment import working_folder_of
from mulligan.worker.folders import Folders
from mulligan.worker.logs.log_links import link_logs
from mulligan.worker.outputs.path_containment import check_paths

from .sentences import require, require_whole

# How far below the folder of an input the run's folder is.
_DEPTH = 8
_FLOW = "inputs: {{x: string}}\nsteps:\n- step: a\n  shell: make\n  {}\n"


class Place(NamedTuple):
    """Where a value is, and the folder below the run's that it must not leave."""

    text: str
    folder: str


PLACES = [
    Place('logs: {stdout: "logs/${inputs.x}"}', "logs"),
    Place('logs: {stdout: "${inputs.x}"}', ""),
    Place('logs: {stderr: "logs/a-${inputs.x}.log"}', "logs"),
    Place('logs: {stdout: "logs/${inputs.x}/${attempt}"}', "logs"),
    Place('logs: {stdout: "${inputs.x}/logs/${inputs.x}"}', ""),
    Place('cwd: "${inputs.x}"', ""),
    Place('cwd: "sub/${inputs.x}"', "sub"),
    Place('cwd: "sub${inputs.x}"', ""),
    Place('cwd: "sub/${inputs.x}/${inputs.x}"', "sub"),
]
SEEDS = ["a", "a/b.log", "../x", "../../outside/new", "/outside/new", "planted/new", "up/new", "a/../../x", ".", "..a"]
SEEDS += ["planted", "file", "file/new", "./new", "//outside/new", "a/./b", "up/../../x", "link", "own", "\0", ""]
WORDS = ["..", "/", "../", "/..", "./", "planted", "up", "outside", "sub", "logs", "file", "link", "own", "%2e%2e", "~"]

Check = Callable[[Task, Folders], object]


def path(data: bytes, check: Check = check_paths, link: Check = link_logs) -> None:
    """A value in a path: refused with a message, or what it leads to is below its folder. Existing files stay."""
    place = PLACES[data[0] % len(PLACES) if data else 0]
    ground = _ground()
    told = ground.task(place, _kept_within(data[1:].decode("utf-8", "replace"), ground.top))
    try:
        check(told, ground.folders)
    except InputInvalid as error:
        require_whole(error)
        require(_listed(ground.top) == ground.before, "what is refused has left something")
        return
    try:
        link(told, ground.folders)
        root = os.path.join(ground.run, place.folder).rstrip("/")
        ground.require_inside(root)
        if told.cwd:
            _require_entered(working_folder_of(told), (root, ground.folders.home))
    finally:
        ground.clear()


class _Ground:
    """The folders of the inputs: the run's, the home, a foreign folder, and links that lead to it."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.run = os.path.join(top, *["deep"] * _DEPTH, "run")
        self.folders = Folders(Path(top, "home"))
        self.outside = os.path.join(top, "outside")
        for folder in (
            f"{self.run}/logs",
            f"{self.run}/sub",
            f"{self.outside}/sub",
            f"{self.folders.home}/runs/1/logs",
        ):
            os.makedirs(folder)
        logs = self.folders.logs(1, "a", 1)
        for name in (*logs, f"{self.outside}/file", f"{self.run}/logs/file", f"{self.run}/file"):
            Path(name).write_text("mine")
        os.symlink("file", f"{self.outside}/link")
        for folder in (self.run, f"{self.run}/logs", f"{self.run}/sub"):
            os.symlink(self.outside, f"{folder}/planted")
            os.symlink("..", f"{folder}/up")
            os.symlink(f"{self.outside}/file", f"{folder}/link")
        self.own = f"{self.run}/logs/own"
        os.symlink(logs.err, self.own)
        self.before = _listed(top)

    def task(self, place: Place, value: str) -> Task:
        run = History(_flow(place.text), evaluator=Cel()).start({"x": value}, cwd=self.run)
        return msgspec.structs.replace(make_task(run.state, "a"), run_id=1)

    def require_inside(self, root: str) -> None:
        after = _listed(self.top)
        for one, was in self.before.items():
            require(after.get(one) == was or one == self.own, f"'{one}' was there, and is another")
        for one in after.keys() - self.before.keys():
            is_inside = one.startswith(f"{root}/") or one.startswith(self.folders.outputs(1))
            require(is_inside, f"'{one}' is new, and not below '{root}'")

    def clear(self) -> None:
        """Restore everything for the next input; if that is not possible, the next one gets new folders."""
        new = _listed(self.top).keys() - self.before.keys()
        for one in sorted(new, key=len, reverse=True):
            os.rmdir(one) if os.path.isdir(one) and not os.path.islink(one) else os.unlink(one)
        if _listed(self.top) != self.before:
            _ground.cache_clear()


@cache
def _ground() -> _Ground:
    folder = tempfile.mkdtemp(prefix="fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _Ground(os.path.realpath(folder))


@cache
def _flow(text: str) -> Workflow:
    return load_text(_FLOW.format(text))


def _kept_within(value: str, top: str) -> str:
    """Return the value, unable to name anything outside of our folders, however it is used."""
    parts, ups = [], 0
    for part in value[:2000].split("/"):
        ups += part == ".."
        parts.append("x" if part == ".." and ups > _DEPTH // 2 else part)
    whole = "/".join(parts)
    return f"{top}/{whole.lstrip('/')}" if whole.startswith("/") else whole


def _listed(folder: str) -> dict[str, str]:
    """Everything below a folder, by its real path: of a link where it leads, of a file what is in it."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            one = os.path.join(above, name)
            found[one] = os.readlink(one) if os.path.islink(one) else Path(one).read_text() if name in files else ""
    return found


def _require_entered(folder: str, roots: tuple[str, ...]) -> None:
    """A folder that is there is one of the roots, or above it one of them is found by going up."""
    allowed = {_identity(os.open(root, os.O_RDONLY)) for root in roots}
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return  # nobody can enter it
    seen: set[tuple[int, int]] = set()
    while (found := _identity(fd)) not in allowed:
        require(found not in seen, f"'{folder}' can be entered, and is not below '{roots[0]}'")
        seen.add(found)
        fd = os.open(f"{folder}{'/..' * len(seen)}", os.O_RDONLY | os.O_DIRECTORY)


def _identity(fd: int) -> tuple[int, int]:
    try:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    finally:
        os.close(fd)


def seeds() -> list[bytes]:
    return [bytes([place]) + value.encode() for place in range(len(PLACES)) for value in SEEDS]
