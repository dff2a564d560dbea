"""Where keys stand in a TOML text: the library that reads it does not say."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence

import msgspec

from mulligan.errors import LanguageError, Problem
from mulligan.language.text.suggestions import did_you_mean

_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"(\s*)([\w.\"'-]+)\s*=")
_WHERE = re.compile(r"(?P<what>.*) - at `(?:key in `)?\$(?P<where>[^`]*)`", re.DOTALL)
_FIELD = re.compile(r"(Object contains unknown|Object missing required) field `(?P<name>[^`]*)`")
_SYNTAX = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", re.DOTALL)


def position(text: str, path: list[str]) -> tuple[int, int]:
    """Line and column of a key, from 1, or of the table that should have it; 0 if it is written in another way."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = [part.strip("\"' ") for part in match[1].split(".")]
            if table == path:
                return number, match.start(1) + 1
        elif (match := _KEY.match(line)) and [*table, *(one.strip("\"'") for one in match[2].split("."))] == path:
            return number, match.start(2) + 1
    return position(text, path[:-1]) if len(path) > 1 else (0, 0)


def refuse_syntax(error: tomllib.TOMLDecodeError, text: str, file: str) -> LanguageError:
    """The error for a text that is not TOML, with the line."""
    match = _SYNTAX.fullmatch(str(error))
    what, line, column = (match["what"], int(match["line"]), int(match["column"])) if match else (str(error), 0, 0)
    return config_error(file, f"not TOML: {what[:1].lower()}{what[1:]}", text, line, column)


def config_error(
    file: str, message: str, text: str = "", line: int = 0, column: int = 0, *, hint: str = "", length: int = 1
) -> LanguageError:
    """The error for something at that place of a configuration."""
    lines = text.splitlines()
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    if "://" in source:
        # An address often contains a password or a token.
        source = ""
    return LanguageError(
        [Problem("config.invalid", message, file, line, column, length, source_line=source, hint=hint)]
    )


def refuse_invalid(
    error: msgspec.ValidationError,
    text: str,
    file: str,
    within: Sequence[str],
    keys_at: Callable[[list[str]], set[str]],
) -> LanguageError:
    """The error for what stands at, or below, the table `within`. `keys_at`: the keys that a table may have."""
    match = _WHERE.fullmatch(str(error))
    what, where = (match["what"], match["where"]) if match else (str(error), "")
    path = [*within]
    path += [part for part in re.split(r"[.\[]", where.replace("]", "")) if part and not part.isdecimal()]
    hint = ""
    if (field := _FIELD.match(what)) is not None:
        known = keys_at(path)
        if "unknown" in what:
            path, what = [*path, field["name"]], f"unknown key '{field['name']}'"
            hint = did_you_mean(path[-1], known) or (f"it may be one of: {', '.join(sorted(known))}" if known else "")
        else:
            what = f"key '{field['name']}' is missing"
    else:
        what = f"'{'.'.join(path)}': {what[:1].lower()}{what[1:].replace('`', chr(39))}"
    line, column = position(text, path)
    return config_error(file, what, text, line, column, hint=hint, length=len(path[-1]) if path and line else 1)
