"""Files the user named: what cannot be read or written is refused in words."""

from __future__ import annotations

from pathlib import Path

from mulligan.core.workflow import Workflow
from mulligan.errors import LanguageError, MulliganError, Problem
from mulligan.language import load


class FileUnwritable(MulliganError):
    code = "file.unwritable"
    http_status = 422
    exit_code = 2


def load_file(path: Path) -> Workflow:
    """The workflow in the file, or a `LanguageError`, also where there is no file to read."""
    try:
        return load(path)
    except OSError as error:
        raise LanguageError([Problem(code="file.unreadable", message=_reason(error), file=str(path))]) from error


def write_file(path: Path, data: bytes) -> None:
    """Put `data` into the file, or refuse."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise FileUnwritable(f"'{path}' cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or directory"
    if isinstance(error, IsADirectoryError):
        return "this is a directory, not a file"
    return (error.strerror or type(error).__name__).lower()
