"""Find programs, and decide which commands need no shell.

`bash -c 'make all'` ends up running `make all`, and costs more than a short program. A command that consists only of
words, the first of which bash would look up on the path, is started directly: with the same words, environment and
exit. With settings that change how bash starts, bash is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from mulligan.core.model.text.lazy_regex import lazy_regex

_PLAIN = lazy_regex(r"[ \t]*([A-Za-z0-9][A-Za-z0-9_.+-]*)((?:[ \t]+[A-Za-z0-9_./:,@%+=-]+)*)[ \t\n]*", re.ASCII)
_BUILTINS_AND_KEYWORDS = frozenset(
    "alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown "
    "do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if "
    "in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt "
    "source suspend test then time times trap true type typeset ulimit umask unalias unset until wait while".split()
)
# Builtins that are equal to the program of the same name if they get no argument.
_SAME_WITHOUT_ARGUMENTS = frozenset({"true", "false"})
# Variables that change how bash starts or reads a command.
_CHANGES_BASH = frozenset(
    {"BASH_ENV", "BASHOPTS", "SHELLOPTS", "POSIXLY_CORRECT", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
)


def find_program(name: str, path: str) -> str | None:
    """Return the file that a shell with this PATH would run for `name`, or None."""
    if "/" in name:
        return name if os.access(name, os.F_OK) else None
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None


def resolve_interpreter(name: str, home: str) -> str:
    """Resolve an interpreter's relative path against the folder where `run` was called."""
    return f"{home}/{name}" if "/" in name and not name.startswith("/") else name


class Programs:
    """Find programs for the tasks of one worker, which all inherit one environment."""

    def __init__(self, environment: Mapping[str, str], *, is_direct: bool) -> None:
        self._environment = environment
        self._path = environment.get("PATH", os.defpath)
        self._shell_level = environment.get("SHLVL", "0")
        self._folder = environment.get("PWD", "")
        self._found: dict[str, str] = {}
        # Programs that only bash can start: scripts without a shebang.
        self._needs_bash: set[str] = set()
        self._is_direct = is_direct and _is_plain_bash(environment)

    def variable(self, name: str) -> str:
        """Return a variable of the worker's environment, or ""."""
        return self._environment.get(name, "")

    def find_interpreter(self, name: str, task_environment: Mapping[str, str]) -> str | None:
        """Return the path of an interpreter, cached unless the task sets its own PATH."""
        if "PATH" in task_environment:
            return find_program(name, task_environment["PATH"])
        if name not in self._found:
            path = find_program(name, self._path)
            if path is None:
                return None
            self._found[name] = path
        return self._found[name]

    def direct_command(
        self, text: str, task_environment: Mapping[str, str], folder: str
    ) -> tuple[str, list[str], dict[str, str]] | None:
        """Return program, arguments and the variables that bash would add; None if the command needs bash."""
        match = _PLAIN.fullmatch(text) if self._is_direct and len(text) < 1000 else None
        if match is None or any(_changes_bash(name) for name in task_environment):
            return None
        name, words = match[1], match[2].split()
        if name in _BUILTINS_AND_KEYWORDS and (words or name not in _SAME_WITHOUT_ARGUMENTS):
            return None
        program = self._program(name) if name not in self._needs_bash else None
        if program is None:
            return None
        return program, [name, *words], {"_": program, "SHLVL": self._shell_level, "PWD": self._folder_variable(folder)}

    def _program(self, name: str) -> str | None:
        """Look up the program each time, as bash does, because a step may add one; but cache our own builtins."""
        return self.find_interpreter(name, {}) if name in _SAME_WITHOUT_ARGUMENTS else find_program(name, self._path)

    def require_bash(self, text: str) -> None:
        """Use bash for this program from now on: the system could not start it."""
        match = _PLAIN.fullmatch(text)
        if match is not None:
            self._needs_bash.add(match[1])

    def _folder_variable(self, folder: str) -> str:
        """Return PWD as bash sets it: the inherited name while it is right, otherwise the path without links."""
        return folder if folder == self._folder else os.path.realpath(folder)


def _changes_bash(name: str) -> bool:
    return name in _CHANGES_BASH or name.startswith("BASH_FUNC_")


def _is_plain_bash(environment: Mapping[str, str]) -> bool:
    if any(name in environment for name in ("BASH_ENV", "BASHOPTS", "SHELLOPTS", "POSIXLY_CORRECT")):
        return False
    if any(name.startswith("BASH_FUNC_") for name in environment):
        return False
    folders = environment.get("PATH", "").split(":")
    if not all(folder.startswith("/") and not folder.endswith("/") for folder in folders):
        return False
    old = environment.get("OLDPWD")
    return environment.get("SHLVL", "0").isdecimal() and (old is None or os.path.isdir(old))
