"""The words of a shell command, and what follows from all of them: each word is looked at once.

A command may have as many words as a text has room for, and each of its values asks about the words before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex

ASSIGNMENT = lazy_regex(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_QUOTING = lazy_regex(r"`[^`]*`|\$\([^)]*\)|\$\{[^}]*\}|\$\w+|['\"\\]")


class _Options(NamedTuple):
    """The options that take the next word as their value, and the number of operands before the command."""

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int = 0


WRAPPERS = {
    **dict.fromkeys(("builtin", "command", "nohup", "setsid", "busybox", "unbuffer"), _Options()),
    "exec": _Options("a"),
    "time": _Options("fo", ("format", "output")),
    "env": _Options("uC", ("unset", "chdir")),
    "nice": _Options("n", ("adjustment",)),
    "ionice": _Options("cn", ("class", "classdata")),
    "chrt": _Options("TPD", (), 1),
    "taskset": _Options("", (), 1),
    "stdbuf": _Options("ioe", ("input", "output", "error")),
    "timeout": _Options("ks", ("kill-after", "signal"), 1),
    "chroot": _Options("", ("userspec", "groups"), 1),
    "flock": _Options("wE", ("timeout", "wait", "conflict-exit-code"), 1),
    "sudo": _Options(
        "CDghpRrTtUu", ("user", "group", "host", "prompt", "chdir", "chroot", "close-from", "role", "type")
    ),
    "doas": _Options("Cu"),
    "runuser": _Options("ugGs", ("user", "group", "supp-group", "shell")),
    "gosu": _Options("", (), 1),
    "su-exec": _Options("", (), 1),
    "strace": _Options("abeEIoOpPsSuUX"),
    "xargs": _Options("adEILnPs", ("arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var")),
    "parallel": _Options("aCdEIjLnNPsS", ("jobs", "arg-file", "colsep", "delimiter", "max-args", "sshlogin", "delay")),
    "watch": _Options("nqs", ("interval", "equexit", "shotsdir")),
}


def takes_value(options: _Options, word: str) -> bool:
    """Whether the option takes the next word as its value."""
    if word.startswith("--"):
        return word[2:] in options.names
    return word[-1:] in tuple(options.letters) and not set(word[1:-1]) & set(options.letters)


@lru_cache(maxsize=4096)
def program_name(word: str) -> str:
    return strip_quoting(word).rpartition("/")[2]


@lru_cache(maxsize=4096)
def strip_quoting(word: str) -> str:
    """`word` without quotes and expansions that may be empty: to the shell `e""val` and `${x}eval` are `eval`."""
    return remove_quoting(word)


def remove_quoting(text: str) -> str:
    """The same for a text of many words, which is not asked for again."""
    return _QUOTING.sub("", text)


SHELLS = frozenset("ash bash dash ksh mksh sh zsh".split())
# Variables that name a shell: `$SHELL`, `"${BASH}"`, `${SHELL:-/bin/sh}`.
_SHELL_VARIABLE = lazy_regex(r"['\"]*\$\{?(?:SHELL|BASH)(?!\w)")
# Programs that pass the value of `-c` or `--command` to a shell.
COMMAND_OPTION = frozenset(("su", "runuser", "script"))
# Programs that join their arguments into a script; `watch -x` does not.
JOINERS = frozenset(("watch", "parallel"))
SCRIPT_OPTION = lazy_regex(r"-[A-Za-z]*c[A-Za-z]*$|--(?:session-)?c(?:o|om[a-z]*)?$")
_PREFIXES = frozenset("builtin command env exec nice nohup sudo time".split())
_EXEC_OPTION = lazy_regex(r"-[a-z]*x|--exec$")
# The options of ssh that take the next word as their value.
_SSH_VALUE = lazy_regex(r"-[A-Za-z0-9]*[bcDEeFIiJLlmOopQRSWw]$")
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def is_shell(word: str) -> bool:
    return program_name(word) in SHELLS or bool(_SHELL_VARIABLE.match(word))


class CommandWords(list[str]):
    """The words of a command so far, and what follows from them."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        super().__init__(words)
        self._facts = _CommandFacts()
        # How many of the words it has.
        self._known = 0

    def clear(self) -> None:
        super().clear()
        self._facts, self._known = _CommandFacts(), 0

    def drop_last(self) -> str:
        """Remove and return the last word."""
        if self._known == len(self):
            self._facts, self._known = _CommandFacts(), 0
        return self.pop()

    @property
    def facts(self) -> _CommandFacts:
        """What follows from the words. Only those are looked at that were added since this was asked."""
        for index in range(self._known, len(self)):
            self._facts.add(self[index])
        self._known = len(self)
        return self._facts

    def is_joined(self, before: str) -> bool:
        """Whether the word that begins with `before` becomes part of the script that the joiner makes."""
        wrapped = self.facts.wrapped
        command = wrapped.command_at
        if wrapped.joiner == "parallel" and self.facts.has_list_sign:
            # Words after `:::` are quoted for the command, unless there is no other command.
            return command is not None and self[command] == ":::"
        is_begun = command is not None or wrapped.wrapper != wrapped.joiner
        return is_begun or self.is_program_next(before)

    def is_program_next(self, before: str) -> bool:
        """Whether the word that begins with `before` names a program or script that the words before it run."""
        wrapped = self.facts.wrapped
        if wrapped.command_at is not None:
            name, count = program_name(self[wrapped.command_at]), len(self) - wrapped.command_at
            return (name == "find" and self[-1] in _FIND_RUNS) or (name in (".", "source") and count == 1)
        stripped = strip_quoting(before)
        return wrapped.is_next and not stripped.startswith("-") and not ASSIGNMENT.match(stripped)


class _CommandFacts:
    """What follows from the words of a command, found word by word."""

    def __init__(self) -> None:
        self._name = _CommandName()
        self._name_after_eval = _CommandName()
        self.wrapped = _WrappedCommand()
        # The characters of all options.
        self.option_letters: set[str] = set()
        self.has_list_sign = False
        # The word before, once `ssh` is the command.
        self._ssh_word: str | None = None
        # Whether the next word goes to the remote shell: `ssh` and its host are already there.
        self.is_for_remote_shell = False
        # The first word that takes a script with `-c`.
        self._shell: str | None = None
        # The shell, or program that starts one, whose `-c` is the last word but `--`: the next word is its script.
        self.script_runner: str | None = None

    def add(self, word: str) -> None:
        was_named = self._name.is_found
        self._name.add(word)
        if word != "eval":
            self._name_after_eval.add(word)
        self.wrapped.add(word)
        if self._ssh_word is not None:
            is_value = _SSH_VALUE.match(self._ssh_word) is not None
            self.is_for_remote_shell = self.is_for_remote_shell or not (is_value or word.startswith("-"))
            self._ssh_word = word
        elif not was_named and self._name.text == "ssh":
            self._ssh_word = word
        if word != "--":
            self.script_runner = (self._shell or self.wrapped.lock) if SCRIPT_OPTION.match(word) else None
        if self._shell is None and (is_shell(word) or program_name(word) in COMMAND_OPTION):
            self._shell = word
        if word.startswith("-"):
            self.option_letters.update(word)
        self.has_list_sign = self.has_list_sign or word == ":::"

    @property
    def name(self) -> str:
        """The name of the command after assignments and wrappers; "" if it is not there yet."""
        return self._name.text

    @property
    def name_after_eval(self) -> str:
        """The same without `eval`, which runs its arguments as a command."""
        return self._name_after_eval.text

    @property
    def script_runner_after_option(self) -> str | None:
        """The `script_runner` if `-c` were the next word."""
        return self._shell or self.wrapped.lock_after_option

    @property
    def is_after_env(self) -> bool:
        """Whether the next word is an option of `env`, or the command that it runs."""
        return self.wrapped.command_at is None and self.wrapped.wrapper == "env"

    @property
    def joiner(self) -> str:
        """The program that joins its arguments into a script, if one of the wrappers is one."""
        return "" if self.wrapped.joiner == "watch" and self.wrapped.has_exec_option else self.wrapped.joiner

    @property
    def reads_commands(self) -> bool:
        """Whether this is `parallel` without a command: then its input has the commands."""
        return self.wrapped.has_parallel and self.wrapped.command_at is None


class _CommandName:
    """The name of a command after assignments and wrappers, found word by word."""

    def __init__(self) -> None:
        # A name that is an expansion has no text.
        self.text = ""
        self.is_found = False
        self._is_wrapped = False

    def add(self, word: str) -> None:
        if self.is_found:
            return
        is_option = self._is_wrapped and word.startswith("-")
        self._is_wrapped = self._is_wrapped or word in _PREFIXES
        if not (ASSIGNMENT.match(word) or word in _PREFIXES or is_option):
            self.text = strip_quoting(word)
            self.is_found = True


class _WrappedCommand:
    """The last of the wrapper programs, and where the wrapped command begins, found word by word."""

    def __init__(self) -> None:
        self.wrapper = ""
        self.joiner = ""
        self.has_exec_option = False
        self.has_parallel = False
        self.command_at: int | None = None
        self._count = 0
        self._missing = 0
        self._is_value = False
        self._lock = ""

    @property
    def is_next(self) -> bool:
        """Whether the next word begins the command, unless it is an option or an assignment."""
        return self.command_at is None and not self._missing and not self._is_value

    @property
    def lock(self) -> str | None:
        """`flock`, as it is written, if what follows is its own: `flock FILE -c`. After a command it is not."""
        return self._lock if self.is_next and self.wrapper == "flock" else None

    @property
    def lock_after_option(self) -> str | None:
        """The same behind an option without a value, which may be the value of the option before it."""
        is_next = self.command_at is None and not self._missing
        return self._lock if is_next and self.wrapper == "flock" else None

    def add(self, word: str) -> None:
        if self.command_at is not None:
            return
        self._count += 1
        is_option = word.startswith("-")
        if not self._is_value and not is_option and not ASSIGNMENT.match(word) and not self._missing:
            name = program_name(word)
            if name not in WRAPPERS:
                self.command_at = self._count - 1
                return
            self.wrapper = name
            self._missing = WRAPPERS[name].operands
            self._lock = self._lock or (word if name == "flock" else "")
            self.joiner = self.joiner or (name if name in JOINERS else "")
            self.has_parallel = self.has_parallel or name == "parallel"
        elif self._is_value:
            self._is_value = False
        elif is_option:
            self._is_value = bool(self.wrapper) and takes_value(WRAPPERS[self.wrapper], strip_quoting(word))
        elif not ASSIGNMENT.match(word):
            self._missing -= 1
        self.has_exec_option = self.has_exec_option or _EXEC_OPTION.match(word) is not None
