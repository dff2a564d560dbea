"""What came of a benchmark: a verdict on each case, and how many there are of each, by planner and by tag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mulligan_nl2sql.asking.answers import Answer, Problem, ScanReceipt, Status
from mulligan_nl2sql.benchmark.case_files import Case
from mulligan_nl2sql.benchmark.comparison import Difference, Row, compare
from mulligan_nl2sql.planning.planner import Usage

# A bar was missed.
EXIT_BELOW_BAR = 5


class Verdict(StrEnum):
    """What a case came to. A question that must be refused, and was, is right."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    FAILED = "failed"
    PARTIAL = "partial"


class ExpectedRows(msgspec.Struct, frozen=True):
    """The rows that one database must give. `sql` is empty if the file has the rows themselves."""

    sql: str
    rows: list[Row]
    is_ordered: bool


class AnsweredRows(msgspec.Struct, frozen=True):
    """The rows that one scan has given. `cut` is the limit that has cut them."""

    database: str
    sql: str
    rows: list[Row]
    cut: str = ""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One case with one planner."""

    case: int
    line: int
    question: str
    tags: list[str]
    planner: str
    verdict: Verdict
    # Why it is not right.
    reason: str = ""
    expected_sql: dict[str, str] = {}
    answered_sql: list[str] = []
    differences: dict[str, Difference] = {}
    failure: Problem | None = None
    run: int | None = None
    seconds: float = 0.0
    repairs: int = 0
    usage: Usage = Usage()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many cases came to what."""

    cases: int
    right: int
    wrong: int
    refused: int
    failed: int
    partial: int

    @property
    def right_percent(self) -> float:
        return 100 * self.right / self.cases if self.cases else 0.0


class PlannerReport(msgspec.Struct, frozen=True, kw_only=True):
    """All cases with one planner. `seconds` are those of all questions, `median_seconds` of one."""

    planner: str
    counts: Counts
    right_percent: float
    tags: dict[str, Counts]
    repairs: int
    usage: Usage
    seconds: float
    median_seconds: float


class Bars(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every planner must reach. None: nothing."""

    min_right_percent: float | None = None
    max_wrong: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `status` is `measured`, `failed` or `unfinished`."""

    status: str
    exit_code: int
    file: str
    run: int | None
    bars: Bars = Bars()
    missed_bars: list[str] = []
    planners: list[PlannerReport] = []
    cases: list[CaseResult] = []
    failure: Problem | None = None


def judge(
    number: int,
    case: Case,
    planner: str,
    answer: Answer,
    expected: dict[str, ExpectedRows],
    answered: Sequence[AnsweredRows],
) -> CaseResult:
    """Compare an answer with what is expected of it."""
    scans = answer.receipt.scans if answer.receipt is not None else []
    verdict, reason, differences = _verdict(case, answer, expected, answered)
    return CaseResult(
        case=number,
        line=case.line,
        question=case.question,
        tags=case.tags,
        planner=planner,
        verdict=verdict,
        reason=reason,
        expected_sql={name: one.sql for name, one in expected.items() if one.sql},
        answered_sql=[sql for scan in scans if (sql := scan.sql or scan.planned_sql)],
        differences=differences,
        failure=answer.failure,
        run=answer.run,
        seconds=answer.receipt.seconds if answer.receipt is not None else 0.0,
        repairs=sum(scan.repairs for scan in scans),
        usage=answer.receipt.usage if answer.receipt is not None else Usage(),
    )


def _verdict(
    case: Case, answer: Answer, expected: dict[str, ExpectedRows], answered: Sequence[AnsweredRows]
) -> tuple[Verdict, str, dict[str, Difference]]:
    said = f"{answer.failure.code}: {answer.failure.message}" if answer.failure is not None else ""
    if answer.status is Status.REFUSED:
        return (Verdict.RIGHT, "", {}) if case.must_be_refused else (Verdict.REFUSED, said, {})
    if answer.status is Status.PARTIAL:
        return Verdict.PARTIAL, "; ".join(answer.warnings), {}
    if answer.status is not Status.ANSWERED:
        return Verdict.FAILED, said or answer.status.value, {}
    if case.must_be_refused:
        return Verdict.WRONG, "it was answered, and must be refused", {}
    differences = dict(_differences(expected, answered))
    reason = "; ".join(f"{f'{name}: ' if len(expected) > 1 else ''}{one.message}" for name, one in differences.items())
    return (Verdict.WRONG if differences else Verdict.RIGHT), reason, differences


def _differences(
    expected: dict[str, ExpectedRows], answered: Sequence[AnsweredRows]
) -> Iterable[tuple[str, Difference]]:
    for name in dict.fromkeys([*expected, *(one.database for one in answered)]):
        given = [one for one in answered if one.database == name]
        wanted = expected.get(name)
        if wanted is None:
            yield name, Difference(message="it was asked, and nothing of it is expected")
        elif len(given) != 1:
            yield name, Difference(message=f"one result is expected, and there are {len(given)}")
        elif given[0].cut:
            yield name, Difference(message=f"its limit of {given[0].cut} has cut the result")
        elif difference := compare(wanted.rows, given[0].rows, is_ordered=wanted.is_ordered):
            yield name, difference


def summarize(planner: str, results: Sequence[CaseResult]) -> PlannerReport:
    """The report of one planner."""
    tags = dict.fromkeys(tag for result in results for tag in result.tags)
    counts = _count(results)
    seconds = [result.seconds for result in results]
    return PlannerReport(
        planner=planner,
        counts=counts,
        right_percent=round(counts.right_percent, 1),
        tags={tag: _count([result for result in results if tag in result.tags]) for tag in tags},
        repairs=sum(result.repairs for result in results),
        usage=Usage(
            _total(result.usage.input_tokens for result in results),
            _total(result.usage.output_tokens for result in results),
            _total(result.usage.cost for result in results),
        ),
        seconds=round(sum(seconds), 3),
        median_seconds=_middle(seconds),
    )


def find_missed_bars(bars: Bars, planners: Sequence[PlannerReport]) -> list[str]:
    """What every planner must reach, and one does not."""
    missed = []
    for one in planners:
        if bars.min_right_percent is not None and one.counts.right_percent < bars.min_right_percent:
            right = f"{one.counts.right_percent:.1f} % right"
            missed.append(f"{one.planner}: {right}, at least {bars.min_right_percent:g} %")
        if bars.max_wrong is not None and one.counts.wrong > bars.max_wrong:
            missed.append(f"{one.planner}: {one.counts.wrong} wrong, at most {bars.max_wrong}")
    return missed


def rows_of(scan: ScanReceipt, rows: Sequence[dict[str, Any]]) -> AnsweredRows:
    """The rows of a scan by position: what a planner calls a column is its own matter."""
    return AnsweredRows(scan.database, scan.sql or "", [tuple(row.values()) for row in rows], scan.cut or "")


def _count(results: Sequence[CaseResult]) -> Counts:
    counts = {verdict.value: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    return Counts(cases=len(results), **counts)


def _middle(values: Sequence[float]) -> float:
    """The median; of an even number of values the lower one in the middle."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def _total(values: Iterable[Any]) -> Any:
    """What is known of the sum."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
