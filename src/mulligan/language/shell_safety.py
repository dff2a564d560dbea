"""Positions where the shell would evaluate a value again or would not expand it: why, and what to do instead.

Each reason completes a sentence about the placeholder: `'${inputs.x}' is in single quotes, where …`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.shell_wrappers import ASSIGNMENT, is_program_word, program_name, strip_quoting, unwrap


class Danger(NamedTuple):
    reason: str
    hint: str


_LITERALLY = "for the characters themselves write '$${'"
SINGLE_QUOTES = Danger("is in single quotes, where the shell does not expand it", f"use double quotes; {_LITERALLY}")
QUOTED_DOCUMENT = Danger(
    "is in a here-document with a quoted delimiter, where the shell does not expand it",
    f"write the delimiter without quotes; {_LITERALLY}",
)
DELIMITER = Danger("is the delimiter of a here-document, which the shell does not expand", "write a word there")
BACKTICKS = Danger("is in backticks, which change the quotes within", "write $(…) in place of the backticks")
ARITHMETIC = Danger(
    "is in arithmetic, where the shell would evaluate the value again",
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
REMOTE_SHELL = Danger(
    "is part of a command that 'ssh' passes to a shell, which evaluates the value again",
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

# Numeric contexts: the output of a `$(…)` is evaluated here too.
_NUMERIC = (ARITHMETIC, SUBSCRIPT, COMPARISON, TYPED)
_INERT = frozenset("cat < > >> >| <> &> &>>".split())
_SHELLS = frozenset("ash bash dash ksh mksh sh zsh".split())
# Interactive shells of these names run the file in `ENV`.
_STARTED = lazy_regex(r"(?<![\w.-])(?:ash|dash|ksh|mksh|sh)(?![\w.-])")
_ENV = lazy_regex(r"['\"]*ENV\+?=")
# Script names that mean standard input.
_INPUTS = lazy_regex(r"/dev/stdin$|/dev/fd/\d+$|/proc/[^/]+/fd/\d+$")
# Variables that name a shell: `$SHELL`, `"${BASH}"`, `${SHELL:-/bin/sh}`.
_SHELL_VARIABLE = lazy_regex(r"['\"]*\$\{?(?:SHELL|BASH)(?!\w)")
# Programs that pass the value of `-c` or `--command` to a shell.
_COMMAND_OPTION = frozenset(("su", "runuser", "script"))
_WRAPPERS = frozenset("builtin command env exec nice nohup sudo time".split())
_PRINTERS = frozenset(("echo", "printf", "<<<"))
# How many words to search for the command behind its wrappers.
_WRAPPING_MAX = 12
_EVALUATORS = frozenset("alias bind compgen complete eval trap".split())
_DECLARATIONS = frozenset("declare export local readonly typeset".split())
_NAMERS = frozenset("getopts mapfile read readarray unset".split())
_VARIABLES = {
    **dict.fromkeys(("PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND"), PROMPT),
    "BASH_ENV": STARTUP,
}
# Programs that join their arguments into a script; `watch -x` does not.
_JOINERS = frozenset(("watch", "parallel"))
# Without any of these words, and without subscripts, arithmetic and input redirections, nothing is evaluated again.
REEVALUATING_WORDS = frozenset(
    {*_EVALUATORS, *_SHELLS, *_COMMAND_OPTION, *_DECLARATIONS, *_NAMERS, *_VARIABLES, *_JOINERS}
    | {"let", "source", ".", "env", "flock", "ssh", "xargs", "-v", "ENV", "SHELL", "BASH"}
)
_ASSIGNED = lazy_regex(r"['\"]*([A-Za-z_]\w*)\+?=")
_IDENTIFIER = lazy_regex(r"[A-Za-z_]\w*$")
_SCRIPT_OPTION = lazy_regex(r"-[A-Za-z]*c[A-Za-z]*$|--(?:session-)?c(?:o|om[a-z]*)?$")
# The same options with the value in the same word, for programs that are not shells.
_SCRIPT_BEGUN = lazy_regex(r"-[aefglmpqP]*c|--(?:session-)?c(?:o|om[a-z]*)?=")
_SPLIT_OPTION = lazy_regex(r"-[A-Za-z0]*S$|--s[a-z-]*$")
_SPLIT_BEGUN = lazy_regex(r"-[A-Za-z0]*S|--s[a-z-]*=")
_EXEC_OPTION = lazy_regex(r"-[a-z]*x|--exec$")
_REPLACED = lazy_regex(r"(?:-I|-i|--replace=?)(.*)$")
# The options of ssh that take the next word as their value.
_SSH_VALUE = lazy_regex(r"-[A-Za-z0-9]*[bcDEeFIiJLlmOopQRSWw]$")
_INTEGERS = lazy_regex(r"\b(?:declare|typeset|local|readonly|export)((?:[ \t]+-\w+)*[ \t]+-\w*i\w*(?:[ \t]+[\w=-]+)+)")


def argument_danger(words: Sequence[str]) -> Danger | None:
    """The danger of every argument of the command, including the output of a `$(…)`."""
    name = _command(words)
    if name in _EVALUATORS:
        return Danger(f"is an argument of '{name}', which evaluates the value again", "write the command itself")
    if name == "let":
        return ARITHMETIC
    if shell := _script_runner(words):
        return _script_danger(shell, words[-1])
    is_split = bool(words) and _SPLIT_OPTION.match(words[-1]) and _is_option_of_env(words)
    return SPLIT if is_split else None


def _script_danger(shell: str, option: str) -> Danger:
    reason = f"is part of the script of '{shell} {option}', which evaluates the value again"
    example = "sh" if program_name(shell) in (*_COMMAND_OPTION, "flock") else shell
    return Danger(reason, f"pass it as an argument: {example} -c '… \"$1\" …' _ VALUE")


def word_danger(words: Sequence[str], before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of a placeholder in a word of the command; `before` is the word up to it."""
    name = _command(words)
    last = words[-1] if words else ""
    if (assigned := _ASSIGNED.match(before)) and (danger := variable_danger(assigned[1])):
        return danger
    if _is_integer(before, integers):
        return TYPED
    if name in _DECLARATIONS:
        return _declaration_danger(words, before)
    if _is_for_remote_shell(words):
        return REMOTE_SHELL
    if danger := _option_danger(words, strip_quoting(before)) or _joined_danger(words, before):
        return danger
    is_name = name in _NAMERS and (last in ("-a", "-C") or not last.startswith("-"))
    return NAME if is_name or (name in ("printf", "test", "[") and last == "-v") else None


def _option_danger(words: Sequence[str], before: str) -> Danger | None:
    """The danger of a value in the same word as its option: `--command=VALUE`."""
    begun = _SCRIPT_BEGUN.match(before)
    if begun and (shell := _script_runner([*words, "-c"])) and not _is_shell(shell):
        return _script_danger(shell, begun[0])
    return SPLIT if _SPLIT_BEGUN.match(before) and _is_option_of_env(words) else None


def _is_option_of_env(words: Sequence[str]) -> bool:
    run = unwrap(words)
    return run.wrappers[-1:] == ("env",) and not run.command


def _joined_danger(words: Sequence[str], before: str) -> Danger | None:
    """The danger of an argument of a program that joins its arguments into a script."""
    run = unwrap(words)
    name = next((wrapper for wrapper in run.wrappers if wrapper in _JOINERS), None)
    if name is None or (name == "watch" and any(map(_EXEC_OPTION.match, words[: len(words) - len(run.command)]))):
        return None
    if name == "parallel" and ":::" in words:
        # Words after `:::` are quoted for the command, unless there is no other command.
        is_script = list(run.command[:1]) == [":::"]
    else:
        is_script = bool(run.command) or run.wrappers[-1] != name or is_program_word(words, before)
    if not is_script:
        return None
    reason = f"is part of the command that '{name}' gives to a shell, which evaluates the value again"
    return Danger(reason, "write the command in a file, which takes the value from a variable")


def startup_danger(before: str, text: str) -> Danger | None:
    """The danger of a value of `ENV`, if `text` names a shell that reads it: other programs use `ENV` as well."""
    return SH_STARTUP if _ENV.match(before) and _STARTED.search(text) else None


def variable_danger(name: str) -> Danger | None:
    """The danger of a value in a variable of this name, in shell text and in `env`."""
    return _VARIABLES.get(name)


def printed_danger(words: Sequence[str], before: str, integers: frozenset[str], danger: Danger | None) -> Danger | None:
    """The danger of the output of a `$(…)` in this word; `danger` is that of the word itself."""
    own = danger or word_danger(words, before, integers)
    return own if danger or own in (*_NUMERIC, PROMPT, STARTUP) else None


def names_a_command(words: Sequence[str], before: str) -> bool:
    """Whether an unquoted word that begins with `before` is the name of a command."""
    return not _command(words) and not ASSIGNMENT.match(before)


def is_program(words: Sequence[str], before: str) -> bool:
    """Whether the word that begins with `before` names a program, run by the shell or by a wrapper like `timeout`."""
    return names_a_command(words, before) or is_program_word(words, before)


def is_harmless(words: Sequence[str], danger: Danger | None) -> bool:
    """Whether this command in a `$(…)` cannot print the value: it is a file name, or printed with `%d`."""
    is_number = [strip_quoting(word) for word in words[:2]] in (["printf", "%d"], ["printf", "%i"])
    return danger in _NUMERIC and (is_number or (bool(words) and words[0] in _INERT))


def element_danger(words: Sequence[str], before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of an element of the array assigned after `before`: an integer array evaluates it."""
    is_typed = _command(words) in _DECLARATIONS and "i" in _options(words)
    return TYPED if is_typed or _is_integer(before, integers) else None


def is_subscript(words: Sequence[str], before: str, is_element: bool) -> bool:
    """Whether a `[` after `before` opens a subscript: of an assigned variable or of an array element."""
    if is_element and not before:
        return True
    name = _command(words)
    return bool(_IDENTIFIER.match(before)) and (not name or name in _DECLARATIONS)


def input_danger(words: Sequence[str]) -> Danger | None:
    """The danger of a here-document or here-string: a shell that has no other script evaluates it."""
    readers = (_script_reader(command) for command in _commands(words))
    reader = next((reader for reader in readers if reader), None)
    if reader is None:
        return None
    return Danger(
        f"is part of the script that '{reader}' reads, which evaluates the value again",
        "pass the value as an argument, as in sh -s VALUE <<'EOF', and read it there as \"$1\"",
    )


def is_printed(words: Sequence[str]) -> bool:
    """Whether the next word is printed for another command: by `echo`, `printf` or a here-string.

    Wrappers may run them: `command echo`, `timeout 5 echo`.
    """
    names = [program_name(word) for word in words[:_WRAPPING_MAX]]
    printer = next((at for at, name in enumerate(names) if name in _PRINTERS), None)
    return printer is not None and names[printer : printer + 2] != ["printf", "%q"]


def _commands(words: Sequence[str]) -> list[list[str]]:
    """The words of a line, split into commands at each `;`."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word == ";":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _script_reader(words: list[str]) -> str | None:
    """The command in `words` that reads a script from its standard input, if there is one."""
    words = _without_eval(words)
    if _command(words) in ("source", "."):
        return _command(words)
    for index, word in enumerate(words):
        if _is_shell(word) and (_reads_script_from_input(words[index + 1 :]) or _gets_script_from_xargs(words, index)):
            return word
    run = unwrap(words)
    if "parallel" in run.wrappers and not run.command:
        return "parallel"
    # If `ssh` has a command after its host, that command reads the input.
    return words[0] if _is_for_remote_shell(words) and not _is_for_remote_shell(words[:-1]) else None


def _reads_script_from_input(arguments: list[str]) -> bool:
    """Whether a shell with these arguments reads its script from standard input."""
    script = next((word for word in arguments if not word.startswith("-") or _SCRIPT_OPTION.match(word)), None)
    return script is None or bool(_INPUTS.match(strip_quoting(script))) or "-s" in arguments


def _gets_script_from_xargs(words: list[str], at: int) -> bool:
    """Whether `xargs` or `parallel` builds the script of the shell at `at` from its input."""
    wrapper = next(
        (index for index, word in enumerate(words[:at]) if program_name(word) in ("xargs", "parallel")), None
    )
    if wrapper is None:
        return False
    option = next((index for index, word in enumerate(words) if index > at and _SCRIPT_OPTION.match(word)), None)
    if option is None:
        return False
    script = words[option + 1 : option + 2]
    return not script or any(replaced in script[0] for replaced in _replacement_texts(words[wrapper:at]))


def _replacement_texts(words: list[str]) -> list[str]:
    """The texts that `xargs` with these words replaces by its input."""
    found = ["{}"] if program_name(words[0]) == "parallel" else []
    for word, after in pairwise([*map(strip_quoting, words), ""]):
        if option := _REPLACED.match(word):
            found.append(option[1] or (after if word == "-I" else "{}"))
    return found


def _without_eval(words: Sequence[str]) -> list[str]:
    """The words without `eval`, which runs its arguments as a command."""
    return [word for word in words if word != "eval"]


def process_substitution_danger(words: Sequence[str]) -> Danger | None:
    """The danger of `<(…)`: for `source` and for a shell its output is a script."""
    name = _command(_without_eval(words))
    if name in ("source", ".") or _is_shell(name):
        return Danger(f"is part of a script that '{name}' reads and evaluates", "write the commands themselves")
    return None


def integer_variables(text: str) -> frozenset[str]:
    """The variables that `text` declares as integers: values assigned to them are evaluated."""
    declared = (word for match in _INTEGERS.findall(text) for word in match.split())
    return frozenset(word.partition("=")[0] for word in declared if not word.startswith("-"))


def _declaration_danger(words: Sequence[str], before: str) -> Danger | None:
    if any(letter in _options(words) for letter in "aAin"):
        return TYPED
    return None if ASSIGNMENT.match(before.lstrip('"')) or before.startswith("-") else NAME


def _is_for_remote_shell(words: Sequence[str]) -> bool:
    """Whether the next word goes to the remote shell: `ssh` and its host are already there."""
    if _command(words) != "ssh":
        return False
    after = list(words)[list(words).index("ssh") :]
    return any(not word.startswith("-") and not _SSH_VALUE.match(before) for before, word in pairwise(after))


def _options(words: Sequence[str]) -> str:
    return "".join(word for word in words if word.startswith("-"))


def _is_integer(before: str, integers: frozenset[str]) -> bool:
    return bool(ASSIGNMENT.match(before)) and before.partition("=")[0].rstrip("+").partition("[")[0] in integers


def _command(words: Sequence[str]) -> str:
    """The name of the command after assignments and wrappers."""
    return _find_command(tuple(words))


# Each word of a command, and each check of it, asks for the same ones again.
@lru_cache(maxsize=1024)
def _find_command(words: tuple[str, ...]) -> str:
    is_wrapped = False
    for word in words:
        is_option = is_wrapped and word.startswith("-")
        is_wrapped = is_wrapped or word in _WRAPPERS
        if not (ASSIGNMENT.match(word) or word in _WRAPPERS or is_option):
            return strip_quoting(word)
    return ""


def _script_runner(words: Sequence[str]) -> str | None:
    """The shell, or program that starts one, whose `-c` is the last of `words`: the next word is its script."""
    words = list(words)
    while words and words[-1] == "--":
        words.pop()
    if not words or not _SCRIPT_OPTION.match(words[-1]):
        return None
    shell = next((word for word in words[:-1] if _is_shell(word) or program_name(word) in _COMMAND_OPTION), None)
    run = unwrap(words)
    # `flock FILE -c` is an option of `flock`; after a command it belongs to that command.
    is_locked = run.wrappers[-1:] == ("flock",) and run.is_next and not run.command
    return shell or (next(word for word in words if program_name(word) == "flock") if is_locked else None)


def _is_shell(word: str) -> bool:
    return program_name(word) in _SHELLS or bool(_SHELL_VARIABLE.match(word))
