"""Each column of each table of a store, with a value of a wrong type in it: every verb answers in words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from tests.support.commands import mulligan, workflow
from tests.support.nightly import IS_NIGHTLY

from mulligan.core.model.reports import PauseRequested
from mulligan.errors import CodecError
from mulligan.ports import (
    Answer,
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    ServerRecords,
    TargetPause,
    TokenRecord,
    WorkerRecord,
    WorkflowVersion,
)
from mulligan.store.encoding import encoded
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.store.sqlite.sqlite_file import admit

# A row of every kind: items, failures, handlers, routes, an undo, a child run, a timer, a queued task, a breaker.
RICH = """
name: rich
breakers: {net: {failures: 1, reset: 1h}}
steps:
  - {step: items, map: {over: [1, 2]}, do: [{shell: "test ${item} = 1", on_failure: "true"}]}
  - {step: flaky, shell: "exit 3", on_failure: "true", undo: "true"}
  - {step: calls, workflow: {file: child.yaml}}
  - {step: routed, shell: "exit 4", next: [{to: fix, on: failure}]}
  - {step: fix, shell: "true"}
  - {step: trips, shell: "exit 5", breaker: net, continue_on_error: true}
  - {step: guarded, needs: [{step: trips, on: always}], shell: "true", breaker: net}
  - {step: parked, shell: "exit 6", triage: {timeout: 1h}}
  - {step: asks, approve: {message: go on}, next: end}
"""
# Most columns refuse the first one. Of the others each has one by day.
VALUES = ("NULL", "'text'", "x'ff00'")
LIST, SHOW, PENDING, BREAKERS = ("list", "--all"), ("show", 1, "--json"), ("pending", "--json"), ("breakers",)
REPLAY, REPORT, GC = ("replay", 1, "--verify"), ("report", 1, "-o", "-"), ("gc", "--dry-run", "--keep", 0)
EXPLAIN, EVENTS, STATS, RETRY = ("explain", 1), ("events", 1), ("stats",), ("retry", 3, "--dry-run")
LOGS, ITEMS = ("logs", 1, "flaky"), ("items", 1, "items")
FIND, FIND_NEAR = ("list", "--text", "ri"), ("list", "--text", "nothing rich", "--status", "failed")
WORKERS, FOLLOW = ("workers",), ("logs", 2, "-f")
# The tables, each with the verbs that read it.
READERS: dict[str, tuple[tuple[object, ...], ...]] = {
    "counters": (LIST,),
    "workers": (LIST, SHOW, WORKERS),
    "workflows": (SHOW, EXPLAIN, STATS, REPORT),
    "runs": (LIST, SHOW, PENDING, REPLAY, GC, WORKERS),
    "attributes": (LIST,),
    "events": (EVENTS, EXPLAIN, SHOW, REPLAY, LOGS, REPORT, FOLLOW),
    "rows": (LIST, SHOW, PENDING, STATS, REPLAY, RETRY, ITEMS, REPORT),
    "messages": (LIST, SHOW, GC),
    "answers": (LIST,),
    "tasks": (LIST, SHOW, BREAKERS, WORKERS),
    "timers": (LIST, SHOW, PENDING),
    "breakers": (BREAKERS, SHOW),
    "starts": (LIST, GC),
    "new_words": (FIND, FIND_NEAR),
    "run_words": (FIND, FIND_NEAR),
    # The tables that the index of words is made of.
    "run_words_config": (FIND,),
    "run_words_content": (FIND, FIND_NEAR),
    "run_words_data": (FIND, FIND_NEAR),
    "run_words_idx": (FIND,),
}
LOG = LogKey(1, "build", 1, "stdout")
# What a server keeps, and what reads it.
SERVER_READERS: dict[str, Callable[[ServerRecords], object]] = {
    "workflow_versions": lambda records: (records.version("", "nightly"), records.newest_versions("")),
    "documents": lambda records: records.documents("draft"),
    "tokens": lambda records: (records.tokens(), records.token_of("digest")),
    "audit": lambda records: records.audit(),
    "notices": lambda records: records.notices(),
    "notice_targets": lambda records: records.waiting_targets(datetime(2026, 1, 2, tzinfo=UTC)),
    "log_chunks": lambda records: (records.read_log(LOG, 0, 9), records.log_size(LOG), records.logs_of(1)),
}
DATABASE = Path(".mulligan/mulligan.db")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs: one waits for people, one was called by it, one has failed."""
    folder = tmp_path_factory.mktemp("rich")
    before = Path.cwd()
    os.chdir(folder)
    try:
        workflow("name: child\nsteps: [{step: c, shell: 'true'}]\n", "child.yaml")
        assert mulligan("run", workflow(RICH)).code == 4
        assert mulligan("run", workflow("name: bad\nsteps: [{step: a, shell: exit 1}]\n", "bad.yaml")).code == 1
        _complete()
    finally:
        os.chdir(before)
    return folder


def _complete() -> None:
    """What a quiet store has no row of."""
    database = apsw.Connection(str(DATABASE))
    worker, asked = WorkerRecord("gone.1", "elsewhere", 1), PauseRequested(datetime(2026, 1, 1, tzinfo=UTC))
    database.execute("INSERT INTO workers VALUES ('gone.1', 'elsewhere', ?, 0)", (encoded(worker),))
    database.execute("INSERT INTO messages VALUES (900, 3, ?, 0, '', 0)", (encoded(asked),))
    database.execute("INSERT INTO attributes VALUES (1, 'label', 'team', 'data')")
    database.execute("INSERT INTO answers VALUES (899, ?)", (encoded(Answer()),))
    database.execute("INSERT INTO starts VALUES ('key', 3)")
    database.execute("INSERT INTO run_words (rowid, started, inputs, failed) SELECT * FROM new_words WHERE run_id = 1")
    database.execute("DELETE FROM new_words WHERE run_id = 1")
    database.pragma("journal_mode", "delete")
    database.close()


@pytest.fixture
def folder(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return good


def forgeries(folder: Path, table: str) -> Iterator[str]:
    """Writes a wrong value into each column in turn, and says which."""
    for number, column in enumerate(_columns(folder, table)):
        for value in VALUES if IS_NIGHTLY else (VALUES[0], VALUES[1 + number % 2]):
            shutil.copyfile(folder / DATABASE, DATABASE)
            database = apsw.Connection(str(DATABASE))
            admit(database)
            try:
                database.execute(f"UPDATE OR IGNORE {table} SET {column} = {value}")
                yield f"{table}.{column} = {value}"
            except (apsw.ConstraintError, apsw.MismatchError):
                # SQLite itself refuses this one.
                pass
            finally:
                database.close()


def _columns(folder: Path, table: str) -> list[str]:
    database = apsw.Connection(str(folder / DATABASE))
    found = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    database.close()
    return found


def test_every_table_has_a_row_to_forge_and_every_verb_works_before(folder: Path) -> None:
    database = apsw.Connection(str(DATABASE))
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    empty = [name for name in READERS if not database.execute(f"SELECT 1 FROM {name}").fetchall()]
    database.close()

    assert (tables - {"sqlite_sequence"} - set(SERVER_READERS), empty) == (set(READERS), [])
    assert [verb for verbs in READERS.values() for verb in verbs if mulligan(*verb).code != 0] == []


@pytest.mark.parametrize("table", READERS)
def test_a_column_of_a_wrong_type_is_told_in_words_by_every_verb_that_reads(folder: Path, table: str) -> None:
    wrong = []

    for forged in forgeries(folder, table):
        for verb in READERS[table]:
            told = mulligan(*verb)
            if told.code not in (0, 1, 2) or "internal" in told.err:
                wrong.append((forged, verb, told.err))

    assert wrong == []


@pytest.mark.parametrize("table", SERVER_READERS)
def test_a_column_of_a_wrong_type_in_what_a_server_keeps_is_told_in_words(tmp_path: Path, table: str) -> None:
    store, read = SqliteStore(tmp_path / "runs.db"), SERVER_READERS[table]
    _fill(store.server_records)
    database = apsw.Connection(str(tmp_path / "runs.db"))
    admit(database)
    assert read(store.server_records)

    for column in [row[1] for row in database.execute(f"PRAGMA table_info({table})")]:
        ((good,),) = database.execute(f"SELECT {column} FROM {table}").fetchall()
        for value in VALUES:
            with suppress(apsw.ConstraintError, apsw.MismatchError):
                database.execute(f"UPDATE {table} SET {column} = {value}")
            # Raises nothing else.
            with suppress(CodecError):
                read(store.server_records)
        database.execute(f"UPDATE {table} SET {column} = ?", (good,))

    assert read(store.server_records)
    store.close()
    database.close()


def _fill(records: ServerRecords) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    records.publish(WorkflowVersion("nightly", "digest", at, "ada", text="name: nightly"))
    records.put_document(Document("draft", "nightly", b"{}", at))
    records.add_token(TokenRecord("t1", "digest", "ada", ("read",), at))
    records.add_audit([AuditRecord(at, "ada", "POST", "/", 200)])
    records.put_notices([NoticeRecord("key", "ops", b"{}", at)])
    records.put_target_pause(TargetPause("ops", 1, at, at, "503"))
    records.append_log([LogChunk(LOG, 0, b"text")])


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET holder = 'nobody.1' WHERE run_id = 1",
        "UPDATE runs SET seq = 3 WHERE run_id = 1",
        "UPDATE runs SET state = NULL WHERE run_id = 1",
        "DELETE FROM rows WHERE run_id = 1",
        "DELETE FROM rows WHERE run_id = 1 AND kind = 'places' AND key = 'asks'",
        "DELETE FROM workflows",
        "UPDATE runs SET fence = x'00' WHERE run_id = 1",
        "UPDATE tasks SET task = 7",
        "UPDATE timers SET number = 'text', due = 0",
        "UPDATE messages SET run_id = 1, report = 'text'",
        "UPDATE breakers SET retry_at = NULL",
    ],
)
@pytest.mark.parametrize("verb", [("resume", 1, "--wait", "0s"), ("cancel", 1, "--now")], ids=["resume", "cancel"])
def test_a_run_that_cannot_be_driven_on_is_refused_and_not_waited_for(
    folder: Path, sql: str, verb: tuple[object, ...]
) -> None:
    database = apsw.Connection(str(DATABASE))
    database.execute(sql)
    database.close()

    told = mulligan(*verb)

    assert "internal" not in told.err
    assert told.code in (0, 1, 4)
