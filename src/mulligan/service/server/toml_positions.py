"""Where keys stand in a TOML text: the library that reads it does not say."""

from __future__ import annotations

import re
import tomllib

from mulligan.errors import LanguageError, Problem

_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"(\s*)([\w.\"'-]+)\s*=")
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
