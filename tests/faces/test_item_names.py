"""Items that the file names: shown, typed, and the same wherever they are read."""

from __future__ import annotations

import json

import pytest
from tests.support.commands import mulligan, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

FLOW = """\
name: named
steps:
  - step: load
    map:
      over: {over}
      as: row
      item_name: "{name}"
    do: [{{shell: "test ${{row.region}} != east"}}]
"""
ROWS = [{"region": "west", "day": 1}, {"region": "east", "day": 2}, {"region": "a\nb\x1b[31m", "day": 3}]


def flow(rows: object, name: str = "${row.region} day ${row.day}") -> str:
    return FLOW.format(over=json.dumps(rows), name=name)


def names_of(text: str) -> list[str]:
    ran(text)
    events = [json.loads(line)["fact"] for line in mulligan("events", 1, "--json").out.splitlines()]
    return next(event["names"] for event in events if event["type"] == "map.expanded")


def test_an_item_has_the_name_of_its_template_everywhere():
    said = ran(flow(ROWS))

    assert "load[east day 2]" in said.err
    assert "attempt 1" in mulligan("logs", 1, "load[east day 2]").err
    assert mulligan("items", 1, "load", "--item", "east day 2").code == 0
    assert "load[east day 2]" in mulligan("explain", 1).out


def test_a_name_is_one_line_and_no_two_are_the_same():
    rows = [*ROWS, ROWS[0], {"region": "", "day": ""}]

    assert names_of(flow(rows, "${row.region}")) == ["west #0", "east", "a b", "west #3", "#4"]


def test_a_long_name_is_cut():
    (name,) = names_of(flow([{"region": "w" * 500}], "${row.region}"))

    assert len(name) == 48


def test_a_name_that_cannot_be_made_fails_the_step():
    said = ran(flow([{"region": "west"}]))

    assert "failed with EXPRESSION_FAILED" in said.err


def test_a_retry_keeps_the_names():
    ran(flow(ROWS))
    mulligan("retry", 1)

    assert "load[east day 2]" in mulligan("explain", 1).out.splitlines()[-3]


def test_a_name_reads_no_secret():
    text = "secrets: {token: {env: TOKEN}}\n" + flow(ROWS, "${secrets.token}")

    assert "can only be read by workers" in mulligan("run", workflow(text)).err
