"""The process of a query: it hangs, crashes or is killed, and the next query works."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.execution import processes
from mulligan_nl2sql.execution.messages import Request
from mulligan_nl2sql.execution.queries import execute
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy

from .shop import POLICY, make_shop, schema_of

SCHEMA = schema_of("sqlite")
HUNG_QUERIES = 100
ENDLESS = "select count(*) from " + ", ".join(f"orders o{n}" for n in range(10))
WAIT_MILLISECONDS = 20_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return Database("sqlite", str(make_shop(tmp_path_factory.mktemp("shop") / "shop.db")), "shop")


def policy(**limits: float) -> Policy:
    return msgspec.structs.replace(POLICY, limits=Limits(**{"cost": 1e300, **limits}))  # type: ignore[arg-type]


def request(shop: Database, seconds: float = 30.0) -> Request:
    return Request(
        task="schema",
        database=shop,
        limits=Limits(seconds=seconds),
        policy=POLICY,
        deadline=time.monotonic() + seconds,
        parent_pid=os.getpid(),
    )


def children(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(path.parent.name)


def test_after_a_hundred_hung_queries_no_process_is_left_and_the_next_is_answered(
    shop: Database, tmp_path: Path
) -> None:
    """Processes that answer nothing and hear nothing, as one does that hangs inside of a library."""

    def hang(_: int) -> str:
        with pytest.raises(QueryFailed) as caught:
            processes.ask(request(shop, seconds=0.01), command=("sleep", "600"))
        return str(caught.value.code)

    before = set(children(os.getpid()))
    with ThreadPoolExecutor(max_workers=25) as pool:
        codes = list(pool.map(hang, range(HUNG_QUERIES)))

    assert codes == [Code.TIMEOUT] * HUNG_QUERIES
    assert set(children(os.getpid())) - before == set()
    assert execute(shop, "select id from orders", SCHEMA, POLICY, file=tmp_path / "rows.jsonl").rows == 60


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {"signal": "SIGSEGV"}),
        ("import os; os.abort()", {"signal": "SIGABRT"}),
        ("import os; os._exit(3)", {"exit_code": 3}),
        ("print('nonsense')", {"exit_code": 0}),
    ],
)
def test_a_crash_is_a_failure_with_a_name(shop: Database, code: str, details: dict[str, object]) -> None:
    with pytest.raises(QueryFailed) as caught:
        processes.ask(request(shop), command=(sys.executable, "-S", "-c", code))

    assert (caught.value.code, caught.value.retryable) == (Code.CRASHED, True)
    assert details.items() <= caught.value.details.items()


def test_a_query_whose_process_is_killed_fails_and_the_next_works(shop: Database, tmp_path: Path) -> None:
    before = set(children(os.getpid()))
    with ThreadPoolExecutor(max_workers=1) as pool:
        hanging = pool.submit(execute, shop, ENDLESS, SCHEMA, policy(seconds=60), file=tmp_path / "rows.jsonl")
        while not (found := set(children(os.getpid())) - before) and not hanging.done():
            pass
        os.kill(found.pop(), signal.SIGKILL)

    with pytest.raises(QueryFailed, match="was killed by SIGKILL") as caught:
        hanging.result()
    assert caught.value.code == Code.CRASHED
    assert list(tmp_path.iterdir()) == []
    assert execute(shop, "select 1 as one", SCHEMA, POLICY, file=tmp_path / "rows.jsonl").rows == 1


def test_the_process_of_a_query_dies_with_the_one_that_asked(shop: Database, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from mulligan_nl2sql.execution.queries import execute\n"
        "import msgspec; from mulligan_nl2sql import Database, Limits, Policy, Schema\n"
        "schema = msgspec.json.decode(sys.argv[2], type=Schema)\n"
        "execute(Database('sqlite', sys.argv[1], 'shop'), sys.argv[3], schema,\n"
        "        Policy(limits=Limits(seconds=600, cost=1e300)), file=Path(sys.argv[4]))\n"
    )
    arguments = [shop.location, msgspec.json.encode(SCHEMA).decode(), ENDLESS, str(tmp_path / "rows.jsonl")]
    asking = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        # The process of the query has opened the database: it is past its own start.
        while not (found := [pid for pid in children(asking.pid) if has_open(pid, shop.location)]):
            assert asking.poll() is None
        handle = os.pidfd_open(found[0])
        waiter = select.poll()
        waiter.register(handle, select.POLLIN)
    finally:
        asking.kill()
        asking.wait()

    assert waiter.poll(WAIT_MILLISECONDS)
    os.close(handle)


def has_open(pid: int, path: str) -> bool:
    try:
        return any(os.readlink(link) == path for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_the_process_knows_no_variables_of_the_worker(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_TOKEN", "hush")
    monkeypatch.setenv("PGAPPNAME", "kept")
    code = "import os, sys; sys.exit(4 if 'WAREHOUSE_TOKEN' not in os.environ and 'PGAPPNAME' in os.environ else 5)"

    with pytest.raises(QueryFailed) as caught:
        processes.ask(request(shop), command=(sys.executable, "-S", "-c", code))

    assert caught.value.details["exit_code"] == 4
