"""Files the user wants written, or read."""

from __future__ import annotations

from pathlib import Path

from mulligan.errors import MulliganError


class FileUnwritable(MulliganError):
    code = "file.unwritable"
    http_status = 422
    exit_code = 2


class FileUnreadable(MulliganError):
    code = "file.unreadable"
    http_status = 422
    exit_code = 2


def read_file(path: Path) -> bytes:
    """What is in the file, or a refusal."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileUnreadable(f"'{path}' cannot be read: {_reason(error)}") from error


def write_file(path: Path, data: bytes) -> None:
    """Put `data` into the file, or refuse."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise FileUnwritable(f"'{path}' cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
