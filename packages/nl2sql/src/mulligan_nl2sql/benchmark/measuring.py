"""A benchmark is a run of `benchmark.yaml`: started, continued after an interruption, and read as a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from mulligan import Home, Run
from mulligan_nl2sql.asking.answers import EXIT_USAGE
from mulligan_nl2sql.asking.questions import drive, index_folder, keep_passwords, read_question
from mulligan_nl2sql.asking.receipts import failure_of_run
from mulligan_nl2sql.asking.run_answers import read_answer, read_rows
from mulligan_nl2sql.benchmark.case_files import Benchmark, BenchmarkInvalid, Case
from mulligan_nl2sql.benchmark.reports import (
    EXIT_BELOW_BAR,
    AnsweredRows,
    Bars,
    CaseResult,
    ExpectedRows,
    Report,
    find_missed_bars,
    judge,
    rows_of,
    summarize,
)
from mulligan_nl2sql.planning.find_planner import DEFAULT
from mulligan_nl2sql.workflows import BENCHMARK

WORKFLOW = "nl2sql-benchmark"
PARALLEL = 4
NO_BARS = Bars()
_ENDED = ("completed", "failed", "cancelled")


def measure(
    benchmark: Benchmark,
    home: Home,
    *,
    planners: Sequence[str] = (DEFAULT,),
    policy: str = "",
    parallel: int = PARALLEL,
    bars: Bars = NO_BARS,
    deadline: float | None = None,
) -> Report:
    """Ask every question with every planner, and compare. StepError if a URL, the policy or a planner is wrong."""
    inputs = {**_inputs(benchmark, planners, policy, parallel, bars), "index": index_folder(home)}
    run = home.start(BENCHMARK, inputs=inputs)
    drive(run, deadline)
    return read_report(run)


def resume_benchmark(run: Run, *, deadline: float | None = None) -> Report:
    """Let a benchmark go on that was interrupted. If it has ended, this is its report."""
    if run.status not in _ENDED:
        drive(run, deadline)
    return read_report(run)


def read_report(run: Run) -> Report:
    """The report of a run as it is now. Only a run that has ended has counts."""
    bars = msgspec.convert(run.inputs["bars"], Bars)
    file = run.inputs["file"]
    if run.status not in _ENDED:
        return Report(status="unfinished", exit_code=124, file=file, run=run.id, bars=bars)
    if run.status != "completed":
        failure = failure_of_run(run)
        is_invalid = failure is not None and failure.code == "BENCHMARK_INVALID"
        code = EXIT_USAGE if is_invalid else 1
        return Report(status="failed", exit_code=code, file=file, run=run.id, bars=bars, failure=failure)
    results = _results(run)
    planners = [
        summarize(name, [one for one in results if one.planner == name])
        for name in dict.fromkeys(one.planner for one in results)
    ]
    missed = find_missed_bars(bars, planners)
    return Report(
        status="measured",
        exit_code=EXIT_BELOW_BAR if missed else 0,
        file=file,
        run=run.id,
        bars=bars,
        missed_bars=missed,
        planners=planners,
        cases=results,
    )


def _inputs(benchmark: Benchmark, planners: Sequence[str], policy: str, parallel: int, bars: Bars) -> dict[str, Any]:
    names = list(dict.fromkeys(planners))
    if not names:
        raise BenchmarkInvalid("no planner is given")
    questions = []
    kept: dict[str, str] = {}
    for planner in names:
        for number, case in enumerate(benchmark.cases):
            urls = [f"{name}={benchmark.databases[name]}" for name in case.databases]
            today = date.fromisoformat(case.today) if case.today else None
            question = read_question(case.question, urls, policy=policy, planner=planner, today=today)
            keep_passwords(question)
            databases = [{"name": one.name, "url": one.url} for one in question.databases]
            kept |= {one["name"]: one["url"] for one in databases}
            questions.append(
                {
                    "case": number,
                    "question": question.text,
                    "databases": databases,
                    "planner": planner,
                    "agent": question.agent,
                    "model": question.model,
                    "today": question.today,
                }
            )
    expectations = [
        {"case": number, "file": benchmark.file, "line": case.line, "database": name, "url": kept[name], "sql": one.sql}
        for number, case in enumerate(benchmark.cases)
        for name, one in case.expected.items()
        if one.sql is not None
    ]
    compared = dict.fromkeys(str(one["database"]) for one in expectations)
    return {
        "file": benchmark.file,
        "cases": msgspec.to_builtins(benchmark.cases),
        "bars": msgspec.to_builtins(bars),
        "databases": [{"name": name, "url": kept[name]} for name in compared],
        "expectations": expectations,
        "questions": questions,
        "policy": os.path.abspath(policy) if policy else "",
        "parallel": parallel,
    }


def _results(run: Run) -> list[CaseResult]:
    cases = msgspec.convert(run.inputs["cases"], list[Case])
    expected = _expected(run, cases)
    children = {child.inputs["number"]: child for child in run.children}
    found = []
    for at, asked in enumerate(run.inputs["questions"]):
        number = asked["case"]
        answer = read_answer(children[at])
        found.append(
            judge(number, cases[number], asked["planner"], answer, expected[number], _answered(answer.receipt))
        )
    return found


def _answered(receipt: Any) -> list[AnsweredRows]:
    scans = receipt.scans if receipt is not None else []
    return [rows_of(scan, read_rows(scan.file)) for scan in scans if scan.file]


def _expected(run: Run, cases: Sequence[Case]) -> list[dict[str, ExpectedRows]]:
    """What is expected of each case, by database."""
    found: list[dict[str, ExpectedRows]] = [{} for _ in cases]
    for number, case in enumerate(cases):
        for name, one in case.expected.items():
            if one.rows is not None:
                found[number][name] = ExpectedRows("", [tuple(row) for row in one.rows], one.ordered)
    for item in run.steps["expected"].items:
        wanted, output = item.value, item.output
        case = cases[wanted["case"]]
        rows = [tuple(row.values()) for row in read_rows(output["file"]["$artifact"]["path"])]
        is_ordered = output["ordered"] or case.expected[wanted["database"]].ordered
        found[wanted["case"]][wanted["database"]] = ExpectedRows(wanted["sql"], rows, is_ordered)
    return found
