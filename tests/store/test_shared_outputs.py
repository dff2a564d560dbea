"""A large output is written once for each turn, and every reader sees it everywhere."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from msgspec.structs import replace
from tests.support.keeping import SqliteFolder, commit, started

from mulligan.core.effects.snapshot import Row, changes, restore
from mulligan.core.model import codec
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Map, Workflow
from mulligan.core.turn import turn
from mulligan.errors import CodecError
from mulligan.ports import Commit, Store, Turn
from mulligan.testing.history import T0, History, command, expression, step, workflow

pytestmark = pytest.mark.postgres

# Written as JSON and as MessagePack, it comes back from JSON.
LARGE: Any = {
    "text": 'é\u2028"\\\n' * 200,
    "rows": [1.0, 2, None, True, -0.0, 1e300, 2**63] * 50,
    "deep": {"output_of": 7, "": []},
}
TWO_STEPS = workflow(step("build"), step("check", needs=["build"]))


def written(turn: Turn, entries: list[e.Entry], rows: list[Row]) -> Commit:
    return replace(commit(turn, entries[0].seq - 1, rows=rows), entries=entries)


class Kept(History):
    """A history of which a store has each turn, and what each turn has given it."""

    def __init__(self, store: Store, definition: Workflow, answers: Any = None) -> None:
        super().__init__(definition, answers)
        self.store, self.turn = store, started(store)
        self.rows: dict[tuple[str, str], Row] = {}

    def report(self, report: r.Report) -> Kept:
        entries = turn(self.state, report, self.evaluator)
        rows = changes(self.state)
        self.state.rollback()
        self.store.commit([written(self.turn, entries, rows)])
        self.rows.update((row[:2], row) for row in rows)
        super().report(report)
        return self

    @property
    def run_id(self) -> int:
        return self.turn.run_id


def data_of(rows: Any) -> dict[str, bytes]:
    return {row[-2]: row[-1] for row in rows}


def test_every_reader_gets_it_everywhere(store: Store) -> None:
    run = Kept(store, TWO_STEPS).start().ok("build", output=LARGE).ok("check", output="small")
    place = run.rows["places", "build"]

    log = store.log(run.run_id)
    found = store.search_log(run.run_id, ('"step":"build"',))

    assert codec.encode_log(log) == codec.encode_log(run.log)
    assert [entry for entry in run.log if getattr(entry.fact, "step", "") == "build"] == found
    assert sorted(row[:4] for row in store.load(run.run_id).rows) == sorted(run.rows.values())
    assert [sorted(loaded.rows) for loaded in store.load_all([run.run_id])] == [sorted(run.rows.values())]
    assert store.lists.places([(run.run_id, "build")]) == [(run.run_id, "build", place[3])]
    assert data_of(store.lists.rows([run.run_id], "places", 9))["build"] == place[3]
    assert store.recent_rows("nightly", "places", "build", 9) == [(run.run_id, place[3])]


def test_it_is_found_by_the_tag_of_its_place(store: Store) -> None:
    run = Kept(store, TWO_STEPS).start().report(r.TaskEnded(T0, "build", 1, output=LARGE, fingerprint="f"))

    assert store.tagged_rows("f", 9) == [(run.run_id, "running", "build", run.rows["places", "build"][3])]


def test_a_log_may_be_read_from_any_event(store: Store) -> None:
    run = Kept(store, TWO_STEPS).start().ok("build", output=LARGE).ok("check", output=LARGE)

    for after in range(len(run.log)):
        assert store.log(run.run_id, after) == run.log[after:]
        assert store.log(run.run_id, after, 1) == run.log[after : after + 1]


def test_items_and_what_a_later_turn_writes_again_are_whole(store: Store) -> None:
    items = workflow(step("m", map=Map(over=expression("list")), do=(command("c"), command("d"))))
    run = Kept(store, items, {"list": [1, 2]}).start()

    for key in ("m[0].0", "m[0].1", "m[1].0", "m[1].1"):
        run.ok(key if key in run.state.places else key.removesuffix(".0"), output=[key, LARGE])

    assert run.status == "completed"
    assert store.log(run.run_id) == run.log
    loaded = {row[:2]: row for row in store.load(run.run_id).rows}
    assert {key: row for key, row in run.rows.items() if row[3] is not None} == loaded


def test_outputs_that_are_the_same_are_not_mixed_up(store: Store) -> None:
    both = workflow(step("build"), step("check"))
    run = Kept(store, both).start()
    ends = [r.TaskEnded(run.clock, place, 1, output=LARGE) for place in ("build", "check")]

    entries = [entry for end in ends for entry in turn(run.state, end, run.evaluator)]
    rows = changes(run.state)
    store.commit([written(run.turn, entries, rows)])

    assert store.log(run.run_id, entries[0].seq - 1) == entries
    assert {row for row in rows if row[0] == "places"} <= set(store.load(run.run_id).rows)


# -- what is in the file ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Any) -> SqliteFolder:
    return SqliteFolder(tmp_path)


def stored(file: SqliteFolder, statement: str) -> list[Any]:
    return apsw.Connection(str(file.path)).execute(statement).fetchall()


def test_it_is_in_the_file_once(file: SqliteFolder) -> None:
    Kept(file.open(), TWO_STEPS).start().ok("build", output=LARGE)

    ((events,),) = stored(file, "SELECT sum(length(entry)) FROM events")
    ((rows,),) = stored(file, "SELECT sum(length(data)) FROM rows")

    once = len(codec.encode_log([e.Entry(1, T0, 0, e.AttemptSucceeded("build", 1, LARGE))]))
    assert once < events < once + 1_000
    assert rows < 1_000


def test_a_small_one_is_written_as_it_always_was(file: SqliteFolder) -> None:
    run = Kept(file.open(), TWO_STEPS).start().ok("build", output="small").ok("check", output=[1])

    assert [line for (line,) in stored(file, "SELECT entry FROM events ORDER BY id")] == codec.encode_all(run.log)
    assert sorted(stored(file, "SELECT kind, key, tag, data FROM rows")) == sorted(
        row for row in run.rows.values() if row[0] != "run"
    )


def test_without_the_event_that_has_it_the_run_cannot_be_read(file: SqliteFolder) -> None:
    store = file.open()
    run = Kept(store, TWO_STEPS).start().ok("build", output=LARGE)
    owner = next(entry.seq for entry in run.log if isinstance(entry.fact, e.AttemptSucceeded))
    apsw.Connection(str(file.path)).execute("DELETE FROM events WHERE id & 4294967295 = ?", (owner,))

    with pytest.raises(CodecError) as refused:
        store.log(run.run_id)

    assert refused.value.message == (f"an event cannot be read: event {owner}, which has its output, is not in the log")


@pytest.mark.parametrize(
    "damage", ["DELETE FROM events", "UPDATE events SET entry = x'7b'", "UPDATE rows SET data = substr(data, 1, 9)"]
)
def test_the_state_of_such_a_run_is_damaged(file: SqliteFolder, damage: str) -> None:
    store = file.open()
    run = Kept(store, TWO_STEPS).start().ok("build", output=LARGE)
    apsw.Connection(str(file.path)).execute(damage)

    loaded = store.load(run.run_id)

    with pytest.raises(CodecError):
        restore(TWO_STEPS, loaded.rows)
