"""What came of a question: the rows or why there are none, and the receipt. Text, JSON and exit code say this alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from mulligan_nl2sql.planning.planner import Explanation, Usage


class Status(StrEnum):
    """How a question ended, or a scan of it. The exit code, the JSON and the text say the same."""

    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    # Some parts are answered. `warnings` say what is missing.
    PARTIAL = "partial"
    # Its deadline has passed, or somebody has interrupted it: it can go on.
    UNFINISHED = "unfinished"


EXIT_CODES = {
    Status.ANSWERED: 0,
    Status.FAILED: 1,
    Status.REFUSED: 3,
    Status.PARTIAL: 4,
    Status.UNFINISHED: 124,
}
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    message: str
    severity: str = "error"
    retryable: bool = False
    step: str = ""
    details: dict[str, Any] = {}


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong on the way."""

    step: str
    # Which attempt at the step, from 1, over all visits.
    attempt: int
    code: str
    severity: str
    retryable: bool
    message: str
    # `retry`: the same again has worked; `repair`: another statement has; empty: nothing has.
    resolved_by: str = ""


class DatabaseReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A database of the question: what was read of it before anything was asked."""

    database: str
    # How many tables may be read; None: it was not read.
    tables: int | None
    # When the kept index was read that was used; empty: the database was read for this question.
    kept_at: str
    # Why its kept index was not used; empty: there is none, or it was.
    misfit: str
    attempts: int
    errors: list[FailedAttempt]
    failure: Problem | None


class ScanReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What one database was asked, and how its result came about. None: it did not come so far."""

    database: str
    question: str
    status: Status
    # Its own run, a child of that of the question.
    run: int | None
    model: str
    # As the planner wrote it, and as it was checked and executed.
    planned_sql: str | None
    sql: str | None
    tables: list[str]
    cost: float | None
    rows: int | None
    # `rows` or `bytes`: the limit that has cut the result; empty: it is whole.
    cut: str | None
    file: str | None
    executed: bool
    seconds: float
    attempts: dict[str, int]
    # Statements that the planner wrote after the first.
    repairs: int
    errors: list[FailedAttempt]
    explained: list[Explanation]
    usage: Usage
    failure: Problem | None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer came about."""

    planner: str
    databases: list[DatabaseReceipt]
    # Who said which database is asked what: `whole` (each was asked the whole question), `rules`, or `model`.
    decomposed_by: str | None
    # Of asking the model for that.
    attempts: int
    errors: list[FailedAttempt]
    scans: list[ScanReceipt]
    seconds: float
    # Of all calls of a planner, also those whose answer was no use.
    usage: Usage


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one scan; or of several with the same columns, then the first column says the database."""

    databases: list[str]
    question: str
    columns: list[str]
    rows: list[dict[str, Any]]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `results` is empty if nothing was executed."""

    status: Status
    exit_code: int
    question: str
    run: int | None = None
    results: list[Result] = []
    # What is missing in the results, or cut off.
    warnings: list[str] = []
    failure: Problem | None = None
    receipt: Receipt | None = None
