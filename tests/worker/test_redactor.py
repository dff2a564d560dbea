"""The veil: no form of a secret passes, however it is cut, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import shlex
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.worker.secrets.redactor import RedactingStream, Redactor

SECRET = "s3cr3t/+ &'\"\\é"
T0 = datetime(2026, 11, 15, tzinfo=UTC)

# Of 14 to 30 characters: what is too short is found by chance.
secrets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=14, max_size=30).filter(
    lambda text: len(text.strip()) >= 14
)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


WRITTEN = {
    "raw": SECRET,
    "base64": base64_of(SECRET.encode()),
    "base64 behind one byte": base64_of(b"a" + SECRET.encode()),
    "base64 behind two bytes": base64_of(b"ab" + SECRET.encode()),
    "base64 with a neighbour": base64_of(b"user:" + SECRET.encode() + b"\n"),
    "base64 for urls": base64.urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
    "base64 in a url": quote_plus(base64_of(SECRET.encode())),
    "percent": quote(SECRET),
    "percent, everything that can be": quote(SECRET, safe=""),
    "percent for forms": quote_plus(SECRET),
    "percent, in lower case": quote(SECRET, safe="").replace("%2F", "%2f").replace("%C3%A9", "%c3%a9"),
    "percent, every character": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
    "json": json.dumps(SECRET)[1:-1],
    "json, not ascii": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "json with escaped slashes": json.dumps(SECRET)[1:-1].replace("/", "\\/"),
    "json, every character": "".join(f"\\u{ord(char):04x}" for char in SECRET),
    "json for html": json.dumps(SECRET)[1:-1].replace("&", "\\u0026"),
    "json in json": json.dumps(json.dumps(SECRET))[3:-3],
    "html": html.escape(SECRET),
    "quoted for a shell": shlex.quote(SECRET)[1:-1],
    "as bash traces it": SECRET.replace("'", "'\\''"),
    "as python shows it": repr(SECRET)[1:-1],
    "as python shows its bytes": repr(SECRET.encode())[2:-1],
    "hex": SECRET.encode().hex(),
    "hex in upper case": SECRET.encode().hex().upper(),
}


# -- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_secret_is_hidden_however_it_is_written(written: str) -> None:
    redacted = Redactor([SECRET]).redact_text(f"<{written}>")

    assert "***" in redacted
    # What is left are neighbours: a byte or two that stood before it, and the padding.
    assert len(redacted.replace("***", "").strip("<>=")) <= len(base64_of(b"user:"))


@given(secrets, st.binary(max_size=4), st.binary(max_size=4))
def test_no_bit_of_a_secret_is_left_in_base64(secret: str, before: bytes, after: bytes) -> None:
    text = base64_of(before + secret.encode() + after)

    redacted = Redactor([secret]).redact_text(text)

    first, last = 8 * len(before) // 6, -(-8 * (len(before) + len(secret.encode())) // 6)
    assert redacted == f"{text[:first]}***{text[last:]}"


@given(secrets)
def test_what_holds_no_secret_passes_as_it_is(secret: str) -> None:
    text = "\n".join(("0123456789 the quick brown fox %20 \\n é", base64_of(b"nothing to hide")))

    assert Redactor([secret]).redact_text(text) == text


def test_long_base64_is_hidden_though_its_lines_are_broken() -> None:
    secret = "".join(chr(33 + (7 * number) % 90) for number in range(200))

    redacted = Redactor([secret]).redact_bytes(base64.encodebytes(b"user:" + secret.encode()))

    assert redacted == b"dXNlcj***==\n"


def test_the_lines_of_a_long_secret_are_secrets_and_its_short_ones_are_not() -> None:
    redactor = Redactor(["-----BEGIN KEY-----\nMIIEvgIBADANBgkq\nhkiG\n-----END KEY-----"])

    assert redactor.redact_text("line: MIIEvgIBADANBgkq; hkiG") == "line: ***; hkiG"


def test_a_row_of_backslashes_is_found_without_trying_every_way_to_read_it() -> None:
    secret = "a" + 40 * "\\" + "b"
    text = "a" + 400 * "\\" + "c " + json.dumps(secret)

    assert Redactor([secret]).redact_text(text) == "a" + 400 * "\\" + 'c "***"'


def test_escapes_that_may_be_read_in_two_ways_each_are_not_tried_in_every_mixture() -> None:
    secret = '\\"key\\":' * examples(40, 100)
    begun = secret.replace("\\", "\\\\")[:-1]

    hidden = Redactor([secret]).redact_text(f"{begun}, {begun}:")

    assert hidden == f"{begun}, ***"


def test_of_an_object_what_is_in_it_is_a_secret_too_and_where_and_who_are_not() -> None:
    said = {"host": "db.example", "user": "app-user", "password": "hunter2!", "more": {"keys": ["first-key", "abc"]}}
    redactor = Redactor([json.dumps(said)])

    hidden = redactor.redact_text("app-user at db.example with hunter2! and first-key, abc")

    assert hidden == "app-user at db.example with *** and ***, abc"


def test_of_an_address_the_password_is_a_secret_too() -> None:
    redactor = Redactor(["postgresql://shop:pass%20word@db.example/orders"])

    assert redactor.redact_text("no such user: shop, pass word, pass%20word") == "no such user: shop, ***, ***"
    assert redactor.redact_text("at db.example/orders") == "at db.example/orders"


def test_a_secret_is_hidden_without_the_blanks_around_it() -> None:
    assert Redactor(["  hunter2 \n"]).redact_text("it is hunter2!") == "it is ***!"


def test_secrets_that_overlap_or_touch_are_hidden_as_one() -> None:
    redactor = Redactor(["abcdef", "defghi", "defg"])

    assert redactor.redact_text("<abcdefghi> <abcdefabcdef> <defgh>") == "<***> <***> <***h>"


def test_no_secrets_hide_nothing() -> None:
    assert Redactor([]).redact_text("hunter2") == "hunter2"


# -- values ----------------------------------------------------------------------------------------------------------


def test_strings_and_keys_of_a_value_are_hidden_at_any_depth() -> None:
    value = {"a": ["hunter2", {"hunter2": "x hunter2 y", "n": 5, "none": None, "yes": True}]}

    assert Redactor(["hunter2"]).redact_value(value) == {
        "a": ["***", {"***": "x *** y", "n": 5, "none": None, "yes": True}]
    }


@pytest.mark.parametrize("number", [987654, 1987654.5])
def test_a_number_that_spells_a_secret_is_hidden(number: float) -> None:
    assert Redactor(["987654"]).redact_value({"pin": number}) == {"pin": "***"}


def test_half_of_a_character_in_a_text_stays_what_it_is() -> None:
    assert Redactor(["hunter2"]).redact_text("\ud83d hunter2") == "\ud83d ***"


def test_all_that_a_report_tells_is_hidden() -> None:
    said = "it was hunter2"
    outcome = Outcome(
        exit_code=3,
        message=said,
        stderr_tail=said,
        trace=said,
        details={"why": said},
        reported=({"code": "X", "message": said},),
        report_error=said,
        missing_outputs=(said,),
        output_error=said,
    )

    told = Redactor(["hunter2"]).redact_report(TaskEnded(T0, "a", 1, outcome, {"out": said}, {"cpu_seconds": 1.0}))

    hidden = "it was ***"
    assert told.output == {"out": hidden}
    assert told.usage == {"cpu_seconds": 1.0}
    assert told.outcome == Outcome(
        exit_code=3,
        message=hidden,
        stderr_tail=hidden,
        trace=hidden,
        details={"why": hidden},
        reported=({"code": "X", "message": hidden},),
        report_error=hidden,
        missing_outputs=(hidden,),
        output_error=hidden,
    )


@pytest.mark.parametrize(
    ("cut", "hidden"),
    [
        ("it was hunter2-nev", "it was ***"),
        ("it was hunter2-nev…", "it was ***…"),
        ("hunter2-never-told and hunter2", "*** and ***"),
        # Less than that may be anything.
        ("it was hun", "it was hun"),
        ("it was aHVudGVyMi1", "it was ***"),
    ],
)
def test_the_beginning_of_a_secret_at_which_a_message_was_cut_is_hidden(cut: str, hidden: str) -> None:
    told = Redactor(["hunter2-never-told"]).redact_report(
        TaskEnded(T0, "a", 1, Outcome(message=cut, details={"it": cut}), cut)
    )

    assert (told.outcome.message, told.outcome.details) == (hidden, {"it": hidden})
    # What a step gave is whole.
    assert told.output == Redactor(["hunter2-never-told"]).redact_text(cut)


def test_a_number_that_no_event_can_hold_stays_what_it_is() -> None:
    assert Redactor(["hunter2"]).redact_value([10**5000, float("inf")]) == [10**5000, float("inf")]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_secret_among_many_rows_is_hidden_however_it_is_written(written: str) -> None:
    rows = [{"row": number} for number in range(100)]

    told = Redactor([SECRET]).redact_report(TaskEnded(T0, "a", 1, Outcome(), [*rows, {"row": written}]))

    assert told.output[:-1] == rows
    assert told.output[-1] == {"row": Redactor([SECRET]).redact_text(written)} != {"row": written}


def test_an_output_without_secrets_is_told_as_it_is() -> None:
    rows = [{"row": number, "text": "nothing", "half": "\ud800", "line": "\n"} for number in range(3)]

    told = Redactor([SECRET]).redact_report(TaskEnded(T0, "a", 1, Outcome(), rows))

    assert told.output == rows


def test_an_output_that_is_nested_too_deep_is_not_told() -> None:
    output: Any = "hunter2"
    for _ in range(5000):
        output = [output]

    told = Redactor(["hunter2"]).redact_report(TaskEnded(T0, "a", 1, Outcome(), output))

    assert told.output is None
    assert told.outcome.output_error == "its output is nested too deep to be searched for secrets"


# -- streams ---------------------------------------------------------------------------------------------------------


def streamed(redactor: Redactor, pieces: list[bytes]) -> bytes:
    stream = RedactingStream(redactor)
    return b"".join([*map(stream.feed, pieces), stream.end()])


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_secret_is_hidden_when_each_byte_of_it_is_written_alone(written: str) -> None:
    redactor = Redactor([SECRET, "s3cr3t"])
    data = f"a {written} b {written}{written}".encode()

    assert streamed(redactor, [bytes([byte]) for byte in data]) == redactor.redact_bytes(data)


# Few letters, so that secrets overlap, repeat themselves and begin like each other.
few = st.text("ab", min_size=4, max_size=9)


@given(st.lists(few, min_size=1, max_size=3), st.lists(st.text("ab\n", max_size=12), max_size=12))
def test_a_stream_is_hidden_as_its_whole_text_however_it_is_cut(values: list[str], pieces: list[str]) -> None:
    redactor = Redactor(values)
    data = [piece.encode() for piece in pieces]

    told = streamed(redactor, data)

    assert told == redactor.redact_bytes(b"".join(data))
    assert not any(value.encode() in told for value in values)


@given(st.lists(few, min_size=1, max_size=3), st.lists(st.text("ab\n", max_size=12), max_size=12))
def test_a_stream_holds_back_only_what_may_become_a_secret(values: list[str], pieces: list[str]) -> None:
    stream, seen = RedactingStream(Redactor(values)), b""
    beginnings = {form[:length] for form in values for length in range(1, len(form))}

    for piece in pieces:
        seen += piece.encode()
        stream.feed(piece.encode())

        assert not stream.pending or any(stream.pending.startswith(one.encode()[:1]) for one in beginnings)
        assert seen.endswith(stream.pending)


def test_what_begins_no_secret_is_told_at_once() -> None:
    stream = RedactingStream(Redactor(["hunter2"]))

    told = [stream.feed(piece) for piece in (b"progress 1%\n", b"a h", b"unt", b"ed.", b" hunter", b"2", b"!")]

    assert told == [b"progress 1%\n", b"a ", b"", b"hunted.", b" ", b"***", b"!"]


def test_an_endless_repetition_is_hidden_without_being_held() -> None:
    stream = RedactingStream(Redactor(["0000"]))

    told = [stream.feed(b"0" * 1000) for _ in range(20)]

    assert b"".join(told) == b"***"
    assert len(stream.pending) <= 3
