"""Stores: SQLite, PostgreSQL, and that of a server over HTTP. All make the promises of `mulligan.ports.Store`."""

from mulligan.store.open_store import is_file_name, open_store, view_project

__all__ = ["is_file_name", "open_store", "view_project"]
