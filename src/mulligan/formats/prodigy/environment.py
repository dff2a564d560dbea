"""The environment of a workflow's commands: `env`, `env_files`, `secrets` and `profiles`.

Each variable is available in two ways: to every command as an environment variable, and to the file as an expression.
A profile overrides `env`, and `env` overrides a file. A value may also be the output of a command, or depend on a
condition: a step at the start of the run computes such values, and all later steps have them in their environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.core.model.text.formatting import error_reason
from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy.conditions import translate_condition
from mulligan.formats.prodigy.context import Context
from mulligan.formats.prodigy.forms import require_keys
from mulligan.formats.translation import literal, made
from mulligan.language.keys.value_schemas import Fields, ValueSchema
from mulligan.language.text.nodes import Node, Scalar, Sequence, Source, shorten
from mulligan.language.text.suggestions import quote_list

PROFILE_INPUT = "profile"
_FROM_ENV = re.compile(r"\$\{env:([A-Za-z_]\w*)\}", re.A)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.A)
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)", re.A)
# Prodigy hides variables with such names.
_SECRET_NAME = re.compile(r"passw|token|api_?key|secret|auth|private_?key|credential", re.I)
# An expression that is one text literal.
_LITERAL_TEXT = re.compile(r"'((?:[^'\\]|\\['\\])*)'")
_ESCAPED = re.compile(r"\\(['\\])")
_DESCRIPTION = "description"


class Environment(NamedTuple):
    """The translated environment: inputs, secrets and variables; and each variable as an expression.

    `env` is that of every step, `late_env` that of the steps after the one that computes variables. `commands` compute
    a variable each; those in `repeated` run again before each shell command.
    """

    inputs: dict[str, Any]
    secrets: dict[str, Any]
    env: dict[str, Node]
    expressions: dict[str, str]
    late_env: Dict[str, Node] = {}
    commands: Dict[str, Scalar] = {}
    repeated: frozenset[str] = frozenset()


class _EnvVariable(NamedTuple):
    """The expression of a variable, and the node that sets it."""

    expression: str
    at: Node


class _EnvironmentReader:
    """The variables of a file that have been read so far."""

    def __init__(self, context: Context, overrides: dict[str, dict[str, Scalar]]) -> None:
        # The parameters of the workflow are its variables.
        self.context = context
        self.source = context.source
        self.overrides = overrides
        self.variables: dict[str, _EnvVariable] = {}
        self.secrets: dict[str, Any] = {}
        self.commands: dict[str, Scalar] = {}
        self.repeated: set[str] = set()

    def set(self, name: str, expression: str, at: Node) -> None:
        """Set a variable: to the value of the chosen profile, or to `expression` if the profile does not set it."""
        for profile, node in reversed(self.overrides.get(name, {}).items()):
            value = self.expression("" if node.value is None else node.text)
            expression = f"(inputs.{PROFILE_INPUT} == {quoted(profile)} ? {value} : {expression})"
        self.variables[name] = _EnvVariable(expression, at)

    def hide(self, name: str, where: dict[str, str], at: Node) -> None:
        """Declare a secret with the name of the variable."""
        for node in self.overrides.pop(name, {}).values():
            message = f"'{name}' is a secret, and the value in a profile would be readable"
            self.source.note(self.source.refuse("secret", message, node))
        self.secrets[name] = made(where, at)
        self.set(name, f"secrets.{name}", at)

    def expression(self, text: str) -> str:
        """The expression of a value that may refer to variables set before. Unknown references stay as written."""
        parts, position = [], 0
        for match in _REFERENCE.finditer(text):
            name = match[1] or match[2]
            known = self.variables[name].expression if name in self.variables else self.context.variables.get(name)
            if known is not None:
                parts += [quoted(text[position : match.start()]), f"string({known})"]
                position = match.end()
        parts.append(quoted(text[position:]))
        return " + ".join(part for part in parts if part != "''") or "''"


def translate_environment(fields: Fields, context: Context) -> Environment:
    """Translate the keys of the environment. Values may refer to the variables of `context`: the parameters."""
    reading = _EnvironmentReader(context, _overrides(fields))
    _read_files(fields, reading)
    _read_secrets(fields, reading)
    for name, value in fields.get("env", {}).items():
        with reading.source.noting:
            _read_env_value(name, value, reading)
    for name, values in reading.overrides.items():
        if name not in reading.variables:
            reading.set(name, "''", next(iter(values.values())))
    texts = {name: made(_env_text(found.expression), found.at) for name, found in reading.variables.items()}
    # Known only after the first steps of the run.
    late_steps = [f"steps.{step}." for step in (WORKTREE_STEP, ENVIRONMENT_STEP)]
    late = [name for name, found in reading.variables.items() if any(step in found.expression for step in late_steps)]
    return Environment(
        inputs=_profile_input(fields),
        secrets=reading.secrets,
        env={name: text for name, text in texts.items() if name not in late},
        expressions={name: found.expression for name, found in reading.variables.items()},
        late_env={name: texts[name] for name in late},
        commands=reading.commands,
        repeated=frozenset(reading.repeated),
    )


def _env_text(expression: str) -> str:
    """The value of a variable as a template; a literal is written as plain text."""
    written = _LITERAL_TEXT.fullmatch(expression)
    return literal(_ESCAPED.sub(r"\1", written[1])) if written else f"${{{expression}}}"


# -- files -----------------------------------------------------------------------------------------------------------


def _read_files(fields: Fields, reading: _EnvironmentReader) -> None:
    node = fields.at("env_files") if "env_files" in fields else Sequence(0, 0)
    for entry in node.items if isinstance(node, Sequence) else [node]:
        with reading.source.noting:
            assert isinstance(entry, Scalar)
            _read_file(entry, reading)


def _read_file(entry: Scalar, reading: _EnvironmentReader) -> None:
    """Read a file of variables. Variables with secret names are not copied: workers read them from the file."""
    reading.source.refuse_other_file(shorten(entry.text), entry)
    # Relative to the current folder, or to the file that names it.
    beside = Path(reading.source.file).parent / entry.text
    path = next((str(path) for path in (Path(entry.text), beside) if path.is_file()), None)
    if path is None:
        message = f"there is no file '{shorten(entry.text)}', so it is skipped"
        reading.source.warn("prodigy", message, entry)
        return
    for name, value in _assignments(path, entry, reading):
        if _SECRET_NAME.search(name):
            # A path without a slash would be looked up in $PATH.
            script = f'set -a; . {shlex.quote(path if "/" in path else f"./{path}")}; printf %s "${name}"'
            reading.hide(name, {"command": script}, entry)
        else:
            reading.set(name, quoted(value), entry)


def _assignments(path: str, entry: Scalar, reading: _EnvironmentReader) -> list[tuple[str, str]]:
    source, found = reading.source, []
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = f"'{shorten(entry.text)}' cannot be read: {error_reason(error)}"
        raise source.refuse("prodigy", message, entry) from None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        match = _LINE.fullmatch(words)
        if match is None:
            raise source.refuse("prodigy", f"line {number} of '{entry.text}' is not NAME=VALUE", entry)
        found.append((match[1], _unquoted(match[2])))
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


# -- env and secrets -------------------------------------------------------------------------------------------------


def _read_env_value(name: str, value: Scalar | Fields, reading: _EnvironmentReader) -> None:
    if isinstance(value, Fields):
        _read_secret_value(name, value, reading)
        return
    from_env = _FROM_ENV.fullmatch(value.text)
    expression = f"env.{from_env[1]}" if from_env else reading.expression("" if value.value is None else value.text)
    reading.set(name, expression, value)


def _read_secret_value(name: str, form: Fields, reading: _EnvironmentReader) -> None:
    """A secret, or a value that a command or a condition computes."""
    require_keys(form, *form.node.entries, source=reading.source)
    _refuse_mixed(name, form, reading)
    is_secret = form.get("secret", False)
    if "command" in form:
        _read_command(name, form, reading, is_secret=is_secret)
        return
    if is_secret and "condition" in form:
        message = "a value that depends on a condition cannot be a secret"
        raise reading.source.refuse("secret", message, form.key("secret"), hint="remove 'secret'")
    if "condition" in form:
        _read_conditional(name, form, reading)
    if "value" not in form:
        return
    if is_secret:
        reading.hide(name, {"env": _secret_variable(name, form["value"], reading)}, form.node)
    else:
        _read_env_value(name, form["value"], reading)


_SOURCES = {"value": ("value",), "command": ("command", "cache"), "condition": ("condition", "when_true", "when_false")}


def _refuse_mixed(name: str, form: Fields, reading: _EnvironmentReader) -> None:
    """Refuse a value with more than one source, or with a part of one."""
    source = reading.source
    found = [key for key in _SOURCES if key in form]
    if len(found) != 1:
        message = f"'{name}' has {quote_list(found, 'and')}" if found else f"'{name}' has no value"
        at = form.key(found[1]) if found else form.node
        raise source.refuse("prodigy", message, at, hint=f"write one of {quote_list(_SOURCES)}")
    belongs = _SOURCES[found[0]]
    if found[0] == "condition" and (missing := [key for key in belongs if key not in form]):
        message = f"'{name}' has a 'condition' but no '{missing[0]}'"
        raise source.refuse("missing_key", message, form.node, hint=f"add '{missing[0]}: …'")
    stray = next((key for key in form.node.entries if key not in (*belongs, "secret")), None)
    if stray is not None:
        message = f"'{stray}' does not belong to '{found[0]}'"
        raise source.refuse("stray_key", message, form.key(stray), hint="remove it")


def _read_command(name: str, form: Fields, reading: _EnvironmentReader, *, is_secret: bool) -> None:
    """A value that a command prints. If its name is that of a secret, workers run the command when they need it."""
    node = form.at("command")
    assert isinstance(node, Scalar)
    if is_secret or _SECRET_NAME.search(name):
        reading.hide(name, {"command": node.text}, form.node)
        return
    reading.commands[name] = node
    if not form.get("cache", False) and name not in reading.overrides:
        reading.repeated.add(name)
    reading.set(name, f"steps.{ENVIRONMENT_STEP}.output.{name}", form.node)


def _read_conditional(name: str, form: Fields, reading: _EnvironmentReader) -> None:
    """A value that depends on a condition about other variables, the environment, or the Git branch."""
    known = {**reading.context.variables, **{name: found.expression for name, found in reading.variables.items()}}
    for word in _CONDITION_NAMES.findall(form["condition"].text):
        known.setdefault(word, f"(has(env.{word}) ? env.{word} : '')")
    known |= {"branch": _BRANCH, "git.branch": _BRANCH}
    condition = translate_condition(form.at("condition"), reading.context.with_variables(known))
    values = [reading.expression(form[key].text) for key in ("when_true", "when_false")]
    reading.set(name, f"({condition} ? {values[0]} : {values[1]})", form.node)


# The steps that a run begins with: see `frame`.
WORKTREE_STEP = "worktree"
ENVIRONMENT_STEP = "environment"
_BRANCH = f"steps.{WORKTREE_STEP}.output.target"
_CONDITION_NAMES = re.compile(r"\$\{?([A-Za-z_]\w*)\b(?!\.)", re.A)


def _secret_variable(name: str, node: Scalar, reading: _EnvironmentReader) -> str:
    """The environment variable that holds a secret. Refuse a literal secret without repeating it."""
    found = _FROM_ENV.fullmatch(node.text) or _REFERENCE.fullmatch(node.text)
    if found is not None:
        return str(next(filter(None, found.groups())))
    source = reading.source
    source.hide(node)
    hint = f"set it as an environment variable and write '${{env:{name}}}' here"
    raise source.refuse("secret", f"the secret '{name}' is written in the file", node, hint=hint)


def _read_secrets(fields: Fields, reading: _EnvironmentReader) -> None:
    for name, form in fields.get("secrets", {}).items():
        with reading.source.noting:
            if isinstance(form, Fields):
                reading.hide(name, _secret_location(form, reading), form.node)
            else:
                reading.hide(name, {"env": _secret_variable(name, form, reading)}, form)


def _secret_location(form: Fields, reading: _EnvironmentReader) -> dict[str, str]:
    kind = form.get("provider", "env")
    if kind not in ("env", "file"):
        hint = "set an environment variable and write 'provider: env', or convert the file and write '{command: …}'"
        message = f"secrets of the provider '{kind}' are not supported"
        raise reading.source.refuse("prodigy", message, form.at("provider"), hint=hint)
    if "version" in form:
        message = f"a secret of the provider '{kind}' has no version"
        raise reading.source.refuse("prodigy", message, form.key("version"), hint="remove it")
    return {kind: form.get("key", "")}


# -- profiles --------------------------------------------------------------------------------------------------------


def _overrides(fields: Fields) -> dict[str, dict[str, Scalar]]:
    """Variable name → profile → value."""
    found: dict[str, dict[str, Scalar]] = {}
    for profile, values in fields.get("profiles", {}).items():
        for name, node in values.items():
            if name != _DESCRIPTION:
                found.setdefault(name, {})[profile] = node
    return found


def _profile_input(fields: Fields) -> dict[str, Any]:
    """The input that selects a profile; the default is none."""
    profiles: dict[str, dict[str, Scalar]] = fields.get("profiles", {})
    if not profiles:
        return {}
    about = [f"{name}: {values[_DESCRIPTION].text}" for name, values in profiles.items() if _DESCRIPTION in values]
    entries = {
        "default": "",
        "enum": ["", *profiles],
        "description": "; ".join(about) or "which profile to use",
    }
    return {PROFILE_INPUT: made(entries, fields.key("profiles"))}


# -- numbers from variables ------------------------------------------------------------------------------------------


_NUMBER_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?", re.A)
_LITERAL_NUMBER = re.compile(r"'(\d+(?:\.\d+)?)'")


def read_number(form: Fields, key: str, schema: ValueSchema, variables: Dict[str, str], source: Source) -> Any:
    """The number at `key`, or None. A variable must have its value before the run, since the map needs it.

    `env` of the file comes before the environment of this process.
    """
    if key not in form:
        return None
    node = form.at(key)
    match = _NUMBER_VARIABLE.fullmatch(node.text) if isinstance(node, Scalar) else None
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip().isdecimal():
        node = made(int(node.value), node)
    if match is None:
        return schema.read(node, f"'{key}'", source)
    return schema.read(_variable_value(match[1], node, key, variables, source), f"'{key}'", source)


def _variable_value(name: str, node: Node, key: str, variables: Dict[str, str], source: Source) -> Node:
    given = variables[name] if name in variables else quoted(os.environ.get(name, ""))
    written = _LITERAL_NUMBER.fullmatch(given)
    if written is None:
        message = f"'{key}' is '${name}', but neither 'env' nor the environment has a number with that name"
        hint = f"add 'env: {{{name}: 5}}', or set {name}: the number must be known before the run starts"
        raise source.refuse("prodigy", message, node, hint=hint)
    return made(float(written[1]) if "." in written[1] else int(written[1]), node)
