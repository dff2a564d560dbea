"""Programs that run the command which their arguments name: where in their words that command begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex

ASSIGNMENT = lazy_regex(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_NOTHING = lazy_regex(r"`[^`]*`|\$\([^)]*\)|\$\{[^}]*\}|\$\w+|['\"\\]")


class _Options(NamedTuple):
    """The options that take the next word as their value, and how many operands stand before the command."""

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int = 0


_RUNNERS = {
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
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


class Run(NamedTuple):
    """The programs that run another, the words of the command that the last of them runs, as far as there are any.

    `is_next` says that the next word begins that command, unless it is an option or an assignment.
    """

    runners: tuple[str, ...]
    command: Sequence[str]
    is_next: bool


def run_by(words: Sequence[str]) -> Run:
    runners: list[str] = []
    missing, is_value = 0, False
    for index, word in enumerate(words):
        if is_value:
            is_value = False
        elif word.startswith("-"):
            is_value = bool(runners) and _takes_value(_RUNNERS[runners[-1]], bare(word))
        elif ASSIGNMENT.match(word):
            continue
        elif missing:
            missing -= 1
        elif base(word) in _RUNNERS:
            runners.append(base(word))
            missing = _RUNNERS[runners[-1]].operands
        else:
            return Run(tuple(runners), words[index:], False)
    return Run(tuple(runners), (), not missing and not is_value)


def is_run(words: Sequence[str], before: str) -> bool:
    """Whether the word that begins with `before` names a program or a script which the words before it run."""
    run = run_by(words)
    if run.command:
        name, last = base(run.command[0]), run.command[-1]
        return (name == "find" and last in _FIND_RUNS) or (name in (".", "source") and len(run.command) == 1)
    return run.is_next and not bare(before).startswith("-") and not ASSIGNMENT.match(bare(before))


def _takes_value(options: _Options, word: str) -> bool:
    if word.startswith("--"):
        return word[2:] in options.names
    return word[-1:] in tuple(options.letters) and not set(word[1:-1]) & set(options.letters)


def base(word: str) -> str:
    return bare(word).rpartition("/")[2]


@lru_cache(maxsize=4096)
def bare(word: str) -> str:
    """`word` without quotes and without what may expand to nothing: to the shell `e""val` and `${x}eval` are `eval`."""
    return _NOTHING.sub("", word)
