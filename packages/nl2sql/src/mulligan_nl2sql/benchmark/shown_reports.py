"""A report as a terminal shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mulligan_nl2sql.asking.shown_answers import printable, shown_usage
from mulligan_nl2sql.benchmark.comparison import Difference
from mulligan_nl2sql.benchmark.reports import CaseResult, Counts, PlannerReport, Report, Verdict

_HEADS = ("", "cases", "right", "wrong", "refused", "failed", "partial")
_VALUE_CHARS_MAX = 40


def show_report(report: Report) -> Iterator[str]:
    """The lines for stdout: the counts, and each case that is not right, the wrong ones first."""
    for planner in report.planners:
        yield from _planner(planner)
        yield ""
    order = list(Verdict)
    for result in sorted(report.cases, key=lambda one: order.index(one.verdict)):
        if result.verdict is not Verdict.RIGHT:
            yield from _case(result, report)


def show_report_problem(report: Report, how_to_resume: str) -> Iterator[str]:
    """The lines for stderr."""
    if report.status == "unfinished":
        yield "unfinished: it was stopped before all questions were asked"
        yield f"  to let it go on: {how_to_resume}"
    if report.failure is not None:
        yield f"error[{report.failure.code}]: {printable(report.failure.message)}"
    for missed in report.missed_bars:
        yield f"below the bar: {missed}"


def _planner(report: PlannerReport) -> Iterator[str]:
    yield f"planner {report.planner}: {report.right_percent:.1f} % right"
    rows = [_counts("all", report.counts), *(_counts(tag, counts) for tag, counts in report.tags.items())]
    widths = [max(len(row[at]) for row in (_HEADS, *rows)) for at in range(len(_HEADS))]
    for name, *numbers in (_HEADS, *rows):
        cells = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
        yield f"  {'  '.join(cells)}".rstrip()
    used = shown_usage(report.usage)
    seconds = f"{report.seconds:.1f} s in all, {report.median_seconds:.2f} s median"
    yield f"  {', '.join([f'{report.repairs:,} repairs', seconds, *([used] if used else [])])}"


def _counts(name: str, counts: Counts) -> tuple[str, ...]:
    numbers = (counts.cases, counts.right, counts.wrong, counts.refused, counts.failed, counts.partial)
    return (printable(name), *(f"{number:,}" for number in numbers))


def _case(result: CaseResult, report: Report) -> Iterator[str]:
    place = f"{report.file}:{result.line}" if result.line else f"case {result.case + 1}"
    planner = f" by {result.planner}" if len(report.planners) > 1 else ""
    yield printable(f"{result.verdict}{planner}: {result.question} ({place}, run {result.run})")
    if result.reason:
        yield f"  {printable(result.reason)}"
    if result.verdict is not Verdict.WRONG:
        return
    for name, sql in result.expected_sql.items():
        yield printable(f"  expected{f' of {name}' if len(result.expected_sql) > 1 else ''}: {sql}")
    for sql in result.answered_sql:
        yield printable(f"  answered: {sql}")
    for difference in result.differences.values():
        yield from _difference(difference)


def _difference(difference: Difference) -> Iterator[str]:
    for what, rows in (("expected", difference.expected_only), ("answered", difference.answered_only)):
        for row in rows:
            yield f"    only {what}: {_row(row)}"


def _row(row: Sequence[Any]) -> str:
    return ", ".join(_value(value) for value in row)


def _value(value: Any) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 1]}…"
