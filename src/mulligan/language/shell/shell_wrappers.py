"""Wrapper programs such as `sudo` and `timeout`, with what stands before the command that they run."""

from __future__ import annotations

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
