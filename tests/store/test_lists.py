"""Lists: runs by what they are, what they can be found by, and the work that is open in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace
from tests.support.keeping import (
    T0,
    Place,
    PostgresSchema,
    SqliteFolder,
    commit,
    new_run,
    offer,
    queue,
    started,
    take,
    task,
    worker,
)

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.effects import SetTimer
from mulligan.core.effects.run_lists import (
    Attribute,
    LeasedTask,
    OpenTasks,
    OpenTimer,
    RunFailures,
    RunFilter,
    attributes,
    run_failures,
)
from mulligan.core.model.events import Entry, RunRevised
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Breaker
from mulligan.core.state.state import FailureRecord
from mulligan.ports import NewRun, Store
from mulligan.store.columns import leased_task_from
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.store.sqlite.sqlite_file import SQL
from mulligan.store.statements import Dialect, migrations

pytestmark = pytest.mark.postgres

HOUR = timedelta(hours=1)


def run_of(name: str = "nightly", *, labels: dict[str, str] | None = None, **inputs: Any) -> NewRun:
    new = new_run(name)
    return replace(new, request=replace(new.request, inputs=inputs, labels=labels or {}))


def made(store: Store, *runs: NewRun) -> list[int]:
    return [turn.run_id for turn in store.create(runs)]


def found(store: Store, limit: int = 50, before: int | None = None, **wanted: Any) -> list[int]:
    return [record.run_id for record in store.lists.find(RunFilter(**wanted), limit=limit, before=before)]


# -- finding runs ----------------------------------------------------------------------------------------------------


def test_runs_are_found_newest_first_a_page_at_a_time(store: Store) -> None:
    first, second, third = made(store, run_of(), run_of(), run_of())

    assert found(store) == [third, second, first]
    assert found(store, limit=2) == [third, second]
    assert found(store, before=second) == [first]
    assert [record.run_id for record in store.lists.records([first, third, third + 1])] == [third, first]
    assert store.lists.records([]) == []


def test_runs_are_found_by_workflow_and_by_status(store: Store) -> None:
    turn = started(store, name="nightly")
    store.commit([commit(turn, 0, status="failed", is_last=True)])
    (other,) = made(store, run_of("weekly"))

    assert found(store, workflows=("weekly", "monthly")) == [other]
    assert found(store, statuses=("failed", "cancelled")) == [turn.run_id]
    assert found(store, statuses=("failed",), workflows=("weekly",)) == []


def test_runs_are_found_by_the_time_they_were_created(store: Store) -> None:
    early, late = new_run(), new_run()
    late = replace(late, request=replace(late.request, at=T0 + HOUR))
    first, second = made(store, early, late)

    assert found(store, since=T0 + HOUR) == [second]
    assert found(store, until=T0 + HOUR) == [first]
    assert found(store, since=T0, until=T0 + 2 * HOUR) == [second, first]


def test_runs_are_found_by_inputs_and_labels_all_of_which_must_match(store: Store) -> None:
    east, west, other = made(
        store,
        run_of(region="east", n=3, labels={"team": "data"}),
        run_of(region="west", n=3, labels={"team": "data"}),
        run_of(region="east", n=4),
    )

    assert found(store, attributes=(("input", "region", "east"),)) == [other, east]
    assert found(store, attributes=(("input", "n", "3"), ("label", "team", "data"))) == [west, east]
    assert found(store, attributes=(("input", "team", "data"),)) == []
    assert found(store, attributes=(("input", "n", "3"), ("input", "region", "north"))) == []


def test_called_runs_are_found_where_they_are_wanted_with_the_attributes_of_their_root(store: Store) -> None:
    turn = started(store)
    (done,) = store.commit([commit(turn, 0, children=[run_of("child", region="east")])])
    child = done.children[0].run_id

    assert found(store) == [turn.run_id]
    assert found(store, with_children=True) == [child, turn.run_id]
    assert found(store, with_children=True, attributes=(("input", "a", "1"),)) == [child, turn.run_id]
    assert store.lists.attributes([child]) == []


def failed(store: Store, *codes: str, words: str = "", **fields: Any) -> int:
    """A run that has failed with these codes."""
    turn = started(store, **fields)
    failures = RunFailures(codes, words)
    store.commit([commit(turn, 0, status="failed", failures=failures, is_last=True)])
    return turn.run_id


def test_runs_are_found_by_who_started_them(store: Store) -> None:
    mine, theirs = new_run(), new_run()
    theirs = replace(theirs, request=replace(theirs.request, by="Zoë"))
    first, second, third = made(store, mine, theirs, mine)

    assert found(store, starters=("somebody",)) == [third, first]
    assert found(store, starters=("Zoë", "nobody")) == [second]
    assert found(store, starters=("some",)) == []
    assert (store.run(second).started_by, store.runs()[1].started_by) == ("Zoë", "Zoë")


def test_runs_are_found_by_the_codes_of_the_failures_that_nothing_handled(store: Store) -> None:
    first, second = failed(store, "TIMEOUT"), failed(store, "EXIT_NONZERO", "TIMEOUT")

    assert found(store, failure_codes=("TIMEOUT",)) == [second, first]
    assert found(store, failure_codes=("EXIT_NONZERO", "HTTP_5XX")) == [second]
    assert found(store, failure_codes=("TIMEOUT",), workflows=("weekly",)) == []
    assert store.lists.attributes([first]) == [(first, ("input", "a", "1"))]


def test_a_run_that_completes_in_a_later_round_is_not_found_by_its_failure_any_more(store: Store) -> None:
    run_id = failed(store, "TIMEOUT", words="disk full")
    (turn,) = store.take_turns([run_id], "w")

    store.commit([commit(turn, 1, status="completed", round=2, failures=RunFailures(), is_last=True)])

    assert (found(store, failure_codes=("TIMEOUT",)), found(store, words=("disk",))) == ([], [])


def test_runs_are_found_by_the_beginnings_of_their_words(store: Store) -> None:
    first, second = made(store, run_of("nightly-load", labels={"team": "Data Größe"}, region="east_1"), run_of("other"))
    third = failed(store, "TIMEOUT", words="fetch full route timeout")

    assert found(store, words=("night",)) == [third, first]
    assert found(store, words=("data", "grösse")) == [first]
    assert found(store, words=("data", "other")) == []
    assert found(store, words=("1", "east")) == [third, first][1:]
    assert found(store, words=("route",)) == [third]
    assert found(store, words=("somebody",)) == [third, second, first]
    assert found(store, words=("somebody",), before=third, limit=1) == [second]
    assert found(store, words=("ight",)) == []
    assert found(store, words=("night",), statuses=("failed",), workflows=("nightly",)) == [third]
    store.remove([third])
    assert found(store, words=("route",)) == []


def test_words_of_old_runs_are_found_where_the_newest_runs_have_too_few(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for database in ("postgres", "sqlite"):
        monkeypatch.setattr(f"mulligan.store.{database}.{database}_lists.NEAR_RUNS", 1)
    oldest = failed(store, "TIMEOUT", words="route")
    newest = [failed(store, "TIMEOUT", words="route") for _ in range(3)]

    assert found(store, words=("route",), limit=1) == newest[:-2:-1]
    assert found(store, words=("route",), limit=9) == [*newest[::-1], oldest]


def test_called_runs_are_found_by_the_words_of_their_root_and_by_their_own_failures(store: Store) -> None:
    turn = started(store)
    (done,) = store.commit([commit(turn, 0, children=[run_of("child", region="east")])])
    child = done.children[0]
    store.commit([commit(child, 0, status="failed", failures=RunFailures(("TIMEOUT",), "slow"), is_last=True)])

    assert found(store, words=("nightly",), with_children=True) == [child.run_id, turn.run_id]
    assert found(store, words=("east",), with_children=True) == []
    assert found(store, failure_codes=("TIMEOUT",), with_children=True) == [child.run_id]
    assert found(store, failure_codes=("TIMEOUT",)) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"with_children": True},
        {"statuses": ("failed", "running")},
        {"statuses": ("failed",), "starters": ("somebody",), "workflows": ("nightly",), "words": ("night",)},
        {"since": T0, "until": T0 + HOUR},
        {"failure_codes": ("TIMEOUT",), "since": T0},
    ],
)
def test_pages_follow_each_other_without_a_gap_whatever_is_asked_for(store: Store, wanted: dict[str, Any]) -> None:
    wanted_ids = [failed(store, "TIMEOUT") for _ in range(5)][::-1]

    pages, before = [], None
    while page := found(store, limit=2, before=before, **wanted):
        pages.append(page)
        before = page[-1]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [run_id for page in pages for run_id in page] == wanted_ids
    assert store.lists.count(RunFilter(**wanted), limit=10) == 5
    assert store.lists.count(RunFilter(**wanted), limit=3) == 3


def test_runs_whose_clocks_went_back_are_found_by_their_times(store: Store) -> None:
    times = [T0 + 5 * HOUR, T0 - 20 * HOUR, T0 + 6 * HOUR, T0, T0 + 7 * HOUR]
    runs = [replace(new_run(), request=replace(new_run().request, at=at)) for at in times]
    run_ids = [run_id for run in runs for run_id in made(store, run)]

    def created(since: Any, until: Any) -> list[int]:
        return [run_id for run_id, at in zip(run_ids, times, strict=True) if since <= at < until][::-1]

    for since in sorted(times):
        for until in sorted(times):
            assert found(store, since=since, until=until) == created(since, until)


def test_the_runs_with_each_status_are_counted_without_those_that_were_called(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, 0, children=[run_of("child")])])
    failed(store, "TIMEOUT")

    assert store.lists.status_counts() == {"running": 1, "failed": 1}


def test_runs_of_a_time_are_counted_by_workflow_and_outcome_without_those_that_were_called(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, 0, children=[run_of("child")])])
    failed(store, "TIMEOUT")
    failed(store, "TIMEOUT")
    late = replace(new_run(), request=replace(new_run().request, at=T0 + 9 * HOUR))
    made(store, late)

    found = store.lists.outcome_counts(T0 - HOUR, T0 + 9 * HOUR)

    assert [(one.status, one.count) for one in found] == [("failed", 2), ("running", 1)]
    assert [one.count for one in store.lists.outcome_counts(T0 + 9 * HOUR, T0 + 10 * HOUR)] == [1]


# -- attributes ------------------------------------------------------------------------------------------------------


def test_a_run_whose_file_was_corrected_is_found_by_the_inputs_that_it_has_then(store: Store) -> None:
    store.register(worker("w"))
    (turn,) = store.create([run_of(labels={"team": "data"}, region="east", n=3)], "w")
    revised = RunRevised("v2", {}, inputs={"region": "east", "day": "monday"})

    store.commit([replace(commit(turn), entries=[Entry(1, T0, 0, revised)])])

    assert store.lists.attributes([turn.run_id]) == [
        (turn.run_id, ("input", "day", "monday")),
        (turn.run_id, ("input", "region", "east")),
        (turn.run_id, ("label", "team", "data")),
    ]
    assert found(store, attributes=(("input", "day", "monday"),)) == [turn.run_id]
    assert (found(store, words=("mon", "data")), found(store, words=("3",))) == ([turn.run_id], [])


def test_labels_and_short_single_inputs_are_what_a_run_is_found_by(store: Store) -> None:
    inputs = {"text": "a b", "yes": True, "none": None, "half": 0.5, "list": [1], "long": "x" * 201, "nul": "a\0b"}
    (run_id,) = made(store, run_of(labels={"team": "data"}, **inputs))

    assert store.lists.attributes([run_id, run_id + 1]) == [
        (run_id, ("input", "half", "0.5")),
        (run_id, ("input", "none", "null")),
        (run_id, ("input", "text", "a b")),
        (run_id, ("input", "yes", "true")),
        (run_id, ("label", "team", "data")),
    ]


def test_the_attributes_of_a_run_are_removed_with_it(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, 0, status="completed", is_last=True)])
    assert store.lists.attributes([turn.run_id])

    store.remove([turn.run_id])

    assert store.lists.attributes([turn.run_id]) == []


def test_what_was_run_before_the_index_of_attributes_is_found_by_its_inputs(place: Place) -> None:
    """The migration reads the first event of each run. A log that cannot be read does not stop it."""
    if not isinstance(place, SqliteFolder | PostgresSchema):
        pytest.skip("a store in memory is never older than the program")
    store = place.open()
    runs = [started(store).run_id for _ in range(3)]
    store.close()
    first = b'{"seq":1,"fact":{"type":"RunStarted","inputs":{"region":"east","n":3,"ok":true,"no":null,"l":[1]}}}'
    _migrate_again(place, {runs[0]: first, runs[1]: b"\xff no JSON"})

    store = place.open()

    wanted: list[Attribute] = [
        ("input", "n", "3"),
        ("input", "no", "null"),
        ("input", "ok", "true"),
        ("input", "region", "east"),
    ]
    assert store.lists.attributes(runs) == [(runs[0], one) for one in wanted]
    store.close()


def test_an_input_that_a_damaged_log_has_twice_does_not_stop_the_migration(place: Place) -> None:
    if not isinstance(place, SqliteFolder | PostgresSchema):
        pytest.skip("a store in memory is never older than the program")
    store = place.open()
    damaged, sound = (started(store).run_id for _ in range(2))
    store.close()
    twice = b'{"seq":1,"fact":{"type":"RunStarted","inputs":{"n":1,"n":2}}}'

    _migrate_again(place, {damaged: twice, sound: twice.replace(b'"n":1,', b"")})

    store = place.open()
    assert store.lists.attributes([sound]) == [(sound, ("input", "n", "2"))]
    store.close()


def _migrate_again(place: SqliteFolder | PostgresSchema, first_events: dict[int, bytes]) -> None:
    """Bring the store back to what it was before the migration, with these first events, and migrate it."""
    undo = ("DROP TABLE attributes", "ALTER TABLE tasks DROP COLUMN leased_at")
    if isinstance(place, SqliteFolder):
        db = apsw.Connection(str(place.path))
        for sql in undo:
            db.execute(sql)
        for run_id, entry in first_events.items():
            db.execute("INSERT INTO events VALUES ((? << 32) + 1, ?)", (run_id, entry))
        db.execute(_migration("sqlite"))
        db.close()
        return
    with psycopg.connect(place.url) as connection:
        for sql in undo:
            connection.execute(sql)
        for run_id, entry in first_events.items():
            connection.execute("INSERT INTO events VALUES (%s, 1, %s)", (run_id, entry))
        connection.execute(_migration("postgres").encode())


def _migration(dialect: Dialect) -> str:
    return next(one.sql for one in migrations(dialect) if "CREATE TABLE attributes" in one.sql)


# -- open work -------------------------------------------------------------------------------------------------------


def test_rows_of_one_kind_are_read_for_many_runs_and_no_more_than_asked_for(store: Store) -> None:
    turns = [started(store) for _ in range(2)]
    for turn in turns:
        rows = [("failures", str(number), "", b"%d" % number) for number in range(3)]
        store.commit([commit(turn, 0, rows=[*rows, ("places", "build", "", b"p")])])
    first, second = (turn.run_id for turn in turns)

    assert sorted(store.lists.rows([first, second], "failures", 2)) == [
        (run_id, key, key.encode()) for run_id in (first, second) for key in ("0", "1")
    ]
    assert store.lists.rows([first], "inputs", 2) == []
    assert store.lists.places([(second, "build"), (first, "0")]) == [(second, "build", b"p")]


def test_open_tasks_are_counted_by_worker_and_breaker_with_the_oldest_named(store: Store) -> None:
    turn = started(store)
    run_id = turn.run_id
    guard = Guard("llm", Breaker(failures=1))
    take(store, turn, task(run_id, "runs", 2))
    queue(store, turn, task(run_id, "first"), task(run_id, "second"), task(run_id, "asks", guard=guard))
    other = started(store)
    queue(store, other, task(other.run_id))

    assert sorted(store.lists.open_tasks([run_id]), key=lambda one: (one.worker, one.breaker)) == [
        OpenTasks(run_id, run_id, "first", 1, "", "", 2),
        OpenTasks(run_id, run_id, "asks", 1, "", "llm", 1),
        OpenTasks(run_id, run_id, "runs", 2, "w", "", 1),
    ]


def test_timers_that_let_a_run_go_on_are_counted_by_kind_and_limits_are_not(store: Store) -> None:
    turn = started(store)
    run_id = turn.run_id
    timers = [SetTimer("retry", T0 + HOUR, "b", 2), SetTimer("retry", T0, "a", 2), SetTimer("run", T0 + 2 * HOUR)]
    timers += [SetTimer("attempt", T0, place, 1) for place in ("task", "call", "gate")]
    timers += [SetTimer("attempt", T0 + HOUR, "nap", 1)]
    store.commit(
        [
            commit(
                turn,
                0,
                timers=timers,
                queued=[task(run_id, "task")],
                children=[replace(run_of("child"), parent_place="call", parent_attempt=1)],
                rows=[("places", "gate", "approval", b"")],
            )
        ]
    )

    assert sorted(store.lists.open_timers([run_id]), key=lambda one: one.kind) == [
        OpenTimer(run_id, run_id, "attempt", "nap", T0 + HOUR, 1),
        OpenTimer(run_id, run_id, "retry", "a", T0, 2),
    ]


def test_open_work_of_called_runs_belongs_to_the_run_at_the_top(store: Store) -> None:
    turn = started(store)
    (done,) = store.commit([commit(turn, 0, children=[run_of("child")])])
    child = done.children[0]
    store.commit([commit(child, 0, queued=[task(child.run_id)], timers=[SetTimer("retry", T0, "build", 2)])])

    (tasks,), (timer,) = store.lists.open_tasks([turn.run_id]), store.lists.open_timers([turn.run_id])

    assert (tasks.root_run_id, tasks.run_id) == (turn.run_id, child.run_id)
    assert (timer.root_run_id, timer.run_id) == (turn.run_id, child.run_id)


def test_leased_tasks_are_listed_with_their_worker_their_needs_and_since_when(store: Store, place: Place) -> None:
    turn = started(store)
    run_id = turn.run_id
    store.register(worker("v"))
    take(store, turn, task(run_id, "own"))
    queue(store, turn, task(run_id, "queued", cpus=2.0, memory=2**30, gpus=1), task(run_id, "free"))
    before = place.now()
    store.lease("v", offer(tasks_max=1))

    asked, own = store.lists.leased_tasks()

    assert replace(own, leased_at=None) == LeasedTask("w", run_id, "nightly", "own", 1, 1.0, 0, 0)
    assert replace(asked, leased_at=None) == LeasedTask("v", run_id, "nightly", "queued", 1, 2.0, 2**30, 1)
    assert own.leased_at is not None
    assert asked.leased_at is not None
    assert before <= asked.leased_at <= place.now()


def test_a_task_that_was_leased_before_stores_recorded_the_time_has_none() -> None:
    row = ("w", 1, "nightly", "build", 2, 1.5, 2**30, 0, None)

    assert leased_task_from(row) == LeasedTask("w", 1, "nightly", "build", 2, 1.5, 2**30, 0)


def test_whoever_has_turns_is_listed_with_how_many_and_the_oldest_run(store: Store) -> None:
    first, _ = started(store), started(store)
    other = started(store, holder="v")
    made(store, run_of())

    assert store.lists.holders() == [("v", 1, other.run_id), ("w", 2, first.run_id)]


def test_a_filter_over_ten_thousand_runs_reads_only_the_runs_own_lines(tmp_path) -> None:
    """However rare what is looked for: neither logs nor the tables of a run's state are read."""
    store = SqliteStore(tmp_path / "runs.db")
    plan = apsw.Connection(str(tmp_path / "runs.db"))

    details = " ".join(row[3] for row in plan.execute(f"EXPLAIN QUERY PLAN {SQL['matching_runs']}", (None,) * 8))

    assert "SEARCH runs USING INTEGER PRIMARY KEY" in details
    assert "events" not in details
    store.close()


def test_an_input_that_no_text_can_hold_is_no_attribute() -> None:
    assert attributes({"a\0": 1, "b": {"c": 1}, "d": 1}, {}) == [("input", "d", "1")]


def test_words_are_found_before_and_after_they_are_moved_to_the_index(store: Store) -> None:
    """SQLite moves the words of many runs at once: pages, changes and removals reach them on both sides."""
    early = failed(store, "TIMEOUT", words="route")
    many = made(store, *[new_run()] * 600)
    late = failed(store, "TIMEOUT", words="route")
    everyone = [late, *many[::-1], early]

    pages, before = [], None
    while page := found(store, words=("somebody",), limit=100, before=before):
        pages += page
        before = page[-1]

    assert pages == everyone
    assert found(store, words=("some",), limit=700) == everyone
    assert found(store, words=("somebody",), workflows=("nightly",), statuses=("failed",)) == [late, early]
    assert found(store, words=("somebody", "route")) == [late, early]
    for run_id in (early, late):
        (turn,) = store.take_turns([run_id], "w")
        store.commit([commit(turn, 1, status="completed", round=2, failures=RunFailures((), "mended"), is_last=True)])
    assert (found(store, words=("route",)), found(store, words=("mended",))) == ([], [late, early])
    assert store.remove([early, late]) == [early, late]
    assert found(store, words=("mended",)) == []


def test_a_run_with_very_many_words_and_very_long_names_is_created_and_found(store: Store) -> None:
    """PostgreSQL has a limit for the words of a run, and one for an entry of an index."""
    name, starter = (f"{first} " + "".join(f"{number:x}" for number in range(3_000)) for first in ("load", "me"))
    inputs = {
        f"i{number}": " ".join(f"{word:039}" for word in range(number * 5, number * 5 + 5)) for number in range(6_000)
    }
    new = run_of(name, labels={"team": "data"}, **inputs)
    new = replace(new, request=replace(new.request, by=starter))
    code = "".join(f"{number:x}" for number in range(3_000))
    records = [FailureRecord(0, "load", 1, Failure(one, "slow"), 2, T0) for one in ("TIMEOUT", code, "NU\0L")]

    (run_id, other) = made(store, new, replace(new, name=name + "x"))
    store.register(worker("w"))
    (turn,) = store.take_turns([run_id], "w")
    store.commit([commit(turn, 0, status="failed", failures=run_failures(records), is_last=True)])

    assert found(store, workflows=(name,)) == [run_id]
    assert found(store, starters=(starter,)) == [other, run_id]
    assert found(store, words=("load", "data"), failure_codes=("TIMEOUT",)) == [run_id]
    assert found(store, words=("slow",)) == [run_id]
