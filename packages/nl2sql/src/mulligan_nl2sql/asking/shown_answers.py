"""An answer as a terminal shows it. What comes from a database or a model has no control characters there."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from mulligan_nl2sql.asking.answers import (
    Answer,
    DatabaseReceipt,
    FailedAttempt,
    Problem,
    Receipt,
    Result,
    ScanReceipt,
    Status,
)
from mulligan_nl2sql.planning.planner import Usage

ROWS_SHOWN_MAX = 50
_CELL_CHARS_MAX = 60


def show_answer(answer: Answer) -> Iterator[str]:
    """The lines for stdout: the rows, and the receipt. A question without an answer has no rows."""
    for result in answer.results:
        if len(answer.results) > 1:
            yield printable(f"{', '.join(result.databases)}: {result.question}")
        yield from _table(result)
        yield ""
    if answer.receipt is not None:
        yield from _receipt(answer.receipt, answer)


def show_problem(answer: Answer, how_to_resume: str = "") -> Iterator[str]:
    """The lines for stderr: why there is no answer, or what is missing in it."""
    if answer.status is Status.UNFINISHED:
        yield "unfinished: it was stopped before there was an answer"
        yield f"  to let it go on: {how_to_resume}"
        return
    if answer.failure is not None:
        yield from _problem(answer.failure, answer.status)
    yield from (f"warning: {printable(warning)}" for warning in answer.warnings)


def _problem(failure: Problem, status: Status) -> Iterator[str]:
    what = "refused" if status is Status.REFUSED else "critical" if failure.severity == "critical" else "error"
    yield f"{what}[{failure.code}]: {printable(failure.message) or 'no message'}"
    if words := failure.details.get("words"):
        yield f"  not explained: {', '.join(printable(str(word)) for word in words)}"
    for candidate in failure.details.get("candidates", ()):
        yield f"  it may mean: {printable(str(candidate))}"


def _receipt(receipt: Receipt, answer: Answer) -> Iterator[str]:
    yield _line("status", f"{answer.status} (exit code {answer.exit_code})")
    yield _line("run", f"{answer.run}, {receipt.seconds:.1f} s")
    yield _line("planner", receipt.planner)
    if used := shown_usage(receipt.usage):
        yield _line("used", used)
    for database in receipt.databases:
        yield _line("database", _database(database))
        yield from (_line("  error", _error(error)) for error in database.errors)
    if receipt.attempts:
        yield _line(
            "decomposed", f"by the planner, in {receipt.attempts} attempt{'' if receipt.attempts == 1 else 's'}"
        )
        yield from (_line("  error", _error(error)) for error in receipt.errors)
    for scan in receipt.scans:
        yield from _scan(scan, answer.question)


def _database(database: DatabaseReceipt) -> str:
    if database.failure is not None:
        return printable(f"{database.database}: not read: {database.failure.code}: {database.failure.message}")
    if database.tables is None:
        return f"{database.database}: not read yet"
    kept = f", from the index of {database.kept_at}" if database.kept_at else ""
    misfit = f", read because its index does not fit: {database.misfit}" if database.misfit else ""
    return f"{database.database}: {database.tables} table{'' if database.tables == 1 else 's'}{kept}{misfit}"


def _scan(scan: ScanReceipt, question: str) -> Iterator[str]:
    sql = scan.sql or scan.planned_sql
    state = "" if scan.executed else " (not executed)"
    cut = f" (cut by its limit of {scan.cut})" if scan.cut else ""
    run = f", run {scan.run}, {scan.seconds:.1f} s" if scan.run is not None else ""
    failed = f": {scan.failure.code}: {printable(scan.failure.message)}" if scan.failure is not None else ""
    yield _line("scan", f"{scan.database}: {scan.status}{run}{failed}")
    lines = {
        "question": printable(scan.question) if scan.question != question else "",
        "sql": f"{printable(sql)}{state}" if sql else "",
        "tables": ", ".join(scan.tables),
        "cost": "" if scan.cost is None else f"{scan.cost:,.0f}",
        "rows": "" if scan.rows is None else f"{scan.rows:,}{cut}",
        "file": scan.file or "",
        "model": printable(scan.model),
        "used": shown_usage(scan.usage),
        "attempts": ", ".join(f"{name} {count}" for name, count in scan.attempts.items()),
    }
    yield from (_line(f"  {name}", text) for name, text in lines.items() if text)
    for word in scan.explained:
        yield _line("  word", f"'{printable(word.words)}': {printable(word.meaning)}")
    yield from (_line("  error", _error(error)) for error in scan.errors)


def _line(name: str, text: str) -> str:
    return f"{name:<10} {text}"


def shown_usage(usage: Usage) -> str:
    parts = [
        f"{count:,} tokens {way}"
        for count, way in ((usage.input_tokens, "read"), (usage.output_tokens, "written"), (usage.tokens, "used"))
        if count is not None
    ]
    return ", ".join([*parts, *([f"${usage.cost:.4f}"] if usage.cost is not None else [])])


def _error(error: FailedAttempt) -> str:
    end = f"resolved by {error.resolved_by}" if error.resolved_by else "not resolved"
    return f"{error.step}, attempt {error.attempt}: {error.code}: {printable(error.message)} ({end})"


def _table(result: Result) -> Iterator[str]:
    columns, rows = result.columns, result.rows
    shown = rows[:ROWS_SHOWN_MAX]
    cells = [[_cell(row.get(name)) for name in columns] for row in shown]
    numeric = [all(isinstance(row.get(name), int | float | None) for row in shown) for name in columns]
    heads = [_cell(name) for name in columns]
    widths = [max(map(_cells, (head, *(row[at] for row in cells)))) for at, head in enumerate(heads)]
    yield "  ".join(map(_padded, heads, widths, numeric)).rstrip()
    yield "  ".join("-" * width for width in widths)
    for row in cells:
        yield "  ".join(map(_padded, row, widths, numeric)).rstrip()
    more = f", {len(rows) - len(shown):,} of them not shown" if len(rows) > len(shown) else ""
    yield f"({len(rows):,} row{'' if len(rows) == 1 else 's'}{more})"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text)
    return text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…"


def _padded(text: str, width: int, is_number: bool) -> str:
    blank = " " * (width - _cells(text))
    return blank + text if is_number else text + blank


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def printable(text: str) -> str:
    """The text in one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else " " if char in "\n\t\r" else "\ufffd" for char in text)
