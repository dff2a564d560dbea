"""The end of what an attempt wrote, without reading the rest of it."""

from __future__ import annotations

import os

from mulligan.worker.folders import open_regular_file


def tail(path: str, bytes_max: int) -> tuple[str, bool]:
    """The last bytes of a file as text, and whether there is more before them. Nothing where there is no file."""
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - bytes_max))
            data = file.read(bytes_max)
    except OSError:
        return "", False
    is_cut = size > bytes_max
    text = data.decode("utf-8", "replace")
    return (_from_a_whole_line(text), True) if is_cut else (text, False)


def _from_a_whole_line(text: str) -> str:
    """Without the line that was cut, unless it is the only one."""
    _, newline, rest = text.partition("\n")
    return rest if newline and rest.strip() else text
