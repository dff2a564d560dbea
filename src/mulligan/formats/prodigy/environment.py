"""The environment of a workflow's commands: `env`, `env_files`, `secrets` and `profiles`.

Each variable is available in two ways: to every command as an environment variable, and to the file as an expression.
A profile overrides `env`, and `env` overrides a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.core.words import reason_of
from mulligan.formats.expressions import quoted
from mulligan.formats.translation import Translation, literal, made
from mulligan.language.nodes import Node, Scalar, Sequence, shorten
from mulligan.language.shapes import Fields, Shape

PROFILE_INPUT = "profile"
_FROM_ENV = re.compile(r"\$\{env:([A-Za-z_]\w*)\}", re.A)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.A)
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)", re.A)
# The names by which Prodigy knows what to hide.
_SECRET_NAME = re.compile(r"passw|token|api_?key|secret|auth|private_?key|credential", re.I)
# A text as an expression, with nothing in it but what stands for itself.
_LITERAL_TEXT = re.compile(r"'((?:[^'\\]|\\['\\])*)'")
_ESCAPED = re.compile(r"\\(['\\])")
_DESCRIPTION = "description"


class Environment(NamedTuple):
    """What goes into our file: inputs, secrets, variables; and each variable as an expression."""

    inputs: dict[str, Any]
    secrets: dict[str, Any]
    env: dict[str, Node]
    expressions: dict[str, str]


EMPTY_ENVIRONMENT = Environment({}, {}, {}, {})


class _EnvVariable(NamedTuple):
    """`expression` is its value; `at` the place that says so."""

    expression: str
    at: Node


class _EnvironmentReader:
    """The variables of a file, as far as they are read."""

    def __init__(self, translation: Translation, overrides: dict[str, dict[str, Scalar]]) -> None:
        self.translation = translation
        self.overrides = overrides
        self.variables: dict[str, _EnvVariable] = {}
        self.secrets: dict[str, Any] = {}

    def set(self, name: str, expression: str, at: Node) -> None:
        """What a variable is: in each profile that sets it that, and else this."""
        for profile, node in reversed(self.overrides.get(name, {}).items()):
            value = self.expression("" if node.value is None else node.text)
            expression = f"(inputs.{PROFILE_INPUT} == {quoted(profile)} ? {value} : {expression})"
        self.variables[name] = _EnvVariable(expression, at)

    def hide(self, name: str, where: dict[str, str], at: Node) -> None:
        """A secret under the variable's own name."""
        for node in self.overrides.pop(name, {}).values():
            message = f"'{name}' is a secret, and a profile would show it"
            self.translation.source.note(self.translation.source.refuse("secret", message, node))
        self.secrets[name] = made(where, at)
        self.set(name, f"secrets.{name}", at)

    def expression(self, text: str) -> str:
        """A value in which variables that were set before may stand. What nobody set stays as written."""
        parts, position = [], 0
        for match in _REFERENCE.finditer(text):
            known = self.variables.get(match[1] or match[2])
            if known is not None:
                parts += [quoted(text[position : match.start()]), f"string({known.expression})"]
                position = match.end()
        parts.append(quoted(text[position:]))
        return " + ".join(part for part in parts if part != "''") or "''"


def translate_environment(fields: Fields, translation: Translation) -> Environment:
    """What the keys of the environment come to."""
    reading = _EnvironmentReader(translation, _overrides(fields))
    _read_files(fields, reading)
    _read_secrets(fields, reading)
    _read_env(fields, reading)
    for name, values in reading.overrides.items():
        if name not in reading.variables:
            reading.set(name, "''", next(iter(values.values())))
    return Environment(
        _profile_input(fields),
        reading.secrets,
        {name: made(_env_text(found.expression), found.at) for name, found in reading.variables.items()},
        {name: found.expression for name, found in reading.variables.items()},
    )


def _env_text(expression: str) -> str:
    """The value of a variable as our file writes it: a text that is one by itself."""
    written = _LITERAL_TEXT.fullmatch(expression)
    return literal(_ESCAPED.sub(r"\1", written[1])) if written else f"${{{expression}}}"


# -- files -----------------------------------------------------------------------------------------------------------


def _read_files(fields: Fields, reading: _EnvironmentReader) -> None:
    node = fields.node.get("env_files")
    if "env_files" not in fields or node is None:
        return
    for entry in node.items if isinstance(node, Sequence) else [node]:
        with reading.translation.source.noting:
            assert isinstance(entry, Scalar)
            _read_file(entry, reading)


def _read_file(entry: Scalar, reading: _EnvironmentReader) -> None:
    """A file of variables. Those whose names say so are secrets: workers read them, and our file does not hold them."""
    path = _find_file(entry, reading)
    for name, value in _assignments(path, entry, reading):
        if _SECRET_NAME.search(name):
            script = f'set -a; . {shlex.quote(_sourceable(path))}; printf %s "${name}"'
            reading.hide(name, {"command": script}, entry)
        else:
            reading.set(name, quoted(value), entry)


def _find_file(entry: Scalar, reading: _EnvironmentReader) -> str:
    """Where the file is: from where the command was called, or beside the file that names it."""
    source = reading.translation.source
    beside = Path(source.file).parent / entry.text
    for path in (Path(entry.text), beside):
        if path.is_file():
            return str(path)
    message = f"there is no file '{shorten(entry.text)}'"
    raise source.refuse("prodigy", message, entry, hint="remove it, or make it before the run")


def _sourceable(path: str) -> str:
    """A path that `.` of the shell takes for one, and does not look for elsewhere."""
    return path if "/" in path else f"./{path}"


def _assignments(path: str, entry: Scalar, reading: _EnvironmentReader) -> list[tuple[str, str]]:
    source, found = reading.translation.source, []
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = f"'{shorten(entry.text)}' cannot be read: {reason_of(error)}"
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


def _read_env(fields: Fields, reading: _EnvironmentReader) -> None:
    for name, value in fields.get("env", {}).items():
        with reading.translation.source.noting:
            _read_env_value(name, value, reading)


def _read_env_value(name: str, value: Scalar | Fields, reading: _EnvironmentReader) -> None:
    if isinstance(value, Fields):
        _read_secret_value(name, value, reading)
        return
    from_env = _FROM_ENV.fullmatch(value.text)
    expression = f"env.{from_env[1]}" if from_env else reading.expression("" if value.value is None else value.text)
    reading.set(name, expression, value)


def _read_secret_value(name: str, form: Fields, reading: _EnvironmentReader) -> None:
    if "value" not in form or "secret" not in form:
        return
    if form["secret"]:
        reading.hide(name, {"env": _secret_variable(name, form["value"], reading)}, form.node)
    else:
        _read_env_value(name, form["value"], reading)


def _secret_variable(name: str, node: Scalar, reading: _EnvironmentReader) -> str:
    """The variable that holds a secret. A secret that is written in the file is refused, and not repeated."""
    found = _FROM_ENV.fullmatch(node.text) or _REFERENCE.fullmatch(node.text)
    if found is not None:
        return next(filter(None, found.groups()))
    source = reading.translation.source
    source.hide(node)
    hint = f"put it into a variable of your environment, and write '${{env:{name}}}' here"
    raise source.refuse("secret", f"the secret '{name}' is written in the file", node, hint=hint)


def _read_secrets(fields: Fields, reading: _EnvironmentReader) -> None:
    for name, form in fields.get("secrets", {}).items():
        with reading.translation.source.noting:
            where = (
                _secret_location(form, reading)
                if isinstance(form, Fields)
                else {"env": _secret_variable(name, form, reading)}
            )
            reading.hide(name, where, form if isinstance(form, Scalar) else form.node)


def _secret_location(form: Fields, reading: _EnvironmentReader) -> dict[str, str]:
    kind = form.get("provider", "env")
    if kind not in ("env", "file"):
        hint = "have a variable hold it, and write 'provider: env'; converted, the file may say '{command: …}' instead"
        message = f"secrets of the provider '{kind}' are not looked up"
        raise reading.translation.source.refuse("prodigy", message, form.at("provider"), hint=hint)
    if "version" in form:
        message = f"a secret of the provider '{kind}' has no version"
        raise reading.translation.source.refuse("prodigy", message, form.key("version"), hint="remove it")
    return {kind: form.get("key", "")}


# -- profiles --------------------------------------------------------------------------------------------------------


def _overrides(fields: Fields) -> dict[str, dict[str, Scalar]]:
    """By the name of a variable: what it is in each profile that sets it."""
    found: dict[str, dict[str, Scalar]] = {}
    for profile, values in fields.get("profiles", {}).items():
        for name, node in values.items():
            if name != _DESCRIPTION:
                found.setdefault(name, {})[profile] = node
    return found


def _profile_input(fields: Fields) -> dict[str, Any]:
    """The input that chooses a profile; without one each variable is what it is without profiles."""
    profiles: dict[str, dict[str, Scalar]] = fields.get("profiles", {})
    if not profiles:
        return {}
    about = [f"{name}: {values[_DESCRIPTION].text}" for name, values in profiles.items() if _DESCRIPTION in values]
    said = {
        "default": "",
        "enum": ["", *profiles],
        "description": "; ".join(about) or "which profile's variables hold",
    }
    return {PROFILE_INPUT: made(said, fields.key("profiles"))}


# -- numbers from variables ------------------------------------------------------------------------------------------


_NUMBER_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?", re.A)
_LITERAL_NUMBER = re.compile(r"'(\d+(?:\.\d+)?)'")


def read_number(form: Fields, key: str, shape: Shape, variables: Dict[str, str], translation: Translation) -> Any:
    """The number at `key`, None where there is none. A variable must say it before the run: the map is made of it."""
    if key not in form:
        return None
    node = form.at(key)
    match = _NUMBER_VARIABLE.fullmatch(node.text) if isinstance(node, Scalar) else None
    if match is None:
        return shape.read(node, f"'{key}'", translation.source)
    return shape.read(_variable_value(match[1], node, key, variables, translation), f"'{key}'", translation.source)


def _variable_value(name: str, node: Node, key: str, variables: Dict[str, str], translation: Translation) -> Node:
    written = _LITERAL_NUMBER.fullmatch(variables.get(name, ""))
    if written is None:
        message = f"'{key}' is '${name}', and 'env' has no number under that name"
        hint = f"add 'env: {{{name}: 5}}': it is needed before the run starts"
        raise translation.source.refuse("prodigy", message, node, hint=hint)
    return made(float(written[1]) if "." in written[1] else int(written[1]), node)
