"""The home: a folder for files, and a store in it or on a server."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import HomeUnusable, InputInvalid
from mulligan.ports import Store
from mulligan.service.home_names import DATABASE as DATABASE
from mulligan.service.home_names import SERVER, home_folder, is_server, server_url
from mulligan.store import is_file_name, open_store
from mulligan.store.http.server_login import checked_token, read_token_file
from mulligan.store.network_filesystem import ALLOW_VARIABLE, is_allowed, network_type
from mulligan.store.read_only import is_read_only, read_only
from mulligan.worker.folders import Folders, make_private, write_private_file

_ANOTHER_PLACE = "choose another folder with --home DIR or MULLIGAN_HOME, or get permission to read and write this one"
# How long a worker may be silent before others take its work. A busy machine would miss a shorter one.
LEASE_SECONDS, LEASE_SECONDS_MIN = 30.0, 1.0
_URL = lazy_regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SERVER = lazy_regex(r"https?://((?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?)")


class Home(msgspec.Struct, frozen=True):
    """A folder for logs and locks, and the store: a database in that folder, or the server that `store_url` names."""

    folder: Path
    store_url: str = ""
    # All workers of a store must use the same.
    lease_seconds: float = LEASE_SECONDS
    # For a server; by default what `mulligan login` has stored, or the environment has.
    token: str = ""
    # Whether that is a token for workers: this process runs tasks of the server.
    is_worker: bool = False
    file_system: Callable[[Path], str] = network_type

    def __repr__(self) -> str:
        """Without the URL of the store and without the token: both may be secrets."""
        return f"Home({self.place})"

    @property
    def is_there(self) -> bool:
        """Whether anything was ever run. HomeUnusable if the folder cannot be read."""
        if self.store_url:
            return True
        try:
            os.stat(self.folder / DATABASE)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self.trouble(error) from error
        return True

    @property
    def is_remote(self) -> bool:
        """Whether a server has the runs, their files and their workers."""
        return is_server(self.store_url)

    @property
    def place(self) -> str:
        """The home as messages name it. The URL of a database is not shown: it may contain a password."""
        if self.is_remote:
            return f"the server {self.store_url}"
        return "this store" if self.store_url else f"'{self.folder}'"

    def trouble(self, error: OSError) -> HomeUnusable:
        """The error for a file in the folder that cannot be used."""
        if error.errno == errno.ENOTDIR:
            return _no_folder(self.folder)
        if error.errno == errno.EROFS or self.is_read_only:
            return read_only(self.folder)
        if error.errno in (errno.EACCES, errno.EPERM):
            what = f"permission denied: '{error.filename or self.folder}'"
        else:
            what = f"'{error.filename or self.folder}' cannot be used: {error_reason(error)}"
        return HomeUnusable(f"{what} (the home is '{self.folder}')", hint=_ANOTHER_PLACE)

    def holds(self, path: object) -> bool:
        """Whether a path, as an OSError names it, is the folder or inside it."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        return bool(name) and Path(os.path.abspath(name)).is_relative_to(self.folder)

    @property
    def uploads(self) -> Path:
        """Where a server writes what comes, until all of it is there."""
        return self.folder / "uploads"

    @property
    def locks(self) -> Path:
        return self.folder / "workers"

    @property
    def folders(self) -> Folders:
        return Folders(self.folder)

    def open(self, lease_seconds: float | None = None) -> Store:
        """Open the store. A missing one is created, an older one is migrated.

        With a store on a server the folder is not needed for reading: a worker creates it.
        """
        if not self.store_url:
            if not self.is_there:
                self.refuse_network_files()
            self.make()
        where = self.store_url or str(self.folder / DATABASE)
        seconds = self.lease_seconds if lease_seconds is None else lease_seconds
        if self.is_remote:
            return open_store(where, lease_seconds=seconds, token=self.token, is_worker=self.is_worker)
        return open_store(where, lease_seconds=seconds)

    @property
    def network_files(self) -> str:
        """The network file system that the database is on, if nobody has allowed that; "" if all is well."""
        return "" if self.store_url or is_allowed() else self.file_system(self.folder)

    def refuse_network_files(self) -> None:
        """`HomeUnusable` if the database is on a network file system: its locks do not hold there.

        Asked before a database is made and before runs are driven. What is there already can be read.
        """
        if found := self.network_files:
            raise HomeUnusable(
                f"'{self.folder}' is on a network file system ({found}), on which SQLite can lose runs",
                hint='use PostgreSQL: eval "$(mulligan postgres start)"; or a folder on a local disk: --home DIR; '
                f"or set {ALLOW_VARIABLE}=1 if no other host ever uses this folder",
            )

    @property
    def is_read_only(self) -> bool:
        """Whether the folder and the database in it can be read and not written."""
        if self.store_url:
            return os.path.isdir(self.folder) and not os.access(self.folder, os.W_OK)
        return is_read_only(str(self.folder / DATABASE)) and os.access(self.folder / DATABASE, os.R_OK)

    def refuse_read_only(self) -> None:
        """`HomeReadOnly` if nothing can be written here. Asked before runs are driven: what is there can be read."""
        if self.is_read_only:
            raise read_only(self.folder)

    def run_folder(self, cwd: str) -> Path:
        """The folder of a run, as a worker of this home sees it."""
        return Path(self.folders.work if cwd == WORKER_FOLDER else cwd)

    def make(self) -> None:
        """Create the folder if it is missing."""
        _make(self.folder)


def find_home(folder: str | None = None, environ: Mapping[str, str] = os.environ, token: str = "") -> Home:
    """The home: `folder`, or `$MULLIGAN_HOME`, or `.mulligan` in this folder; its store: `$MULLIGAN_STORE`.

    If `folder` is a URL, or `$MULLIGAN_SERVER` names one and no folder is given, the server there has the runs.
    """
    path = _checked_folder(folder, environ)
    lease_seconds = _lease_seconds(environ.get("MULLIGAN_LEASE", ""))
    store_url = environ.get("MULLIGAN_STORE", "")
    if server := server_url(folder, environ):
        return Home(_server_folder(path, server), server, lease_seconds, token)
    if is_server(store_url):
        raise InputInvalid("MULLIGAN_STORE names a server of Mulligan", hint=f"set {SERVER} instead")
    if store_url and is_file_name(store_url):
        # The text is not shown: it may be a mistyped URL with a password.
        raise InputInvalid(
            "MULLIGAN_STORE is not a postgresql:// URL",
            hint="it names a database on a server; to use a folder: --home DIR or MULLIGAN_HOME=DIR",
        )
    return Home(Path(path), store_url, lease_seconds)


def _checked_folder(folder: str | None, environ: Mapping[str, str]) -> str:
    """The folder of a home. `InputInvalid` for a URL, of which a folder of that name would be made."""
    # The text is not shown: it may have a password in it.
    if folder is not None and _URL.match(folder) and not is_server(folder):
        hint = "set MULLIGAN_STORE to the URL of a database; --home names the folder for the files beside it"
        raise InputInvalid("the home is a URL, and not a folder or a server of Mulligan", hint=hint)
    if not folder and _URL.match(named := environ.get("MULLIGAN_HOME", "")):
        hint = f"set {SERVER if is_server(named) else 'MULLIGAN_STORE'} to this URL instead"
        raise InputInvalid("MULLIGAN_HOME is a URL, and not a folder", hint=hint)
    return home_folder(folder, environ)


def _server_folder(path: str, url: str) -> Path:
    """Where files about a server go: apart from those of this home, since runs have the same numbers."""
    return Path(path) / "servers" / re.sub(r"[^A-Za-z0-9.-]", "_", check_server(url))


def check_server(url: str) -> str:
    """The host and the port in the URL of a server. `InputInvalid`, with what was probably meant."""
    if parts := _SERVER.fullmatch(url):
        return parts[1]
    if "@" in url:
        # The text is not shown: it may have a password in it.
        raise InputInvalid(
            "the address of the server is not a URL like https://HOST:PORT",
            hint="write it without a user, a password and a path; the token comes from: mulligan login URL",
        )
    if parts := _SERVER.match(url):
        hint = f"write it without a path: {parts[0]}"
    elif parts := _SERVER.fullmatch(f"https://{url}"):
        scheme = "http" if re.match(r"localhost\b|127\.|\[::1\]", url) else "https"
        hint = f"write {scheme}://{parts[1]}"
    else:
        hint = "write it without a path"
    raise InputInvalid(f"'{url[:200]}' is not a URL like https://HOST:PORT", hint=hint)


def find_worker_home(
    folder: str | None = None,
    *,
    server: str = "",
    token: str = "",
    token_file: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Home:
    """The home of a worker: as `find_home`, or where it has its files about the server that it works for."""
    server = server or server_url(folder, environ)
    if not server:
        return find_home(folder, environ)
    path = _checked_folder(None if is_server(folder or "") else folder, environ)
    secret = checked_token(token.strip() or read_token_file(token_file)) if token.strip() or token_file else ""
    lease_seconds = _lease_seconds(environ.get("MULLIGAN_LEASE", ""))
    return Home(_server_folder(path, server), server, lease_seconds, secret, is_worker=True)


def _lease_seconds(text: str) -> float:
    """The lease that `$MULLIGAN_LEASE` sets."""
    try:
        seconds = parse_duration(text) if text else LEASE_SECONDS
    except ValueError:
        raise InputInvalid(f"MULLIGAN_LEASE: '{text}' is not a duration", hint="write it like 30s or 1m") from None
    if seconds < LEASE_SECONDS_MIN:
        raise InputInvalid(f"MULLIGAN_LEASE: '{text}' is too short", hint=f"at least {LEASE_SECONDS_MIN:g}s")
    return seconds


def this_host() -> str:
    return socket.gethostname()


def _no_folder(folder: Path) -> HomeUnusable:
    return HomeUnusable(f"'{folder}' cannot be the home: it is not a folder", hint=_ANOTHER_PLACE)


def _make(folder: Path) -> None:
    """Create the folder for its owner only, ignored by Git: logs may contain what others should not read."""
    try:
        if os.path.isdir(folder):
            return
        make_private(str(folder))
    except FileExistsError as error:
        raise _no_folder(folder) from error
    except OSError as error:
        raise HomeUnusable(f"'{folder}' cannot be created: {error_reason(error)}", hint=_ANOTHER_PLACE) from error
    try:
        write_private_file(str(folder / ".gitignore"), "*\n")
    except OSError:
        pass  # the store reports a full disk
