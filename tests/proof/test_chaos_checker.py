"""What looks for trouble finds it: each thing that may not be, made on purpose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.ports import NoticeRecord
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from mulligan.store.postgres.postgres import PostgresStore
from proof.chaos.announcements import check_instants, check_notices
from proof.chaos.campaign import wrong_pages, wrong_watchers
from proof.chaos.checker import (
    InvariantChecker,
    Totals,
    check_all,
    check_events,
    check_outages,
    check_rest,
    check_run,
    check_starts,
    check_work,
)
from proof.chaos.faults import Outage
from proof.chaos.fleet import Sample, growth_of
from proof.chaos.journal import Journal, parsed
from proof.chaos.sender import Accepted, Sent
from proof.invariants.store_contents import BreakerRow, MessageRow, RunRow, StoreContents, TaskRow

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MIB = 1 << 20


# -- the journal


def test_the_journal_is_read_on_from_where_it_was_read_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.path.write_text("start 1 ab:fetch:1 7\nend 1 ab:fetch:1 7\nstart 1 ab:st")
    journal.look()
    before = (journal.begun, journal.fence_max)
    with journal.path.open("a") as file:
        file.write("ore:1 9\n")

    journal.look()

    assert (before, (journal.begun, journal.fence_max)) == ((1, 7), (2, 9))


def test_a_place_may_hold_what_a_key_is_made_of() -> None:
    line = parsed("end 12 ab:check[3].on_failure@2.0:4 99\n")

    assert line == ("end", 12, "ab", "check[3].on_failure@2.0", 4, 99)


def test_what_was_written_between_two_positions_is_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    positions = []
    for text in (START, END, SECOND[0]):
        with journal.path.open("a") as file:
            file.write(f"{text}\n")
        positions.append(journal.position)

    assert journal.between(*positions[:2]) == [parsed(END)]


# -- starts


@pytest.mark.parametrize(
    ("acknowledged", "started", "said"),
    [
        ({0: 5}, {0: [5]}, []),
        ({}, {0: [5]}, ["start 0 was never answered"]),
        ({0: 5}, {}, ["start 0 was answered with run 5, and the store has []"]),
        ({0: 5}, {0: [5, 6]}, ["start 0 was answered with run 5, and the store has [5, 6]"]),
    ],
)
def test_a_start_that_was_lost_or_doubled_is_found(
    acknowledged: dict[int, int], started: dict[int, list[int]], said: list[str]
) -> None:
    assert list(check_starts(range(1), acknowledged, started)) == said


# -- work


def log(*facts: e.Fact) -> list[e.Entry]:
    return [e.Entry(number, T0, None, fact) for number, fact in enumerate(facts, 1)]


STARTED = e.AttemptStarted("fetch", 1, "h.1")
DONE = log(STARTED, e.AttemptSucceeded("fetch", 1, "7"))
START, END = "start 1 ab:fetch:1 7", "end 1 ab:fetch:1 7"
SECOND = ["start 1 ab:fetch:1 8", "end 1 ab:fetch:1 8"]


def found_in(lines: list[str], entries: list[e.Entry]) -> list[str]:
    return list(check_work(map(parsed, lines), {1: entries}, Totals()))


def test_work_that_was_done_once_and_taken_once_is_fine() -> None:
    assert found_in([START, END], DONE) == []


def test_a_lost_attempt_that_ran_before_the_next_one_is_fine() -> None:
    again = log(STARTED, e.AttemptStarted("fetch", 2, "h.2"), e.AttemptSucceeded("fetch", 2, "8"))

    assert found_in([START, END, *SECOND], again) == []


SECOND_ONE = timedelta(seconds=1)
LOST, INTERRUPTED = e.AttemptLost("fetch", 1, "h.1"), e.AttemptInterrupted("fetch", 1)


@pytest.mark.parametrize(
    ("fact", "at", "written", "is_found"),
    [
        pytest.param(LOST, T0, [], True, id="an attempt that was lost to it"),
        pytest.param(LOST, T0 - SECOND_ONE, [], False, id="one that was lost before"),
        pytest.param(LOST, T0 + 2 * SECOND_ONE, [], False, id="one that was lost later"),
        pytest.param(INTERRUPTED, T0, [], False, id="one that had to be killed"),
        pytest.param(INTERRUPTED, T0, [END], True, id="one that had ended, and goes again"),
        pytest.param(INTERRUPTED, T0, [START], False, id="one that began just before"),
        pytest.param(e.AttemptSucceeded("fetch", 1, "7"), T0, [END], False, id="one that had ended, and counts"),
    ],
)
def test_what_an_outage_has_cost_is_found(fact: e.Fact, at: datetime, written: list[str], is_found: bool) -> None:
    outage = Outage("kill -9", T0, T0 + SECOND_ONE, 0, 0)

    found = check_outages([(outage, list(map(parsed, written)))], {1: [e.Entry(1, at, None, fact)]})

    assert bool(list(found)) == is_found


def test_a_result_that_nobody_worked_for_is_found() -> None:
    assert found_in([START], DONE) == ["run 1: 'fetch' gave lease 7, and the journal has None for it"]


def test_a_result_of_another_place_is_found() -> None:
    other = [line.replace("fetch", "store") for line in (START, END)]

    assert [
        said.partition(", and")[0] for said in found_in(other, [*DONE, *log(e.AttemptStarted("store", 1, "h.1"))])
    ] == ["run 1: 'fetch' gave lease 7"]


def test_a_result_that_was_taken_twice_is_found() -> None:
    twice = [*DONE, *log(e.AttemptSucceeded("fetch", 2, "7"))]

    assert found_in([START, END], twice) == ["run 1: the result of lease 7 was taken twice"]


def test_a_lease_that_was_worked_off_twice_is_found() -> None:
    found = found_in([START, END, START, END], [*DONE, *log(e.AttemptStarted("fetch", 2, "h.2"))])

    assert [said.partition(": ")[0] for said in found] == ["lease 7 was begun twice"]


def test_attempts_that_overlap_are_found() -> None:
    again = log(STARTED, e.AttemptStarted("fetch", 2, "h.2"), e.AttemptSucceeded("fetch", 2, "8"))

    found = found_in([START, SECOND[0], END, SECOND[1]], again)

    assert [said.partition(": ")[0] for said in found] == ["two attempts overlapped"]


def test_a_command_that_ran_more_often_than_it_was_started_is_found() -> None:
    found = found_in([START, END, *SECOND], DONE)

    assert found == ["run 1: 'fetch' ran 2 times, and was started 1 times"]


# -- events from outside


def received(*sent: Sent) -> list[e.Fact]:
    return [e.EventReceived("paid", one._asdict(), "sender", one.key) for one in sent]


FOUR = received(*(Sent(sender, 7, number) for number in range(2) for sender in range(2)))
# In the log they are the events 2 to 5.
TAKEN: list[e.Fact] = [e.EventDelivered(f"s{number}", 1, number, "paid") for number in range(2, 6)]


def found_of_events(
    facts: list[e.Fact], accepted: list[Accepted] | None = None, *, has_completed: bool = True
) -> list[str]:
    entries = log(e.RunStarted(1, "ordered", inputs={"n": 7}), *facts)
    return list(check_events(accepted or [], {1: entries}, {1} if has_completed else set(), Totals()))


def test_events_that_are_taken_once_and_in_order_are_fine() -> None:
    reopened = e.RunReopened(2, "operator", "")
    accepted = [Accepted(Sent(0, 7, 0), 1)]

    assert found_of_events([*FOUR, *TAKEN], accepted) == []
    # In another round a step takes the same event again.
    assert found_of_events([*FOUR, *TAKEN, reopened, TAKEN[3]]) == []
    # Of a run that was cancelled some are left.
    assert found_of_events([*FOUR, *TAKEN[:2]], has_completed=False) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param([*FOUR[1:], *TAKEN], "was accepted, and is not there", id="lost"),
        pytest.param([*FOUR, FOUR[0], *TAKEN], "is there twice", id="doubled"),
        pytest.param([*FOUR[2:], *FOUR[:2], *TAKEN], "came after event 1 of its sender", id="out of order"),
        pytest.param([*FOUR, *received(Sent(0, 8, 0))], "is for another run", id="of another run"),
        pytest.param([*FOUR, *TAKEN, TAKEN[0]], "event 2 was taken twice, at last by 's2'", id="taken twice"),
        pytest.param([*FOUR, *TAKEN[:3]], "it has completed with", id="completed without one"),
        pytest.param([*FOUR, *TAKEN[:3], e.EventDelivered("s5", 2, 4, "paid")], "was taken twice", id="two share one"),
    ],
)
def test_an_event_that_is_lost_doubled_or_out_of_order_is_found(facts: list[e.Fact], said: str) -> None:
    found = found_of_events(facts, [Accepted(Sent(0, 7, 0), 1)])

    assert any(said in one for one in found), found


# -- runs


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(Home(tmp_path / "home"))
    yield service
    service.close()


def ran(service: Service, folder: Path, shell: str, *, is_driven: bool = True) -> int:
    text = f"name: chain\ninputs: {{n: {{type: integer}}}}\nsteps: [{{step: fetch, shell: '{shell}'}}]"
    prepared = prepare(load_text(text), {"n": 0}, folder)
    if not is_driven:
        return service.changes.create(prepared)[0]
    with service.driving.driver(Capacity(1.0, 1 << 30)) as driver:
        (run_id,) = service.changes.create(prepared, driver)
        driver.drive(run_id)
    return run_id


def test_a_run_that_fails_though_nothing_was_lost_is_found(service: Service, tmp_path: Path) -> None:
    run_id = ran(service, tmp_path, "echo oh >&2; exit 3")

    found, _ = check_run(service, service.runs.record(run_id), Totals())

    assert found == [f"run {run_id} (chain): step 'fetch' failed with EXIT_NONZERO: oh"]


def test_a_run_that_has_not_ended_is_found(service: Service, tmp_path: Path) -> None:
    run_id = ran(service, tmp_path, "true", is_driven=False)

    found, _ = check_run(service, service.runs.record(run_id), Totals())

    assert found == [f"run {run_id} (chain): it is still running"]


def test_a_run_that_was_asked_for_once_and_is_there_twice_is_found(service: Service, tmp_path: Path) -> None:
    first, second = (ran(service, tmp_path, "true") for _ in range(2))

    found = list(check_all(service, range(1), {0: first}, [], Totals()))

    assert found == [f"start 0 was answered with run {first}, and the store has [{first}, {second}]"]


def test_a_broken_promise_is_found(service: Service, tmp_path: Path) -> None:
    run_id = ran(service, tmp_path, "true")
    entries = list(service.reader.events(run_id))
    service = Forgetful(service, [entry for entry in entries if not isinstance(entry.fact, e.StepCompleted)])  # type: ignore[assignment]

    found, _ = check_run(service, service.runs.record(run_id), Totals())

    assert len(found) > 0
    assert found[0].startswith(f"run {run_id} (chain): ")


@dataclass
class Forgetful:
    """A service whose logs lack something."""

    service: Service
    entries: list[e.Entry]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)

    @property
    def reader(self) -> Forgetful:
        """A reader that lacks the same."""
        return Forgetful(self.service.reader, self.entries)  # type: ignore[arg-type]

    def events(self, run_id: int) -> Iterator[e.Entry]:
        return iter(self.entries)


# -- the store

RUN = RunRow(1, "completed", 1, 9, "", 1, None, "", 0)
TASK = TaskRow(1, "fetch", 1, 7, "w", "")


def held(**fields: Any) -> StoreContents:
    nothing: dict[str, Any] = {"runs": {1: RUN}, "tasks": [], "timers": {}, "messages": [], "answers": frozenset()}
    return StoreContents(**{**nothing, "breakers": [], "workers": {}, **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"tasks": [TASK]}, ["1 tasks are left: attempt 1 of 'fetch' in run 1"]),
        ({"timers": {(1, "delay", "fetch", 1): T0}}, ["1 timers are left: [(1, 'delay', 'fetch', 1)]"]),
        ({"breakers": [BreakerRow("shaky", "half_open", 7)]}, ["breakers are still probed: shaky"]),
        ({"messages": [MessageRow(3, 1, True)]}, ["promise 10: 1 messages to runs [1] were never read"]),
        ({"workers": {"w": T0}}, ["promise 7: w died, and were not expired"]),
    ],
)
def test_what_is_left_in_the_store_is_found(fields: dict[str, Any], said: list[str]) -> None:
    assert list(check_rest(held(**fields))) == said


def test_a_lease_without_a_holder_is_found_while_all_goes_on(store_schema_url: str) -> None:
    PostgresStore(store_schema_url).close()
    checker = InvariantChecker(store_schema_url)
    before = checker.look()
    with psycopg.connect(store_schema_url) as connection:
        connection.execute("SET mulligan.schema = '1000'")
        connection.execute(
            "INSERT INTO runs (run_id, workflow, version, created_at, updated_at, parent_place, parent_attempt, "
            "root_run_id, holder, fence) VALUES (1, 'chain', 'v', 0, 0, '', 0, 1, '', 0)"
        )
        connection.execute(
            "INSERT INTO tasks (run_id, place, attempt, ticket, worker, cpus, memory, gpus, labels, host, task) "
            "VALUES (1, 'fetch', 1, 7, 'gone', 1, 0, 0, '[]', '', '')"
        )

    found = checker.look()

    assert before == []
    assert found == ["promise 7: attempt 1 of 'fetch' in run 1 is held by 'gone', which has expired"]


# -- workers


def test_a_worker_that_grows_is_found() -> None:
    steady = [Sample(60 * MIB, 12)] * 30

    assert growth_of(steady) == ""
    assert growth_of([*steady, Sample(120 * MIB, 12)]) == "its memory went from 60 to 120 MiB"
    assert growth_of([*steady, Sample(60 * MIB, 99)]) == "its open files went from 12 to 99"


# -- watchers, schedules and notices


def test_a_watcher_that_believes_something_else_is_found(tmp_path: Path) -> None:
    paper = tmp_path / "watchers.json"
    paper.write_text(json.dumps({"watchers": [{"1": "completed", "2": "failed"}, {"1": "running"}]}))

    assert wrong_watchers(paper, {"1": "completed"}) == [
        "watcher 1 believes that run 1 is running, and it is completed"
    ]
    assert wrong_watchers(paper, {"2": "failed"}) == ["watcher 1 believes that run 2 is None, and it is failed"]
    assert wrong_watchers(tmp_path / "nothing", {"1": "failed"}) == [
        "watcher 0 believes that run 1 is None, and it is failed"
    ]


def test_a_page_that_is_behind_is_found(tmp_path: Path) -> None:
    paper = tmp_path / "browser.json"

    def wrong(rows: dict[str, str], state: str = "live", problems: tuple[str, ...] = ()) -> list[str]:
        pages = {"/runs": {"rows": rows, "state": state}}
        paper.write_text(json.dumps({"pages": pages, "problems": problems}))
        return wrong_pages(paper, {"7": "completed", "8": "failed"})

    assert wrong({"7": "nightly 7 degraded", "8": "nightly 8 failed"}) == []
    assert wrong({"8": "nightly 8 degraded"}) == [
        "the page of the runs shows 'nightly 8 degraded' for run 8, which is failed"
    ]
    assert wrong({"7": "completed"}, "lost", ("x is not a function",)) == [
        "a page: x is not a function",
        "page /runs is lost",
    ]
    assert wrong({"1": "completed"}) == ["the page of the runs shows none of the last ones, but ['1']"]
    assert wrong_pages(tmp_path / "nothing", {}) == ["no page was opened"]


class Announced:
    """A service with runs of a schedule, and an outbox."""

    def __init__(self, instants: dict[int, str], notices: tuple[NoticeRecord, ...] = (), skips: int = 0) -> None:
        self._instants = instants
        self.reader = self.store = self.server_records = self.schedules = self
        self.skips = ("skipped",) * skips
        self._notices = notices

    def log(self, run_id: int, limit: int = 0) -> list[e.Entry]:
        labels = {"schedule": "ticks", "schedule_instant": self._instants[run_id]}
        return [e.Entry(1, T0, 0, e.RunStarted(run_id, "ticks", labels=labels)), e.Entry(2, T0, 0, e.RunCompleted())]

    def notices(self, limit: int) -> tuple[NoticeRecord, ...]:
        return self._notices

    def show(self, name: str) -> Announced:
        return self


def test_an_instant_that_is_started_twice_or_never_is_found() -> None:
    first, second, fourth = (f"2026-01-01T00:00:0{number}Z" for number in (0, 3, 9))

    def found(*instants: str, skips: int = 0) -> list[str]:
        service: Any = Announced(dict(enumerate(instants)), skips=skips)
        return list(check_instants(service, list(range(len(instants)))))

    assert found(first, second) == []
    assert found(first, second, fourth, skips=1) == []
    assert found(first, second, second) == [f"instant {second} started 2 runs"]
    assert found(first, second, fourth) == ["of 4 instants until 2026-01-01 00:00:09+00:00 3 were started, 0 skipped"]
    assert found() == ["the schedule has started nothing"]


def test_a_notice_that_is_lost_is_found() -> None:
    sent = NoticeRecord("a", "ops", b"{}", T0, run_id=1, status="sent")
    late = NoticeRecord("b", "ops", b"{}", T0, run_id=1, status="waiting", reason="down")

    def found(notices: tuple[NoticeRecord, ...], received: Counter[str]) -> list[str]:
        service: Any = Announced({1: "2026-01-01T00:00:00Z"}, notices)
        target: Any = SimpleNamespace(received=received)
        return list(check_notices(service, [1], target))

    assert found((sent,), Counter(a=2)) == []
    assert found((sent,), Counter()) == ["notice a of run 1 counts as sent, and never arrived"]
    assert found((sent, late), Counter(a=1)) == ["notice b of run 1 is waiting: down"]
    assert found((sent,), Counter(a=1, c=1)) == ["1 messages arrived that the outbox does not have"]
    assert found((), Counter()) == ["run 1 ended, and nobody was told"]
