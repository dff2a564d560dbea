"""Files that the user names to be read or written."""

from __future__ import annotations

import errno
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
    """The content of a file; raises `FileUnreadable`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileUnreadable(f"'{path}' cannot be read: {_reason(error)}") from error


def write_file(path: Path, data: bytes, *, is_private: bool = False, follows: bool = True) -> None:
    """Write `data` to the file; raises `FileUnwritable`. With `is_private` only the owner can read a new file.

    `follows`: also through a symbolic link. Only for names that the user typed: others may have been planted.
    """
    mode, more = 0o600 if is_private else 0o666, 0 if follows else os.O_NOFOLLOW
    try:
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags | more, mode)) as file:
            file.write(data)
    except OSError as error:
        if error.errno == errno.ELOOP and not follows:
            raise FileUnwritable(
                f"'{path}' is a link, and is not overwritten", hint="name a file with -o FILE"
            ) from error
        raise FileUnwritable(f"'{path}' cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
