"""Where the shell would evaluate a value again, or would not expand it at all: the reasons, and what to do instead.

Each reason is a sentence about the hole, which is put before it: `'${inputs.x}' stands in single quotes, where …`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.shell_wrappers import ASSIGNMENT, bare, base, is_run, run_by


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
SPLIT = Danger(
    "is split into the words of a command by 'env -S'", "write the command itself, and the value as its argument"
)
COMMAND = Danger(
    "is printed where a command is named, and the shell would run its words",
    "put the $(…) in double quotes, or write the command itself",
)
PROMPT = Danger("goes into a prompt, which the shell evaluates again", "put it in another variable")
STARTUP = Danger("names the file that bash runs when it starts", "write the name of the file itself")
SH_STARTUP = Danger(
    "is assigned to 'ENV', which names the file that sh runs when it starts",
    "use another variable, or write the name of the file itself",
)
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
# These run the file that `ENV` names, where they are interactive.
_STARTED = lazy_regex(r"(?<![\w.-])(?:ash|dash|ksh|mksh|sh)(?![\w.-])")
_ENV = lazy_regex(r"['\"]*ENV\+?=")
# By these names a script is what is read from the input.
_INPUTS = lazy_regex(r"/dev/stdin$|/dev/fd/\d+$|/proc/[^/]+/fd/\d+$")
# Variables that name a shell: `$SHELL`, `"${BASH}"`, `${SHELL:-/bin/sh}`.
_SHELL_VARIABLE = lazy_regex(r"['\"]*\$\{?(?:SHELL|BASH)(?!\w)")
# Programs that give the value of `-c` or `--command` to a shell, beside the shells themselves.
_COMMAND_OPTION = frozenset(("su", "runuser", "script"))
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
_ASSIGNED = lazy_regex(r"['\"]*([A-Za-z_]\w*)\+?=")
_IDENTIFIER = lazy_regex(r"[A-Za-z_]\w*$")
_SCRIPT_OPTION = lazy_regex(r"-[A-Za-z]*c[A-Za-z]*$|--(?:session-)?c(?:o|om[a-z]*)?$")
# The same options with their value in the same word, for programs other than shells.
_SCRIPT_BEGUN = lazy_regex(r"-[aefglmpqP]*c|--(?:session-)?c(?:o|om[a-z]*)?=")
_SPLIT_OPTION = lazy_regex(r"-[A-Za-z0]*S$|--s[a-z-]*$")
_SPLIT_BEGUN = lazy_regex(r"-[A-Za-z0]*S|--s[a-z-]*=")
# Programs that join their arguments to a script; `watch -x` does not.
_JOINERS = frozenset(("watch", "parallel"))
_EXEC_OPTION = lazy_regex(r"-[a-z]*x|--exec$")
_REPLACED = lazy_regex(r"(?:-I|-i|--replace=?)(.*)$")
# The options of ssh that take the next word as their value.
_SSH_VALUE = lazy_regex(r"-[A-Za-z0-9]*[bcDEeFIiJLlmOopQRSWw]$")
_INTEGERS = lazy_regex(r"\b(?:declare|typeset|local|readonly|export)((?:[ \t]+-\w+)*[ \t]+-\w*i\w*(?:[ \t]+[\w=-]+)+)")


def evaluates(words: Sequence[str]) -> Danger | None:
    """The danger of every argument of the command so far, also of what a `$(…)` in it prints."""
    name = _command(words)
    if name in _EVALUATORS:
        return Danger(f"is an argument of '{name}', which evaluates the value again", "write the command itself")
    if name == "let":
        return ARITHMETIC
    if shell := _script_runner(words):
        return _of_script(shell, words[-1])
    is_split = bool(words) and _SPLIT_OPTION.match(words[-1]) and _is_of_env(words)
    return SPLIT if is_split else None


def _of_script(shell: str, option: str) -> Danger:
    reason = f"is part of the script of '{shell} {option}', which evaluates the value again"
    example = "sh" if base(shell) in (*_COMMAND_OPTION, "flock") else shell
    return Danger(reason, f"pass it as an argument: {example} -c '… \"$1\" …' _ VALUE")


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
    if danger := _in_option(words, bare(before)) or _joined(words, before):
        return danger
    is_name = name in _NAMERS and (last in ("-a", "-C") or not last.startswith("-"))
    return NAME if is_name or (name in ("printf", "test", "[") and last == "-v") else None


def _in_option(words: Sequence[str], before: str) -> Danger | None:
    """The danger of a value that stands in one word with the option whose value it is: `--command=VALUE`."""
    begun = _SCRIPT_BEGUN.match(before)
    if begun and (shell := _script_runner([*words, "-c"])) and not _is_shell(shell):
        return _of_script(shell, begun[0])
    return SPLIT if _SPLIT_BEGUN.match(before) and _is_of_env(words) else None


def _is_of_env(words: Sequence[str]) -> bool:
    run = run_by(words)
    return run.runners[-1:] == ("env",) and not run.command


def _joined(words: Sequence[str], before: str) -> Danger | None:
    """The danger of an argument of a program that joins its arguments to the text of a script."""
    run = run_by(words)
    name = next((runner for runner in run.runners if runner in _JOINERS), None)
    if name is None or (name == "watch" and any(map(_EXEC_OPTION.match, words[: len(words) - len(run.command)]))):
        return None
    if name == "parallel" and ":::" in words:
        # What stands there is quoted for the command, and is the command itself where there is no other.
        is_script = list(run.command[:1]) == [":::"]
    else:
        is_script = bool(run.command) or run.runners[-1] != name or is_run(words, before)
    if not is_script:
        return None
    reason = f"is part of the command that '{name}' gives to a shell, which evaluates the value again"
    return Danger(reason, "write the command in a file, which takes the value from a variable")


def at_start(before: str, text: str) -> Danger | None:
    """The danger of a value of `ENV` where `text` names a shell that reads it; many other programs know an `ENV`."""
    return SH_STARTUP if _ENV.match(before) and _STARTED.search(text) else None


def of_variable(name: str) -> Danger | None:
    """The danger of a value that a variable of this name holds, in shell text and in `env` alike."""
    return _VARIABLES.get(name)


def inherited(words: Sequence[str], before: str, integers: frozenset[str], danger: Danger | None) -> Danger | None:
    """The danger of what a `$(…)` in this word prints, where the word itself is in `danger` or in none."""
    own = danger or misuses(words, before, integers)
    return own if danger or own in (*_NUMERIC, PROMPT, STARTUP) else None


def names_a_command(words: Sequence[str], before: str) -> bool:
    """Whether the word that begins so, without quotes, is the name of a command, or its words are."""
    return not _command(words) and not ASSIGNMENT.match(before)


def is_program(words: Sequence[str], before: str) -> bool:
    """Whether the word that begins so names what is run: by the shell, or by a command such as `timeout`."""
    return names_a_command(words, before) or is_run(words, before)


def is_harmless(words: Sequence[str], danger: Danger | None) -> bool:
    """Whether this command within a `$(…)` cannot print a value: it is the name of a file, or printed by `%d`."""
    is_number = [bare(word) for word in words[:2]] in (["printf", "%d"], ["printf", "%i"])
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
    names = [base(word) for word in words[:_WRAPPING_MAX]]
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
        if _is_shell(word) and (_is_for_input(words[index + 1 :]) or _is_of_xargs(words, index)):
            return word
    run = run_by(words)
    if "parallel" in run.runners and not run.command:
        return "parallel"
    # After its host `ssh` may be given a command: then what it reads is for that command.
    return words[0] if _has_far_shell(words) and not _has_far_shell(words[:-1]) else None


def _is_for_input(arguments: list[str]) -> bool:
    """Whether a shell with these arguments reads its script from its input: it has none of its own, or names that."""
    script = next((word for word in arguments if not word.startswith("-") or _SCRIPT_OPTION.match(word)), None)
    return script is None or bool(_INPUTS.match(bare(script))) or "-s" in arguments


def _is_of_xargs(words: list[str], at: int) -> bool:
    """Whether the script of the shell at `at` is made of what `xargs` or `parallel` before it reads."""
    runner = next((index for index, word in enumerate(words[:at]) if base(word) in ("xargs", "parallel")), None)
    if runner is None:
        return False
    option = next((index for index, word in enumerate(words) if index > at and _SCRIPT_OPTION.match(word)), None)
    if option is None:
        return False
    script = words[option + 1 : option + 2]
    return not script or any(replaced in script[0] for replaced in _replaced(words[runner:at]))


def _replaced(words: list[str]) -> list[str]:
    """The texts that `xargs` with these words replaces by what it reads."""
    found = ["{}"] if base(words[0]) == "parallel" else []
    for word, after in pairwise([*map(bare, words), ""]):
        if option := _REPLACED.match(word):
            found.append(option[1] or (after if word == "-I" else "{}"))
    return found


def _without_eval(words: Sequence[str]) -> list[str]:
    """The words of a command that `eval` makes of its arguments."""
    return [word for word in words if word != "eval"]


def sourced(words: Sequence[str]) -> Danger | None:
    """The danger of `<(…)`: what it prints is a script for `source` and for a shell."""
    name = _command(_without_eval(words))
    if name in ("source", ".") or _is_shell(name):
        return Danger(f"is part of a script that '{name}' reads and evaluates", "write the commands themselves")
    return None


def integers(text: str) -> frozenset[str]:
    """The variables that `text` declares as integers: what is assigned to them is arithmetic."""
    declared = (word for match in _INTEGERS.findall(text) for word in match.split())
    return frozenset(word.partition("=")[0] for word in declared if not word.startswith("-"))


def _in_declaration(words: Sequence[str], before: str) -> Danger | None:
    if any(letter in _options(words) for letter in "aAin"):
        return TYPED
    return None if ASSIGNMENT.match(before.lstrip('"')) or before.startswith("-") else NAME


def _has_far_shell(words: Sequence[str]) -> bool:
    """Whether what follows is for the shell at the other end: `ssh` and its host have been named."""
    if _command(words) != "ssh":
        return False
    after = list(words)[list(words).index("ssh") :]
    return any(not word.startswith("-") and not _SSH_VALUE.match(before) for before, word in pairwise(after))


def _options(words: Sequence[str]) -> str:
    return "".join(word for word in words if word.startswith("-"))


def _is_integer(before: str, integers: frozenset[str]) -> bool:
    return bool(ASSIGNMENT.match(before)) and before.partition("=")[0].rstrip("+").partition("[")[0] in integers


def _command(words: Sequence[str]) -> str:
    """The name of the command, after assignments and after commands that only run another."""
    is_wrapped = False
    for word in words:
        is_option = is_wrapped and word.startswith("-")
        is_wrapped = is_wrapped or word in _WRAPPERS
        if not (ASSIGNMENT.match(word) or word in _WRAPPERS or is_option):
            return bare(word)
    return ""


def _script_runner(words: Sequence[str]) -> str | None:
    """The program that gives the next word to a shell, or is one: the last of `words` is its `-c`."""
    words = list(words)
    while words and words[-1] == "--":
        words.pop()
    if not words or not _SCRIPT_OPTION.match(words[-1]):
        return None
    shell = next((word for word in words[:-1] if _is_shell(word) or base(word) in _COMMAND_OPTION), None)
    run = run_by(words)
    # After its file `flock` knows this option; with a command of its own the option belongs to that.
    is_locked = run.runners[-1:] == ("flock",) and run.is_next and not run.command
    return shell or (next(word for word in words if base(word) == "flock") if is_locked else None)


def _is_shell(word: str) -> bool:
    return base(word) in _SHELLS or bool(_SHELL_VARIABLE.match(word))
