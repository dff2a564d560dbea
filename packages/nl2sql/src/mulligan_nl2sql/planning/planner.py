"""What every planner is asked, and what it answers."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from mulligan_nl2sql.schema import Schema


class FailedSql(msgspec.Struct, frozen=True, omit_defaults=True):
    """A statement that the planner wrote for this question, and how it failed."""

    sql: str
    code: str
    message: str
    # What the failure needs to be repaired: `message`, or `schema` if a name was wrong.
    repair: str = ""


class PlanRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about one database. `today` is what `last month` is counted from."""

    question: str
    schema: Schema
    today: date
    # The statements of earlier attempts, the last one last.
    failed: tuple[FailedSql, ...] = ()
    # The schema as text, if it was cut to what fits into a prompt; empty: all of it.
    guidance: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """Words of the question, and what they mean."""

    words: str
    meaning: str


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer took. None: the planner did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    # In US dollars.
    cost: float | None = None
    # Both together, if it said no more than that.
    tokens: int | None = None


class RefusalReason(StrEnum):
    """Why a planner gives no SQL."""

    # Words that nothing explains.
    UNKNOWN_WORDS = "unknown_words"
    # Every word is known, and the question as a whole is not.
    NOT_UNDERSTOOD = "not_understood"
    # Words, or the whole question, may mean several things: `candidates` has them.
    AMBIGUOUS = "ambiguous"
    # A model says that the schema has no answer.
    DECLINED = "declined"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, tag="plan"):
    """SQL for a question, unchecked."""

    planner: str
    sql: str
    explained: tuple[Explanation, ...] = ()
    tables: tuple[str, ...] = ()
    model: str = ""
    usage: Usage = Usage()


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True, tag="refusal"):
    """No SQL: a wrong answer is worse. `words` are those that the planner could not explain."""

    planner: str
    reason: RefusalReason
    message: str
    words: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    model: str = ""
    usage: Usage = Usage()


class Planner(Protocol):
    """Answers questions with SQL. A failure (no answer at all) is a StepError, with a code that a retry can match."""

    name: str

    def plan(self, request: PlanRequest) -> Plan | Refusal: ...


class NamedSchema(msgspec.Struct, frozen=True):
    """A database that may be asked."""

    database: str
    schema: Schema


class DecomposeRequest(msgspec.Struct, frozen=True):
    """A question about several databases: which of them is asked what?"""

    question: str
    databases: tuple[NamedSchema, ...]
    today: date
    parts_max: int


class Part(msgspec.Struct, frozen=True):
    """A question for one database."""

    database: str
    question: str


class Decomposition(msgspec.Struct, frozen=True, omit_defaults=True, tag="decomposition"):
    """The parts of a question. They fit the request: every database is known, and they are not too many."""

    planner: str
    parts: tuple[Part, ...]
    model: str = ""
    usage: Usage = Usage()


@runtime_checkable
class Decomposer(Protocol):
    """A planner that can also say which databases are asked what. Of others, each database gets the whole question."""

    def decompose(self, request: DecomposeRequest) -> Decomposition | Refusal: ...
