"""An answer as a terminal shows it. What comes from a database or a model has no control characters there."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from mulligan_nl2sql.asking.answers import Answer, FailedAttempt, Problem, Receipt, Status

ROWS_SHOWN_MAX = 50
_CELL_CHARS_MAX = 60


def show_answer(answer: Answer) -> Iterator[str]:
    """The lines for stdout: the rows, and the receipt. A question without an answer has no rows."""
    if answer.status is Status.ANSWERED and answer.rows is not None:
        yield from _table(answer.columns, answer.rows)
        yield ""
    if answer.receipt is not None:
        yield from _receipt(answer.receipt, answer.run)


def show_problem(answer: Answer, how_to_resume: str = "") -> Iterator[str]:
    """The lines for stderr: why there is no answer, or what is missing in it."""
    if answer.status is Status.UNFINISHED:
        yield "unfinished: it was stopped before there was an answer"
        yield f"  to let it go on: {how_to_resume}"
        return
    if answer.failure is not None:
        yield from _problem(answer.failure, answer.status)
    if answer.receipt is not None and answer.receipt.cut:
        yield f"warning: the result is not whole: its limit of {answer.receipt.cut} has cut it"


def _problem(failure: Problem, status: Status) -> Iterator[str]:
    what = "refused" if status is Status.REFUSED else "critical" if failure.severity == "critical" else "error"
    yield f"{what}[{failure.code}]: {printable(failure.message) or 'no message'}"
    if words := failure.details.get("words"):
        yield f"  not explained: {', '.join(printable(str(word)) for word in words)}"
    for candidate in failure.details.get("candidates", ()):
        yield f"  it may mean: {printable(str(candidate))}"


def _receipt(receipt: Receipt, run: int | None) -> Iterator[str]:
    sql = receipt.sql or receipt.planned_sql
    cost = "" if receipt.cost is None else f"{receipt.cost:,.0f}"
    state = "" if receipt.executed else " (not executed)"
    model = f" ({printable(receipt.model)})" if receipt.model not in ("", receipt.planner) else ""
    rows = (
        ""
        if receipt.rows is None
        else f"{receipt.rows:,}{f' (cut by its limit of {receipt.cut})' if receipt.cut else ''}"
    )
    lines = {
        "database": receipt.database,
        "sql": f"{printable(sql)}{state}" if sql else "",
        "tables": ", ".join(receipt.tables),
        "cost": cost,
        "rows": rows,
        "file": receipt.file or "",
        "planner": f"{receipt.planner}{model}",
        "used": _usage(receipt),
        "attempts": ", ".join(f"{name} {count}" for name, count in receipt.attempts.items()),
        "run": f"{run}, {receipt.seconds:.1f} s",
    }
    yield from (f"{name:<9} {text}" for name, text in lines.items() if text)
    for word in receipt.explained:
        yield f"{'word':<9} '{printable(word.words)}': {printable(word.meaning)}"
    yield from map(_error, receipt.errors)


def _usage(receipt: Receipt) -> str:
    usage = receipt.usage
    parts = [
        f"{count:,} tokens {way}"
        for count, way in ((usage.input_tokens, "read"), (usage.output_tokens, "written"))
        if count is not None
    ]
    return ", ".join([*parts, *([f"${usage.cost:.4f}"] if usage.cost is not None else [])])


def _error(error: FailedAttempt) -> str:
    end = f"resolved by {error.resolved_by}" if error.resolved_by else "not resolved"
    return f"{'error':<9} {error.step}, attempt {error.attempt}: {error.code}: {printable(error.message)} ({end})"


def _table(columns: list[str], rows: list[dict[str, Any]]) -> Iterator[str]:
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
