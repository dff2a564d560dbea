"""What is said of an event that cannot be read: what is wrong with it, and how it begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.codec import decode, decode_log, encode, encode_log
from mulligan.core.model.events import Entry
from mulligan.errors import CodecError

T0 = datetime(2026, 11, 15, 3, 12, tzinfo=UTC)
ENTRIES = [Entry(1, T0, 0, e.RunPaused("ada")), Entry(2, T0, 1, e.RunResumed("ada"))]
LINE = encode(ENTRIES[0])


def refused(data: Any, **fields: Any) -> tuple[str, str]:
    """What is said, and the hint."""
    with pytest.raises(CodecError) as caught:
        decode(data, **fields)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Input data was truncated"),
        (b'{"v":1,"seq":8', "Input data was truncated"),
        (b"nonsense", "JSON is malformed: invalid character (byte 4)"),
        (b"[]", "it has no version"),
        (b'"v"', "it has no version"),
        (b'{"seq":1}', "it has no version"),
        (b'{"v":"1"}', "it has no version"),
        (b'{"v": 1, "seq":"8"}', "Expected `int`, got `str` - at `$.seq`"),
        (b'{"v":1,"seq":8}', "Object missing required field `at`"),
        # A file that was written over.
        (b"\xff\xfe\x00", "JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_an_event_that_cannot_be_read_says_why_and_how_it_begins(data: bytes, said: str) -> None:
    message, hint = refused(data)

    assert message == f"an event cannot be read: {said}"
    assert hint == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"v":0,"seq":"' + b"a" * 300 + b'"}', "an event of version 0 cannot be upcast to 1"),
        (b"[" * 5000, "an event cannot be read: it is nested too deeply"),
    ],
)
def test_of_a_long_one_only_the_beginning_is_shown(data: bytes, message: str) -> None:
    assert refused(data) == (message, data[:200].decode())


@pytest.mark.parametrize(
    ("data", "kind"), [(None, "NoneType"), ("text", "str"), (7, "int"), (memoryview(LINE), "memoryview")]
)
def test_what_is_no_bytes_is_no_event(data: Any, kind: str) -> None:
    assert refused(data) == (f"an event cannot be read: it is {kind}, not bytes", "")


def test_where_one_lift_of_several_is_missing_it_is_named() -> None:
    data = b'{"v":1}'

    assert refused(data, upcasts={1: dict}, version=3) == ("an event of version 2 cannot be upcast to 3", '{"v":1}')


def test_an_event_of_the_present_version_is_not_lifted() -> None:
    """Also where there are lifts, for the logs of before."""
    assert decode(LINE, upcasts={0: lambda plain: {}, 1: lambda plain: {}}) == ENTRIES[0]


def test_spacing_is_nothing_to_whoever_reads_an_event() -> None:
    assert decode(LINE.replace(b'{"v":1,', b'{ "v": 1, ')) == ENTRIES[0]


# -- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_is_a_line_for_each_event() -> None:
    assert encode_log(ENTRIES) == b"".join(encode(entry) + b"\n" for entry in ENTRIES)
    assert encode_log([]) == b""


def test_lines_without_anything_are_no_events() -> None:
    lines = encode_log(ENTRIES).replace(b"\n", b"\n\n \n")

    assert list(decode_log(lines)) == ENTRIES
    assert list(decode_log(b"")) == []


def test_a_last_line_that_was_cut_short_is_an_error_and_no_end() -> None:
    entries = decode_log(encode_log(ENTRIES)[:-10])

    assert next(entries) == ENTRIES[0]
    with pytest.raises(CodecError) as caught:
        next(entries)
    assert caught.value.message == "an event cannot be read: Input data was truncated"
