"""Opens a store by its address; `kinds` has the table of kinds."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import cast

from mulligan.errors import StoreLibraryMissing, StoreRefused
from mulligan.ports import Clock, Store
from mulligan.store.kinds import HTTP, StoreKind, kind_of

# Other ways to name a server: 'host=db password=…', 'user:password@host/name'.
_CONNECTION = r"(?is)\bpassword\s*=|^(host|hostaddr|port|user|dbname|service)\s*=|^postgres(ql)?:|:.*@"


def open_store(
    where: str | Path,
    *,
    clock: Clock | None = None,
    lease_seconds: float = 30.0,
    token: str = "",
    is_worker: bool = False,
) -> Store:
    """Open the store that `where` names: a `postgresql://` URL, or the path of an SQLite file.

    The `https://` URL of a server is a store as well: `token` is what it is asked with, by default what the environment
    has; `is_worker` if that is a token for workers. Only that store is imported: an unused database driver would cost
    start-up time.
    """
    text = str(where).strip()
    kind = kind_of(text)
    if kind is HTTP:
        made = _class(kind.module, kind.class_name)(text, lease_seconds=lease_seconds, token=token, is_worker=is_worker)
        return cast(Store, made)
    if kind.schemes:
        return cast(Store, _server_class(kind)(text, lease_seconds=lease_seconds))
    if "://" in text or _looks_like_a_connection(text):
        raise _unknown(text)
    if text == "memory:":
        raise StoreRefused(
            "'memory:' is not a kind of store",
            hint="in a test: from mulligan.testing.memory.memory_store import MemoryStore",
        )
    return cast(Store, _class(kind.module, kind.class_name)(where, clock=clock, lease_seconds=lease_seconds))


def view_project(store: Store, project: str) -> Store:
    """The store as far as it belongs to the project."""
    return cast(Store, _class("mulligan.store.project_view", "ProjectView")(store, project))


def is_file_name(where: str) -> bool:
    """Whether `open_store` would treat it as the path of a file."""
    text = where.strip()
    return "://" not in text and not _looks_like_a_connection(text)


def _unknown(text: str) -> StoreRefused:
    """The error for an unknown kind of store. The text is not shown: it may contain a password."""
    scheme, separator, _ = text.partition("://")
    is_shown = separator and scheme.isascii() and scheme.isalnum()
    what = f"'{scheme}' is not a kind of store" if is_shown else "the address of the store is neither a URL nor a path"
    return StoreRefused(
        what, hint="use a 'postgresql://' URL, the 'https://' URL of a server, or the path of an SQLite file"
    )


def _looks_like_a_connection(text: str) -> bool:
    return not os.path.isabs(text) and re.search(_CONNECTION, text) is not None


def _server_class(kind: StoreKind) -> type:
    try:
        return _class(kind.module, kind.class_name)
    except ImportError as error:
        if (error.name or "").startswith(__name__.partition(".")[0]):
            raise
        reason = " ".join(str(error).partition("\n")[0].split())
        raise StoreLibraryMissing(
            f"a {kind.label} store needs a library that is not installed: {reason}",
            hint=f"install it: pip install 'mulligan[{kind.extra}]'",
        ) from error


def _class(module: str, name: str) -> type:
    store: type = getattr(import_module(module), name)
    return store
