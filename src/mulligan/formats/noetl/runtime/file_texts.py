"""Mark texts that come from the playbook file: only these may become part of a command or a query.

They are marked when a step begins: defaults of the workload that the run does not override, constants of an `input`.
A mark is lost when a text changes, and no mark leaves the step. So a text without a mark may come from anywhere.
"""

from __future__ import annotations

from typing import Any


class FileText(str):
    """A text from the file."""

    __slots__ = ()


# Error messages of Python about templates then have the name that users know.
FileText.__name__ = "str"


def mark_file_texts(value: Any) -> Any:
    """A JSON value with all its texts marked. Values with other marks stay as they are."""
    if type(value) is str:
        return FileText(value)
    if type(value) is dict:
        return {mark_file_texts(key): mark_file_texts(inner) for key, inner in value.items()}
    return [mark_file_texts(inner) for inner in value] if type(value) is list else value


def is_from_file(value: Any) -> bool:
    """Whether all texts in a value come from the file. Numbers, booleans and null are harmless anyway."""
    if isinstance(value, str):
        return isinstance(value, FileText) or not value
    if isinstance(value, dict):
        return all(is_from_file(key) and is_from_file(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_from_file, value))
    return value is None or isinstance(value, int | float)


def without_marks(value: Any) -> Any:
    """A value without marks, for code of the playbook, which gets plain texts."""
    if isinstance(value, FileText):
        return str(value)
    if type(value) is dict:
        return {without_marks(key): without_marks(inner) for key, inner in value.items()}
    return [without_marks(inner) for inner in value] if type(value) is list else value
