"""Where the shell would evaluate a value again, or would not expand it at all: the reasons, and what to do instead.

Each reason is a sentence about the hole, which is put before it: `'${inputs.x}' stands in single quotes, where …`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mulligan.core.patterns import pattern


class Danger(NamedTuple):
    reason: str
    hint: str


_LITERALLY = "for the characters themselves write '$${'"
SINGLE_QUOTES = Danger(
    "stands in single quotes, where the shell does not expand it", f"use double quotes; {_LITERALLY}"
)
QUOTED_DOCUMENT = Danger(
    "stands in a here-document with a quoted delimiter, where the shell does not expand it",
    f"write the delimiter without quotes; {_LITERALLY}",
)
DELIMITER = Danger("is the delimiter of a here-document, which the shell does not expand", "write a word there")
BACKTICKS = Danger("stands in backticks, which change the quotes within", "write $(…) in place of the backticks")
ARITHMETIC = Danger(
    "stands in arithmetic, where the shell would evaluate the value again",
    "compute it in the expression, as in ${inputs.n + 1}, or write $(printf %d …) around it",
)
SUBSCRIPT = Danger(
    "is the subscript of an array, where the shell would evaluate the value again", "write $(printf %d …) around it"
)
COMPARISON = Danger(
    "is compared as a number in [[ … ]], where the shell would evaluate the value again", "compare with [ … ]"
)
NAME = Danger(
    "is the name of a variable, which the shell would evaluate again if it has a subscript",
    "write the name of the variable itself",
)
TYPED = Danger(
    "is assigned with an attribute that makes the shell evaluate the value again", "declare the variable without it"
)
FAR_SHELL = Danger(
    "is part of a command that 'ssh' hands to a shell, which evaluates the value again",
    "quote it for that shell: $(printf %q VALUE)",
)
COMMAND = Danger(
    "is printed where a command is named, and the shell would run its words",
    "put the $(…) in double quotes, or write the command itself",
)
PROMPT = Danger("goes into a prompt, which the shell evaluates again", "put it in another variable")
STARTUP = Danger("names the file that bash runs when it starts", "write the name of the file itself")
DOCUMENT_PATTERN = Danger(
    "is part of a pattern within a here-document, where it cannot be quoted", "put the result in a variable first"
)
TRANSFORMED = Danger("is expanded with '@P', which evaluates the value again", "leave out the '@P'")
QUOTED_DEFAULT = Danger(
    "has single quotes in the text after its operator, which mean themselves within double quotes",
    "write the text without them",
)

# Where a number is wanted: here what a `$(…)` prints is evaluated too.
_NUMERIC = (ARITHMETIC, SUBSCRIPT, COMPARISON, TYPED)
_INERT = frozenset("cat < > >> >| <> &> &>>".split())
_SHELLS = frozenset("ash bash dash ksh mksh sh zsh".split())
# By these names a script is what is read from the input.
_INPUTS = frozenset(("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))
_RUN_AS = _SHELLS | {"su", "runuser", "script"}
_WRAPPERS = frozenset("builtin command env exec nice nohup sudo time".split())
_PRINTERS = frozenset(("echo", "printf", "<<<"))
# Among so many words the command itself is looked for, behind those that only run it.
_WRAPPING_MAX = 12
_EVALUATORS = frozenset("alias bind compgen complete eval trap".split())
_DECLARATIONS = frozenset("declare export local readonly typeset".split())
_NAMERS = frozenset("getopts mapfile read readarray unset".split())
_VARIABLES = {
    **dict.fromkeys(("PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND"), PROMPT),
    "BASH_ENV": STARTUP,
}
_ASSIGNED = pattern(r"['\"]*([A-Za-z_]\w*)\+?=")
_ASSIGNMENT = pattern(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_IDENTIFIER = pattern(r"[A-Za-z_]\w*$")
_SCRIPT_OPTION = pattern(r"-[A-Za-z]*c[A-Za-z]*$|--command$")
_NOTHING = pattern(r"`[^`]*`|\$\([^)]*\)|\$\{[^}]*\}|\$\w+|['\"\\]")
# The options of ssh that take the next word as their value.
_SSH_VALUE = pattern(r"-[A-Za-z0-9]*[bcDEeFIiJLlmOopQRSWw]$")
_INTEGERS = pattern(r"\b(?:declare|typeset|local|readonly|export)((?:[ \t]+-\w+)*[ \t]+-\w*i\w*(?:[ \t]+[\w=-]+)+)")


def evaluates(words: Sequence[str]) -> Danger | None:
    """The danger of every argument of the command so far, also of what a `$(…)` in it prints."""
    name = _command(words)
    if name in _EVALUATORS:
        return Danger(f"is an argument of '{name}', which evaluates the value again", "write the command itself")
    if name == "let":
        return ARITHMETIC
    if _is_script(words):
        shell = next(word for word in words if _base(word) in _RUN_AS)
        reason = f"is part of the script of '{shell} {words[-1]}', which evaluates the value again"
        return Danger(reason, f"pass it as an argument: {shell} -c '… \"$1\" …' _ VALUE")
    return None


def misuses(words: Sequence[str], before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of a hole that stands in a word of the command itself; `before` is the word up to it."""
    name = _command(words)
    last = words[-1] if words else ""
    if (assigned := _ASSIGNED.match(before)) and (danger := of_variable(assigned[1])):
        return danger
    if _is_integer(before, integers):
        return TYPED
    if name in _DECLARATIONS:
        return _in_declaration(words, before)
    if _has_far_shell(words):
        return FAR_SHELL
    is_name = name in _NAMERS and (last in ("-a", "-C") or not last.startswith("-"))
    return NAME if is_name or (name in ("printf", "test", "[") and last == "-v") else None


def of_variable(name: str) -> Danger | None:
    """The danger of a value that a variable of this name holds, in shell text and in `env` alike."""
    return _VARIABLES.get(name)


def inherited(words: Sequence[str], before: str, integers: frozenset[str], danger: Danger | None) -> Danger | None:
    """The danger of what a `$(…)` in this word prints, where the word itself is in `danger` or in none."""
    own = danger or misuses(words, before, integers)
    return own if danger or own in (*_NUMERIC, PROMPT, STARTUP) else None


def names_a_command(words: Sequence[str], before: str) -> bool:
    """Whether the word that begins so, without quotes, is the name of a command, or its words are."""
    return not _command(words) and not _ASSIGNMENT.match(before)


def is_harmless(words: Sequence[str], danger: Danger | None) -> bool:
    """Whether this command within a `$(…)` cannot print a value: it is the name of a file, or printed by `%d`."""
    is_number = [_bare(word) for word in words[:2]] in (["printf", "%d"], ["printf", "%i"])
    return danger in _NUMERIC and (is_number or (bool(words) and words[0] in _INERT))


def in_elements(words: Sequence[str], before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of an element of the array that is assigned after `before`: an array of integers evaluates it."""
    is_typed = _command(words) in _DECLARATIONS and "i" in _options(words)
    return TYPED if is_typed or _is_integer(before, integers) else None


def is_subscript(words: Sequence[str], before: str, is_element: bool) -> bool:
    """Whether a `[` after `before` opens a subscript: of a variable that is assigned, or of an element of an array."""
    if is_element and not before:
        return True
    name = _command(words)
    return bool(_IDENTIFIER.match(before)) and (not name or name in _DECLARATIONS)


def fed(words: Sequence[str]) -> Danger | None:
    """The danger of a here-document or here-string: a shell without a script of its own evaluates it."""
    readers = (_reader(command) for command in _commands(words))
    reader = next((reader for reader in readers if reader), None)
    if reader is None:
        return None
    return Danger(
        f"is part of the script that '{reader}' reads, which evaluates the value again",
        "pass the value as an argument, as in sh -s VALUE <<'EOF', and read it there as \"$1\"",
    )


def is_printed(words: Sequence[str]) -> bool:
    """Whether a value in the next word goes to another command as text: by `echo`, `printf` or a here-string.

    Others may run them: `command echo`, `timeout 5 echo`.
    """
    names = [_base(word) for word in words[:_WRAPPING_MAX]]
    printer = next((at for at, name in enumerate(names) if name in _PRINTERS), None)
    return printer is not None and names[printer : printer + 2] != ["printf", "%q"]


def _commands(words: Sequence[str]) -> list[list[str]]:
    """The words of a line, command by command: between two commands stands a `;`."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word == ";":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _reader(words: list[str]) -> str | None:
    """The command among `words` that reads a script from its input, if there is one."""
    words = _without_eval(words)
    if _command(words) in ("source", "."):
        return _command(words)
    for index, word in enumerate(words):
        if _base(word) in _SHELLS and _is_for_input(words[index + 1 :]):
            return word
    # After its host `ssh` may be given a command: then what it reads is for that command.
    return words[0] if _has_far_shell(words) and not _has_far_shell(words[:-1]) else None


def _is_for_input(arguments: list[str]) -> bool:
    """Whether a shell with these arguments reads its script from its input: it has none of its own, or names that."""
    script = next((word for word in arguments if not word.startswith("-") or _SCRIPT_OPTION.match(word)), None)
    return script is None or script in _INPUTS or "-s" in arguments


def _without_eval(words: Sequence[str]) -> list[str]:
    """The words of a command that `eval` makes of its arguments."""
    return [word for word in words if word != "eval"]


def sourced(words: Sequence[str]) -> Danger | None:
    """The danger of `<(…)`: what it prints is a script for `source` and for a shell."""
    name = _command(_without_eval(words))
    if name in ("source", ".") or _base(name) in _SHELLS:
        return Danger(f"is part of a script that '{name}' reads and evaluates", "write the commands themselves")
    return None


def integers(text: str) -> frozenset[str]:
    """The variables that `text` declares as integers: what is assigned to them is arithmetic."""
    declared = (word for match in _INTEGERS.findall(text) for word in match.split())
    return frozenset(word.partition("=")[0] for word in declared if not word.startswith("-"))


def _in_declaration(words: Sequence[str], before: str) -> Danger | None:
    if any(letter in _options(words) for letter in "aAin"):
        return TYPED
    return None if _ASSIGNMENT.match(before.lstrip('"')) or before.startswith("-") else NAME


def _has_far_shell(words: Sequence[str]) -> bool:
    """Whether what follows is for the shell at the other end: `ssh` and its host have been named."""
    if _command(words) != "ssh":
        return False
    after = list(words)[list(words).index("ssh") :]
    return any(not word.startswith("-") and not _SSH_VALUE.match(before) for before, word in pairwise(after))


def _options(words: Sequence[str]) -> str:
    return "".join(word for word in words if word.startswith("-"))


def _is_integer(before: str, integers: frozenset[str]) -> bool:
    return bool(_ASSIGNMENT.match(before)) and before.partition("=")[0].rstrip("+").partition("[")[0] in integers


def _command(words: Sequence[str]) -> str:
    """The name of the command, after assignments and after commands that only run another."""
    is_wrapped = False
    for word in words:
        is_option = is_wrapped and word.startswith("-")
        is_wrapped = is_wrapped or word in _WRAPPERS
        if not (_ASSIGNMENT.match(word) or word in _WRAPPERS or is_option):
            return _bare(word)
    return ""


def _is_script(words: Sequence[str]) -> bool:
    words = list(words)
    while words and words[-1] == "--":
        words.pop()
    if not words or not _SCRIPT_OPTION.match(words[-1]):
        return False
    return any(_base(word) in _RUN_AS for word in words[:-1])


def _base(word: str) -> str:
    return _bare(word).rpartition("/")[2]


@lru_cache(maxsize=4096)
def _bare(word: str) -> str:
    """`word` without quotes and without what may expand to nothing: to the shell `e""val` and `${x}eval` are `eval`."""
    return _NOTHING.sub("", word)
