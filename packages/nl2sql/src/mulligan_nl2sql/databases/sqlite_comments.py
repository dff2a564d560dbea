"""The comments of a table in SQLite, which has no others: those in the text of its definition.

CREATE TABLE products ( -- articles
  -- list price, in euros
  price REAL NOT NULL,
  weight REAL -- in kilograms
)
"""

from __future__ import annotations

import re

import msgspec

from mulligan_nl2sql.schema import fold_ascii

_TOKEN = re.compile(
    r"""
      (?P<line> --[^\n]* )
    | (?P<block> /\*.*?(?:\*/|\Z) )
    | (?P<name> "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | \w+ )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<mark> [(),\n] )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONSTRAINTS = frozenset({"constraint", "primary", "foreign", "unique", "check"})
_COMMENT_CHARS_MAX = 500


class Comments(msgspec.Struct, frozen=True):
    """`columns` has the names in lower case."""

    table: str = ""
    columns: dict[str, str] = {}


def read_comments(definition: str) -> Comments:
    """The comments in a CREATE TABLE: behind a column, or in the lines before it; behind the first parenthesis."""
    depth, is_on_line, expects_name = 0, False, False
    # Empty before the first column; None within a constraint.
    column: str | None = ""
    table: list[str] = []
    waiting: list[str] = []
    columns: dict[str, list[str]] = {}
    for found in _TOKEN.finditer(definition):
        text = found[0]
        match found.lastgroup:
            case "line" | "block":
                said = text[2:].removesuffix("*/").strip() if text.startswith("/*") else text[2:].strip()
                if not said or not depth:
                    continue
                if is_on_line and column:
                    columns.setdefault(column, []).append(said)
                elif is_on_line and column is not None:
                    table.append(said)
                elif not is_on_line:
                    waiting.append(said)
            case "mark":
                if text == "\n":
                    is_on_line = False
                    continue
                # The table's own comment stands on the line of its parenthesis.
                is_on_line = is_on_line or (text == "(" and depth == 0)
                depth += {"(": 1, ")": -1}.get(text, 0)
                expects_name = (
                    (text == "(" and depth == 1) or (text == "," and depth == 1) or (expects_name and depth > 1)
                )
            case _:
                if depth == 1 and expects_name:
                    expects_name = False
                    column = _plain(text)
                    if column in _CONSTRAINTS and text[0].isalpha():
                        column = None
                    elif waiting:
                        columns.setdefault(column, []).extend(waiting)
                    waiting = []
                is_on_line = is_on_line or depth > 0
    return Comments(_joined(table), {name: _joined(said) for name, said in columns.items()})


def _plain(name: str) -> str:
    if name[0] in '"`[':
        name = name[1:-1].replace(name[0] * 2, name[0])
    return fold_ascii(name)


def _joined(said: list[str]) -> str:
    return " ".join(" ".join(said).split())[:_COMMENT_CHARS_MAX]
