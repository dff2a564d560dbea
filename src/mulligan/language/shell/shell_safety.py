"""Positions where the shell would evaluate a value again or would not expand it: why, and what to do instead.

Each reason completes a sentence about the placeholder: `'${inputs.x}' is in single quotes, where …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.shell.command_words import (
    ASSIGNMENT,
    COMMAND_OPTION,
    JOINERS,
    SCRIPT_OPTION,
    SHELLS,
    CommandWords,
    is_shell,
    program_name,
    strip_quoting,
)


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
    "is printed in the place of a command, so the shell would run it",
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
    "has single quotes after its operator; within double quotes they are plain characters",
    "write the text without them",
)

# Numeric contexts: the output of a `$(…)` is evaluated here too.
_NUMERIC = (ARITHMETIC, SUBSCRIPT, COMPARISON, TYPED)
_INERT = frozenset("cat < > >> >| <> &> &>>".split())
# Interactive shells of these names run the file in `ENV`.
_STARTED = lazy_regex(r"(?<![\w.-])(?:ash|dash|ksh|mksh|sh)(?![\w.-])")
_ENV = lazy_regex(r"['\"]*ENV\+?=")
# Script names that mean standard input.
_INPUTS = lazy_regex(r"/dev/stdin$|/dev/fd/\d+$|/proc/[^/]+/fd/\d+$")
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
# Without any of these words, and without subscripts, arithmetic and input redirections, nothing is evaluated again.
REEVALUATING_WORDS = frozenset(
    {*_EVALUATORS, *SHELLS, *COMMAND_OPTION, *_DECLARATIONS, *_NAMERS, *_VARIABLES, *JOINERS}
    | {"let", "source", ".", "env", "flock", "ssh", "xargs", "-v", "ENV", "SHELL", "BASH"}
)
_ASSIGNED = lazy_regex(r"['\"]*([A-Za-z_]\w*)\+?=")
_IDENTIFIER = lazy_regex(r"[A-Za-z_]\w*$")
# The same options with the value in the same word, for programs that are not shells.
_SCRIPT_BEGUN = lazy_regex(r"-[aefglmpqP]*c|--(?:session-)?c(?:o|om[a-z]*)?=")
_SPLIT_OPTION = lazy_regex(r"-[A-Za-z0]*S$|--s[a-z-]*$")
_SPLIT_BEGUN = lazy_regex(r"-[A-Za-z0]*S|--s[a-z-]*=")
_REPLACED = lazy_regex(r"(?:-I|-i|--replace=?)(.*)$")
# A script is taken to have one of more texts than this: only the last option counts, and nobody writes so many.
_REPLACED_MAX = 16
# What may still become an assignment, with quotes or without them; or an option; or an expansion that is not closed.
_BEGUN = lazy_regex(r"['\"]*\w*(?:\[[^]]*\]?)?\+?")
_BEGUN_UNQUOTED = lazy_regex(r"[-\w]*(?:\[[^]]*\]?)?\+?(?:[`$].*)?", re.S)
_INTEGERS = lazy_regex(r"\b(?:declare|typeset|local|readonly|export)((?:[ \t]+-\w+)*[ \t]+-\w*i\w*(?:[ \t]+[\w=-]+)+)")


def argument_danger(words: CommandWords) -> Danger | None:
    """The danger of every argument of the command, including the output of a `$(…)`."""
    name = words.facts.name
    if name in _EVALUATORS:
        return Danger(f"is an argument of '{name}', which evaluates the value again", "write the command itself")
    if name == "let":
        return ARITHMETIC
    if shell := words.facts.script_runner:
        return _script_danger(shell, words[-1])
    is_split = bool(words) and _SPLIT_OPTION.match(words[-1]) and words.facts.is_after_env
    return SPLIT if is_split else None


def _script_danger(shell: str, option: str) -> Danger:
    reason = f"is part of the script of '{shell} {option}', which evaluates the value again"
    example = "sh" if program_name(shell) in (*COMMAND_OPTION, "flock") else shell
    return Danger(reason, f"pass it as an argument: {example} -c '… \"$1\" …' _ VALUE")


def is_undecided(before: str) -> bool:
    """Whether the first characters of a word do not show yet what it is: a name of a variable, an option, a path.

    If they do, the rest of the word changes nothing in what is asked here about the word before a value.
    """
    return bool(_BEGUN.fullmatch(before) or _BEGUN_UNQUOTED.fullmatch(strip_quoting(before)))


def word_danger(words: CommandWords, before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of a placeholder in a word of the command; `before` is the word up to it."""
    name = words.facts.name
    last = words[-1] if words else ""
    if (assigned := _ASSIGNED.match(before)) and (danger := variable_danger(assigned[1])):
        return danger
    if _is_integer(before, integers):
        return TYPED
    if name in _DECLARATIONS:
        if not words.facts.option_letters.isdisjoint("aAin"):
            return TYPED
        return None if ASSIGNMENT.match(before.lstrip('"')) or before.startswith("-") else NAME
    if words.facts.is_for_remote_shell:
        return REMOTE_SHELL
    if danger := _option_danger(words, strip_quoting(before)) or _joined_danger(words, before):
        return danger
    is_name = name in _NAMERS and (last in ("-a", "-C") or not last.startswith("-"))
    return NAME if is_name or (name in ("printf", "test", "[") and last == "-v") else None


def _option_danger(words: CommandWords, before: str) -> Danger | None:
    """The danger of a value in the same word as its option: `--command=VALUE`."""
    begun = _SCRIPT_BEGUN.match(before)
    if begun and (shell := words.facts.script_runner_after_option) and not is_shell(shell):
        return _script_danger(shell, begun[0])
    return SPLIT if _SPLIT_BEGUN.match(before) and words.facts.is_after_env else None


def _joined_danger(words: CommandWords, before: str) -> Danger | None:
    """The danger of an argument of a program that joins its arguments into a script."""
    name = words.facts.joiner
    if not name or not words.is_joined(before):
        return None
    reason = f"is part of the command that '{name}' gives to a shell, which evaluates the value again"
    return Danger(reason, "write the command in a file, which takes the value from a variable")


def names_started_shell(text: str) -> bool:
    """Whether `text` names a shell that reads `ENV` when it starts."""
    return _STARTED.search(text) is not None


def startup_danger(before: str, has_started_shell: bool) -> Danger | None:
    """The danger of a value of `ENV`, if the text names a shell that reads it: other programs use `ENV` as well."""
    return SH_STARTUP if has_started_shell and _ENV.match(before) else None


def variable_danger(name: str) -> Danger | None:
    """The danger of a value in a variable of this name, in shell text and in `env`."""
    return _VARIABLES.get(name)


def printed_danger(words: CommandWords, before: str, integers: frozenset[str], danger: Danger | None) -> Danger | None:
    """The danger of the output of a `$(…)` in this word; `danger` is that of the word itself."""
    own = danger or word_danger(words, before, integers)
    return own if danger or own in (*_NUMERIC, PROMPT, STARTUP) else None


def names_a_command(words: CommandWords, before: str) -> bool:
    """Whether an unquoted word that begins with `before` is the name of a command."""
    return not words.facts.name and not ASSIGNMENT.match(before)


def is_program(words: CommandWords, before: str) -> bool:
    """Whether the word that begins with `before` names a program, run by the shell or by a wrapper like `timeout`."""
    return names_a_command(words, before) or words.is_program_next(before)


def is_harmless(words: Sequence[str], danger: Danger | None) -> bool:
    """Whether this command in a `$(…)` cannot print the value: it is a file name, or printed with `%d`."""
    is_number = [strip_quoting(word) for word in words[:2]] in (["printf", "%d"], ["printf", "%i"])
    return danger in _NUMERIC and (is_number or (bool(words) and words[0] in _INERT))


def element_danger(words: CommandWords, before: str, integers: frozenset[str]) -> Danger | None:
    """The danger of an element of the array assigned after `before`: an integer array evaluates it."""
    is_typed = words.facts.name in _DECLARATIONS and "i" in words.facts.option_letters
    return TYPED if is_typed or _is_integer(before, integers) else None


def is_subscript(words: CommandWords, before: str, is_element: bool) -> bool:
    """Whether a `[` after `before` opens a subscript: of an assigned variable or of an array element."""
    if is_element and not before:
        return True
    return bool(_IDENTIFIER.match(before)) and (not words.facts.name or words.facts.name in _DECLARATIONS)


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


def _script_reader(words: Iterable[str]) -> str | None:
    """The command in `words` that reads a script from its standard input, if there is one."""
    # `eval` runs its arguments as a command.
    words = CommandWords(word for word in words if word != "eval")
    if words.facts.name in ("source", "."):
        return words.facts.name
    reader = _shell_that_reads(words)
    if reader is not None:
        return reader
    if words.facts.reads_commands:
        return "parallel"
    # If `ssh` has a command after its host, that command reads the input.
    return (
        words[0] if words.facts.is_for_remote_shell and not CommandWords(words[:-1]).facts.is_for_remote_shell else None
    )


def _shell_that_reads(words: list[str]) -> str | None:
    """The first shell in `words` that reads its script from its input, or gets it from `xargs` or `parallel`.

    Each word is looked at once: a hostile line names a thousand shells.
    """
    shells = [index for index, word in enumerate(words) if is_shell(word)]
    if not shells:
        return None
    after = _after_each(words)
    last_input_option = len(words) - 1 - words[::-1].index("-s") if "-s" in words else -1
    builders = (index for index, word in enumerate(words) if program_name(word) in ("xargs", "parallel"))
    builder = next(builders, len(words))
    replaced = _replacement_texts(words[builder : shells[-1]])
    # Many shells may have the same script behind them.
    looked_at: set[tuple[_Following, bool]] = set()
    for at in shells:
        script, option = after[at]
        is_after_builder = builder < at
        if script < 0 or at < last_input_option:
            return words[at]
        if (after[at], is_after_builder) in looked_at:
            continue
        looked_at.add((after[at], is_after_builder))
        if _INPUTS.match(strip_quoting(words[script])):
            return words[at]
        if is_after_builder and _is_built(words, option, replaced):
            return words[at]
    return None


class _Following(NamedTuple):
    """Where the script of a shell stands that has these words behind it, and its `-c`; -1 if there is none."""

    script: int
    option: int


def _after_each(words: list[str]) -> list[_Following]:
    """What follows each word."""
    found: list[_Following] = []
    script = option = -1
    for index in range(len(words) - 1, -1, -1):
        found.append(_Following(script, option))
        is_option = SCRIPT_OPTION.match(words[index]) is not None
        option = index if is_option else option
        script = index if is_option or not words[index].startswith("-") else script
    return found[::-1]


def _is_built(words: list[str], option: int, replaced: frozenset[str]) -> bool:
    """Whether `xargs` or `parallel` builds the script of the shell with this `-c` from its input."""
    if option < 0:
        return False
    script = words[option + 1 : option + 2]
    is_any = len(replaced) > _REPLACED_MAX
    return not script or is_any or any(text in script[0] for text in replaced)


def _replacement_texts(words: list[str]) -> frozenset[str]:
    """The texts that `xargs` with these words replaces by its input."""
    if not words:
        return frozenset()
    found = {"{}"} if program_name(words[0]) == "parallel" else set()
    for word, after in pairwise([*map(strip_quoting, words), ""]):
        if option := _REPLACED.match(word):
            found.add(option[1] or (after if word == "-I" else "{}"))
    return frozenset(found)


def process_substitution_danger(words: CommandWords) -> Danger | None:
    """The danger of `<(…)`: for `source` and for a shell its output is a script."""
    name = words.facts.name_after_eval
    if name in ("source", ".") or is_shell(name):
        return Danger(f"is part of a script that '{name}' reads and evaluates", "write the commands themselves")
    return None


def integer_variables(text: str) -> frozenset[str]:
    """The variables that `text` declares as integers: values assigned to them are evaluated."""
    declared = (word for match in _INTEGERS.findall(text) for word in match.split())
    return frozenset(word.partition("=")[0] for word in declared if not word.startswith("-"))


def _is_integer(before: str, integers: frozenset[str]) -> bool:
    return bool(ASSIGNMENT.match(before)) and before.partition("=")[0].rstrip("+").partition("[")[0] in integers
