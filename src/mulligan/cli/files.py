"""Files the user wants written, or read."""

from __future__ import annotations

import os
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


def write_file(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Put `data` into the file, or refuse. A new one is for its owner alone where it `is_private`."""
    try:
        with open(path, "wb", opener=_private if is_private else None) as file:
            file.write(data)
    except OSError as error:
        raise FileUnwritable(f"'{path}' cannot be written: {_reason(error)}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
