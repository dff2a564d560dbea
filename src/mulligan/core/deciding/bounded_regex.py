"""Search for a regular expression in time linear in the length of the text.

Python's `re` backtracks: with a few choices in an expression, such as `.*a.*b.*c`, a hostile message can keep the
engine busy for hours, and messages come from untrusted steps. So an expression with more than one choice runs as an
automaton: a set of positions in the expression moves along the text once and never goes back. Why no library is used:
docs/project/adr/0024.

The dialect is Python's without what needs backtracking: backreferences, lookahead and lookbehind, conditions,
possessive and atomic parts. Single characters and anchors are still matched by `re`, with the same meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

# The most positions an expression may have, repeats expanded: the longest search then takes a fraction of a second.
PLACES_MAX = 1_000
# How deep groups may nest.
DEPTH_MAX = 100
# How many compiled expressions are cached. A workflow has a handful.
_CACHE_SIZE = 256

# A string, compiled at its first use: most workflows have no expression.
_PART = r"""
      (?P<comment>\(\?\#[^)]*+\))
    | (?P<flags>\(\?[a-zA-Z]++\))
    | (?P<back>\(\?(?:P=|[=!(>]|<[=!])|\\[1-9](?![0-7]{2}))
    | (?P<open>\((?:\?(?:P<\w++>|(?P<scope>[a-zA-Z-]*+):))?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<times>[*+?]|\{(?=[\d,])(?P<least>\d*+)(?P<to>,(?P<most>\d*+))?\})(?P<how>[?+]?)
    | (?P<look>[\^$]|\\[AZbB])
    | (?P<one>\\(?:x..|u.{4}|U.{8}|N\{[^}]*+\}|[0-7]{1,3}|.)|\[\^?\]?(?>(?:\\.|[^\]\\])*)\]|.)
    """


class NotSearchable(Exception):
    """The expression needs backtracking or is too large; the message says which."""


class _Take(msgspec.Struct, frozen=True):
    """Consumes one character that matches `part`."""

    part: re.Pattern[str]


class _Look(msgspec.Struct, frozen=True):
    """Consumes nothing: the beginning, the end, a word boundary."""

    part: re.Pattern[str]


class _Fork(msgspec.Struct, frozen=True):
    """Continues at each of these positions."""

    to: list[int]


_Place = _Take | _Look | _Fork


class _Repeat(msgspec.Struct, frozen=True):
    part: _Node
    least: int
    most: int | None


class _Sequence(msgspec.Struct, frozen=True):
    parts: list[_Node]


class _Choice(msgspec.Struct, frozen=True):
    branches: list[_Node]


_Node = _Take | _Look | _Repeat | _Sequence | _Choice


def is_found(expression: str, text: str) -> bool:
    """Whether a valid regular expression matches anywhere in the text."""
    return _search(expression).is_in(text)


def refuse_unsearchable(expression: str) -> None:
    """Raise NotSearchable for a valid expression whose search needs backtracking and may take long."""
    if _choices(expression) > 1:
        Automaton(expression)
    elif reference := _backreference_with_repeat(expression):
        raise NotSearchable(f"'{reference}' needs backtracking")


class Backtracking:
    """The search of `re`: the fastest, and safe for an expression with at most one choice."""

    def __init__(self, expression: str) -> None:
        self._compiled = re.compile(expression)

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None


class Automaton:
    """The positions of an expression, and a search at many of them at once. A set of positions is a bit mask."""

    def __init__(self, expression: str) -> None:
        self._places: list[_Place] = []
        # The content of a repeat counts each time, also if it is empty.
        self._added = 0
        self._add(_Reader(expression).read())
        self._end = 1 << len(self._places)
        self._takes = _places_by_part(self._places, _Take)
        self._looks = _places_by_part(self._places, _Look)
        self._takers: dict[str, int] = {}
        # By the set of anchors that match: each position that consumes nothing, with all that is reached from it.
        # There are few such sets: beginning, end, lines and words combine in a dozen ways.
        self._ways: dict[int, list[tuple[int, int]]] = {}

    def is_in(self, text: str) -> bool:
        here = 0
        for at in range(len(text) + 1):
            here = self._spread(here | 1, text, at)
            if here & self._end:
                return True
            # After consuming a character, go on at the next position.
            here = (here & self._who_takes(text[at])) << 1 if at < len(text) else 0
        return False

    def _spread(self, here: int, text: str, at: int) -> int:
        """All positions reached from these without consuming a character."""
        holding = sum(places for part, places in self._looks if part.match(text, at))
        ways = self._ways.get(holding)
        if ways is None:
            ways = self._ways[holding] = _ways(self._places, holding)
        for place, reached in ways:
            if here & place:
                here |= reached
        return here

    def _who_takes(self, char: str) -> int:
        found = self._takers.get(char)
        if found is None:
            found = self._takers[char] = sum(places for part, places in self._takes if part.fullmatch(char))
        return found

    # -- building

    def _add(self, node: _Node) -> None:
        self._added += 1
        if self._added > 4 * PLACES_MAX or len(self._places) > PLACES_MAX:
            raise NotSearchable(f"it has more than {PLACES_MAX:,} parts with repeats expanded")
        match node:
            case _Sequence(parts):
                for part in parts:
                    self._add(part)
            case _Choice(branches):
                self._add_choice(branches)
            case _Repeat(part, least, most):
                self._add_repeat(part, least, most)
            case _:
                self._places.append(node)

    def _add_choice(self, branches: list[_Node]) -> None:
        *others, last = branches
        leaves = []
        for branch in others:
            fork = self._fork()
            self._add(branch)
            leaves.append(self._fork())
            fork.to.append(len(self._places))
        self._add(last)
        for leave in leaves:
            leave.to[:] = [len(self._places)]

    def _add_repeat(self, part: _Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self._add(part)
        if most is None:
            fork, start = self._fork(), len(self._places) - 1
            self._add(part)
            self._fork().to[:] = [start]
            fork.to.append(len(self._places))
        forks = []
        for _ in range(least, most or 0):
            forks.append(self._fork())
            self._add(part)
        for fork in forks:
            fork.to.append(len(self._places))

    def _fork(self) -> _Fork:
        """Add a position that continues at the next one and at those added to it later."""
        fork = _Fork([len(self._places) + 1])
        self._places.append(fork)
        return fork


class _Reader:
    """Parses the structure of a valid expression; `re` interprets the parts."""

    def __init__(self, expression: str) -> None:
        self._parts = list(_parts(expression))
        self._at = 0
        self._global = ""
        # The flags of each open group, as the text that opens a group.
        self._scopes: list[str] = []

    def read(self) -> _Node:
        return self._choice()

    def _choice(self) -> _Node:
        branches: list[_Node] = [self._sequence()]
        while self._is_at("or"):
            self._at += 1
            branches.append(self._sequence())
        return _Choice(branches)

    def _sequence(self) -> _Node:
        found: list[_Node] = []
        while self._at < len(self._parts) and not (self._is_at("or") or self._is_at("close")):
            part = self._parts[self._at]
            self._at += 1
            if part["times"]:
                found.append(_make_repeat(found.pop(), part))
            else:
                found += self._nodes(part)
        return _Sequence(found)

    def _is_at(self, kind: str) -> bool:
        return self._at < len(self._parts) and self._parts[self._at][kind] is not None

    def _nodes(self, part: re.Match[str]) -> Iterator[_Node]:
        if part["back"]:
            raise NotSearchable(f"'{part[0]}' needs backtracking")
        if part["flags"]:
            self._set_flags(part[0])
        elif part["open"]:
            yield self._group(part["scope"] or "")
        elif part["look"]:
            yield _Look(self._compiled(part[0]))
        elif part["one"]:
            yield _Take(self._compiled(part[0]))

    def _set_flags(self, flags: str) -> None:
        """Add global flags. They stand at the beginning, otherwise `re` refuses them."""
        if "x" in flags:
            raise NotSearchable(f"'{flags}' makes blanks meaningless")
        self._global += flags

    def _group(self, scope: str) -> _Node:
        if "x" in scope:
            raise NotSearchable(f"'(?{scope}:' makes blanks meaningless")
        if len(self._scopes) == DEPTH_MAX:
            raise NotSearchable(f"its groups are nested more than {DEPTH_MAX} levels deep")
        self._scopes.append(f"(?{scope}:")
        inside = self._choice()
        self._scopes.pop()
        self._at += 1
        return inside

    def _compiled(self, part: str) -> re.Pattern[str]:
        return re.compile(f"{self._global}{''.join(self._scopes)}{part}{')' * len(self._scopes)}")


def _places_by_part(places: list[_Place], kind: type[_Take | _Look]) -> list[tuple[re.Pattern[str], int]]:
    """Each part of that kind once, with the positions where it occurs."""
    found: dict[re.Pattern[str], int] = {}
    for at, place in enumerate(places):
        if isinstance(place, kind):
            found[place.part] = found.get(place.part, 0) | 1 << at
    return list(found.items())


def _ways(places: list[_Place], holding: int) -> list[tuple[int, int]]:
    """Each position that continues without consuming a character while these anchors match, and all it leads to.

    Nearly all ways lead forward, so they are followed from the end; again while a repeat, which leads back, finds
    more. That is at most once per nesting level of repeats.
    """
    leads = {at: place.to for at, place in enumerate(places) if isinstance(place, _Fork)}
    leads |= {at: [at + 1] for at, place in enumerate(places) if isinstance(place, _Look) and holding >> at & 1}
    reached = [1 << at for at in range(len(places) + 1)]
    order = sorted(leads, reverse=True)
    before: list[int] = []
    while before != reached:
        before = reached.copy()
        for at in order:
            for to in leads[at]:
                reached[at] |= reached[to]
    return [(1 << at, reached[at]) for at in sorted(leads)]


def _make_repeat(node: _Node, part: re.Match[str]) -> _Node:
    if part["how"] == "+":
        raise NotSearchable(f"'{part[0]}' is possessive")
    if part["times"] in ("*", "+", "?"):
        return _Repeat(node, int(part["times"] == "+"), 1 if part["times"] == "?" else None)
    least = int(part["least"] or 0)
    if part["to"] is None:
        return _Repeat(node, least, least)
    return _Repeat(node, least, int(part["most"]) if part["most"] else None)


def _parts(expression: str) -> Iterator[re.Match[str]]:
    return re.finditer(_PART, expression, re.VERBOSE | re.DOTALL)


def _choices(expression: str) -> int:
    """How many choices the expression has: alternatives and repeats."""
    return sum(bool(part["or"] or part["times"]) for part in _parts(expression))


def _backreference_with_repeat(expression: str) -> str:
    """A backreference in an expression with a repeat, which may take long; "" if there is none."""
    parts = list(_parts(expression))
    if not any(part["times"] and part["times"] != "?" for part in parts):
        return ""
    return next((part[0] for part in parts if part["back"] and part["back"].startswith(("\\", "(?P="))), "")


@lru_cache(_CACHE_SIZE)
def _search(expression: str) -> Backtracking | Automaton:
    """The search for an expression. An older workflow may have an expression that only `re` can search."""
    try:
        return Automaton(expression) if _choices(expression) > 1 else Backtracking(expression)
    except NotSearchable:
        return Backtracking(expression)
