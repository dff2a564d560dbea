"""Questions about the shop, each with SQL that a person wrote for it: the benchmark of the demo."""

from __future__ import annotations

from mulligan_nl2sql.benchmark.case_files import read_benchmark
from mulligan_nl2sql.demo.benchmark import QUESTIONS

BENCHMARK = read_benchmark(QUESTIONS)


def _with_sql(*, is_ordered: bool) -> tuple[tuple[str, str], ...]:
    cases = (case for case in BENCHMARK.cases if not case.must_be_refused)
    chosen = (case for case in cases if ("order" in case.tags) is is_ordered)
    return tuple((case.question, case.expected["shop"].sql or "") for case in chosen)


# The order of the rows counts for those of `SORTED`; for all others it does not.
ANSWERED = _with_sql(is_ordered=False)
SORTED = _with_sql(is_ordered=True)
