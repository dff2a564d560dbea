"""The tabs of a run besides the overview, what can be done with a run, and two runs beside each other."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

from mulligan.service.service import Service

FAILING = """
name: nightly
inputs:
  day: {type: string, default: monday}
  options: {type: object, default: {region: eu, sizes: [1, 2, 3]}}
steps:
  - {step: fetch, shell: 'echo fetched'}
  - step: load
    needs: [fetch]
    shell: 'echo "connection refused" >&2; exit 7'
    retry: {max_retries: 1, delay: 1ms}
    next:
      - {to: publish}
      - {to: repair, on: failure, codes: [EXIT_NONZERO]}
      - {to: page_someone, on: failure, codes: [TIMEOUT]}
  - {step: publish, shell: 'true'}
  - {step: repair, shell: 'exit 3'}
  - {step: page_someone, shell: 'true'}
outputs:
  day: ${inputs.day}
"""
FINE = "name: fine\nsteps:\n  - {step: one, shell: 'true'}\n  - {step: two, needs: [one], shell: 'true'}\n"

COUNTING = """
from mulligan import program, step

@step(inline=True)
def count(number: int) -> int:
    return number + 1

@program
def counting() -> int:
    return count(1)
"""


def many(count: int) -> str:
    """A chain of steps that nothing makes similar: each has its own words."""
    names = [f"{chr(97 + number % 26) * (1 + number // 26)}_{number}" for number in range(count)]
    steps = [{"step": name, "shell": "true", "needs": names[at - 1 : at]} for at, name in enumerate(names)]
    return json.dumps({"name": "many", "steps": steps})


def begin(pages: Client, text: str) -> int:
    """A run that no worker has taken yet."""
    return int(pages.post("runs", {"text": text}).json["run_id"])


def actions_of(html: str) -> list[dict[str, Any]]:
    """The actions on a run that a page offers."""
    return [json.loads(unescape(one)) for one in re.findall(r'data-run-action="([^"]*)"', html)]


# -- graph -----------------------------------------------------------------------------------------------------------


def test_the_graph_marks_the_failure_edge_that_was_taken_and_links_each_step(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    html = show(pages, f"/runs/{run_id}", tab="graph")

    edges = {
        (one[1], one[2]): one[0] for one in re.findall(r'class="(line [^"]*)" data-from="(\w+)" data-to="(\w+)"', html)
    }
    assert edges["load", "repair"] == "line failure taken"
    assert edges["load", "page_someone"] == "line failure"
    assert edges["fetch", "load"] == "line success taken"
    assert edges["load", "publish"] == "line success"
    assert f'href="/runs/{run_id}/steps/repair"' in html
    assert "<style" not in html
    assert " style=" not in html


def test_two_failure_edges_to_the_same_step_are_told_apart(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING.replace("to: page_someone, on", "to: repair, on"))

    html = show(pages, f"/runs/{run_id}", tab="graph")

    assert html.count("line failure taken") == 1


def test_a_large_graph_is_drawn_around_the_step_that_needs_attention(pages: Client) -> None:
    run_id = begin(pages, many(400))

    first = show(pages, f"/runs/{run_id}", tab="graph")
    around = show(pages, f"/runs/{run_id}", tab="graph", step="e_4")

    assert first.count("<g class=") < 10
    assert set(re.findall(r'data-step="([^"]*)"', around)) == {"c_2", "d_3", "e_4", "f_5", "g_6"}
    assert f'href="/runs/{run_id}?tab=graph&amp;step=d_3"' in around
    assert f'href="/runs/{run_id}/steps/e_4"' in around


def test_an_unknown_step_in_the_address_is_said(pages: Client) -> None:
    run_id = begin(pages, FINE)

    reply = pages.get(f"/runs/{run_id}", tab="graph", step="on")

    assert reply.status == 404
    assert "did you mean" in text_of(reply.body.decode())


# -- grid ------------------------------------------------------------------------------------------------------------


def test_the_grid_shows_failures_first_with_each_attempt(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    html = show(pages, f"/runs/{run_id}", tab="grid")

    rows = re.findall(r'<tr id="row-(\w+)"', html)
    assert rows[:2] == ["load", "repair"]
    row = html.partition('id="row-load"')[2].partition("</tr>")[0]
    assert len(re.findall(r'class="mark bad"', row)) == 2
    assert "connection refused" in row
    assert "attempt 2 failed" in row


def test_the_grid_has_a_column_for_each_round(pages: Client, flows: Flows, service: Service) -> None:
    run_id = flows.run(FAILING)
    service.changes.retry(run_id)
    flows.drive(run_id)

    html = show(pages, f"/runs/{run_id}", tab="grid")

    assert "Round 1" in text_of(html)
    assert "Round 2" in text_of(html)
    row = html.partition('id="row-load"')[2].partition("</tr>")[0]
    cells = row.split('<td class="cells">')[1:]
    assert [one.count("mark bad") for one in cells] == [2, 2]


def test_completed_steps_can_be_hidden_and_found_by_name(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    hidden = show(pages, f"/runs/{run_id}", tab="grid", hide_completed="true")
    found = show(pages, f"/runs/{run_id}", tab="grid", text="fet")

    assert re.findall(r'<tr id="row-(\w+)"', hidden) == ["load", "repair"]
    assert re.findall(r'<tr id="row-(\w+)"', found) == ["fetch"]


def test_the_attempts_of_a_large_run_are_read_in_parts(pages: Client, flows: Flows, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run_id = flows.run(FAILING)
    monkeypatch.setattr("mulligan.service.runs.stored.event_index.EVENTS_MAX", 12)

    first = show(pages, f"/runs/{run_id}", tab="grid")
    shown = [show(pages, f"/runs/{run_id}", tab="grid") for _ in range(3)]

    assert "Reading the attempts of a large run" in text_of(first) and "data-again" in first
    assert 'id="row-load"' in first and "attempt 1" not in first
    assert "data-again" not in shown[-1] and "attempt 1" in shown[-1]


def test_the_grid_has_no_step_that_nobody_wrote(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FINE)

    assert 'id="row-end"' not in show(pages, f"/runs/{run_id}", tab="grid")


def test_the_grid_of_many_steps_has_pages(pages: Client) -> None:
    run_id = begin(pages, many(250))

    last = show(pages, f"/runs/{run_id}", tab="grid", cursor="200")

    assert "201 to 250 of 250" in text_of(last)
    assert last.count("<tr id=") == 50
    assert pages.get(f"/runs/{run_id}", tab="grid", cursor="x").status == 422


# -- events ----------------------------------------------------------------------------------------------------------


def test_events_are_in_words_the_newest_first(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    html = show(pages, f"/runs/{run_id}", tab="events")

    numbers = [int(one) for one in re.findall(r'id="event-(\d+)"', html)]
    assert numbers == sorted(numbers, reverse=True)
    assert "connection refused" in text_of(html)
    assert "run.failed" in text_of(html)


def test_events_are_filtered_by_group_type_and_step(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    failures = show(pages, f"/runs/{run_id}", tab="events", type="failures")
    started = show(pages, f"/runs/{run_id}", tab="events", type="attempt.started", step="load")
    wrong = pages.get(f"/runs/{run_id}", tab="events", type="attempt.startet")

    kinds = set(re.findall(r"<summary[^>]*>([\w.]+)<", failures))
    assert "attempt.failed" in kinds
    assert "attempt.started" not in kinds
    assert re.findall(r"<summary[^>]*>([\w.]+)<", started) == ["attempt.started", "attempt.started"]
    assert wrong.status == 422


def test_older_events_are_on_further_pages(pages: Client, flows: Flows) -> None:
    run_id = flows.run(many(40))

    seen: list[int] = []
    query: dict[str, str] = {}
    while True:
        html = show(pages, f"/runs/{run_id}", tab="events", **query)
        seen += [int(one) for one in re.findall(r'id="event-(\d+)"', html)]
        older = re.search(r"cursor=(\d+)", html.partition(">Older<")[0].rpartition("<a ")[2])
        if ">Older<" not in html or older is None:
            break
        query = {"cursor": older[1]}

    assert seen == list(range(len(seen), 0, -1))
    assert len(seen) > 120


# -- data ------------------------------------------------------------------------------------------------------------


def test_inputs_outputs_and_data_are_trees(pages: Client, flows: Flows) -> None:
    run_id = flows.run(
        "name: fine\ndata: {seen: [1, 2]}\ninputs: {rows: {type: integer, default: 5}}\n"
        "steps:\n  - {step: one, shell: 'true'}\noutputs: {rows: '${inputs.rows}'}\n",
        labels={"team": "data"},
    )

    text = text_of(show(pages, f"/runs/{run_id}", tab="data"))

    assert "Outputs rows 5" in text.replace(" JSON", "")
    assert "seen [1, 2] the workflow file" in text
    assert "team data" in text
    assert "No step has kept a file." in text


# -- actions ---------------------------------------------------------------------------------------------------------


def test_a_run_offers_what_makes_sense_now(pages: Client, flows: Flows) -> None:
    new, failed, done = begin(pages, FINE), flows.run(FAILING), flows.run(FINE)

    offered = {
        run_id: [one["kind"] for one in actions_of(show(pages, f"/runs/{run_id}"))] for run_id in (new, failed, done)
    }
    pages.post(f"runs/{new}:pause", {})
    flows.drive(new)

    assert offered == {new: ["pause", "cancel"], failed: ["retry", "fork"], done: ["fork"]}
    assert [one["kind"] for one in actions_of(show(pages, f"/runs/{new}", tab="data"))] == ["resume", "cancel"]


def test_a_run_of_a_program_is_forked_at_one_of_its_events(
    pages: Client, flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(flows.folder)
    run_id = flows.run(COUNTING, name="counting.py")

    page = show(pages, f"/runs/{run_id}")

    assert actions_of(page) == []
    assert re.search(rf'href="/runs/{run_id}\?tab=replay"[^>]*>Fork at an event<', page)


def test_who_may_only_read_gets_no_buttons(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    for tab in ("overview", "graph", "grid", "events", "data"):
        html = show(pages, f"/runs/{run_id}", scope="read", tab=tab)
        assert actions_of(html) == []
        assert "data-action" not in html


def test_a_failed_step_is_retried_from_the_grid(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    found = actions_of(show(pages, f"/runs/{run_id}", tab="grid"))

    assert {"kind": "retry", "run_id": run_id, "workflow": "nightly", "step": "load", "writes": True} in found


# -- compare ---------------------------------------------------------------------------------------------------------


def test_a_comparison_shows_what_differs_first(pages: Client, flows: Flows) -> None:
    a = flows.run(FAILING)
    b = flows.run(FAILING.replace("exit 7", "exit 0"), day="tuesday")

    text = text_of(show(pages, "/compare", a=a, b=b))

    assert "of 6 went differently; 1 input differs; the definition differs." in text
    assert "load failed 2 attempts" in text
    assert "day monday tuesday" in text
    assert "exit 7" in text
    assert "options" not in text.partition("Inputs")[2].partition("Definition")[0]


def test_equal_runs_differ_in_nothing(pages: Client, flows: Flows) -> None:
    a, b = flows.run(FINE), flows.run(FINE)

    text = text_of(show(pages, "/compare", a=a, b=b))

    assert "all steps went the same way; the inputs are the same; the definition is the same." in text


def test_the_other_run_is_chosen_from_those_of_the_same_workflow(pages: Client, flows: Flows) -> None:
    a, b, other = flows.run(FINE), flows.run(FINE), flows.run(FAILING)

    html = show(pages, "/compare", a=a)

    assert f'href="/compare?a={a}&amp;b={b}"' in html
    assert f"b={other}" not in html
    assert pages.get("/compare", a=a, b=99).status == 404


# -- hostile text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tab", ["graph", "grid", "events", "data"])
def test_what_steps_and_people_said_is_text(pages: Client, flows: Flows, tab: str) -> None:
    text = json.dumps(
        {
            "name": "hostile",
            "inputs": {"said": {"type": "string", "default": HOSTILE}},
            "steps": [
                {"step": "one", "shell": "printf '%s' \"$said\" >&2; exit 1", "env": {"said": "${inputs.said}"}},
                {"step": "two", "needs": ["one"], "shell": "true", "when": f"${{'{'x' * 3}<b>' == '<b>'}}"},
            ],
        }
    )
    run_id = flows.run(text, labels={"note": "<img src=x onerror=alert(1)>"})

    html = show(pages, f"/runs/{run_id}", tab=tab)

    assert "<script>alert" not in html
    assert "<img" not in html
