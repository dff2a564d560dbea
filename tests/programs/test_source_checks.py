"""What is warned of in the source of a program, and what is not."""

from __future__ import annotations

import textwrap

import pytest

from mulligan.programs.source_checks import check_source

_HEAD = """
import asyncio, datetime as dt, os, random, subprocess, time, uuid
from datetime import datetime
from pathlib import Path
from time import time as clock
import mulligan
from mulligan import program, step
"""


def warnings_of(body: str, decorator: str = "@program") -> list[str]:
    text = f"{_HEAD}\n{decorator}\ndef nightly(day, random_day=None):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return [
        one.message.removeprefix("the program 'nightly' ").removesuffix(": a replay may differ")
        for one in check_source(text)
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return time.time()", "reads the clock"),
        ("return clock()", "reads the clock"),
        ("return datetime.now()", "reads the clock"),
        ("return dt.datetime.now(dt.UTC)", "reads the clock"),
        ("time.sleep(3)", "sleeps in its process"),
        ("return random.choice([1, 2])", "asks chance"),
        ("return uuid.uuid4()", "makes an id"),
        ("return os.environ['HOME']", "reads its environment"),
        ("return os.getenv('HOME')", "reads its environment"),
        ("return open('rows.csv')", "uses files"),
        ("return Path('rows.csv').read_text()", "uses files"),
        ("subprocess.run(['make'])", "starts a process"),
        ("if os.path.exists('rows.csv'): load()", "looks at files"),
        ("asyncio.run(work())", "runs an event loop of its own"),
        ("for one in {1, 2}: load(one)", "goes through a set, whose order differs from process to process"),
        (
            "days = set(day)\nfor one in days: load(one)",
            "goes through a set, whose order differs from process to process",
        ),
        (
            "return [load(one) for one in set(day) - {1}]",
            "goes through a set, whose order differs from process to process",
        ),
        ("return mulligan.gather(list({1}))", "goes through a set, whose order differs from process to process"),
        ("def inner():\n    return time.time()\nreturn inner()", "reads the clock"),
        ("return hash(day)", "asks for a hash, which differs from process to process"),
        ("return id(day)", "asks for an address"),
        ("return input()", "reads its standard input"),
    ],
    ids=lambda value: value[:30].replace("\n", " ") if "(" in value or ":" in value else "",
)
def test_what_differs_in_a_replay_is_warned_of(body: str, found: str):
    assert warnings_of(body) == [found]


@pytest.mark.parametrize(
    "body",
    [
        "return mulligan.now(), mulligan.random(), mulligan.uuid4()",
        "id, input = day\nreturn id, input",
        "return sorted({1, 2}), len(set(day)), 3 in {1, 2}",
        "return sum(one for one in {1, 2})",
        "return dt.timedelta(days=1), datetime.fromisoformat(day)",
        "time = day\nreturn time",
        "return asyncio.gather(load(day))",
        "@step\ndef inner():\n    return time.time()",
        "return day.random, random_day.choice()",
    ],
)
def test_what_is_the_same_in_a_replay_is_not_warned_of(body: str):
    assert warnings_of(body) == []


_ASYNC = """
from mulligan import approve, program, step

@step
def publish(): ...

@program
async def {name}():
    {line}
"""


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("approve('publish it?')", "approve"),
        ("publish()", "publish"),
        ("publish.call()", "publish"),
        ("publish.options(key=1)()", "publish"),
        ("await publish()", ""),
        ("task = publish()", ""),
        ("print(publish)", ""),
    ],
)
def test_a_call_that_is_not_awaited_is_warned_of(line: str, called: str):
    found = [one.message for one in check_source(_ASYNC.format(name="nightly", line=line))]

    assert found == ([f"the program 'nightly' calls '{called}' and does not await it"] if called else [])


def test_one_program_of_a_file_is_looked_at_alone():
    text = _ASYNC.format(name="nightly", line="publish()") + _ASYNC.format(name="weekly", line="publish()")

    assert len(check_source(text)) == 2
    assert [one.line for one in check_source(text, program="weekly")] == [18]


def test_only_programs_are_looked_at():
    assert warnings_of("return time.time()", "@step") == []
    assert warnings_of("return time.time()", "@mulligan.program(calls=3)") == ["reads the clock"]
    assert check_source("def broken(:") == []


def test_a_warning_says_where_and_what_to_write():
    [found] = check_source("from mulligan import program\nimport time\n\n@program\ndef p():\n    x = time.time()\n")

    assert (found.line, found.column, found.hint) == (6, 9, "mulligan.now() is recorded")
