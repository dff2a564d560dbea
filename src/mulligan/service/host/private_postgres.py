"""A private PostgreSQL: a server of the user's own, in a folder of the user's own, without an administrator.

The folder holds `data` (the cluster), `password` (a passfile that its owner alone can read), `server.json` (host, port
and address), `log`, and a lock that `start` and `stop` take. The store's URL names the passfile, so that the password
stands in no variable, no process list and no output. PostgreSQL's superuser cannot log in at all; the role of the store
owns the one database.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import InputInvalid, PostgresUnusable
from mulligan.service.home import this_host
from mulligan.store.network_filesystem import ALLOW_VARIABLE, is_allowed, network_type
from mulligan.store.postgres.postgres_programs import PostgresPrograms, installed_programs, major_of, user_for_root
from mulligan.worker.folders import make_private

# The variable that names the folder of the server.
FOLDER_VARIABLE = "MULLIGAN_POSTGRES"
LOOPBACK = "127.0.0.1"
# The role and the database of the store. The superuser of the cluster is another role.
NAME, SUPERUSER = "mulligan", "postgres"
# A new cluster has 40 MB, and as much again while it is made.
FREE_BYTES_MIN = 150 << 20
START_SECONDS_MAX, ORPHAN_SECONDS_MAX, STOP_SECONDS_MAX = 60, 15.0, 60
POLL_SECONDS = 0.1
# The version of PostgreSQL that learned to sync a whole file system.
SYNCFS_SINCE = 17
LOG_BYTES_MAX = 10 << 20
PORTS, PORT_TRIES_MAX = range(15000, 32000), 100
# What the kernel allows for the path of a socket, less the name that PostgreSQL gives it.
SOCKET_FOLDER_CHARS_MAX = 107 - len("/.s.PGSQL.65535.lock")
_EVERYWHERE = ("*", "0.0.0.0", "::")  # noqa: S104 - what a user may write
_NOT_LOCAL = ("name a folder on a local disk: --data DIR", f"or set {ALLOW_VARIABLE}=1 if this host alone uses it")
# What the log says, and what it means.
_REASONS = (
    (r"No space left on device", "the disk is full", "make room on the disk of '{folder}'"),
    (r"Disk quota exceeded", "the disk quota is used up", "make room, or name another folder: --data DIR"),
    (
        r"Address already in use|could not create any TCP/IP sockets",
        "port {port} is used by another program",
        "choose another port: --port N",
    ),
    (
        r"shared memory block .* is still in use",
        "processes of the killed server are still there",
        "try again in a few seconds",
    ),
)
_PASSFILE_ROW = f"*:*:*:{NAME}:"
_CLIENTS = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND datname = current_database() AND pid <> pg_backend_pid()"
)

Outcome = Literal["started", "running", "stopped", "not running"]


class PostgresStatus(msgspec.Struct, frozen=True):
    """A private server, and what was done about it. `store_url` is what `MULLIGAN_STORE` is to be set to."""

    outcome: Outcome
    data: str
    store_url: str = ""
    host: str = ""
    port: int = 0
    listen: str = ""
    pid: int | None = None
    since: datetime | None = None
    version: str = ""
    size_bytes: int = 0
    # None if the server does not answer.
    connections: int | None = None
    log: str = ""

    @property
    def is_running(self) -> bool:
        return self.outcome in ("started", "running")


class _Record(msgspec.Struct, frozen=True):
    """What `server.json` keeps from one start to the next."""

    host: str
    port: int
    listen: str


def start_postgres(data: str | None = None, *, port: int | None = None, listen: str | None = None) -> PostgresStatus:
    """Start the server, or find it running. A missing cluster is made, one that was killed recovers."""
    if port is not None and not 1 <= port <= 65535:
        raise InputInvalid(f"--port {port} is not a port", hint="choose a number from 1024 to 65535")
    server = PrivatePostgres(_folder(data))
    if not server.is_there:
        # Before a folder is made for it.
        installed_programs()
    with server.locked():
        return server.start(port, listen)


def stop_postgres(
    data: str | None = None, *, now: bool = False, waiting: Callable[[int], None] = lambda clients: None
) -> PostgresStatus:
    """Stop the server: when its last client has left, or at once. `waiting` is called with how many are left."""
    server = PrivatePostgres(_folder(data))
    if not server.is_there:
        return PostgresStatus("not running", str(server.folder))
    if not now:
        # Without the lock: a start meanwhile finds the server running, and it stays so if it is not stopped.
        server.wait_for_clients(waiting)
    with server.locked():
        return server.stop()


def postgres_status(data: str | None = None) -> PostgresStatus:
    """Whether the server runs, since when, where, how large it is and how many use it."""
    return PrivatePostgres(_folder(data)).status()


def default_folder(environ: Mapping[str, str], user_id: int) -> Path:
    """`$MULLIGAN_POSTGRES`, or a folder in the user's home. What root starts runs as a user who cannot enter root's."""
    if named := environ.get(FOLDER_VARIABLE):
        return Path(os.path.abspath(named))
    if user_id == 0:
        return Path("/var/lib/mulligan/postgres")
    above = environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(above) / "mulligan" / "postgres"


def _folder(data: str | None) -> Path:
    return Path(os.path.abspath(data)) if data else default_folder(os.environ, os.geteuid())


class PrivatePostgres:
    """The server of one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        environ: Mapping[str, str] = os.environ,
        file_system: Callable[[Path], str] = network_type,
        free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
        host: str = "",
    ) -> None:
        self.folder = folder
        self._environ = environ
        self._file_system = file_system
        self._free_bytes = free_bytes
        self._host = host or this_host()

    # -- files

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def is_there(self) -> bool:
        """Whether a cluster was made here."""
        try:
            return (self.data / "PG_VERSION").exists()
        except PermissionError:
            raise self._not_owned() from None

    @property
    def record(self) -> _Record:
        try:
            return msgspec.json.decode((self.folder / "server.json").read_bytes(), type=_Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return _Record(self._host, 0, LOOPBACK)

    def _write(self, path: Path, text: str, mode: int = 0o600) -> None:
        """Replace a file as a whole. It belongs to the user who calls us."""
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)

    @property
    def _user(self) -> pwd.struct_passwd | None:
        """Who runs the server if root calls: the owner of the folder, unless that is root."""
        if os.geteuid() != 0:
            return None
        try:
            owner = self.folder.stat().st_uid
        except FileNotFoundError:
            owner = 0
        return pwd.getpwuid(owner) if owner else user_for_root()

    def _programs(self) -> PostgresPrograms:
        return PostgresPrograms(self._user, self.folder, self._major)

    @property
    def _major(self) -> str:
        """The version of the cluster: a newer one cannot read its files."""
        try:
            return (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and let one process at a time start or stop the server."""
        with self._translated():
            self._check_folder()
        with self._translated(), (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            if os.path.isdir(self.folder):
                raise self._not_owned() from error
            reason = f"'{self.folder}' cannot be made: {error_reason(error)}: '{error.filename}'"
            raise PostgresUnusable(reason, hint="name a folder of your own: --data DIR") from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = f"make room on the disk of '{self.folder}'" if full else "name another folder: --data DIR"
            reason = f"'{error.filename or self.folder}' cannot be used: {error_reason(error)}"
            raise PostgresUnusable(reason, hint=hint) from error

    def _check_folder(self) -> None:
        found = self._file_system(self.folder)
        if found and not is_allowed(self._environ):
            raise PostgresUnusable(
                f"'{self.folder}' is on a network file system ({found}): two hosts could start the same data, and "
                "destroy it",
                hint=", ".join(_NOT_LOCAL),
            )
        if not self.folder.exists():
            self._make_folder()
        elif not self.folder.is_dir():
            raise PostgresUnusable(f"'{self.folder}' is not a folder", hint="name another one: --data DIR")
        owner = self.folder.stat()
        if os.geteuid() not in (0, owner.st_uid):
            raise self._not_owned()
        if not self.is_there and set(os.listdir(self.folder)) - {"lock", "log", "password", "data.new", "postgres"}:
            raise PostgresUnusable(
                f"'{self.folder}' has other files in it", hint="name a folder that is empty or not there: --data DIR"
            )

    def _make_folder(self) -> None:
        user = user_for_root() if os.geteuid() == 0 else None
        if user is not None:
            self._make_for_other(user)
        else:
            make_private(str(self.folder))

    def _make_for_other(self, user: pwd.struct_passwd) -> None:
        """As root: a folder that the other user owns, in a place that this user can reach."""
        existing = next(path for path in self.folder.parents if path.exists())
        closed = [path for path in (existing, *existing.parents) if not path.stat().st_mode & 0o001]
        if closed:
            raise PostgresUnusable(
                f"PostgreSQL does not run as root, and user '{user.pw_name}', who would run it, cannot enter "
                f"'{closed[0]}'",
                hint="name a folder that others can reach, such as --data /var/lib/mulligan/postgres; or call the "
                "command as a user who is not root",
            )
        self.folder.mkdir(parents=True, mode=0o755)
        self.folder.chmod(0o700)
        os.chown(self.folder, user.pw_uid, user.pw_gid)

    def _not_owned(self) -> PostgresUnusable:
        hint = "name a folder of your own: --data DIR"
        try:
            owner = self.folder.stat().st_uid
        except OSError as error:
            return PostgresUnusable(f"'{self.folder}' cannot be made or read: {error_reason(error)}", hint=hint)
        try:
            name = f"'{pwd.getpwuid(owner).pw_name}'"
        except KeyError:
            name = f"user {owner}"
        return PostgresUnusable(
            f"'{self.folder}' cannot be used: it belongs to {name}", hint=f"call the command as its owner, or {hint}"
        )

    # -- the process

    def pid(self) -> int | None:
        """The id of the server's first process; None if it does not run. `PostgresUnusable` if another host has it."""
        try:
            first = (self.data / "postmaster.pid").read_text().partition("\n")[0]
        except FileNotFoundError:
            return None
        except PermissionError:
            raise self._not_owned() from None
        if self.record.host != self._host:
            raise PostgresUnusable(
                f"the server of '{self.folder}' was started on host '{self.record.host}'",
                hint=f"call the command there; if that host is gone for good, remove '{self.data}/postmaster.pid'",
            )
        number = int(first) if first.isdecimal() else 0
        # After a crash another program may have the number.
        return number if number in self._processes() else None

    def _processes(self) -> set[int]:
        """The processes of this cluster: all of them work in its folder."""
        found = set()
        data = os.path.realpath(self.data)
        for name in os.listdir("/proc"):
            try:
                if name.isdecimal() and os.readlink(f"/proc/{name}/cwd") == data:
                    found.add(int(name))
            except OSError:
                continue
        return found

    def _remove_remains(self) -> None:
        """Wait until the processes of a killed server have ended, as they do by themselves; then remove its lock files.

        PostgreSQL would take any process of ours that has the number of the killed one for its server, also a dead one
        that nobody has waited for, as in a container without an init.
        """
        until = time.monotonic() + ORPHAN_SECONDS_MAX
        while self._processes():
            if time.monotonic() > until:
                raise self._failure("processes of the killed server are still there")
            time.sleep(POLL_SECONDS)
        for left in (self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)

    # -- verbs

    def start(self, port: int | None, listen: str | None) -> PostgresStatus:
        if self.is_there and self._answers():
            self._refuse_other_settings(port, listen)
            return self.status()
        free = self._free_bytes(self.folder)
        if free < FREE_BYTES_MIN:
            raise PostgresUnusable(
                f"the disk of '{self.folder}' has {free >> 20} MiB left, and PostgreSQL needs "
                f"{FREE_BYTES_MIN >> 20} MiB to start",
                hint="make room, or name a folder on another disk: --data DIR",
            )
        if not self.is_there:
            self._make_cluster()
        elif not self.password_file.exists():
            self._set_password(self.data)
        self._remove_remains()
        known = self.record
        address = listen or known.listen
        chosen = port or known.port or _free_port()
        _check_port(address, chosen)
        record = _Record(self._host, chosen, address)
        self._configure(record)
        self._write(self.folder / "server.json", msgspec.json.encode(record).decode())
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_name("log.1"))
        began = self.log.stat().st_size if self.log.exists() else 0
        arguments = ("-l", str(self.log), "-w", "-t", str(START_SECONDS_MAX), "start")
        if self._run("pg_ctl", "-D", str(self.data), *arguments).returncode:
            raise self._failure(self._log_since(began))
        return msgspec.structs.replace(self.status(), outcome="started")

    def _answers(self) -> bool:
        """Whether the server runs, after it had time to start or to die. `PostgresUnusable` if it does neither."""
        until = time.monotonic() + START_SECONDS_MAX
        while self.pid() is not None:
            if self.clients() is not None:
                return True
            if time.monotonic() > until:
                raise PostgresUnusable(
                    f"the server of '{self.folder}' runs and does not answer",
                    hint=f"its log may say why: '{self.log}'; to stop it: mulligan postgres stop --now",
                )
            time.sleep(POLL_SECONDS)
        return False

    def stop(self) -> PostgresStatus:
        if self.pid() is None:
            return self.status()
        done = self._run("pg_ctl", "-D", str(self.data), "-m", "fast", "-w", "-t", str(STOP_SECONDS_MAX), "stop")
        if done.returncode:
            raise PostgresUnusable(
                f"the server of '{self.folder}' has not stopped within {STOP_SECONDS_MAX} seconds",
                hint=f"its log says why: '{self.log}'",
            )
        return msgspec.structs.replace(self.status(), outcome="stopped")

    def wait_for_clients(self, waiting: Callable[[int], None]) -> None:
        """Wait until no client is connected. The server goes on accepting them: what runs may end."""
        shown = 0
        while self.pid() is not None and (clients := self.clients()) != 0:
            if clients is None:
                raise PostgresUnusable(
                    f"the server of '{self.folder}' does not say which clients are connected",
                    hint="stop it at once: --now",
                )
            if clients != shown:
                shown = clients
                waiting(clients)
            time.sleep(POLL_SECONDS)

    def status(self) -> PostgresStatus:
        if not self.is_there:
            return PostgresStatus("not running", str(self.folder))
        pid, record = self.pid(), self.record
        return PostgresStatus(
            outcome="not running" if pid is None else "running",
            data=str(self.folder),
            store_url=self.url(record),
            host=record.host,
            port=record.port,
            listen=record.listen,
            pid=pid,
            since=None if pid is None else self._since(),
            version=self._major,
            size_bytes=_size_of(self.data),
            connections=None if pid is None else self.clients(),
            log=str(self.log),
        )

    def url(self, record: _Record) -> str:
        """The URL of the store, with the file of the password in place of the password."""
        host = record.listen if record.listen not in _EVERYWHERE else record.host
        shown = f"[{host}]" if ":" in host else host
        return f"postgresql://{NAME}@{shown}:{record.port}/{NAME}?passfile={quote(str(self.password_file), safe='/')}"

    def clients(self) -> int | None:
        """How many connections the store's database has; None if the server does not answer."""
        address = f"host={LOOPBACK} port={self.record.port} user={NAME} dbname={NAME} connect_timeout=5"
        done = subprocess.run(
            [str(self._programs().folder / "psql"), "-XAtc", _CLIENTS, f"{address} passfile='{self.password_file}'"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return int(done.stdout) if done.returncode == 0 else None

    def _since(self) -> datetime | None:
        """When the server was started: the third line of its pid file."""
        lines = (self.data / "postmaster.pid").read_text().split("\n")
        return datetime.fromtimestamp(int(lines[2]), UTC) if len(lines) > 2 and lines[2].isdecimal() else None

    def _refuse_other_settings(self, port: int | None, listen: str | None) -> None:
        record = self.record
        for option, asked, has in (("--port", port, record.port), ("--listen", listen, record.listen)):
            if asked is not None and asked != has:
                raise InputInvalid(
                    f"{option} {asked}: the server of '{self.folder}' runs with {has}",
                    hint="stop it first: mulligan postgres stop",
                )

    # -- making a cluster

    def _make_cluster(self) -> None:
        """Make it beside its place and move it there when it is complete: a crash leaves nothing half made."""
        made = self.folder / "data.new"
        shutil.rmtree(made, ignore_errors=True)
        # The superuser has no password: nobody can log in as that role. What is written is synced at the end, at once.
        settings = ("-U", SUPERUSER, "-A", "reject", "-E", "UTF8", "--locale=C", "--no-instructions", "--no-sync")
        done = self._run("initdb", "-D", str(made), *settings)
        if done.returncode:
            shutil.rmtree(made, ignore_errors=True)
            raise self._failure(done.stderr)
        self._set_password(made)
        with (made / "postgresql.conf").open("a") as file:
            file.write("\n# Written by each `mulligan postgres start`; what follows it here has the last word.\n")
            file.write("include_if_exists = 'mulligan.conf'\n")
        can_sync_at_once = int(major_of(self._programs().folder) or 0) >= SYNCFS_SINCE
        how = ("--sync-method=syncfs",) if can_sync_at_once else ()
        done = self._run("initdb", "--sync-only", "-D", str(made), *how)
        if done.returncode:
            raise self._failure(done.stderr)
        made.rename(self.data)

    def _set_password(self, data: Path) -> None:
        """Give the role of the store a new password, in a cluster that does not run. The role is made if needed."""
        password = secrets.token_urlsafe(32)
        is_new = data != self.data
        statements = f"ALTER ROLE {NAME} PASSWORD '{password}';\n\n"
        if is_new:
            statements = f"CREATE ROLE {NAME} LOGIN;\n\n{statements}CREATE DATABASE {NAME} OWNER {NAME};\n\n"
        unsynced = ("-F",) if is_new else ()
        done = self._run("postgres", "--single", *unsynced, "-D", str(data), "-j", SUPERUSER, text=statements)
        if done.returncode or "ERROR" in done.stderr:
            raise self._failure(done.stderr)
        self._write(self.password_file, f"{_PASSFILE_ROW}{password}\n")

    def _configure(self, record: _Record) -> None:
        """Write what depends on how it is started. Every client is asked for the password, wherever it comes from."""
        addresses = [LOOPBACK] if record.listen == LOOPBACK else [record.listen]
        if record.listen not in (LOOPBACK, *_EVERYWHERE):
            addresses.insert(0, LOOPBACK)
        has_socket = len(str(self.folder)) <= SOCKET_FOLDER_CHARS_MAX
        settings = {
            "listen_addresses": _quoted(",".join(addresses)),
            "port": str(record.port),
            "unix_socket_directories": _quoted(str(self.folder) if has_socket else ""),
            "unix_socket_permissions": "0700",
            "password_encryption": "'scram-sha-256'",
            "max_connections": "300",
            "log_checkpoints": "off",
            "log_timezone": "'UTC'",
        }
        rows = [f"{kind:5} {NAME} {NAME} {address} scram-sha-256\n" for kind, address in _clients_of(record)]
        self._hand_over("mulligan.conf", "".join(f"{name} = {value}\n" for name, value in settings.items()))
        self._hand_over("pg_hba.conf", "".join(rows))

    def _hand_over(self, name: str, text: str) -> None:
        """Write a file that the server reads."""
        self._write(self.data / name, text)
        if (user := self._user) is not None:
            os.chown(self.data / name, user.pw_uid, user.pw_gid)

    def _run(self, program: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL. What it reads and prints goes through files, which a server may keep open."""
        programs = self._programs()
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+", errors="replace") as output:
            given.write(text)
            given.seek(0)
            command = [str(programs.folder / program), *arguments]
            code = programs.call(command, cwd=self.folder, stdin=given.fileno(), output=output.fileno())
            output.seek(0)
            return subprocess.CompletedProcess(command, code, "", output.read())

    def _log_since(self, size: int) -> str:
        try:
            with self.log.open(errors="replace") as file:
                file.seek(size)
                return file.read(1 << 16)
        except OSError:
            return ""

    def _failure(self, output: str) -> PostgresUnusable:
        """Why it did not start, from what it wrote."""
        for pattern, reason, hint in _REASONS:
            if re.search(pattern, output):
                port = self.record.port
                return PostgresUnusable(reason.format(port=port), hint=hint.format(folder=self.folder))
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        line = next((line for line in lines if re.search(r"\b(FATAL|PANIC|ERROR|error):", line)), "")
        said = re.sub(r"^.*?\b(FATAL|PANIC|ERROR|error):\s*", "", line) or (
            lines[-1] if lines else "it does not say why"
        )
        return PostgresUnusable(f"PostgreSQL does not start: {said}", hint=f"its log may say more: '{self.log}'")


def _clients_of(record: _Record) -> Iterator[tuple[str, str]]:
    """Who may ask for the store: processes of this host, and of others if it listens to them."""
    yield "local", ""
    yield "host", f"{LOOPBACK}/32"
    yield "host", "::1/128"
    if record.listen != LOOPBACK:
        yield "host", "all"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _free_port() -> int:
    """A free port, below those from which the kernel takes ports of outgoing connections: it is kept for ever."""
    for _ in range(PORT_TRIES_MAX):
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)):
                return port
    raise PostgresUnusable("no free port was found", hint="choose one: --port N")


def _check_port(address: str, port: int) -> None:
    """`PostgresUnusable` if another program has the port, or the address is not one of this machine."""
    for host in dict.fromkeys((LOOPBACK, address)):
        where = None if host in _EVERYWHERE else host
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                where, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except socket.gaierror:
            raise PostgresUnusable(
                f"--listen '{host}' is not the name of a host", hint="give a name or an address of this machine"
            ) from None
        except PermissionError:
            raise PostgresUnusable(f"port {port} is for root alone", hint="choose one above 1023: --port N") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PostgresUnusable(
                    f"port {port} is used by another program", hint="choose another one: --port N"
                ) from None
            raise PostgresUnusable(
                f"--listen '{host}' is not an address of this machine: {error_reason(error)}",
                hint="`hostname -I` lists its addresses",
            ) from None


def _size_of(folder: Path) -> int:
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(above, name)).st_blocks * 512
            except OSError:
                continue
    return total
