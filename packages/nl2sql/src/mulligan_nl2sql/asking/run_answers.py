"""The answer of a run as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan import Run
from mulligan_nl2sql.asking.answers import EXIT_CODES, Answer, Receipt, Result, Status
from mulligan_nl2sql.asking.receipts import failure_of_run, read_receipt, status_of_run, with_origin
from mulligan_nl2sql.routing.combining import ResultTable
from mulligan_nl2sql.routing.verdicts import Missing, describe


def read_answer(run: Run) -> Answer:
    """Read the run of a question, and the runs of its scans."""
    receipt = read_receipt(run)
    failure = with_origin(failure_of_run(run), receipt)
    status = status_of_run(run, failure)
    has_answer = status is Status.ANSWERED
    missing = msgspec.convert(run.steps["answer"].output if has_answer else [], tuple[Missing, ...])
    if missing:
        status = Status.PARTIAL
    return Answer(
        status=status,
        exit_code=EXIT_CODES[status],
        question=run.inputs["question"],
        run=run.id,
        results=list(_results(run, receipt)) if has_answer else [],
        warnings=[*_missing(missing), *_cut(receipt)],
        failure=None if has_answer else failure,
        receipt=receipt,
    )


def _results(run: Run, receipt: Receipt) -> Iterator[Result]:
    for table in msgspec.convert(run.steps["combine"].output, tuple[ResultTable, ...]):
        scans = [receipt.scans[number] for number in table.scans]
        rows = []
        for scan in scans:
            label = {table.database_column: scan.database} if table.database_column else {}
            rows += [{**label, **row} for row in read_rows(scan.file or "")]
        yield Result(
            databases=[scan.database for scan in scans],
            question=scans[0].question,
            columns=list(table.columns),
            rows=rows,
        )


def read_rows(file: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in Path(file).read_bytes().splitlines()]


def _missing(missing: tuple[Missing, ...]) -> Iterator[str]:
    for one in missing:
        yield f"the answer is not whole: {describe([one])}"


def _cut(receipt: Receipt) -> Iterator[str]:
    for scan in receipt.scans:
        if scan.cut:
            yield f"the result of {scan.database} is not whole: its limit of {scan.cut} has cut it"
