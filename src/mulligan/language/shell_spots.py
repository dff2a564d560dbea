"""The places of shell text: what the lexer notes about where it is, and about each hole that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from mulligan.language.shell_dangers import Danger
from mulligan.language.shell_holes import Ours

# Outside quotes; within double quotes; in the body of a here-document; in a pattern within double quotes; within single
# quotes, where the shell expands nothing.
Quoting = Literal["bare", "quoted", "document", "pattern", "single"]


class Spot(msgspec.Struct):
    """A hole of ours, and how it stands there: its quotes, the first words of its command, its danger.

    `close` is where the `}` stands that ends it, where an operator of the shell's is kept. `is_command` says that the
    word it is part of names the program that is run.
    """

    ours: Ours
    quoting: Quoting
    words: Sequence[str]
    danger: Danger | None = None
    close: int | None = None
    is_command: bool = False


class Scan(NamedTuple):
    """`escapes` are where a `$` has to go: `$${` where the shell expands nothing."""

    spots: list[Spot]
    escapes: list[int]


class Place(NamedTuple):
    """Where the lexer is: how text is quoted there, the words of the command so far, where the current one began."""

    quoting: Quoting
    danger: Danger | None = None
    words: Sequence[str] = ()
    start: int = 0
    # Whether the word may be the name of a command: an element of an array is none.
    is_of_command: bool = False


class Document(NamedTuple):
    """A here-document whose body is still to come."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    danger: Danger | None
