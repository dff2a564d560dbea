"""The list of runs: each filter, its counts, its pages, and who may change something."""

from __future__ import annotations

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

FAILING = "name: nightly\nsteps:\n  - step: load\n    shell: echo no such table >&2; exit 3\n"
COMPLETED = "name: hourly\ninputs: {day: {type: string, default: monday}}\nsteps:\n  - step: load\n    shell: 'true'\n"


def rows(html: str) -> list[int]:
    """The runs in the list, from top to bottom."""
    return [int(part.partition('"')[0]) for part in html.split('id="run-')[1:]]


def test_a_server_without_runs_says_so(pages: Client) -> None:
    assert "There is no run yet." in text_of(show(pages, "/runs"))


@pytest.fixture
def three(flows: Flows) -> list[int]:
    """A run that failed, one that completed with a label, and one that nobody drives."""
    return [
        flows.run(FAILING),
        flows.run(COMPLETED, labels={"team": "data"}, day="sunday"),
        flows.start(FAILING),
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [2, 1, 0]),
        ({"workflow": "nightly"}, [2, 0]),
        ({"workflow": ["nightly", "hourly"]}, [2, 1, 0]),
        ({"status": "failed"}, [0]),
        ({"status": "ended"}, [1, 0]),
        ({"label": "team=data"}, [1]),
        ({"input": "day=sunday"}, [1]),
        ({"failure": "exit_nonzero"}, [0]),
        ({"text": "table"}, [0]),
        ({"since": "1h"}, [2, 1, 0]),
        ({"until": "1h"}, []),
        ({"who": "a tester"}, [2, 1, 0]),
        ({"who": "somebody else"}, []),
        ({"before": 3}, [1, 0]),
        # As a form sends it.
        ({"workflow": "", "failure": "", "label": "", "who": "", "text": " ", "since": ""}, [2, 1, 0]),
    ],
)
def test_each_filter_stands_in_the_address(
    pages: Client, three: list[int], filters: dict[str, object], expected: list[int]
) -> None:
    assert rows(show(pages, "/runs", **filters)) == [three[number] for number in expected]


def test_statuses_have_their_counts_with_and_without_filters(pages: Client, three: list[int]) -> None:
    everything, of_one = text_of(show(pages, "/runs")), text_of(show(pages, "/runs", workflow="nightly"))

    assert "All 3 running 1 paused 0 failed 1 completed 1 cancelled 0" in everything
    assert "All 2 running 1 paused 0 failed 1 completed 0 cancelled 0" in of_one


def test_a_filter_can_be_left_out_alone(pages: Client, three: list[int]) -> None:
    found = show(pages, "/runs", workflow="nightly", label="team=data")

    assert 'href="/runs?label=team%3Ddata"' in found
    assert 'href="/runs?workflow=nightly"' in found
    assert "No run matches." in text_of(found)


@pytest.mark.parametrize(
    "filters", [{"label": "team"}, {"status": "broken"}, {"since": "soon"}, {"text": "!!"}, {"colour": "red"}]
)
def test_a_filter_that_means_nothing_is_refused_with_a_page(pages: Client, filters: dict[str, str]) -> None:
    reply = pages.get("/runs", **filters)

    assert reply.status in (400, 422)
    assert b"<h1>" in reply.body


def test_pages_follow_each_other(pages: Client, flows: Flows) -> None:
    run_ids = [flows.start(COMPLETED) for _ in range(52)]

    first = show(pages, "/runs")
    second = show(pages, "/runs", before=rows(first)[-1])

    assert f'href="/runs?before={rows(first)[-1]}"' in first
    assert [*rows(first), *rows(second)] == run_ids[::-1]


def test_somebody_who_may_only_read_can_select_nothing(pages: Client, three: list[int]) -> None:
    assert "Select run" in show(pages, "/runs")
    assert "Select run" not in show(pages, "/runs", scope="read")
    assert 'id="bulk"' not in show(pages, "/runs", scope="read")


def test_hostile_labels_inputs_and_filters_are_text(pages: Client, flows: Flows) -> None:
    flows.run(COMPLETED, labels={"team": HOSTILE[:90]}, day=HOSTILE)

    for found in (show(pages, "/runs"), show(pages, "/runs", text=f"x {HOSTILE}", label=f"team={HOSTILE}")):
        assert "<script>alert" not in found
        assert "<img src=x" not in found
