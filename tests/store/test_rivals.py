"""Rivals: real processes that want the same tasks and the same turns at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.keeping import T0, new_run, offer, queue, started, task, worker
from tests.support.nightly import POSTGRES

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Breaker
from mulligan.ports import Store
from mulligan.store import open_store

pytestmark = pytest.mark.postgres

SRC = Path(__file__).parents[2] / "src"
RIVALS = 3

Race = Callable[[str, str], list[list[str]]]

# One interpreter that has loaded everything, and forks the rivals of each race.
PROGRAM = """
import io, json, os, sys
from datetime import UTC, datetime
from mulligan.core.model.events import Entry, RunPaused
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import Conflict, StaleLease
from mulligan.ports import Commit, Offer, WorkerRecord
from mulligan.store import open_store

at = datetime(2026, 1, 1, tzinfo=UTC)

def rival(number, where, code, ready, start, said):
    is_early, where = where.startswith("early "), where.removeprefix("early ")
    name = f"rival-{number}"
    store = None if is_early else open_store(where)
    os.write(ready, b"r")
    os.close(ready)
    os.read(start, 1)
    store = store or open_store(where)
    store.register(WorkerRecord(name, "here", 1))
    sys.stdout = io.StringIO()
    exec(code, {**globals(), "store": store, "name": name})
    store.close()
    # One call: lines of rivals do not mix.
    os.write(said, " ".join([str(number), *sys.stdout.getvalue().split(), "\\n"]).encode())

def race(where, code, rivals):
    (ready, is_ready), (start, starts), (said, says) = (os.pipe() for _ in range(3))
    if "postgresql:" in where:
        import mulligan.store.postgres.postgres
    pids = []
    for number in range(rivals):
        pid = os.fork()
        if pid == 0:
            try:
                # They start when nobody has this any more.
                os.close(starts)
                rival(number, where, code, is_ready, start, says)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    for one in (is_ready, start, says):
        os.close(one)
    count = 0
    while count < rivals and (more := os.read(ready, rivals)):
        count += len(more)
    os.close(starts)
    with open(said) as lines:
        told = lines.read()
    os.close(ready)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids), count, told

for line in sys.stdin:
    print(json.dumps(race(*json.loads(line))), flush=True)
"""


@pytest.fixture(scope="module")
def rivals() -> Iterator[subprocess.Popen[str]]:
    command, environment = [sys.executable, "-c", PROGRAM], {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.fixture
def race(rivals: subprocess.Popen[str]) -> Race:
    """What each rival prints: they all start when the last one is ready."""

    def run(where: str, code: str) -> list[list[str]]:
        assert rivals.stdin is not None
        assert rivals.stdout is not None
        rivals.stdin.write(json.dumps([where, code, RIVALS]) + "\n")
        rivals.stdin.flush()
        failed, ready, told = json.loads(rivals.stdout.readline())
        assert (failed, ready) == (0, RIVALS)
        said = {name: words for name, *words in map(str.split, told.splitlines())}
        return [said[str(number)] for number in range(RIVALS)]

    return run


@pytest.fixture(params=["sqlite", POSTGRES])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store that several processes can open."""
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("store_schema_url")


@pytest.fixture(params=["sqlite", POSTGRES])
def missing(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store that is still to be made."""
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("schema_url")


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    opened = open_store(where)
    yield opened
    opened.close()


def test_each_task_is_handed_to_one_of_them(store: Store, where: str, race: Race) -> None:
    turn = started(store)
    places = [f"p{number:02}" for number in range(60)]
    queue(store, turn, *(task(turn.run_id, place) for place in places))

    said = race(
        where,
        "while leases := store.lease(name, Offer(9, 9, 9, (), 'here', 2)):\n"
        "    for lease in leases:\n"
        "        print(lease.task.place, lease.token)\n"
        "        store.report(lease.token, TaskEnded(at, lease.task.place, 1))\n",
    )

    assert sorted(place for words in said for place in words[::2]) == places
    tokens = [token for words in said for token in words[1::2]]
    assert len(set(tokens)) == 60
    ends = [message.report for message in store.inbox([turn.run_id]) if isinstance(message.report, TaskEnded)]
    assert sorted(report.place for report in ends) == places


def test_each_turn_is_given_to_one_of_them(store: Store, where: str, race: Race) -> None:
    turns = store.create([new_run() for _ in range(40)])

    said = race(where, "print(*[turn.run_id for turn in store.take_turns(range(1, 41), name)])\n")

    assert sorted(int(run_id) for words in said for run_id in words) == [turn.run_id for turn in turns]


def test_a_log_that_all_of_them_write_has_neither_gaps_nor_doubles(store: Store, where: str, race: Race) -> None:
    (turn,) = store.create([new_run()])

    race(
        where,
        f"run_id, left = {turn.run_id}, 20\n"
        "while left:\n"
        "    for turn in store.take_turns([run_id], name):\n"
        "        seq = store.run(run_id).seq\n"
        "        entry = Entry(seq + 1, at, 0, RunPaused(by=name))\n"
        "        line = dict(status='running', round=1, at=at)\n"
        "        store.commit([Commit(turn=turn, after=seq, entries=[entry], rows=(), **line)])\n"
        "        store.release([turn])\n"
        "        left -= 1\n",
    )

    log = store.log(turn.run_id)
    assert [entry.seq for entry in log] == list(range(1, 20 * RIVALS + 1))


def test_a_dead_worker_is_expired_by_one_of_them(store: Store, where: str, race: Race) -> None:
    turn = started(store, holder="dead")
    queue(store, turn, *(task(turn.run_id, f"p{number}") for number in range(5)))
    store.lease("dead", offer())

    said = race(where, "print(store.expire('dead', is_dead=True))\n")

    assert sorted(words[0] for words in said) == ["False", "False", "True"]
    told = [type(message.report).__name__ for message in store.inbox([turn.run_id])]
    assert told == ["TaskStarted"] * 5 + ["LeaseExpired"] * 5


def test_a_store_that_is_not_there_yet_may_be_opened_by_all_of_them_at_once(missing: str, race: Race) -> None:
    race(f"early {missing}", "")

    store = open_store(missing)
    assert [known.name for known in store.workers()] == [f"rival-{number}" for number in range(RIVALS)]
    store.close()


def test_a_task_is_either_leased_or_taken_by_the_turn(store: Store, where: str, race: Race) -> None:
    """Two engines and a worker on one run: whoever comes second is refused, and nothing runs twice."""
    turn = started(store)
    places = [f"p{number:02}" for number in range(30)]
    queue(store, turn, *(task(turn.run_id, place) for place in places))
    store.release([turn])
    store.register(worker("reader"))

    said = race(
        where,
        "from mulligan.core.effects.tasks import Task\n"
        f"run_id, places = {turn.run_id}, {places!r}\n"
        "for place in places:\n"
        "    if name == 'rival-0':\n"
        "        print(*[lease.task.place for lease in store.lease(name, Offer(9, 9, 9, (), 'here', 1))])\n"
        "        continue\n"
        "    for turn in store.take_turns([run_id], name):\n"
        "        task = Task(run_id, place, 1, 'shell', {}, 'n', 'v1', place, 1)\n"
        "        try:\n"
        "            now = dict(after=store.run(run_id).seq, status='running', round=1, at=at)\n"
        "            store.commit([Commit(turn=turn, entries=[], rows=(), taken=[task], **now)])\n"
        "            print(place)\n"
        "        except Conflict:\n"
        "            pass\n"
        "        store.release([turn])\n",
    )

    got = [place for words in said for place in words]
    assert len(set(got)) == len(got)
    held = [lease.task.place for number in range(RIVALS) for lease in store.leases_of(f"rival-{number}")]
    assert sorted(held) == sorted(got)


def test_what_one_writes_is_read_by_another_in_order(store: Store, where: str, race: Race) -> None:
    turn = started(store)

    race(where, f"for _ in range(20): store.put({turn.run_id}, TaskEnded(at, name, 1))\n")

    messages = store.inbox([turn.run_id])
    assert len(messages) == 20 * RIVALS
    assert [message.id for message in messages] == sorted({message.id for message in messages})


def test_of_many_rivals_one_has_the_probe_of_a_breaker(store: Store, where: str, race: Race) -> None:
    turn = started(store)
    guard = Guard("llm", Breaker(failures=1, reset=0.0))
    queue(store, turn, task(turn.run_id, "first", guard=guard))
    (held,) = store.lease("w", offer())
    store.report(held.token, TaskEnded(T0, "first", 1, Outcome(exit_code=1)), guard=guard)
    queue(store, turn, *(task(turn.run_id, f"p{number}", guard=guard) for number in range(30)))

    said = race(where, "print(*[lease.task.place for lease in store.lease(name, Offer(9, 9, 9, (), 'here', 9))])\n")

    # Which task it is depends on which of them were being looked at by a rival.
    assert sorted(map(len, said)) == [0, 0, 1]


def test_of_all_that_rivals_send_exactly_so_many_fail(store: Store, where: str, race: Race) -> None:
    turn = started(store)
    exact = Guard("llm", Breaker(failures=5, reset=3600.0, when_open="fail", max_parallel=5))
    queue(store, turn, *(task(turn.run_id, f"p{number:02}", guard=exact) for number in range(60)))

    said = race(
        where,
        "from mulligan.core.model.outcome import Outcome\n"
        f"while store.queued_tasks({turn.run_id}):\n"
        "    for lease in store.lease(name, Offer(9, 9, 9, (), 'here', 2)):\n"
        "        print(lease.task.place)\n"
        "        ended = TaskEnded(at, lease.task.place, 1, Outcome(exit_code=1))\n"
        "        store.report(lease.token, ended, guard=lease.task.guard)\n",
    )

    assert sum(map(len, said)) == 5
    (breaker,) = store.breakers()
    assert (breaker.status, breaker.failures, breaker.waiting) == ("open", 5, 0)
