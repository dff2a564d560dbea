"""What is in the environment of a file's commands: `env`, `env_files`, `secrets`, and the profiles that change it.

A variable is known in two ways: to every command, as part of its environment, and to the file, as an expression.
What a profile says holds before what `env` says, and that before what is in a file.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.core.model.formatting import error_reason
from mulligan.formats.expressions import quoted
from mulligan.formats.translation import Translation, literal, made
from mulligan.language.nodes import Node, Scalar, Sequence, shorten
from mulligan.language.shapes import Fields

PROFILE_INPUT = "profile"
_FROM_ENV = re.compile(r"\$\{env:([A-Za-z_]\w*)\}", re.A)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.A)
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)", re.A)
# The names by which Prodigy knows what to hide.
_HIDDEN = re.compile(r"passw|token|api_?key|secret|auth|private_?key|credential", re.I)
# A text as an expression, with nothing in it but what stands for itself.
_WRITTEN = re.compile(r"'((?:[^'\\]|\\['\\])*)'")
_ESCAPED = re.compile(r"\\(['\\])")
_DESCRIPTION = "description"


class Environment(NamedTuple):
    """What goes into our file: inputs, secrets, variables; and each variable as an expression."""

    inputs: dict[str, Any]
    secrets: dict[str, Any]
    env: dict[str, Node]
    expressions: dict[str, str]


NOTHING = Environment({}, {}, {}, {})


class _Variable(NamedTuple):
    """`expression` is its value; `at` the place that says so."""

    expression: str
    at: Node


class _Reading:
    """The variables of a file, as far as they are read."""

    def __init__(self, translation: Translation, overrides: dict[str, dict[str, Scalar]]) -> None:
        self.translation = translation
        self.overrides = overrides
        self.variables: dict[str, _Variable] = {}
        self.secrets: dict[str, Any] = {}

    def set(self, name: str, expression: str, at: Node) -> None:
        """What a variable is: in each profile that sets it that, and else this."""
        for profile, node in reversed(self.overrides.get(name, {}).items()):
            value = self.expression("" if node.value is None else node.text)
            expression = f"(inputs.{PROFILE_INPUT} == {quoted(profile)} ? {value} : {expression})"
        self.variables[name] = _Variable(expression, at)

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


def environment(fields: Fields, translation: Translation) -> Environment:
    """What the keys of the environment come to."""
    reading = _Reading(translation, _overrides(fields))
    _read_files(fields, reading)
    _read_secrets(fields, reading)
    _read_env(fields, reading)
    for name, values in reading.overrides.items():
        if name not in reading.variables:
            reading.set(name, "''", next(iter(values.values())))
    return Environment(
        _input(fields),
        reading.secrets,
        {name: made(_as_text(found.expression), found.at) for name, found in reading.variables.items()},
        {name: found.expression for name, found in reading.variables.items()},
    )


def _as_text(expression: str) -> str:
    """The value of a variable as our file writes it: a text that is one by itself."""
    written = _WRITTEN.fullmatch(expression)
    return literal(_ESCAPED.sub(r"\1", written[1])) if written else f"${{{expression}}}"


# -- files -----------------------------------------------------------------------------------------------------------


def _read_files(fields: Fields, reading: _Reading) -> None:
    node = fields.node.get("env_files")
    if "env_files" not in fields or node is None:
        return
    for entry in node.items if isinstance(node, Sequence) else [node]:
        with reading.translation.source.noting:
            assert isinstance(entry, Scalar)
            _read_file(entry, reading)


def _read_file(entry: Scalar, reading: _Reading) -> None:
    """A file of variables. Those whose names say so are secrets: workers read them, and our file does not hold them."""
    path = _found(entry, reading)
    for name, value in _assignments(path, entry, reading):
        if _HIDDEN.search(name):
            script = f'set -a; . {shlex.quote(_dotted(path))}; printf %s "${name}"'
            reading.hide(name, {"command": script}, entry)
        else:
            reading.set(name, quoted(value), entry)


def _found(entry: Scalar, reading: _Reading) -> str:
    """Where the file is: from where the command was called, or beside the file that names it."""
    source = reading.translation.source
    beside = Path(source.file).parent / entry.text
    for path in (Path(entry.text), beside):
        if path.is_file():
            return str(path)
    message = f"there is no file '{shorten(entry.text)}'"
    raise source.refuse("prodigy", message, entry, hint="remove it, or make it before the run")


def _dotted(path: str) -> str:
    """A path that `.` of the shell takes for one, and does not look for elsewhere."""
    return path if "/" in path else f"./{path}"


def _assignments(path: str, entry: Scalar, reading: _Reading) -> list[tuple[str, str]]:
    source, found = reading.translation.source, []
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


def _read_env(fields: Fields, reading: _Reading) -> None:
    for name, value in fields.get("env", {}).items():
        with reading.translation.source.noting:
            _read_value(name, value, reading)


def _read_value(name: str, value: Scalar | Fields, reading: _Reading) -> None:
    if isinstance(value, Fields):
        _read_secret_value(name, value, reading)
        return
    from_env = _FROM_ENV.fullmatch(value.text)
    expression = f"env.{from_env[1]}" if from_env else reading.expression("" if value.value is None else value.text)
    reading.set(name, expression, value)


def _read_secret_value(name: str, form: Fields, reading: _Reading) -> None:
    if "value" not in form or "secret" not in form:
        return
    if form["secret"]:
        reading.hide(name, {"env": _variable(name, form["value"], reading)}, form.node)
    else:
        _read_value(name, form["value"], reading)


def _variable(name: str, node: Scalar, reading: _Reading) -> str:
    """The variable that holds a secret. A secret that is written in the file is refused, and not repeated."""
    found = _FROM_ENV.fullmatch(node.text) or _REFERENCE.fullmatch(node.text)
    if found is not None:
        return next(filter(None, found.groups()))
    source = reading.translation.source
    source.hide(node)
    hint = f"put it into a variable of your environment, and write '${{env:{name}}}' here"
    raise source.refuse("secret", f"the secret '{name}' is written in the file", node, hint=hint)


def _read_secrets(fields: Fields, reading: _Reading) -> None:
    for name, form in fields.get("secrets", {}).items():
        with reading.translation.source.noting:
            where = _where(form, reading) if isinstance(form, Fields) else {"env": _variable(name, form, reading)}
            reading.hide(name, where, form if isinstance(form, Scalar) else form.node)


def _where(form: Fields, reading: _Reading) -> dict[str, str]:
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


def _input(fields: Fields) -> dict[str, Any]:
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
