"""Files that arguments and outputs refer to: read as what they were, when it is known what is wanted."""

from __future__ import annotations

from mulligan.values.annotations import ArgumentRefused, TableUnreadable

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A mapping with this one key is a reference, and has the description of an artifact: name, size, sha256, format, ….
KEY = "$artifact"
# The formats whose content is a value; others are files.
VALUE_FORMATS = ("json", "text")


class StoredFile:
    """A file that a value refers to: its reference, and its checked local copy."""

    def __init__(
        self, path: str, reference: dict[str, Any], make_path: Callable[[str, dict[str, Any]], Any] | None = None
    ) -> None:
        self.path = path
        self.reference = reference
        self._make_path = make_path

    def load(self, wanted: str = "") -> Any:
        """Return what it was, or the wanted type (`polars.DataFrame`); raise TableUnreadable.

        A file without a type is given as its path.
        """
        description = self.reference[KEY]
        if not wanted and not description.get("type"):
            return self.as_path()
        from mulligan.values import tables

        return tables.read(description, self.path, wanted)

    def as_path(self) -> Any:
        """Return the path of the file, which stands for the artifact if the step returns it."""
        return self.path if self._make_path is None else self._make_path(self.path, self.reference)

    def read_bytes(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def describe(self) -> str:
        return f"a {self.reference[KEY].get('type') or 'file'}"


def load_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the content of each file in them; raise ArgumentRefused."""
    loaded = {}
    for name, value in arguments.items():
        try:
            loaded[name] = load_files(value)
        except TableUnreadable as problem:
            raise ArgumentRefused(f"argument '{name}' cannot be read: {problem}") from None
    return loaded


def load_files(value: Any) -> Any:
    """Return the value with the content of each file in it; the same object if there are none."""
    if isinstance(value, StoredFile):
        return value.load()
    if type(value) is dict:
        loaded = {key: load_files(inner) for key, inner in value.items()}
        return loaded if any(loaded[key] is not inner for key, inner in value.items()) else value
    if type(value) is list:
        items = [load_files(inner) for inner in value]
        return items if any(one is not inner for one, inner in zip(items, value)) else value  # noqa: B905 - not before 3.10
    return value


def load_output(value: Any, read_bytes: Callable[[dict[str, Any]], bytes]) -> Any:
    """Return an output with the content of everything that it refers to: tables and arrays as what they were.

    `read_bytes` gets the description of an artifact and returns its content. A file without a type is given as its
    bytes. Raises TableUnreadable.
    """
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get(KEY), dict):
            return _content(value[KEY], read_bytes(value[KEY]))
        return {key: load_output(inner, read_bytes) for key, inner in value.items()}
    return [load_output(inner, read_bytes) for inner in value] if isinstance(value, list) else value


def _content(description: dict[str, Any], data: bytes) -> Any:
    format = description.get("format", "json")
    if format == "text":
        return data.decode()
    if format == "json":
        import json

        return json.loads(data)
    if not description.get("type"):
        return data
    from mulligan.values import tables

    return tables.read(description, data)
