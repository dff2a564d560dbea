"""Whether a regular expression is found in a text, in time that grows with its length and no faster.

Python's own search goes back and tries again: a few choices in an expression, such as `.*a.*b.*c`, and a message that
was made for it takes hours, in which the engine does nothing else. What steps say is nobody's to trust. So where an
expression has more than one choice, a set of places in it moves along the text, once, and never goes back. Why no
library does this: docs/project/adr/0024.

The dialect is Python's, but for what needs to go back: backreferences, looking ahead or behind, conditions, possessive
and atomic parts. A part that takes one character, or looks at a place, is still asked of Python, and means what it
means there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

# Of how many places an expression may consist, repeats written out: the longest search takes a part of a second.
PLACES_MAX = 1_000
# How deep its groups may nest.
DEPTH_MAX = 100
# How many expressions are kept ready. A workflow has a handful.
_KEPT_MAX = 256

# A text, compiled when somebody first asks: most workflows have no expression.
_PART = r"""
      (?P<comment>\(\?\#[^)]*+\))
    | (?P<flags>\(\?[a-zA-Z]++\))
    | (?P<back>\(\?(?:P=|[=!(>]|<[=!])|\\[1-9](?![0-7]{2}))
    | (?P<open>\((?:\?(?:P<\w++>|(?P<scope>[a-zA-Z-]*+):))?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<times>[*+?]|\{(?=[\d,])(?P<least>\d*+)(?P<to>,(?P<most>\d*+))?\})(?P<how>[?+]?)
    | (?P<look>[\^$]|\\[AZbB])
    | (?P<one>\\(?:x..|u.{4}|U.{8}|N\{[^}]*+\}|[0-7]{1,3}|.)|\[\^?\]?(?:\\.|[^\]\\])*+\]|.)
    """


class NotSearchable(Exception):
    """An expression that has to go back to be found, or is too large; the text says which."""


class _Take(msgspec.Struct, frozen=True):
    """One character, of those that a part of the expression takes."""

    part: re.Pattern[str]


class _Look(msgspec.Struct, frozen=True):
    """No character: the beginning, the end, the edge of a word."""

    part: re.Pattern[str]


class _Fork(msgspec.Struct, frozen=True):
    """Goes on at each of these places."""

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
    """Whether a valid regular expression is found anywhere in the text."""
    return _search(expression).is_in(text)


def refuse_unsearchable(expression: str) -> None:
    """NotSearchable, where a valid expression has to go back to be found, and that may take long."""
    if _choices(expression) > 1:
        Automaton(expression)
    elif reference := _reference_beside_a_repeat(expression):
        raise NotSearchable(f"'{reference}' has to go back in the text")


class Backtracking:
    """Python's own search: the fastest, where there is at most one choice, and so nothing to go back to but that."""

    def __init__(self, expression: str) -> None:
        self._compiled = re.compile(expression)

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None


class Automaton:
    """The places of an expression, and a search that is at many of them at once. A set of them is a number, in bits."""

    def __init__(self, expression: str) -> None:
        self._places: list[_Place] = []
        # What is in a repeat counts each time, also where it is nothing.
        self._added = 0
        self._add(_Reader(expression).read())
        self._end = 1 << len(self._places)
        self._takes = _by_part(self._places, _Take)
        self._looks = _by_part(self._places, _Look)
        self._takers: dict[str, int] = {}
        # By which places look and hold: each place that takes no character, with all that is reached from it. There
        # are few: the beginning, the end, lines and words meet in a dozen ways.
        self._ways: dict[int, list[tuple[int, int]]] = {}

    def is_in(self, text: str) -> bool:
        here = 0
        for at in range(len(text) + 1):
            here = self._spread(here | 1, text, at)
            if here & self._end:
                return True
            # The place behind one that takes a character is the next.
            here = (here & self._who_takes(text[at])) << 1 if at < len(text) else 0
        return False

    def _spread(self, here: int, text: str, at: int) -> int:
        """All places that are reached from these without taking a character, each way looked at once."""
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

    # -- making it

    def _add(self, node: _Node) -> None:
        self._added += 1
        if self._added > 4 * PLACES_MAX or len(self._places) > PLACES_MAX:
            raise NotSearchable(f"it has more than {PLACES_MAX:,} parts, repeats written out")
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
        """A place that goes on at the next, and wherever is added to it."""
        fork = _Fork([len(self._places) + 1])
        self._places.append(fork)
        return fork


class _Reader:
    """Reads the structure of a valid expression; what its parts mean is Python's to say."""

    def __init__(self, expression: str) -> None:
        self._parts = list(_parts(expression))
        self._at = 0
        self._global = ""
        # What each open group says of flags, as the beginning of a group.
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
                found.append(_repeated(found.pop(), part))
            else:
                found += self._nodes(part)
        return _Sequence(found)

    def _is_at(self, kind: str) -> bool:
        return self._at < len(self._parts) and self._parts[self._at][kind] is not None

    def _nodes(self, part: re.Match[str]) -> Iterator[_Node]:
        if part["back"]:
            raise NotSearchable(f"'{part[0]}' has to go back in the text")
        if part["flags"]:
            self._set_flags(part[0])
        elif part["open"]:
            yield self._group(part["scope"] or "")
        elif part["look"]:
            yield _Look(self._compiled(part[0]))
        elif part["one"]:
            yield _Take(self._compiled(part[0]))

    def _set_flags(self, flags: str) -> None:
        """They stand at the beginning, or Python refuses them."""
        if "x" in flags:
            raise NotSearchable(f"'{flags}' lets blanks mean nothing")
        self._global += flags

    def _group(self, scope: str) -> _Node:
        if "x" in scope:
            raise NotSearchable(f"'(?{scope}:' lets blanks mean nothing")
        if len(self._scopes) == DEPTH_MAX:
            raise NotSearchable(f"its groups are nested more than {DEPTH_MAX} deep")
        self._scopes.append(f"(?{scope}:")
        inside = self._choice()
        self._scopes.pop()
        self._at += 1
        return inside

    def _compiled(self, part: str) -> re.Pattern[str]:
        return re.compile(f"{self._global}{''.join(self._scopes)}{part}{')' * len(self._scopes)}")


def _by_part(places: list[_Place], kind: type[_Take | _Look]) -> list[tuple[re.Pattern[str], int]]:
    """Each part of that kind, once, with the places where it stands."""
    found: dict[re.Pattern[str], int] = {}
    for at, place in enumerate(places):
        if isinstance(place, kind):
            found[place.part] = found.get(place.part, 0) | 1 << at
    return list(found.items())


def _ways(places: list[_Place], holding: int) -> list[tuple[int, int]]:
    """Where one can go on without taking a character while these looks hold, and all places that it leads to.

    Nearly all ways lead forward, so that they are gone through from the end; again for as long as a repeat, which leads
    back, has found more. That is at most once for each depth of repeats.
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


def _repeated(node: _Node, part: re.Match[str]) -> _Node:
    if part["how"] == "+":
        raise NotSearchable(f"'{part[0]}' gives nothing back once it has matched")
    if part["times"] in ("*", "+", "?"):
        return _Repeat(node, int(part["times"] == "+"), 1 if part["times"] == "?" else None)
    least = int(part["least"] or 0)
    if part["to"] is None:
        return _Repeat(node, least, least)
    return _Repeat(node, least, int(part["most"]) if part["most"] else None)


def _parts(expression: str) -> Iterator[re.Match[str]]:
    return re.finditer(_PART, expression, re.VERBOSE | re.DOTALL)


def _choices(expression: str) -> int:
    """How often there is more than one way to go on."""
    return sum(bool(part["or"] or part["times"]) for part in _parts(expression))


def _reference_beside_a_repeat(expression: str) -> str:
    """What refers to a group in an expression with a repeat: for each place, each length is compared, all of it."""
    parts = list(_parts(expression))
    if not any(part["times"] and part["times"] != "?" for part in parts):
        return ""
    return next((part[0] for part in parts if part["back"] and part["back"].startswith(("\\", "(?P="))), "")


@lru_cache(_KEPT_MAX)
def _search(expression: str) -> Backtracking | Automaton:
    """The search for an expression. One from before there was a choice of searches is Python's to find."""
    try:
        return Automaton(expression) if _choices(expression) > 1 else Backtracking(expression)
    except NotSearchable:
        return Backtracking(expression)
