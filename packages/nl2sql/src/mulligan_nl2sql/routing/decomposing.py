"""A question as parts of one database each. By rules, and careful: a wrong answer is worse than a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import combinations

import msgspec

from mulligan_nl2sql.planning.planner import Part, Planner
from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.routing.resolving import ReadDatabase, read

SCANS_MAX = 16
# Where a question may be cut: at "and", also after a comma, and between two questions.
_CUT = re.compile(r"(?P<mark>[,;?.!])?\s+and\s+(?:also\s+)?|[;?]\s+", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'|“[^”]*”")
_CUTS_MAX = 4
_ENDS = " \t\n,;.?!"
_ARTICLES = frozenset({"the", "a", "an"})
# A part must begin as a question does: in "orders and tickets in 2024", the year may belong to both.
_BEGINNINGS = frozenset(
    phrase.split()[0]
    for table in (vocabulary.LEADS, vocabulary.COUNTS, vocabulary.AGGREGATES, vocabulary.WHICH)
    for phrase in table
) | {"how", "who"}


class Scan(msgspec.Struct, frozen=True):
    """One part of a question, for one database."""

    number: int
    database: str
    url: str
    question: str
    # The schema is from a kept index: it is read again if a name of it turns out to be wrong.
    is_kept: bool = False


class _Part(msgspec.Struct, frozen=True):
    text: str
    # Nothing but "and" stands before it.
    follows_bare_and: bool


def ask_whole(question: str, databases: Sequence[ReadDatabase]) -> tuple[Scan, ...]:
    """The whole question for each database."""
    return tuple(_scan(number, one, question) for number, one in enumerate(databases))


def scans_of(parts: Sequence[Part], databases: Sequence[ReadDatabase]) -> tuple[Scan, ...]:
    """The scans of parts that a planner has named."""
    known = {one.database: one for one in databases}
    return tuple(_scan(number, known[part.database], part.question) for number, part in enumerate(parts))


def _scan(number: int, database: ReadDatabase, question: str) -> Scan:
    return Scan(number, database.database, database.url, question, bool(database.kept_at))


def split(question: str, databases: Sequence[ReadDatabase], today: date, planner: Planner) -> tuple[Scan, ...]:
    """The parts of a question that no database explains as a whole; () if it cannot be cut beyond doubt.

    Each part is explained by exactly one database, and there is only one way to cut the question into so few parts.
    """
    found: list[tuple[Scan, ...]] = []
    for parts in _ways_to_cut(question):
        if found and len(parts) > len(found[0]):
            break
        scans = _scans(parts, databases, today, planner)
        if scans:
            found.append(scans)
    return found[0] if len(found) == 1 else ()


def _scans(
    parts: Sequence[_Part], databases: Sequence[ReadDatabase], today: date, planner: Planner
) -> tuple[Scan, ...]:
    scans: list[Scan] = []
    for part in parts:
        readings = {one: read(part.text, one, today, planner) for one in databases}
        meant = [one for one, reading in readings.items() if reading.has_meaning]
        if len(meant) != 1 or not (sql := readings[meant[0]].sql):
            return ()
        if part.follows_bare_and and "WHERE" in sql.upper():
            # "how many orders and how many tickets in 2024": of which of them?
            return ()
        scans.append(_scan(len(scans), meant[0], part.text))
    return tuple(scans)


def _ways_to_cut(question: str) -> Iterator[list[_Part]]:
    """All ways to cut the question into parts that begin as questions do, those with few parts first."""
    quoted = [found.span() for found in _QUOTED.finditer(question)]
    cuts = [
        cut
        for cut in _CUT.finditer(question.rstrip(_ENDS))
        if not any(start <= cut.start() < end for start, end in quoted)
    ]
    if len(cuts) > _CUTS_MAX:
        return
    for count in range(1, len(cuts) + 1):
        for chosen in combinations(cuts, count):
            parts = list(_cut(question, chosen))
            if all(_begins_as_question(part.text) for part in parts):
                yield parts


def _cut(question: str, cuts: Sequence[re.Match[str]]) -> Iterator[_Part]:
    begin, is_bare = 0, False
    for cut in cuts:
        yield _Part(question[begin : cut.start()].strip(_ENDS), is_bare)
        begin, is_bare = cut.end(), "and" in cut[0].lower() and not cut["mark"]
    yield _Part(question[begin:].strip(_ENDS), is_bare)


def _begins_as_question(part: str) -> bool:
    words = [word for word in part.lower().split()[:2] if word not in _ARTICLES]
    return bool(words) and words[0] in _BEGINNINGS
