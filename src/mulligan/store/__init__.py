"""Stores: SQLite, PostgreSQL, memory. All make the promises of `mulligan.ports.Store`."""

from mulligan.store.open_store import MEMORY, is_file_name, open_store, view_project

__all__ = ["MEMORY", "is_file_name", "open_store", "view_project"]
