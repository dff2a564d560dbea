"""A PostgreSQL server for tests: from the binaries of a wheel, or the one that `$MULLIGAN_TEST_POSTGRES` names.

It needs no installation. It runs while any process holds the write end of its pipe: when the last one is gone, in
whatever way, a watchdog stops the server and removes its folder.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import psycopg
from psycopg import sql

from mulligan.store.postgres.postgres_programs import PostgresPrograms, user_for_root

GIVEN = "MULLIGAN_TEST_POSTGRES"

# Tests may lose data when the machine crashes; nothing else is switched off.
_SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
}

# Runs in the background: blocks until every writer of the pipe is gone.
_WATCHDOG = 'exec 3<&0; (read -r _ <&3; "$0" -D "$1" -m immediate -w stop; rm -rf "$2") &'

_numbers = count(1)


class PostgresServer:
    """A server in a new folder, reached through a socket there. It runs until the pipe `watched` is closed."""

    def __init__(self, watched: int, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        # Not below the tests' own folders: the path of a socket is limited to about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="mulligan-pg-"))
        user = user_for_root() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._programs = PostgresPrograms(user, self.folder)
        self._watch(watched)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        written = {**_SETTINGS, "unix_socket_directories": f"'{self.folder}'", **settings}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in written.items())
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self.folder / "log"), "-w", "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it. `immediate` looks like a crash to its clients; `fast` is an orderly shutdown."""
        self._run("pg_ctl", "-D", str(self._data), "-m", how, "-w", "stop")

    def kill(self) -> None:
        """Kill the first process with SIGKILL. The server can be started again when its children are gone."""
        os.kill(self.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Return the id of the first process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        done = self._programs.call([str(self._programs.folder / program), *arguments], cwd=self.folder)
        if done:
            log = self.folder / "log"
            raise RuntimeError(f"{program} ended with {done}\n{log.read_text() if log.exists() else ''}")

    def _watch(self, watched: int) -> None:
        command = [str(self._programs.folder / "pg_ctl"), str(self._data), str(self.folder)]
        self._programs.call(["/bin/sh", "-c", _WATCHDOG, *command], cwd=self.folder, stdin=watched)


@contextmanager
def own_server(settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[PostgresServer]:
    """Run a server for one test, which may stop and start it, with other settings than those of the tests."""
    reader, writer = os.pipe()
    try:
        yield PostgresServer(reader, settings)
    finally:
        os.close(writer)
        os.close(reader)


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """Yield the URL of the server that all users of this folder share. The last one to leave stops it."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    with _locked(folder):
        writer, url = _join(folder)
    try:
        yield url
    finally:
        with _locked(folder):
            os.close(writer)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, so that the server does not stop while a new user arrives."""
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _join(folder: Path) -> tuple[int, str]:
    """Open the pipe of the running server, or start one."""
    pipe, address = folder / "postgres.pipe", folder / "postgres.url"
    if address.exists() and _is_held(pipe):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), address.read_text()
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.set_blocking(reader, True)
    address.write_text(PostgresServer(reader).url)
    os.close(reader)
    return writer, address.read_text()


def _is_held(pipe: Path) -> bool:
    """Whether any process has the pipe open for writing. Nothing is ever written, so reading shows only the end."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(os.read(reader, 1))
    except BlockingIOError:
        return True
    finally:
        os.close(reader)


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """Yield the URL of an empty schema on the server, for one test."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    schema = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
    try:
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
