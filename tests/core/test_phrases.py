"""How things are said in a few words: each phrase whole, and where one phrase ends and the next begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from mulligan.core.deciding.classify import PAST_DEADLINE, TOO_LARGE, TOO_LONG
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import failure
from mulligan.core.model.text.formatting import (
    error_reason,
    escape_unprintable,
    format_duration,
    format_size,
    format_time,
    format_time_until,
    pluralize,
    quote_names,
    single_line,
    strip_control_characters,
)
from mulligan.history.phrases import (
    describe_adjustment,
    describe_failure,
    failure_label,
    last_lines,
)

AT = datetime(2026, 11, 15, 3, 12, tzinfo=UTC)
MIB = 1024 * 1024

# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        # What a command wrote is searched for its most useful line; an exception says most in its first.
        ("EXIT_NONZERO", "a.c:1:2: error: no\n  | ^~~", "EXIT_NONZERO: a.c:1:2: error: no"),
        ("EXIT_NONZERO", "first\nlast", "EXIT_NONZERO: last"),
        ("EXCEPTION", "first\nlast", "EXCEPTION: first"),
        # Lines that say nothing are no lines, and blanks around one are none of it.
        ("EXIT_NONZERO", "said\n\n   \n", "EXIT_NONZERO: said"),
        ("EXCEPTION", "\n  \n  said  \n", "EXCEPTION: said"),
        ("CONNECTION", "", "CONNECTION"),
        # It would only say the code twice.
        ("MY_OWN", "MY_OWN", "MY_OWN"),
    ],
)
def test_a_failure_is_its_code_and_the_line_that_says_most(code: str, message: str, said: str) -> None:
    assert describe_failure(failure(code, message)) == said


def test_a_message_that_only_says_the_exit_code_is_not_said_beside_it() -> None:
    assert describe_failure(failure("EXIT_NONZERO", "exit code 7", exit_code=7)) == "EXIT_NONZERO 7"
    assert describe_failure(failure("EXIT_NONZERO", "exit code 8", exit_code=7)) == "EXIT_NONZERO 7: exit code 8"


def test_what_was_printed_is_said_where_stderr_said_nothing() -> None:
    said = {"exit_code": 2, "details": {"stdout": "2 tests\nE  assert 1 == 2\n"}}

    assert describe_failure(failure("EXIT_NONZERO", "exit code 2", **said)) == "EXIT_NONZERO 2: E  assert 1 == 2"
    assert describe_failure(failure("EXIT_NONZERO", "no disk", **said)) == "EXIT_NONZERO 2: no disk"
    assert describe_failure(failure("SIGNALED", "killed by signal 9", signal=9)) == "SIGNALED by SIGKILL (signal 9)"


@pytest.mark.parametrize("length", [99, 100])
def test_a_line_that_fits_is_said_whole(length: int) -> None:
    assert describe_failure(failure("EXIT_NONZERO", "x" * length)) == "EXIT_NONZERO: " + "x" * length


@pytest.mark.parametrize(
    "code",
    "EXIT_NONZERO SIGNALED EXCEPTION TIMEOUT CONNECTION HTTP_4XX HTTP_429 HTTP_5XX VALIDATION_FAILED".split(),
)
def test_of_what_the_log_has_in_full_a_hundred_characters_are_said(code: str) -> None:
    assert describe_failure(failure(code, "x" * 101)) == f"{code}: " + "x" * 97 + "…"


def test_what_is_in_no_log_is_said_up_to_four_hundred_characters() -> None:
    assert describe_failure(failure("MY_OWN", "x" * 400)) == "MY_OWN: " + "x" * 400
    assert describe_failure(failure("MY_OWN", "x" * 401)) == "MY_OWN: " + "x" * 397 + "…"


def test_what_would_deceive_a_reader_is_spelled_out_in_the_line() -> None:
    assert describe_failure(failure("EXIT_NONZERO", "a\u202eb", exit_code=1)) == "EXIT_NONZERO 1: a\\u202eb"


@pytest.mark.parametrize(
    ("code", "fields", "said"),
    [
        ("EXIT_NONZERO", {"exit_code": 7}, "EXIT_NONZERO 7"),
        ("EXIT_NONZERO", {"exit_code": 0}, "EXIT_NONZERO 0"),
        ("EXIT_NONZERO", {}, "EXIT_NONZERO"),
        ("SIGNALED", {"exit_code": 139, "signal": 11}, "SIGNALED by SIGSEGV (signal 11)"),
        ("SIGNALED", {"exit_code": 137, "signal": 9}, "SIGNALED by SIGKILL (signal 9)"),
        ("SIGNALED", {"exit_code": 192, "signal": 64}, "SIGNALED by signal 64"),
        # Only where the code says that the figure is what counts.
        ("SIGNALED", {"exit_code": 137}, "SIGNALED"),
        ("TIMEOUT", {"details": {"timeout": 5}}, "TIMEOUT after 5s"),
        ("TIMEOUT", {"details": {"timeout": 0.5}}, "TIMEOUT after 0.5s"),
        ("TIMEOUT", {"details": {"timeout": "long"}}, "TIMEOUT"),
        ("TIMEOUT", {}, "TIMEOUT"),
        # The time of the visit was up, not that of the attempt.
        ("TIMEOUT", {"message": PAST_DEADLINE, "details": {"timeout": 5}}, "TIMEOUT"),
        ("TIMEOUT", {"message": "page 3", "details": {"limit": "deadline"}}, "TIMEOUT past its deadline"),
        # Another limit than the step's timeout: that one has not passed.
        ("TIMEOUT", {"details": {"limit": "read_timeout", "limit_seconds": 1.0}}, "TIMEOUT after 1s"),
        ("TIMEOUT", {"details": {"limit": "statement_timeout"}}, "TIMEOUT"),
        ("CONNECTION", {"details": {"timeout": 5}}, "CONNECTION"),
        ("APPROVAL_REFUSED", {"details": {"by": "ann"}}, "APPROVAL_REFUSED by ann"),
        ("APPROVAL_REFUSED", {"details": {"by": "a\x07nn"}}, "APPROVAL_REFUSED by ann"),
        ("APPROVAL_REFUSED", {"details": {"by": ""}}, "APPROVAL_REFUSED"),
        ("APPROVAL_REFUSED", {"details": {"by": 7}}, "APPROVAL_REFUSED"),
        ("APPROVAL_EXPIRED", {"details": {"by": "ann"}}, "APPROVAL_EXPIRED"),
        (
            "OUT_OF_MEMORY",
            {"details": {"peak_memory": 310 * MIB, "memory": 256 * MIB}},
            "OUT_OF_MEMORY at 310MiB of 256MiB",
        ),
        ("OUT_OF_MEMORY", {"details": {"peak_memory": 310 * MIB}}, "OUT_OF_MEMORY at 310MiB"),
        ("OUT_OF_MEMORY", {"details": {"peak_memory": 310 * MIB, "memory": "much"}}, "OUT_OF_MEMORY at 310MiB"),
        ("OUT_OF_MEMORY", {"details": {"memory": 256 * MIB}}, "OUT_OF_MEMORY"),
        ("OUT_OF_MEMORY", {}, "OUT_OF_MEMORY"),
        ("SIGNALED", {"details": {"peak_memory": 310 * MIB}}, "SIGNALED"),
    ],
)
def test_a_code_has_the_figure_beside_it_that_says_more(code: str, fields: dict[str, Any], said: str) -> None:
    assert failure_label(failure(code, **fields)) == said


@pytest.mark.parametrize(
    ("code", "message", "details", "said"),
    [
        ("TIMEOUT", f"{TOO_LONG} 5s", {"timeout": 5}, "TIMEOUT after 5s"),
        ("OUT_OF_MEMORY", f"{TOO_LARGE}", {"peak_memory": 5 * MIB}, "OUT_OF_MEMORY at 5MiB"),
        # Without the figure the line is all that there is.
        ("TIMEOUT", f"{TOO_LONG} 5s", {}, f"TIMEOUT: {TOO_LONG} 5s"),
        # It says something else.
        ("TIMEOUT", "still at page 3", {"timeout": 5}, "TIMEOUT after 5s: still at page 3"),
    ],
)
def test_a_line_that_says_no_more_than_the_figure_is_left_out(
    code: str, message: str, details: dict[str, Any], said: str
) -> None:
    assert describe_failure(failure(code, message, details=details)) == said


def test_a_code_that_a_step_made_up_is_one_line_that_commands_nothing() -> None:
    assert failure_label(failure("NOT A\nNAME\x1b[31m\u202e")) == "NOT A NAME\\u202e"


# -- text ------------------------------------------------------------------------------------------------------------


def test_what_can_be_printed_is_left_as_it_is() -> None:
    assert (strip_control_characters("plain"), escape_unprintable("plain"), single_line("plain")) == (
        "plain",
        "plain",
        "plain",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\x00a", "\\u0000a"),
        ("X-ray \x00", "X-ray \\u0000"),
        ("\x1b[31m", "\\u001b[31m"),
        ("tab\tand\nline", "tab\tand\nline"),
        # A carriage return would write over what stands there.
        ("a\rb", "a\\u000db"),
        ("\x7f\x9f", "\\u007f\\u009f"),
        ("\u061c\u200b\u2028\u2060\ufeff", "\\u061c\\u200b\\u2028\\u2060\\ufeff"),
        ("\ud800\ufffe\uffff", "\\ud800\\ufffe\\uffff"),
        # A space of another width deceives nobody.
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_what_commands_a_terminal_or_deceives_a_reader_is_spelled_out(text: str, said: str) -> None:
    assert escape_unprintable(text) == said


def test_what_is_to_be_kept_is_not_spelled_out() -> None:
    assert escape_unprintable("\x1b[31mred\x07", r"\x1b\[31m") == "\x1b[31mred\\u0007"


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("one", "one"), (" one ", " one "), ("one\n", "one"), ("one \n  two\r\nthree", "one two three")],
)
def test_nobody_writes_lines_that_look_like_ours(text: str, line: str) -> None:
    assert single_line(text) == line


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "0.2s"),
        (9.5, "9.5s"),
        (9.0, "9s"),
        (10.0, "10s"),
        (10.4, "10s"),
        (99.4, "99s"),
        (100.0, "1m40s"),
        (330.4, "5m30s"),
        (3599.0, "59m59s"),
        (3600.0, "1h00m"),
        (3661.0, "1h01m"),
        (8 * 3600.0 + 59 * 60, "8h59m"),
    ],
)
def test_a_length_of_time_is_said_in_the_units_that_people_use(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "at once"),
        (0, "at once"),
        (0.05, "in 50ms"),
        (0.09946, "in 99ms"),
        (0.1, "in 0.1s"),
        (2, "in 2.0s"),
        (9.9, "in 9.9s"),
        (10, "in 10s"),
        (330, "in 5m30s"),
    ],
)
def test_when_something_is_due_is_said_from_now(seconds: float, said: str) -> None:
    assert format_time_until(AT + timedelta(seconds=seconds), AT) == said


def test_a_moment_is_the_same_for_whoever_reads_it() -> None:
    there = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert (format_time(AT), format_time(there)) == ("2026-11-15 03:12:00 UTC", "2026-11-15 03:12:00 UTC")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1024 * 1023, "1023KiB"),
        (MIB, "1MiB"),
        (1023 * MIB, "1023MiB"),
        (1024 * MIB, "1.0GiB"),
        (1536 * MIB, "1.5GiB"),
        (4096 * 1024 * MIB, "4096.0GiB"),
    ],
)
def test_a_size_is_said_in_the_unit_in_which_people_say_it(number: int, said: str) -> None:
    assert format_size(number) == said


@pytest.mark.parametrize(("number", "said"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (12_345, "12,345 steps")])
def test_one_is_one_and_all_other_numbers_are_many(number: int, said: str) -> None:
    assert pluralize(number, "step") == said


# -- names and rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["a"], "'a'"),
        (["a", "b", "c"], "'a', 'b', 'c'"),
        (["a", "b", "c", "d"], "'a', 'b', 'c' and 1 more"),
        (list("abcdefg"), "'a', 'b', 'c' and 4 more"),
    ],
)
def test_three_names_are_said_and_the_others_are_counted(names: list[str], said: str) -> None:
    assert quote_names(names) == said


def test_whoever_has_more_room_says_more_names() -> None:
    assert quote_names(["a", "b", "c"], 2) == "'a', 'b' and 1 more"
    assert quote_names(["a", "b", "c", "d"], 4) == "'a', 'b', 'c', 'd'"


@pytest.mark.parametrize(
    ("adjusted", "said"),
    [
        (None, ""),
        (Adjusted(), ""),
        (Adjusted(memory=512 * MIB), " with 512MiB of memory"),
        (Adjusted(cpus=1), " with 1 cpu"),
        (Adjusted(cpus=2.5), " with 2.5 cpus"),
        (Adjusted(timeout=90), " with a timeout of 90s"),
        # Nought is a value.
        (Adjusted(memory=0, cpus=0, timeout=0), " with 0B of memory and 0 cpus and a timeout of 0s"),
    ],
)
def test_what_the_next_attempt_gets_more_of(adjusted: Adjusted | None, said: str) -> None:
    assert describe_adjustment(adjusted) == said


def test_an_error_of_the_system_is_said_as_we_say_things() -> None:
    assert error_reason(FileNotFoundError(2, "No such file or directory", "/x")) == "no such file or directory"
    assert error_reason(ValueError("Not A Number")) == "not a number"
    # One that the system has no words for.
    assert error_reason(OSError("Only This")) == "only this"


@pytest.mark.parametrize(
    ("code", "fields", "lines"),
    [
        ("EXIT_NONZERO", {"message": "a\n\nerror: b\nmake: *** Error 2\n"}, ("a", "error: b", "make: *** Error 2")),
        # The last five, in order.
        ("SIGNALED", {"message": "\n".join("abcdefg")}, tuple("cdefg")),
        # One line is told already.
        ("EXIT_NONZERO", {"message": "no route"}, ()),
        # Where stderr was empty, what was printed.
        ("EXIT_NONZERO", {"message": "exit code 7", "exit_code": 7, "details": {"stdout": "a\nb"}}, ("a", "b")),
        ("EXCEPTION", {"message": "ValueError: x", "trace": "line 1\nValueError: x"}, ("line 1", "ValueError: x")),
        # What we said ourselves is no tail of anything.
        ("HTTP_5XX", {"message": "a\nb"}, ()),
        # Nobody commands a terminal.
        ("EXIT_NONZERO", {"message": "\x1b[31mred\x1b[0m\n\u202eb"}, ("red", "\\u202eb")),
        ("EXIT_NONZERO", {"message": f"a\n{'x' * 500}"}, ("a", "x" * 199 + "…")),
    ],
)
def test_the_last_lines_of_what_was_written_stand_with_the_telling_one(
    code: str, fields: dict[str, Any], lines: tuple[str, ...]
) -> None:
    assert last_lines(failure(code, **fields)) == lines
