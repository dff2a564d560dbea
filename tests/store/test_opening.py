"""Opening: the right store by its name, fresh or migrated, private; what cannot be used is said in whole sentences."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import msgspec
import psycopg
import pytest
from tests.support.keeping import T0, PostgresSchema, SqliteFolder, commit, entries, started
from tests.support.nightly import POSTGRES

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model.failure import Failure
from mulligan.core.model.reports import RunRequested
from mulligan.core.state.state import FailureRecord
from mulligan.errors import StoreRefused, StoreUnavailable
from mulligan.store import open_store
from mulligan.store.encoding import encoded, micros
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.store.statements import migrations
from mulligan.testing.memory.memory_store import MemoryStore

pytestmark = pytest.mark.postgres

SRC = Path(__file__).parents[2] / "src"
# The columns of a message that is not about a task.
NO_TASK: dict[str, Any] = {"place": "", "attempt": 0}

# -- which -----------------------------------------------------------------------------------------------------------


def test_a_path_names_an_sqlite_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")

    assert isinstance(store, SqliteStore)
    assert not store.is_shared
    store.close()


def test_a_file_in_memory_is_one_for_all_who_open_it_and_no_file_at_all() -> None:
    one, other = (SqliteStore("/of one test", vfs="memdb") for _ in range(2))

    turn = started(one)

    assert other.run(turn.run_id).holder == "w"
    assert (other.has_changes(), other.has_changes()) == (True, False)
    assert not Path("/of one test").exists()
    one.close()
    other.close()


def test_a_store_in_memory_may_behave_as_one_that_hosts_share() -> None:
    assert MemoryStore(is_shared=True).is_shared
    assert not MemoryStore().is_shared


def test_a_url_names_a_postgresql_server(schema_url: str) -> None:
    store = open_store(schema_url)

    assert isinstance(store, PostgresStore)
    assert store.is_shared
    store.close()


def test_a_new_store_in_memory_is_empty() -> None:
    assert MemoryStore().runs() == []


def test_the_word_memory_names_no_store_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StoreRefused) as refused:
        open_store("memory:")

    assert refused.value.render() == (
        "error[store.refused]: 'memory:' is not a kind of store\n"
        "  in a test: from mulligan.testing.memory.memory_store import MemoryStore"
    )
    assert not list(tmp_path.iterdir())


def test_another_kind_of_url_is_refused() -> None:
    with pytest.raises(StoreRefused) as refused:
        open_store("mysql://somebody@somewhere/runs")

    assert refused.value.render() == (
        "error[store.refused]: 'mysql' is not a kind of store\n"
        "  use a 'postgresql://' URL, the 'https://' URL of a server, or the path of an SQLite file"
    )


def test_only_the_driver_of_the_store_that_is_opened_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from mulligan.store import open_store\n"
        "assert not {'apsw', 'psycopg'} & set(sys.modules)\n"
        f"open_store({str(tmp_path / 'runs.db')!r}).close()\n"
        "assert 'apsw' in sys.modules and 'psycopg' not in sys.modules\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)}, check=False)

    assert done.returncode == 0


# -- fresh -----------------------------------------------------------------------------------------------------------


def test_a_new_file_and_its_folder_are_private(tmp_path: Path) -> None:
    place = SqliteFolder(tmp_path)
    store = place.open()
    started(store)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place.path.parent, *place.path.parent.iterdir())}

    store.close()
    assert modes == {"home": 0o700, "runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)

    SqliteFolder(tmp_path).open().close()

    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755


def test_commits_are_on_the_disk_when_they_return(tmp_path: Path) -> None:
    place = SqliteFolder(tmp_path)
    place.open().close()

    settings = apsw.Connection(str(place.path)).pragma("journal_mode")

    assert settings == "wal"


def test_tables_are_made_in_the_first_schema_of_the_search_path(schema_url: str) -> None:
    PostgresSchema(schema_url).open().close()

    with psycopg.connect(schema_url) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
    assert rows == [(26,)]


# -- older and newer -------------------------------------------------------------------------------------------------


def test_migrations_are_numbered_without_gaps_and_the_same_for_both_databases() -> None:
    numbers = [migration.number for migration in migrations("sqlite")]

    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers == [migration.number for migration in migrations("postgres")]


class Versioned:
    """A place whose schema can be looked at and changed from below."""

    def __init__(self, place: SqliteFolder | PostgresSchema) -> None:
        self.place = place

    def set_version(self, version: int) -> None:
        if isinstance(self.place, SqliteFolder):
            with apsw.Connection(str(self.place.path)) as db:
                db.pragma("user_version", version)
        else:
            with psycopg.connect(self.place.url) as connection:
                connection.execute("UPDATE schema_version SET version = %s", [version])

    def make(self, version: int) -> None:
        """A store as an earlier release made it, without a run."""
        if isinstance(self.place, SqliteFolder):
            self.place.path.parent.mkdir()
            db = apsw.Connection(str(self.place.path))
            for migration in migrations("sqlite")[:version]:
                db.execute(migration.sql)
            db.pragma("user_version", version)
            db.pragma("application_id", 0x4D554C4C)
            db.close()
        else:
            with psycopg.connect(self.place.url) as connection:
                for migration in migrations("postgres")[:version]:
                    connection.execute(migration.sql.encode())
                connection.execute("CREATE TABLE schema_version (version bigint NOT NULL)")
                connection.execute("INSERT INTO schema_version VALUES (%s)", [version])

    def insert(self, table: str, **values: object) -> None:
        """A row as an earlier release wrote it."""
        names, rows = ", ".join(values), tuple(values.values())
        if isinstance(self.place, SqliteFolder):
            with apsw.Connection(str(self.place.path)) as db:
                db.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", rows)
        else:
            with psycopg.connect(self.place.url) as connection:
                connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(values))})", rows)

    def insert_event(self, run_id: int, entry: bytes) -> None:
        if isinstance(self.place, SqliteFolder):
            self.insert("events", id=(run_id << 32) + 1, entry=entry)
        else:
            self.insert("events", run_id=run_id, seq=1, entry=entry)

    @property
    def name(self) -> str:
        if isinstance(self.place, SqliteFolder):
            return f"'{self.place.path}'"
        given = psycopg.conninfo.conninfo_to_dict(self.place.url)
        return f"the PostgreSQL database '{given['dbname']}' on '{given['host']}'"


@pytest.fixture(params=["sqlite", POSTGRES])
def versioned(request: pytest.FixtureRequest, tmp_path: Path) -> Versioned:
    if request.param == "sqlite":
        return Versioned(SqliteFolder(tmp_path))
    return Versioned(PostgresSchema(request.getfixturevalue("schema_url")))


def test_a_store_of_the_first_release_is_migrated_and_used(versioned: Versioned) -> None:
    versioned.make(1)

    store = versioned.place.open()

    turn = started(store)
    store.commit([commit(turn)])
    assert store.log(turn.run_id) == entries(0, 1)
    store.close()


def test_runs_from_before_the_search_are_found_by_their_starter_their_words_and_their_failures(
    versioned: Versioned,
) -> None:
    """A log or a row that cannot be read costs its own run alone. Times that are out of order are found too."""
    versioned.make(6)
    for run_id, status in ((1, "failed"), (2, "completed"), (3, "failed"), (4, "running")):
        at = micros(T0 - timedelta(days=run_id))
        versioned.insert(
            "runs",
            **{"run_id": run_id, "workflow": "nightly", "version": "v1", "status": status, "round": 1, "seq": 1},
            **{"created_at": at, "updated_at": at, "degraded": False, "reason": "", "parent_place": ""},
            **{"parent_attempt": 0, "root_run_id": run_id, "holder": "", "fence": 0},
        )
    versioned.insert("attributes", run_id=1, kind="input", name="region", value="East")
    versioned.insert_event(1, b'{"v":1,"seq":1,"fact":{"type":"RunStarted","by":"ann","labels":{}}}')
    versioned.insert_event(2, b"\xff no JSON")
    versioned.insert("messages", run_id=4, report=encoded(RunRequested(T0, 4, by="eve")), is_asking=False, **NO_TASK)
    failure = FailureRecord(0, "fetch", 1, Failure("TIMEOUT", "the mirror is slow"), 1, T0)
    versioned.insert("rows", run_id=1, kind="failures", key="0", tag="", data=msgspec.msgpack.encode(failure))
    versioned.insert("rows", run_id=3, kind="failures", key="0", tag="", data=b"\xc1")

    store = versioned.place.open()

    def found(**wanted: Any) -> list[int]:
        return [record.run_id for record in store.lists.find(RunFilter(**wanted), limit=9)]

    assert found() == [4, 3, 2, 1]
    assert (found(starters=("ann",)), found(starters=("eve",)), found(starters=("",))) == ([1], [4], [3, 2])
    assert (found(failure_codes=("TIMEOUT",)), found(words=("mirr", "east"))) == ([1], [1])
    assert (found(words=("night",)), found(statuses=("failed",))) == ([4, 3, 2, 1], [3, 1])
    assert found(since=T0 - timedelta(days=3), until=T0 - timedelta(days=1)) == [3, 2]
    store.close()


def test_a_store_of_a_newer_release_is_refused_and_not_touched(versioned: Versioned) -> None:
    store = versioned.place.open()
    turn = started(store)
    store.close()
    versioned.set_version(99)

    with pytest.raises(StoreRefused) as refused:
        versioned.place.open()

    known = len(migrations("sqlite"))
    assert refused.value.render() == (
        f"error[store.overtaken]: {versioned.name} was written by a newer Mulligan "
        f"(schema 99, this one knows up to {known})\n"
        "  use the Mulligan that wrote it, or a newer one"
    )
    versioned.set_version(known)
    again = versioned.place.open()
    assert again.run(turn.run_id).run_id == turn.run_id
    again.close()


def test_a_file_that_a_newer_release_migrates_meanwhile_is_said_to_be_newer(tmp_path: Path) -> None:
    versioned = Versioned(SqliteFolder(tmp_path))
    store = versioned.place.open()
    with apsw.Connection(str(versioned.place.path)) as db:
        db.execute("ALTER TABLE runs RENAME TO other_runs")
    versioned.set_version(99)

    with pytest.raises(StoreRefused) as refused:
        store.run(1)

    assert refused.value.message.startswith(f"{versioned.name} was written by a newer Mulligan (schema 99, ")
    store.close()


OLDER_PROCESS = "a newer Mulligan has migrated it"


def test_a_process_that_does_not_say_which_schema_it_knows_commits_and_leases_nothing(versioned: Versioned) -> None:
    """0.1 does not say it. It ends for an error like these, and shows the words."""
    store = versioned.place.open()
    turn = started(store)

    if isinstance(versioned.place, SqliteFolder):
        with apsw.Connection(str(versioned.place.path)) as db:
            for statement in (
                *("UPDATE runs SET seq = 1, degraded = 0", "UPDATE tasks SET worker = 'w', ticket = 1"),
                *("INSERT INTO runs (run_id) VALUES (9)", "INSERT INTO workflow_versions (name) VALUES ('w')"),
                *("INSERT INTO documents (kind) VALUES ('k')", "UPDATE documents SET revision = 2"),
                *("INSERT INTO tokens (id) VALUES ('t')", "INSERT INTO audit (who) VALUES ('w')"),
                *("UPDATE notices SET claimed_until = 9", "SELECT * FROM schema_needed"),
            ):
                with pytest.raises(apsw.SQLError, match=OLDER_PROCESS):
                    db.execute(statement)
    else:
        with psycopg.connect(versioned.place.url, autocommit=True) as connection:
            for statement in (
                *("SELECT now_micros()", "SELECT expect('turn', 1, 1)", "INSERT INTO runs (run_id) VALUES (9)"),
                *("INSERT INTO workflow_versions (name) VALUES ('w')", "INSERT INTO documents (kind) VALUES ('k')"),
                *("UPDATE documents SET revision = 2", "INSERT INTO tokens (id) VALUES ('t')"),
                *("INSERT INTO audit (who) VALUES ('w')", "UPDATE notices SET claimed_until = 9"),
            ):
                with pytest.raises(psycopg.errors.UndefinedFunction, match=OLDER_PROCESS):
                    connection.execute(statement.encode())

    store.commit([commit(turn)])
    store.close()


def test_a_store_that_a_newer_release_migrates_meanwhile_refuses_this_process_in_words(schema_url: str) -> None:
    store = PostgresSchema(schema_url).open()
    turn = started(store)
    with psycopg.connect(schema_url) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 99::bigint'"
        )

    with pytest.raises(StoreRefused) as refused:
        store.commit([commit(turn)])

    assert "was migrated by a newer Mulligan while this process had it open" in refused.value.message
    assert refused.value.hint == "stop this process and start it with the newer version"
    store.close()


# -- trouble with a file ---------------------------------------------------------------------------------------------


OTHER_FILE = "  name a file that does not exist yet, or one that Mulligan has created"


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and not at all a database of any kind\n" * 50)

    with pytest.raises(StoreRefused) as refused:
        SqliteStore(path)

    assert refused.value.render() == f"error[store.refused]: '{path}' is not a database\n{OTHER_FILE}"
    assert path.read_text().startswith("these are my notes")


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with apsw.Connection(str(path)) as db:
        db.execute("CREATE TABLE runs (a)")
    before = path.read_bytes()

    with pytest.raises(StoreRefused) as refused:
        SqliteStore(path)

    assert refused.value.render() == f"error[store.refused]: '{path}' is a database of another program\n{OTHER_FILE}"
    assert path.read_bytes() == before


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused) as refused:
        SqliteStore(tmp_path)

    assert refused.value.render() == (
        f"error[store.refused]: '{tmp_path}' cannot be opened: unable to open database file\n"
        "  name a folder that you can write to, with --home or $MULLIGAN_HOME"
    )


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(StoreRefused) as refused:
        SqliteStore(tmp_path / "home" / "runs.db")

    assert refused.value.render() == (
        f"error[store.refused]: '{tmp_path / 'home' / 'runs.db'}' cannot be opened: not a directory\n"
        "  name a folder that you can write to, with --home or $MULLIGAN_HOME"
    )


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    turn = started(store)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))

    with pytest.raises(StoreRefused) as refused:
        SqliteStore(path).run(turn.run_id)

    assert refused.value.render() == (
        f"error[store.refused]: '{path}' is damaged: database disk image is malformed\n"
        "  restore it from a copy, or use another --home"
    )


UNPRIVILEGED = """
import os, sys
from mulligan.errors import MulliganError
from mulligan.store import open_store
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    store = open_store(sys.argv[1])
    print(f"{len(store.runs())} runs")
    store.skip_run_ids(7)
except MulliganError as error:
    print(error.render())
"""


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that another user can reach: those of the tests are private to whoever runs them."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def said_to_somebody_without_rights(path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_folder_that_may_not_be_written_is_refused(open_to_all: Path) -> None:
    home = open_to_all / "home"
    home.mkdir(mode=0o555)

    said = said_to_somebody_without_rights(home / "runs.db")

    assert said == (
        f"error[store.refused]: '{home / 'runs.db'}' cannot be opened: permission denied\n"
        "  name a folder that you can write to, with --home or $MULLIGAN_HOME\n"
    )


def test_a_file_that_may_not_be_written_is_read_and_changes_are_refused(open_to_all: Path) -> None:
    path = open_to_all / "runs.db"
    open_store(path).close()
    path.chmod(0o444)
    open_to_all.chmod(0o777 if os.geteuid() == 0 else 0o555)

    said = said_to_somebody_without_rights(path)

    open_to_all.chmod(0o755)
    assert said == (
        "0 runs\n"
        f"error[home.read_only]: the home '{path.parent}' is read-only\n"
        "  its runs can be listed, shown and explained; "
        "to change something, copy it to a folder that you can write to\n"
    )


def test_a_locked_file_is_waited_for_and_then_said_to_be_locked(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path, busy_seconds=0.1)
    turn = started(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable) as unavailable:
        store.commit([commit(turn)])

    assert unavailable.value.render() == (
        f"error[store.unavailable]: '{path}' has been locked by another process for more than 0.1s\n"
        f"  wait and try again, or find the process: fuser '{path}'"
    )
    other.execute("ROLLBACK")
    store.commit([commit(turn)])
    assert len(store.log(turn.run_id)) == 1
    store.close()
    other.close()


# -- trouble with a server -------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_said_not_to_answer_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as unavailable:
        open_store("postgresql://somebody:secret@localhost:1/runs")

    said = unavailable.value.render()
    where = "the PostgreSQL database 'runs' on 'localhost'"
    assert said.startswith(f"error[store.unavailable]: {where} does not answer: connection to server at ")
    assert said.endswith("\n  check that the server runs and try again")
    assert "secret" not in said


def test_a_private_server_that_is_not_there_is_said_to_be_started_again() -> None:
    with pytest.raises(StoreUnavailable) as unavailable:
        open_store("postgresql://mulligan@localhost:1/mulligan?passfile=/srv/our%20data/password")

    assert unavailable.value.hint == "start it again on its host: mulligan postgres start --data '/srv/our data'"


def test_a_url_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(StoreRefused) as refused:
        open_store("postgresql://somebody@somewhere/runs?colour=green")

    assert refused.value.render() == (
        "error[store.refused]: the URL of the PostgreSQL database cannot be read: "
        "it has a parameter after the '?' that PostgreSQL does not know, or a wrong value for one\n"
        "  write it like 'postgresql://user:password@host:5432/database'"
    )


def test_a_schema_that_is_not_there_is_refused(server_url: str) -> None:
    separator = "&" if "?" in server_url else "?"

    with pytest.raises(StoreRefused) as refused:
        open_store(f"{server_url}{separator}options=-csearch_path%3Dnowhere_at_all")

    where = Versioned(PostgresSchema(server_url)).name
    assert refused.value.render() == (
        f"error[store.refused]: the schema of {where} does not exist\n  create it: CREATE SCHEMA …"
    )


def test_a_schema_with_tables_of_another_program_is_refused_and_left_alone(schema_url: str) -> None:
    with psycopg.connect(schema_url) as connection:
        connection.execute("CREATE TABLE runs (a bigint)")

    with pytest.raises(StoreRefused) as refused:
        open_store(schema_url)

    where = Versioned(PostgresSchema(schema_url)).name
    assert refused.value.render() == (
        f'error[store.refused]: {where} holds tables of another program: relation "runs" already exists\n'
        "  give Mulligan its own schema: …?options=-csearch_path%3Dmulligan"
    )
    with psycopg.connect(schema_url) as connection:
        rows = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
    assert rows == [("runs",)]
