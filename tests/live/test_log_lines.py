"""Lines of logs by number, and search, as a viewer of large logs needs them."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from mulligan.ports import LogKey
from mulligan.service.logs import log_lines
from mulligan.service.logs.log_lines import LogLines
from mulligan.service.logs.log_ranges import LogSize

KEY = LogKey(1, "build", 1, "stdout")


class Bytes:
    """A log in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self, key: LogKey) -> LogSize | None:
        return LogSize(len(self.data))

    def read(self, key: LogKey, start: int = 0, end: int | None = None) -> bytes:
        return self.data[start:end]

    def pieces(self, key: LogKey, start: int = 0, end: int | None = None) -> list[bytes]:
        """In pieces that end within lines."""
        part = self.data[start:end]
        return [part[at : at + 7] for at in range(0, len(part), 7)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "BLOCK_BYTES", 16)


def opened(data: bytes) -> tuple[LogLines, Bytes]:
    log = Bytes(data)
    lines = LogLines(log, OrderedDict())  # type: ignore[arg-type]
    assert lines.count(KEY)
    return lines, log


def test_the_index_says_how_many_lines_end_before_each_block() -> None:
    data = b"".join(b"line %d\n" % number for number in range(20))
    lines, _ = opened(data)

    index = lines.index(KEY)

    assert (index.size, index.lines) == (len(data), 20)
    assert index.blocks == [data[: at * 16].count(b"\n") for at in range(-(-len(data) // 16))]


@pytest.mark.parametrize(
    ("data", "count", "blocks"),
    [(b"", 0, 1), (b"\n", 1, 1), (b"one", 1, 1), (b"one\ntwo", 2, 1), (b"x" * 16, 1, 1), (b"x" * 17, 1, 2)],
)
def test_a_last_line_without_its_end_counts(data: bytes, count: int, blocks: int) -> None:
    lines, _ = opened(data)

    index = lines.index(KEY)

    assert (index.lines, len(index.blocks)) == (count, blocks)


def test_a_log_that_grows_is_counted_on_and_one_that_shrinks_anew() -> None:
    lines, log = opened(b"one\ntwo")

    log.data += b" and more\nthree\n"
    lines.count(KEY)
    grown = lines.index(KEY).lines
    log.data = b"new\n"
    lines.count(KEY)

    assert (grown, lines.index(KEY).lines) == (3, 1)


def test_a_long_log_has_larger_blocks_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "BLOCKS_MAX", 8)
    data = b"".join(b"%d\n" % number for number in range(400))
    lines, _ = opened(data)

    index = lines.index(KEY)

    assert len(index.blocks) <= 10
    assert index.blocks == [data[: at * index.block_bytes].count(b"\n") for at in range(len(index.blocks))]


def test_each_line_with_the_text_is_found_once() -> None:
    lines, _ = opened(b"an error, an Error\nfine\nERROR\nlast error")

    assert lines.search(KEY, "error").lines == [0, 2, 3]
    assert lines.search(KEY, "Error").lines == [0]
    assert lines.search(KEY, "missing").lines == []


def test_a_search_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(b"row %d\n" % number for number in range(100))
    lines, _ = opened(data)
    monkeypatch.setattr(log_lines, "CALL_BYTES", 100)
    monkeypatch.setattr(log_lines, "MATCHES_MAX", 5)

    found: list[int] = []
    start: int | None = 0
    while start is not None:
        matches = lines.search(KEY, "row", start)
        found += matches.lines
        start = matches.next

    assert found == list(range(100))


def test_many_reads_count_a_large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "CALL_BYTES", 10)
    lines = LogLines(Bytes(b"one\n" * 10), OrderedDict())  # type: ignore[arg-type]

    calls = 1
    while not lines.count(KEY):
        calls += 1

    assert (calls, lines.index(KEY).lines) == (4, 10)


def test_a_text_is_found_in_a_line_that_is_too_long_for_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "LINE_BYTES_MAX", 20)
    lines, _ = opened(b"first\n" + b"x" * 39 + b"needle" + b"x" * 50 + b"\nlast\n")

    assert lines.search(KEY, "needle").lines == [1]
    assert lines.search(KEY, "last").lines == [2]
