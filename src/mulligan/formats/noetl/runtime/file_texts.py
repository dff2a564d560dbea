"""Texts that the playbook's file says itself: no others may become part of a command or a query.

They are marked where a step begins: a default of the workload that the run does not override, a constant of an `input`.
A mark is lost with every change of a text, and no mark leaves the step. So what has none may be anybody's.
"""

from __future__ import annotations

from typing import Any


class FileText(str):
    """A text as the file has it."""

    __slots__ = ()


# What Python says of a template that goes wrong speaks of it by the name that users know.
FileText.__name__ = "str"


def of_file(value: Any) -> Any:
    """A JSON value, with all texts in it marked as the file's. What is marked otherwise stays what it is."""
    if type(value) is str:
        return FileText(value)
    if type(value) is dict:
        return {of_file(key): of_file(inner) for key, inner in value.items()}
    return [of_file(inner) for inner in value] if type(value) is list else value


def is_of_file(value: Any) -> bool:
    """Whether all texts in a value are the file's. Numbers, truths and null are harmless, whoever gave them."""
    if isinstance(value, str):
        return isinstance(value, FileText) or not value
    if isinstance(value, dict):
        return all(is_of_file(key) and is_of_file(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_of_file, value))
    return value is None or isinstance(value, int | float)


def unmarked(value: Any) -> Any:
    """A value without marks, for code of the playbook's: it meets plain texts. What a step gave has no marks."""
    if isinstance(value, FileText):
        return str(value)
    if type(value) is dict:
        return {unmarked(key): unmarked(inner) for key, inner in value.items()}
    return [unmarked(inner) for inner in value] if type(value) is list else value
