"""Gap 3: SQL runs in a process of its own, with limits of time, memory, rows and bytes. What happens there is a failure
with a name, and the next query works."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mulligan
from mulligan_nl2sql.asking.answers import Answer, ScanReceipt
from mulligan_nl2sql.asking.run_answers import read_answer
from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.execution import processes
from mulligan_nl2sql.execution.queries import execute
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits

from ..shop import POLICY, schema_of
from ..test_processes import ENDLESS, children
from .simulated_home import GOOD, Planner, SimulatedHome, execute_here

HUNG_QUERIES = 8
CHILD = (sys.executable, "-P", "-m", "mulligan_nl2sql.execution.child")
TEXTS = "select group_concat(a.name || b.name || c.name) as n from customers a, customers b, customers c"
PAIRS = "select count(*) as n from orders a, orders b, orders c"


def asked(tmp_path: Path, sql: str, limit: str = "rows = 1000", *, seconds: float = 60) -> Answer:
    """Ask with a policy that has these limits. The rows come from a process of their own, all else is near."""
    Path("policy.toml").write_text(f"[databases.shop.limits]\ncost = 1e300\nseconds = {seconds}\n{limit}\n")
    home = SimulatedHome(tmp_path / "home")
    run = home.ask(functions={"plan": Planner(sql), "execute": execute_here}, policy="policy.toml")
    home.store.close()
    with mulligan.Home(tmp_path / "home") as opened:
        return read_answer(opened.get(run))


def scan_of(answer: Answer) -> ScanReceipt:
    assert answer.receipt is not None
    (scan,) = answer.receipt.scans
    return scan


@pytest.mark.parametrize(
    ("sql", "limits", "code"),
    [(PAIRS, {"seconds": 0.01}, "QUERY_TIMEOUT"), (TEXTS, {"limit": "memory_bytes = 500_000"}, "QUERY_MEMORY")],
)
def test_a_query_that_takes_too_much_fails_with_a_name_and_only_because_of_its_limit(
    sql: str, limits: dict[str, Any], code: str, tmp_path: Path
) -> None:
    answer = asked(tmp_path, sql, **limits)

    assert answer.failure is not None
    assert (answer.status, answer.failure.code, answer.failure.step) == ("failed", code, "execute")
    assert (answer.results, scan_of(answer).executed) == ([], False)
    assert asked(tmp_path, sql).status == "answered"


@pytest.mark.parametrize(
    ("limit", "cut", "rows"), [("rows = 4", "rows", 4), ("result_bytes = 27", "bytes", 3), ("rows = 30", "", 30)]
)
def test_a_result_that_is_too_large_is_cut_and_the_answer_says_so(
    limit: str, cut: str, rows: int, tmp_path: Path
) -> None:
    answer = asked(tmp_path, "select id from customers", limit)

    scan = scan_of(answer)
    assert (answer.status, scan.cut, scan.rows, len(answer.warnings)) == ("answered", cut, rows, 1 if cut else 0)
    assert answer.results[0].rows == [{"id": number} for number in range(1, rows + 1)]


@pytest.mark.parametrize(("crashes", "status", "resolved_by"), [(1, "answered", "retry"), (3, "failed", "")])
def test_a_process_that_crashes_is_a_failure_with_a_name_and_the_next_one_works(
    crashes: int, status: str, resolved_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many files as processes that die.
    for number in range(crashes):
        Path(f"crash-{number}").touch()
    script = 'for file in crash-*; do rm "$file" 2>/dev/null && kill -SEGV $$; done; exec "$@"'
    monkeypatch.setitem(processes.ask.__kwdefaults__, "command", ("/bin/sh", "-c", script, "sh", *CHILD))

    answer = asked(tmp_path, GOOD)

    errors = scan_of(answer).errors
    assert answer.status == status
    assert {(one.step, one.code, one.retryable) for one in errors} == {("execute", "QUERY_CRASHED", True)}
    assert [one.attempt for one in errors] == list(range(1, crashes + 1))
    assert {one.resolved_by for one in errors} == {resolved_by}


def test_after_queries_that_never_end_no_process_is_left_and_the_next_is_answered(shop: Path, tmp_path: Path) -> None:
    """Queries that run: `bench/hung_queries.py` does it with a hundred, and `test_processes` with deaf processes."""
    database = Database("sqlite", str(shop), "shop")
    policy = msgspec.structs.replace(POLICY, limits=Limits(seconds=0.3, cost=1e300))

    def hang(number: int) -> str:
        with pytest.raises(QueryFailed) as caught:
            execute(database, ENDLESS, schema_of("sqlite"), policy, file=tmp_path / f"{number}.jsonl")
        return caught.value.code

    before = set(children(os.getpid()))
    with ThreadPoolExecutor(max_workers=4) as pool:
        codes = list(pool.map(hang, range(HUNG_QUERIES)))

    assert codes == [Code.TIMEOUT] * HUNG_QUERIES
    assert set(children(os.getpid())) - before == set()
    assert list(tmp_path.glob("*.jsonl*")) == []
    done = execute(database, GOOD, schema_of("sqlite"), POLICY, file=tmp_path / "rows.jsonl")
    assert (done.rows, Path(done.path).read_text()) == (1, '{"n":30}\n')
