"""Which databases a question is about: those whose words explain it. A hidden table explains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from mulligan_nl2sql.planning.planner import Plan, Planner, PlanRequest, RefusalReason
from mulligan_nl2sql.schema import Schema


class ReadDatabase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A database whose schema was read, with the policy applied."""

    database: str
    url: str
    schema: Schema
    # When the kept index was read that this is from; empty: it was read for this question.
    kept_at: str = ""
    # Why its kept index was not used; empty: there is none, or it was.
    misfit: str = ""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the words of a database make of the whole question."""

    database: str
    # Also if it means several things there: then its scan refuses, and says which.
    is_explained: bool
    # Words that nothing explains there.
    words: tuple[str, ...] = ()
    # Why it is not explained.
    message: str = ""


def find_candidates(
    question: str, databases: Sequence[ReadDatabase], today: date, planner: Planner
) -> tuple[Candidate, ...]:
    """Ask a planner that costs nothing about each database."""
    return tuple(_candidate(one.database, read(question, one, today, planner)) for one in databases)


def read(question: str, database: ReadDatabase, today: date, planner: Planner) -> Reading:
    """What a question means in one database."""
    answer = planner.plan(PlanRequest(question, database.schema, today))
    if isinstance(answer, Plan):
        return Reading(sql=answer.sql)
    if answer.reason is RefusalReason.AMBIGUOUS:
        return Reading(is_ambiguous=True, message=answer.message)
    words = answer.words if answer.reason is RefusalReason.UNKNOWN_WORDS else ()
    return Reading(words=words, message=answer.message)


class Reading(msgspec.Struct, frozen=True):
    """SQL, or several meanings, or none."""

    sql: str = ""
    is_ambiguous: bool = False
    words: tuple[str, ...] = ()
    message: str = ""

    @property
    def has_meaning(self) -> bool:
        return bool(self.sql) or self.is_ambiguous


def unexplained_words(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """The words that no database explains, in the order of the question."""
    if not candidates:
        return ()
    first, *others = candidates
    return tuple(word for word in first.words if all(word in other.words for other in others))


def _candidate(database: str, reading: Reading) -> Candidate:
    if reading.has_meaning:
        return Candidate(database, True)
    return Candidate(database, False, reading.words, reading.message)
