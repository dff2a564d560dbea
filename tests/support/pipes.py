"""A step that says that it runs, to a test that must not wait for ever."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

SECONDS_MAX = 60


class Pipe:
    """A named pipe in this folder. A step that writes into it goes on when we have heard it."""

    def __init__(self, name: str = "pipe") -> None:
        os.mkfifo(name)
        self._path = Path(name)
        self._fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)

    def hear(self) -> None:
        """Return when somebody has written."""
        heard, _, _ = select.select([self._fd], [], [], SECONDS_MAX)
        assert heard, "nobody wrote into the pipe"
        os.read(self._fd, 100)

    def remove(self) -> None:
        os.close(self._fd)
        self._path.unlink()


def read_terminal(terminal: int) -> bytes:
    """All that was written to a terminal whose other side is closed. One read may end in the middle of a line."""
    data = b""
    # Linux raises an error where nobody is left on the other side.
    with open(terminal, "rb", buffering=0) as file, suppress(OSError):
        while block := file.read(4096):
            data += block
    return data
