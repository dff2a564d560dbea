"""A private PostgreSQL: one server for a folder, that comes back after a crash and asks everybody for the password."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.support.commands import mulligan, steady

from mulligan.errors import InputInvalid, PostgresUnusable, StoreLibraryMissing
from mulligan.service.host.private_postgres import (
    PrivatePostgres,
    default_folder,
    postgres_status,
    start_postgres,
    stop_postgres,
)
from mulligan.store.postgres.postgres_programs import installed_programs

ROOT = Path(__file__).parent.parent.parent
SRC = ROOT / "src"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder for this module. Not one of pytest's, which the user who runs PostgreSQL for root could not enter."""
    folder = Path(tempfile.mkdtemp(prefix="mulligan-private-"))
    folder.chmod(0o755)
    yield folder
    stop_postgres(str(folder / "pg"), now=True)
    shutil.rmtree(folder)


# By day one test starts it.
@pytest.fixture
def running(place: Path) -> str:
    """The folder of the one server of these tests, running."""
    start_postgres(str(place / "pg"))
    return str(place / "pg")


def ask(url: str, question: str = "SELECT current_user") -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question).fetchone()
        return row and row[0]


def test_the_url_that_is_printed_opens_a_store_and_holds_no_password(running: str):
    found = postgres_status(running)

    password = Path(running, "password").read_text().strip().rpartition(":")[2]
    assert len(password) > 40
    assert found.is_running and password not in found.store_url
    assert ask(found.store_url) == "mulligan"
    assert found.port in range(15000, 32000)
    assert found.size_bytes > 20 << 20 and found.since is not None
    with psycopg.connect(found.store_url):
        # One that another test has closed may be there a moment longer.
        assert (postgres_status(running).connections or 0) >= 1


@pytest.mark.nightly
def test_a_wrong_password_and_other_roles_and_databases_are_refused(running: str):
    found = postgres_status(running)
    address = f"127.0.0.1:{found.port}"

    for refused in (
        f"postgresql://mulligan:wrong@{address}/mulligan",
        f"postgresql://postgres:x@{address}/postgres",
        f"postgresql://postgres:x@/postgres?host={running}&port={found.port}",
        f"postgresql://mulligan:wrong@/mulligan?host={running}&port={found.port}",
    ):
        with pytest.raises(psycopg.OperationalError, match=r"password authentication failed|no pg_hba\.conf entry"):
            ask(refused)


@pytest.mark.nightly
def test_only_the_owner_can_read_what_is_secret_and_no_process_shows_it(running: str):
    password = Path(running, "password").read_text().strip().rpartition(":")[2]
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]

    assert stat.S_IMODE(Path(running).stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(running, "password").stat().st_mode) == 0o600
    assert not any(password.encode() in line for line in lines)
    assert password not in Path(running, "log").read_text()


@pytest.mark.nightly
def test_the_role_of_the_store_is_no_superuser(running: str):
    assert ask(postgres_status(running).store_url, "SELECT rolsuper FROM pg_roles WHERE rolname = user") is False


@pytest.mark.nightly
def test_starts_at_the_same_time_start_one_server(place: Path):
    folder = str(place / "pg")
    stop_postgres(folder, now=True)

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: start_postgres(folder), range(3)))

    assert sorted(one.outcome for one in found) == ["running", "running", "started"]
    assert len({(one.pid, one.store_url) for one in found}) == 1


@pytest.mark.nightly
def test_a_killed_server_starts_again_with_what_was_committed_and_at_the_same_port(running: str):
    before = postgres_status(running)
    with psycopg.connect(before.store_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    after = start_postgres(running)

    assert (after.outcome, after.store_url) == ("started", before.store_url)
    assert after.pid != before.pid
    assert ask(after.store_url, "SELECT n FROM kept") == 7


@pytest.mark.nightly
def test_a_pid_file_of_another_process_is_stale(running: str):
    stop_postgres(running, now=True)
    lock = Path(running, "data", "postmaster.pid")
    lock.write_text(f"{os.getpid()}\n{running}/data\n")

    assert postgres_status(running).outcome == "not running"
    assert start_postgres(running).outcome == "started"


@pytest.mark.nightly
def test_a_lost_password_file_is_made_again_by_the_next_start(running: str):
    stop_postgres(running, now=True)
    old = Path(running, "password").read_text()
    Path(running, "password").unlink()

    found = start_postgres(running)

    assert Path(running, "password").read_text() != old
    assert ask(found.store_url) == "mulligan"


@pytest.mark.nightly
def test_stop_waits_until_the_last_client_has_left(running: str):
    client = psycopg.connect(postgres_status(running).store_url)
    told = []

    def leave(clients: int) -> None:
        told.append(clients)
        client.close()

    assert stop_postgres(running, waiting=leave).outcome == "stopped"
    assert told == [1]
    assert stop_postgres(running).outcome == "not running"


@pytest.mark.nightly
def test_stop_now_waits_for_nobody(running: str):
    with psycopg.connect(postgres_status(running).store_url) as client:
        assert stop_postgres(running, now=True).outcome == "stopped"
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")


@pytest.mark.nightly
def test_a_running_server_keeps_its_port_and_its_address(running: str):
    has = postgres_status(running)

    assert start_postgres(running, port=has.port, listen=has.listen).outcome == "running"
    for other in ({"port": has.port + 1}, {"listen": "0.0.0.0"}):
        with pytest.raises(InputInvalid):
            start_postgres(running, **other)  # type: ignore[arg-type]


@pytest.mark.nightly
def test_other_hosts_may_connect_with_the_password_only_if_it_listens_to_them(running: str):
    rules = Path(running, "data", "pg_hba.conf")
    alone = rules.read_text()
    stop_postgres(running, now=True)

    found = start_postgres(running, listen="0.0.0.0")

    opened = rules.read_text()
    stop_postgres(running, now=True)
    back = start_postgres(running, listen="127.0.0.1")
    assert " all " not in alone and "host  mulligan mulligan all scram-sha-256" in opened
    assert {line.split()[-1] for line in opened.splitlines()} == {"scram-sha-256"}
    assert f"@{socket.gethostname()}:{found.port}/" in found.store_url
    assert rules.read_text() == alone and f"@127.0.0.1:{found.port}/" in back.store_url


@pytest.mark.nightly
def test_a_port_that_another_program_has_is_refused_and_named(running: str):
    stop_postgres(running, now=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(PostgresUnusable) as refused:
            start_postgres(running, port=port)

    assert refused.value.message == f"port {port} is used by another program"


def test_a_folder_that_cannot_hold_it_is_refused_before_anything_is_made(place: Path):
    full, file, used = place / "full", place / "file", place / "used"
    file.write_text("")
    used.mkdir()
    (used / "thesis.tex").write_text("")

    for folder, options in (
        (full, {"free_bytes": lambda folder: 1 << 20}),
        (place / "far", {"file_system": lambda folder: "nfs", "environ": {}}),
        (file, {}),
        (used, {}),
    ):
        server = PrivatePostgres(folder, **options)  # type: ignore[arg-type]
        with pytest.raises(PostgresUnusable), server.locked():
            server.start(None, None)
        assert not (folder / "data").exists()


def test_a_network_file_system_can_be_allowed(place: Path):
    environ = {"MULLIGAN_ALLOW_NETWORK_FILES": "1"}
    server = PrivatePostgres(place / "allowed", file_system=lambda folder: "nfs", environ=environ)

    with server.locked():
        assert server.status().outcome == "not running"


@pytest.mark.nightly
def test_a_server_of_another_host_is_neither_started_nor_stopped_here(running: str):
    elsewhere = PrivatePostgres(Path(running), host="another")

    for verb in (elsewhere.status, elsewhere.stop, lambda: elsewhere.start(None, None)):
        with pytest.raises(PostgresUnusable):
            verb()
    assert postgres_status(running).is_running


@pytest.mark.nightly
def test_a_folder_of_another_user_is_refused(running: str):
    script = (
        "import os, sys\n"
        "from mulligan.errors import PostgresUnusable\n"
        "from mulligan.service.host.private_postgres import postgres_status, start_postgres\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setuid(65534)\n"
        "for verb in (postgres_status, start_postgres):\n"
        "    try: verb(sys.argv[1]); print('done')\n"
        "    except PostgresUnusable as refused: print('refused')\n"
    )
    folder = running if os.geteuid() == 0 and Path(running).stat().st_uid != 65534 else "/sys/mulligan"

    done = subprocess.run(
        [sys.executable, "-c", script, folder],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )

    assert done.stdout.split() == ["refused", "refused"], done.stderr


def test_without_the_package_the_error_says_what_to_install():
    with pytest.raises(StoreLibraryMissing) as refused:
        installed_programs(package="no_such_package")

    assert refused.value.hint == "install it: pip install 'mulligan[private-postgres]'"


def test_data_of_an_unknown_version_is_refused():
    with pytest.raises(StoreLibraryMissing):
        installed_programs("9.6")


def test_the_folder_is_in_the_home_of_the_user_and_for_root_where_others_can_enter():
    assert default_folder({"XDG_DATA_HOME": "/d"}, 1000) == Path("/d/mulligan/postgres")
    assert default_folder({}, 1000) == Path.home() / ".local/share/mulligan/postgres"
    assert default_folder({"MULLIGAN_POSTGRES": "/p", "XDG_DATA_HOME": "/d"}, 0) == Path("/p")
    assert default_folder({"XDG_DATA_HOME": "/d"}, 0) == Path("/var/lib/mulligan/postgres")


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int):
    with pytest.raises(InputInvalid):
        start_postgres("/nowhere", port=port)


# On the command line


@pytest.mark.nightly
def test_start_prints_the_line_for_a_shell_and_nothing_else_on_stdout(running: str):
    found = postgres_status(running)

    said = mulligan("postgres", "start", "--data", running)

    assert (said.code, said.out) == (0, f"export MULLIGAN_STORE='{found.store_url}'\n")
    assert said.err == f"PostgreSQL 18 runs already in '{running}', at port {found.port} of 127.0.0.1\n"


@pytest.mark.nightly
def test_status_says_where_since_when_how_large_and_who_uses_it(running: str):
    said = mulligan("postgres", "status", "--data", running)

    found = postgres_status(running)
    assert said.code == 0
    assert steady(said.out).replace(str(found.port), "PORT") == (
        f"PostgreSQL 18 runs in '{running}'\n"
        f"  since  {found.since.astimezone():%Y-%m-%d} THEN, process N on HOST\n"  # type: ignore[union-attr]
        "  port  PORT of 127.0.0.1\n"
        "  size  NMiB\n"
        "  in use  0 connections\n"
        f"  log  {running}/log\n"
        f"  store  postgresql://mulligan@127.0.0.1:PORT/mulligan?passfile={running}/password\n"
    )
    assert mulligan("postgres", "status", "--data", running, "--json").json["pid"] == found.pid


def test_a_server_that_does_not_run_is_no_error_to_stop_and_exit_code_1_of_status(place: Path):
    said = mulligan("postgres", "status", "--data", place / "none")

    assert (said.code, said.err) == (1, "")
    start = f"mulligan postgres start --data {place}/none"
    assert said.out == f"PostgreSQL in '{place}/none' does not run; start it: {start}\n"
    assert mulligan("postgres", "stop", "--data", place / "none").code == 0


@pytest.mark.parametrize(
    "words", [("restart",), ("stop", "--port", 1), ("status", "--listen", "x"), ("start", "--now")]
)
def test_words_and_options_that_do_not_fit_are_refused(words: tuple[object, ...]):
    assert mulligan("postgres", *words).code == 2


@pytest.mark.nightly
def test_the_first_run_of_the_page_completes(running: str, tmp_path: Path):
    """The five commands of docs/operate/postgresql.md, with the server of these tests."""
    page = (ROOT / "docs/operate/postgresql.md").read_text()
    commands = page.partition("```console\n")[2].partition("```")[0].splitlines()
    program = tmp_path / "bin" / "mulligan"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mulligan "$@"\n')
    program.chmod(0o755)
    (tmp_path / "hello.yaml").write_text("name: hello\nsteps: [{step: greet, shell: echo hello}]\n")
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(SRC)}
    # The worker takes the run; it ends when the last command has.
    script = "\n".join(["set -e", *commands[1:], "kill %1; wait %1"])

    done = subprocess.run(
        ["bash", "-mc", script],
        cwd=tmp_path,
        env=environ | {"MULLIGAN_POSTGRES": running},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert commands[0] == "pip install 'mulligan[private-postgres]'" and len(commands) == 5
    assert done.returncode == 0, done.stderr
    assert ask(postgres_status(running).store_url, "SELECT status FROM runs WHERE run_id = 1") == "completed"
