"""What a step does: a prompt for the agent, a script for the shell, a file to write.

Prodigy pastes the values of variables into a script. Here they are passed as environment variables, so a value can
never become code:

- within single quotes the quotes are closed around the value: `'a ${x} b'` becomes `'a '"${x}"' b'`;
- where that is not possible (quoted here-documents, arithmetic, a script for another shell), or where a value stands
  in the position of a command, the script is assembled first and then evaluated, as Prodigy does. `convert` says so.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mulligan.core.model.text.paths import literal_prefix
from mulligan.core.model.workflow import Template
from mulligan.formats.prodigy.context import Context
from mulligan.formats.prodigy.forms import is_prompt
from mulligan.formats.prodigy.variables import (
    REFERENCE,
    fill_in,
    find_env_variable,
    find_variable,
    is_constant,
    refuse_unavailable,
    replace_references,
    text_at,
    translate_text,
    unknown_hint,
    warn_of_unknown,
    with_default,
)
from mulligan.formats.translation import literal, made
from mulligan.language.expressions import Placeholder, check, find_placeholders
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.shell.shell_lexer import PlaceholderSite, scan
from mulligan.language.shell.shell_placeholders import ROOTS, Names, ShellRefused, UnknownName
from mulligan.language.shell.shell_safety import SINGLE_QUOTES, Danger
from mulligan.language.text.nodes import Node, Scalar, Source, describe

# -- variables that a script assigns itself --------------------------------------------------------------------------


_QUOTED_WORD = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.S)
# Characters that would end a word or look like an assignment if they were not quoted.
_HIDDEN_IN_QUOTES = str.maketrans(dict.fromkeys(" \t\r\n;&|()=`", "_"))
_COMMAND_START = r"(?:^|[;&|({`]|\b(?:do|then|else|if|elif|while|until|export|local|readonly|declare)\b)[ \t]*"
_ASSIGNMENT = re.compile(rf"{_COMMAND_START}((?:[A-Za-z_]\w*=[^\s;&|]*[ \t]*)+)([^\n;]*)", re.M | re.A)
_ASSIGNED_NAME = re.compile(r"(?:^|\s)([A-Za-z_]\w*)=", re.A)
_FOR_LOOP = re.compile(r"\bfor\s+([A-Za-z_]\w*)(?=\s+in\b|\s*;|\s+do\b)", re.A)
_READ_COMMAND = re.compile(rf"{_COMMAND_START}(?:IFS=\S*\s+)?read\s+((?:-\w+\s+)*[\w \t]+)", re.M | re.A)


def assigned_variables(script: str) -> frozenset[str]:
    """The variables that a script sets itself: a captured variable of the same name is not meant there.

    In `v=${v}` the value comes from outside, so `v` does not count. `echo v=${v}` sets nothing.
    """
    bare = _QUOTED_WORD.sub(lambda quoted: quoted.group().translate(_HIDDEN_IN_QUOTES), script)
    names = dict.fromkeys(_FOR_LOOP.findall(bare) + " ".join(_READ_COMMAND.findall(bare)).split(), True)
    for found in _ASSIGNMENT.finditer(bare):
        for name in _ASSIGNED_NAME.findall(found[1]):
            names.setdefault(name, re.search(rf"\$\{{?{name}\b", found.group()) is None)
    return frozenset(name for name, is_own in names.items() if is_own)


# -- shell scripts ---------------------------------------------------------------------------------------------------


SCRIPT_VARIABLE = "PRODIGY_SCRIPT"
ARGUMENTS_VARIABLE = "PRODIGY_ARGS"
_WORDS_VARIABLE = "PRODIGY_WORDS_"
EVALUATED_REMARK = "values become part of this script and are executed, as in Prodigy: use trusted values only"
_PLAIN_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:\d+|\"[^\"]*\")\])*", re.A)
_POSITIONAL = re.compile(r"\$\{?[1-9]")
_SINGLE_QUOTED = re.compile(r"'[^']*'")
# Any value, to find out how a script quotes one.
_PROBE = "${run.id}"
_CLOSED_PROBE = f"""'"{_PROBE}"'"""
_LITERAL = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'((?:[^'\\]|\\.)*)'", re.S)
_SPECIAL = re.compile(r"\\.|\"", re.S)
_REWRITTEN = {"\\'": "\\u0027", '"': "\\u0022"}
# `$1` belongs to the script itself if it has functions or sets its arguments.
_HAS_ARGUMENTS = re.compile(r"\(\s*\)|\bset\s+--|\bshift\b|\bfunction\s")


class Script(NamedTuple):
    """A translated script, and the environment variables that it needs."""

    text: str
    env: dict[str, str]


def translate_script(node: Scalar, context: Context) -> Script:
    """Translate the script of a shell step. Refuse variables that are not known."""
    refuse_unavailable(node, context)
    warn_of_unknown(node, context, assigned_variables(node.text), is_script=True)
    try:
        return shell_text(node.text, context)
    except UnknownName as unknown:
        shown = f"${{{unknown.source}}}"
        message, hint = f"'{shown}' is not a known variable here", unknown_hint(unknown.source, context)
        offset = max(0, node.text.find(shown))
        raise context.source.refuse_in("unknown_name", message, node, offset, len(shown), hint=hint) from None


def shell_text(template: str, context: Context) -> Script:
    """Replace known variables by expressions; leave all others to the shell."""
    naive = _replace_all(template, context)
    # `$1` in single quotes is for awk.
    reads_arguments = _POSITIONAL.search(_SINGLE_QUOTED.sub("", template)) and not _HAS_ARGUMENTS.search(template)
    env = {ARGUMENTS_VARIABLE: f"${{{context.arguments}}}"} if reads_arguments else {}
    try:
        text = _close_single_quotes(naive, context, env)
    except UnknownName:
        raise
    except ShellRefused:
        text = naive  # the language reports what is wrong
    if text is None:
        text, env[SCRIPT_VARIABLE] = f'eval "${SCRIPT_VARIABLE}"', fill_in(template, context)
    return Script(f"set -- ${ARGUMENTS_VARIABLE}\n{text}" if ARGUMENTS_VARIABLE in env else text, env)


def _replace_all(template: str, context: Context) -> str:
    """Replace known variables by expressions.

    Within single quotes, an expression has no such quotes itself, which would end them. A variable of the workflow's
    environment, which the shell would not replace there, closes them, unless they are a script for another shell.
    """
    own = assigned_variables(template)
    matches = {match.start(): match for match in REFERENCE.finditer(template)}
    replaced = {start: _replace_in_shell(match, context, own) for start, match in matches.items()}
    # Variables of the environment that Prodigy replaces.
    paths = {start: match["path"] or match["bare"] for start, match in matches.items()}
    environment = {
        start
        for start, path in paths.items()
        if path not in own and not find_variable(path, context) and find_env_variable(path, context) is not None
    }
    mixed = {start for start, text in replaced.items() if "'" in text and text != matches[start].group()}
    if mixed or environment:
        dangers = _find_dangers(template, replaced | dict.fromkeys(mixed | environment, _PROBE), context)
        replaced |= {start: _with_double_quotes(replaced[start]) for start in mixed & set(dangers)}
        closed = {start for start in environment if dangers.get(start) == SINGLE_QUOTES}
        again = _find_dangers(template, replaced | dict.fromkeys(closed, _CLOSED_PROBE), context) if closed else {}
        replaced |= {start: f"""'"{replaced[start]}"'""" for start in closed - set(again)}
    return replace_references(template, str, lambda match: replaced[match.start()])


def _find_dangers(template: str, replaced: dict[int, str], context: Context) -> dict[int, Danger]:
    """By the offset of a reference: why the shell cannot take a value there as it is."""
    starts: dict[int, int] = {}
    script, position = "", 0
    for match in REFERENCE.finditer(template):
        script += template[position : match.start()]
        text, position = replaced[match.start()], match.end()
        starts[len(script) + text.find("${")] = match.start()
        script += text
    try:
        sites = scan(script + template[position:], Names(context.names, ROOTS)).sites
    except ShellRefused:
        return {}
    return {
        starts[site.placeholder.offset]: site.danger
        for site in sites
        if site.danger is not None and site.placeholder.offset in starts
    }


def _with_double_quotes(text: str) -> str:
    """The expression with each of its literals in double quotes, and without any single quote."""

    def rewrite(found: re.Match[str]) -> str:
        if found[1] is None:
            return found.group()
        return '"' + _SPECIAL.sub(lambda one: _REWRITTEN.get(one.group(), one.group()), found[1]) + '"'

    return _LITERAL.sub(rewrite, text)


def _replace_in_shell(match: re.Match[str], context: Context, own: frozenset[str]) -> str:
    path, default = match["path"] or match["bare"], match["default"]
    if path.startswith("env.") and find_env_variable(path, context):
        return f"${{{path.removeprefix('env.')}{'' if default is None else f':-{default}'}}}"
    found = None if path in own or path.isdigit() else find_variable(path, context)
    if found is None:
        # Leave it to the shell, without its braces if an expression could have the same name.
        if match["path"] not in context.names or default is not None:
            return match.group()
        return f'${path}""' if match.string[match.end() : match.end() + 1].isalnum() else f"${path}"
    if is_constant(found.expression):
        return found.expression
    if default is None:
        return f"${{{found.expression}}}"
    if not found.exists_when and _PLAIN_PATH.fullmatch(found.expression):
        return f"${{{found.expression}:-{default}}}"
    return f"${{{with_default(found, default)}}}"


def _close_single_quotes(naive: str, context: Context, env: dict[str, str]) -> str | None:
    """Close single quotes around values; None if a value is meant as code or cannot be passed safely.

    A list of words without quotes becomes a shell variable, added to `env`, since the shell splits only those.
    """
    names = Names(context.names, ROOTS)
    pieces, position = [], 0
    for slot in scan(naive, names).sites:
        start, end = slot.placeholder.offset, slot.placeholder.end if slot.close is None else slot.close + 1
        if _is_command(slot, naive, end):
            return None
        if slot.danger == SINGLE_QUOTES:
            # Directly after or before a quote of the file, a pair of quotes would be empty.
            is_first, is_last = naive[start - 1] == "'", naive[end : end + 1] == "'"
            pieces += [naive[position : start - is_first], '"' if is_first else "'\"", naive[start:end]]
            pieces.append('"' if is_last else "\"'")
            position = end + is_last
        elif slot.quoting == "bare" and slot.danger is None and slot.placeholder.source in context.word_lists:
            name = f"{_WORDS_VARIABLE}{len(env) + 1}"
            env[name] = f"${{{slot.placeholder.source}}}"
            pieces += [naive[position:start], f"${{{name}}}"]
            position = end
    text = "".join([*pieces, naive[position:]])
    return None if any(slot.danger for slot in scan(text, names).sites) else text


def _is_command(slot: PlaceholderSite, text: str, end: int) -> bool:
    """Whether the value is a whole word in the position of a command."""
    before, after = text[slot.placeholder.offset - 1 : slot.placeholder.offset], text[end : end + 1]
    return (
        slot.quoting == "bare"
        and not slot.words
        and slot.danger is None
        and before in ("", " ", "\t", "\n", ";", "&", "|", "(")
        and after in ("", " ", "\t", "\n", ";", "&", "|", ")")
    )


# -- actions ---------------------------------------------------------------------------------------------------------


WRITE = "mulligan.formats.prodigy.runtime:write_file"


def agent_action(
    node: Scalar, context: Context, words: str = "", *, has_to_answer_json: bool = False
) -> dict[str, Any]:
    """A prompt for the agent, followed by `words`. Prodigy starts it so that it never asks for permission."""
    prompt = node_for(translate_text(node, context) + words, node)
    answer = {"answer": "json"} if has_to_answer_json else {}
    return {"agent": made({"provider": "claude", "prompt": prompt, **answer, "skip_permissions": True}, node)}


def node_for(words: str, node: Scalar) -> Node:
    """A text node; the file's own node if the text is the same, so that errors point into the file."""
    return node if words == node.value else made(words, node)


def shell_action(node: Scalar, context: Context) -> dict[str, Any]:
    """A shell script with the environment variables that it needs."""
    found = translate_script(node, context)
    begin = "".join(f'{name}=$(eval "$PRODIGY_ENV_{name}") || exit\nexport {name}\n' for name in context.env_commands)
    action: dict[str, Any] = {"shell": node_for(begin + found.text, node)}
    env = {**found.env, **{f"PRODIGY_ENV_{name}": literal(text) for name, text in context.env_commands.items()}}
    if env:
        action["env"] = {name: made(value, node) for name, value in env.items()}
    return action


def command_action(node: Scalar, context: Context) -> dict[str, Any]:
    """A command that is a prompt or a shell script, by its first character."""
    return agent_action(node, context) if is_prompt(node) else shell_action(node, context)


def write_action(form: Fields, context: Context) -> dict[str, Any]:
    """Write a file atomically."""
    path: Scalar = form["path"]
    if ".." in path.text.split("/"):
        raise context.source.refuse("prodigy", f"'path' is {describe(path)}, which contains '..'", path)
    args: dict[str, Any] = {key: text_at(form, key, context) for key in ("path", "content")}
    args |= path_prefix(args["path"])
    args |= {key: form[key] for key in ("format", "create_dirs") if key in form}
    if "mode" in form:
        args["mode"] = made(_mode(form["mode"], context.source), form["mode"])
    return {"python": {"call": WRITE}, "args": args}


def path_prefix(path: Scalar) -> dict[str, Node]:
    """The argument `below`: the literal start of a path, if a value of the run follows it."""
    for part in find_placeholders(path.text):
        if isinstance(part, Placeholder) and literal_prefix(Template((check(part.source),))) is not None:
            return {"below": made(path.text[: part.offset], path)}
    return {}


def _mode(node: Scalar, source: Source) -> str:
    digits = node.text.removeprefix("0o")
    if not digits or not set(digits) <= set("01234567") or len(digits) > 4:
        message = f"'mode' is {describe(node)}, permissions such as 0644 are expected"
        raise source.refuse("type", message, node)
    return digits
