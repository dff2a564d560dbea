"""Files the user wants written."""

from __future__ import annotations

from pathlib import Path

from mulligan.errors import MulliganError


class FileUnwritable(MulliganError):
    code = "file.unwritable"
    http_status = 422
    exit_code = 2


def write_file(path: Path, data: bytes) -> None:
    """Put `data` into the file, or refuse."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise FileUnwritable(f"'{path}' cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
