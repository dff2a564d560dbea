"""Messages of failures in groups: what varies is taken out, and a pattern finds what is left."""

from __future__ import annotations

import random
import re
import time

import pytest

from mulligan.analysis.suggest.messages import (
    is_found_safely,
    merge_templates,
    pattern_of,
    template_of,
    written,
)


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("connection to 10.0.0.1:5432 timed out after 30 s", "connection to <value> timed out after <number> s"),
        ("cannot open '/srv/a b.txt': no such file", "cannot open <value>: no such file"),
        ("can't open /tmp/x-81.csv, isn't there", "can't open <value>, isn't there"),
        ("GET https://api.example.com/v1/items?page=3 gave 503", "GET <value> gave <number>"),
        ("commit 4f2a9c1d0b missing", "commit <value> missing"),
        ("lock held by 7d1f6a52-8f5c-4c57-9d0e-0b1d6f3a2c11", "lock held by <value>"),
        ("at 0x7ffe12ab segfault in worker-17", "at <value> segfault in worker-<number>"),
        ("2026-11-17T03:12:00.123Z quota of 1,024.5 GB used up", "<value> quota of <number> GB used up"),
        ('relation "orders_2026" does not exist', "relation <value> does not exist"),
        ("mail to ops@example.com bounced", "mail to <value> bounced"),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'x' is unknown",
            "KeyError: <value> is unknown",
        ),
        ("no space left on device\n\n1\n", "no space left on device"),
        ("\x1b[31mdeadlock detected\x1b[0m", "deadlock detected"),
        ("password=hunter2secret was refused", "password=<value> was refused"),
        ("", ""),
    ],
)
def test_what_varies_is_taken_out(message: str, template: str):
    assert written(template_of(message)) == template


def test_the_same_error_of_different_runs_has_one_template_and_one_pattern():
    messages = [f"psql: connection to 10.0.{n}.7 refused after {n * 37} ms (try {n})" for n in range(1, 50)]

    templates = {template_of(message) for message in messages}

    (template,) = templates
    pattern = pattern_of(template, messages)
    assert pattern == r"psql: connection to .+ refused after \d+ ms \(try"
    assert not is_found_safely(pattern, "psql: disk full")


def test_a_pattern_finds_messages_with_several_blanks_and_large_numbers():
    message = "quota  exceeded:   1,024.5 of 1,000 bytes"

    pattern = pattern_of(template_of(message), [message])

    assert re.search(pattern, message)


@pytest.mark.parametrize("message", ["", "12 34", "a b", "error 7"])
def test_too_few_letters_make_no_pattern(message: str):
    assert pattern_of(template_of(message), [message]) == ""


def test_templates_that_differ_in_one_word_are_merged_whatever_their_order():
    templates = [template_of(f"user {name} is not in the table") for name in ("ada", "bob", "eve")]
    other = template_of("disk is full again today")
    shuffled = [*templates, other]
    random.Random(3).shuffle(shuffled)

    merged, again = merge_templates([*templates, other]), merge_templates(shuffled)

    assert merged == again
    assert {written(merged[one]) for one in templates} == {"user <word> is not in the table"}
    assert merged[other] == other


def test_two_templates_that_differ_in_one_word_stay_two():
    templates = [template_of(f"the {name} is not there") for name in ("file", "table")]

    assert merge_templates(templates) == {one: one for one in templates}


@pytest.mark.parametrize("part", ["'", '"', "`", "/", "1", "a1", "::", "a@", "x.", "0x", "-", "(", "a/", "[hidden]"])
def test_a_hostile_message_takes_no_longer_than_any_other(part: str):
    message = part * 2000

    begun = time.process_time()
    pattern_of(template_of(message), [message])

    # Milliseconds; an expression that backtracks would take minutes.
    assert time.process_time() - begun < 2
