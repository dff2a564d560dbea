"""How much of a log is shipped, and which of it was shipped before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mulligan.core.model.clusters.shipped_logs import encode_watch, is_watched, parts_to_ship

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = bytes(range(65, 91))


def shipped(file: bytes, before: bytes, *, is_last: bool) -> bytes:
    """What the store has after the parts that are missing were shipped."""
    found = bytearray(before)
    for part in parts_to_ship(len(file), len(before), is_last=is_last, head=8, tail=4):
        assert part.start == len(found)
        found += part.text or file[part.source : part.source + part.length]
    return bytes(found)


def test_a_log_is_shipped_whole_up_to_the_limit():
    assert shipped(TEXT[:12], b"", is_last=True) == TEXT[:12]
    assert shipped(TEXT[:12], TEXT[:5], is_last=True) == TEXT[:12]
    assert shipped(b"", b"", is_last=True) == b""


def test_of_a_longer_log_the_middle_is_left_out_and_that_is_said():
    note = b"\n[\xe2\x80\xa6 14 bytes omitted in the store: the host of the step has them \xe2\x80\xa6]\n"

    assert shipped(TEXT, b"", is_last=True) == b"ABCDEFGH" + note + b"WXYZ"
    assert shipped(TEXT, b"ABCD", is_last=True) == b"ABCDEFGH" + note + b"WXYZ"


def test_while_it_is_written_only_the_beginning_is_shipped():
    assert shipped(TEXT[:6], TEXT[:4], is_last=False) == TEXT[:6]
    assert shipped(TEXT, TEXT[:4], is_last=False) == b"ABCDEFGH"
    assert shipped(TEXT, b"ABCDEFGH", is_last=False) == b"ABCDEFGH"


def test_of_a_file_that_was_cut_meanwhile_the_end_is_shipped():
    note = b"\n[\xe2\x80\xa6 some bytes omitted in the store: the host of the step has them \xe2\x80\xa6]\n"

    assert shipped(b"AB..YZ", b"ABCDEFGH", is_last=False) == b"ABCDEFGH"
    assert shipped(b"AB..YZ", b"ABCDEFGH", is_last=True) == b"ABCDEFGH" + note + b"..YZ"


@pytest.mark.parametrize(
    ("data", "is_it"),
    [
        (encode_watch(NOW + timedelta(seconds=1)), True),
        (encode_watch(NOW), False),
        (b"{}", False),
        (b'{"until": "2030-01-01T00:00:00"}', False),
        (b"\xff", False),
    ],
)
def test_a_watch_lasts_until_its_time(data: bytes, is_it: bool):
    assert is_watched(data, NOW) is is_it
