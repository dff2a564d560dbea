"""Says what a program does itself that a replay would do again or see differently; refuses threads.

Python tells audit hooks what it opens, connects to and starts. A hook cannot be removed, so it is added once, and looks
at the machine that is running.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from mulligan.programs.errors import ThreadRefused

# What each event means, in words that follow "the program".
_MEANINGS = {
    "open": "opens a file",
    **dict.fromkeys(("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.glob/2"), "lists a folder"),
    **dict.fromkeys(("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"), "changes files"),
    **dict.fromkeys(("shutil.rmtree", "shutil.copyfile", "shutil.move", "os.truncate"), "changes files"),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"), "uses the network"),
    **dict.fromkeys(("urllib.Request", "http.client.connect", "ftplib.connect", "smtplib.connect"), "uses the network"),
    **dict.fromkeys(("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"), "starts a process"),
    **dict.fromkeys(("sqlite3.connect", "sqlite3.connect/handle"), "opens a database"),
    **dict.fromkeys(("os.putenv", "os.unsetenv", "os.chdir"), "changes its environment"),
}
# What `threading` starts threads with. There is an audit event for it only from Python 3.12 on.
_STARTS_OF_THREADS = ("_start_new_thread", "_start_joinable_thread")
_OWN_FOLDER = __file__.rpartition("/")[0].removesuffix("programs")
_LIBRARY = os.path.dirname(os.__file__) + "/"
_CELL = "<cell"
_PACKAGES = ("/site-packages/", "/dist-packages/")
FRAMES_MAX = 60
# What a module of the standard library does for whoever calls it, whatever it opens for that.
_OF_MODULES = {
    **dict.fromkeys(("subprocess", "multiprocessing", "pty"), "starts a process"),
    **dict.fromkeys(("urllib", "http", "socket", "ssl", "smtplib", "ftplib", "imaplib", "poplib"), "uses the network"),
    **dict.fromkeys(("sqlite3", "dbm", "shelve"), "opens a database"),
}
# They read what is part of the installation, which is no file of the user.
_HARMLESS = frozenset(
    {"linecache", "tokenize", "zoneinfo", "importlib", "encodings", "inspect", "gettext", "mimetypes"}
)


class Watch:
    """What is watched: the machine that runs, and the lines that were said. `file` is that of the program."""

    def __init__(self, machine: Any, file: str, say: Callable[[str], None]) -> None:
        self.machine = machine
        self._package = installed_package(file)
        self._say = say
        self._said: set[tuple[str, int, str]] = set()

    def refuse_thread(self) -> None:
        """Raise ThreadRefused if the program itself starts a thread."""
        if not self.machine.is_inline and self._frame_of_user(sys._getframe(2)) is not None:
            hint = "do it in a step; @step(inline=True) runs in the program's own process"
            raise ThreadRefused("a program cannot start threads: their order would differ in a replay", hint=hint)

    def on_event(self, event: str) -> None:
        """Say that the program does something itself."""
        if self.machine.is_inline:
            return
        frame = sys._getframe(2)
        found = self._frame_of_user(frame)
        modules = _library_modules(frame, found)
        if found is None or not _HARMLESS.isdisjoint(modules):
            return
        meaning = next((_OF_MODULES[name] for name in modules if name in _OF_MODULES), _MEANINGS[event])
        file, line = found.f_code.co_filename, found.f_lineno
        if (file, line, meaning) not in self._said:
            self._said.add((file, line, meaning))
            self._say(warning_of(meaning, file, line))

    def _frame_of_user(self, frame: types.FrameType | None) -> types.FrameType | None:
        """The line of the user's code that does it; None if it is an import, or we do it ourselves."""
        for _ in range(FRAMES_MAX):
            if frame is None:
                return None
            file = frame.f_code.co_filename
            if file.startswith((_OWN_FOLDER, "<frozen importlib")):
                return None
            if file.startswith(_CELL) or self._is_of_user(file):
                return frame
            frame = frame.f_back
        return None

    def _is_of_user(self, file: str) -> bool:
        """Whether it is no library. A program may be part of an installed package: then that is the user's."""
        if self._package and file.startswith(self._package):
            return True
        return not (_is_library(file) or file.startswith("<"))


def warning_of(meaning: str, file: str, line: int) -> str:
    """What is said about what a program does."""
    return (
        f"{file.rpartition('/')[2]}:{line}: the program {meaning} itself, and a replay does it again; do it in a step"
    )


def installed_package(file: str) -> str:
    """The folder of the installed package that has this file, or a module that is no package; "" if it has none."""
    for part in _PACKAGES:
        before, found, inside = file.rpartition(part)
        if found:
            name, slash, _ = inside.partition("/")
            return f"{before}{found}{name}{slash}"
    return ""


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY) or any(part in file for part in _PACKAGES)


def _library_modules(frame: types.FrameType | None, end: types.FrameType | None) -> list[str]:
    """The modules of the standard library between an event and the user's line, that next to the user first."""
    found: list[str] = []
    while frame is not None and frame is not end:
        file = frame.f_code.co_filename
        if file.startswith(_LIBRARY):
            found.append(file.removeprefix(_LIBRARY).partition("/")[0].removesuffix(".py"))
        frame = frame.f_back
    return found[::-1]


_watch: Watch | None = None
_is_hooked = False


def _hook(event: str, values: tuple[Any, ...]) -> None:
    if _watch is not None and event in _MEANINGS:
        if event == "open" and (isinstance(values[0], int) or values[0] == os.devnull):
            return  # a pipe, or nothing
        _watch.on_event(event)


def _guarded(start: Callable[..., Any]) -> Callable[..., Any]:
    def start_thread(*args: Any, **kwargs: Any) -> Any:
        if _watch is not None:
            _watch.refuse_thread()
        return start(*args, **kwargs)

    return start_thread


def watch(machine: Any, file: str, say: Callable[[str], None]) -> None:
    """Watch the program of this machine, which is in `file`; say each line once."""
    global _watch, _is_hooked
    _watch = Watch(machine, file, say)
    if not _is_hooked:
        sys.addaudithook(_hook)
        for name in _STARTS_OF_THREADS:
            if hasattr(threading, name):
                setattr(threading, name, _guarded(getattr(threading, name)))
        _is_hooked = True
