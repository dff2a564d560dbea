"""Where runs are kept: a folder for files, and a store in it or elsewhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mulligan.core.model.durations import parse_duration
from mulligan.core.model.formatting import error_reason
from mulligan.errors import HomeUnusable, InputInvalid
from mulligan.language.quantities import size
from mulligan.ports import Store
from mulligan.service.home_names import DATABASE as DATABASE
from mulligan.service.home_names import home_folder
from mulligan.store import is_file_name, open_store
from mulligan.worker.flood import LOG_BYTES_MAX
from mulligan.worker.folders import Folders, make_private, write_side

_ANOTHER_PLACE = "choose another place with --home DIR or MULLIGAN_HOME, or get permission to read and write this one"
# How long a worker may be silent before others take its work. A shorter one would be missed by a machine that is busy.
LEASE_SECONDS, LEASE_SECONDS_MIN = 30.0, 1.0


class Home(msgspec.Struct, frozen=True):
    """A folder for logs and locks, and the store: a database in that folder, or the server that `store_url` names."""

    folder: Path
    store_url: str = ""
    # Of workers: all that share a store must have the same.
    lease_seconds: float = LEASE_SECONDS

    @property
    def is_there(self) -> bool:
        """Whether anything was ever run. HomeUnusable where nobody can tell."""
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
    def place(self) -> str:
        """Where its runs are, in words. A URL is not shown: there may be a password in it."""
        return "this store" if self.store_url else f"'{self.folder}'"

    def trouble(self, error: OSError) -> HomeUnusable:
        """What the system says of a file in the folder, in our words."""
        if error.errno == errno.ENOTDIR:
            return _no_folder(self.folder)
        if error.errno in (errno.EACCES, errno.EPERM):
            what = f"you have no right to use '{error.filename or self.folder}'"
        else:
            what = f"'{error.filename or self.folder}' cannot be used: {error_reason(error)}"
        return HomeUnusable(f"{what}, and the runs are kept in '{self.folder}'", hint=_ANOTHER_PLACE)

    def holds(self, path: object) -> bool:
        """Whether a path, as an OSError names it, is the folder or something in it."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        return bool(name) and Path(os.path.abspath(name)).is_relative_to(self.folder)

    @property
    def locks(self) -> Path:
        return self.folder / "workers"

    @property
    def folders(self) -> Folders:
        return Folders(self.folder)

    def open(self, lease_seconds: float | None = None) -> Store:
        """The store, made if it is not there, brought up to date if it is older.

        With a store on a server the folder is not needed to look: whoever runs something makes it.
        """
        if not self.store_url:
            self.make()
        where = self.store_url or str(self.folder / DATABASE)
        return open_store(where, lease_seconds=self.lease_seconds if lease_seconds is None else lease_seconds)

    def make(self) -> None:
        """See that the folder is there."""
        _make(self.folder)


def find_home(folder: str | None = None, environ: Mapping[str, str] = os.environ) -> Home:
    """Named by the caller, else by `$MULLIGAN_HOME`, else `.mulligan` here; the store by `$MULLIGAN_STORE`."""
    path = home_folder(folder, environ)
    store_url = environ.get("MULLIGAN_STORE", "")
    if store_url and is_file_name(store_url):
        # The text is not shown: it may be a URL that was mistyped, with a password in it.
        raise InputInvalid(
            "MULLIGAN_STORE is not a postgresql:// URL",
            hint="it names a database on a server; to keep runs in a folder: --home DIR or MULLIGAN_HOME=DIR",
        )
    return Home(Path(path), store_url, _lease_seconds(environ.get("MULLIGAN_LEASE", "")))


def _lease_seconds(text: str) -> float:
    """How long the lease is that `$MULLIGAN_LEASE` names."""
    try:
        seconds = parse_duration(text) if text else LEASE_SECONDS
    except ValueError:
        raise InputInvalid(f"MULLIGAN_LEASE: '{text}' is not a duration", hint="write it like 30s or 1m") from None
    if seconds < LEASE_SECONDS_MIN:
        raise InputInvalid(f"MULLIGAN_LEASE: '{text}' is too short", hint=f"at least {LEASE_SECONDS_MIN:g}s")
    return seconds


def log_bytes_max(environ: Mapping[str, str]) -> int:
    """How much one attempt may write to its logs: `$MULLIGAN_LOG_MAX`, else 1 GiB."""
    text = environ.get("MULLIGAN_LOG_MAX")
    if not text:
        return LOG_BYTES_MAX
    try:
        return size(text)
    except ValueError:
        raise InputInvalid(f"MULLIGAN_LOG_MAX: '{text}' is not a size", hint="write it like 512MiB or 4GB") from None


def this_host() -> str:
    return socket.gethostname()


def _no_folder(folder: Path) -> HomeUnusable:
    return HomeUnusable(f"runs cannot be kept in '{folder}': it is not a folder", hint=_ANOTHER_PLACE)


def _make(folder: Path) -> None:
    """The folder, for its owner alone: logs may say what others should not read, and belong in no repository."""
    try:
        if os.path.isdir(folder):
            return
        make_private(str(folder))
    except FileExistsError as error:
        raise _no_folder(folder) from error
    except OSError as error:
        raise HomeUnusable(f"'{folder}' cannot be made: {error_reason(error)}", hint=_ANOTHER_PLACE) from error
    try:
        write_side(str(folder / ".gitignore"), "*\n")
    except OSError:
        pass  # a full disk is told by the store, which needs it
