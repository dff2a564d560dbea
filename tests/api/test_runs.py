"""Runs over REST: the list, one run in pieces, and the same JSON as `--json`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tests.support.api_client import Client, Reply, open_client
from tests.support.commands import Said, mulligan

from mulligan.api.routes import ROUTES
from mulligan.core.model.agents.spending import Spent, spent_json
from mulligan.core.state.scope import error_view
from mulligan.service.home import Home
from mulligan.service.runs.views.run_view import FailureView, SpentView
from mulligan.service.service import Service

PARKED = """
name: nightly
labels: {team: ops}
inputs: {day: {type: string, default: monday}}
steps:
  - step: fetch
    shell: echo looking; echo nothing there >&2; exit 3
    retry: {exit_codes: [4], max_retries: 2, recovery_script: {shell: echo clean}}
    triage: true
  - step: each
    map: {over: [a, b, c]}
    do: [{shell: 'echo ${item}; test ${item} != b'}]
    continue_on_error: true
  - step: sim
    matrix: {size: [1, 2]}
    shell: echo ${matrix.size}
"""
COMPLETED = """
name: weekly
steps:
  - step: pack
    shell: |
      for i in $(seq 20); do echo line $i; done
      echo '{"answer": 42}' >> "$MULLIGAN_DATA_SET"
  - step: keep
    python: |
      import mulligan

      def main():
          with open("kept.txt", "w") as file:
              file.write("content")
          mulligan.artifact("kept.txt")
outputs: {text: '${steps.pack.output}'}
"""
FAILED = """
name: daily
steps:
  - step: call
    map: {over: [1, 2]}
    do: [{workflow: child.yaml}]
  - step: load
    shell: echo broken >&2; exit 7
"""
CHILD = "name: child\nsteps:\n  - step: one\n    shell: 'true'\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with three runs: 1 waits for a person, 2 completed, 3 called two others and failed."""
    here, path = os.getcwd(), tmp_path_factory.mktemp("runs")
    os.chdir(path)
    try:
        Path("child.yaml").write_text(CHILD, encoding="utf-8")
        for name, text, words in (
            ("nightly", PARKED, ("--wait", "0s", "-i", "day=sunday")),
            ("weekly", COMPLETED, ("--label", "kind=big")),
            ("daily", FAILED, ()),
        ):
            Path(f"{name}.yaml").write_text(text, encoding="utf-8")
            said = mulligan("run", f"{name}.yaml", *words)
            assert said.code != 2, said.err
        yield path
    finally:
        os.chdir(here)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    opened = open_client(Home(folder / ".mulligan"))
    yield opened
    opened.close()


def said(*words: object) -> Any:
    """The JSON of a command line."""
    found: Said = mulligan(*words, "--json")
    assert not found.err.startswith("error"), found.err
    return found.json


def fits(reply: Reply, path: str) -> Any:
    """The JSON of an answer, which has the type that the table of routes says."""
    assert reply.status == 200, reply.body[:500]
    (answer,) = (one.answer for one in ROUTES if one.method == "GET" and one.path == path)
    found = msgspec.to_builtins(msgspec.convert(reply.json, answer))
    # A failure is plain data, of which `convert` leaves out what the type does not have.
    assert names_in(found) == names_in(reply.json)
    return reply.json


def names_in(value: Any) -> Any:
    """The names of the fields at every level, without the values."""
    if isinstance(value, dict):
        return {name: names_in(one) for name, one in value.items()}
    return [names_in(one) for one in value] if isinstance(value, list | tuple) else None


def test_what_agents_have_spent_and_a_failure_have_the_fields_that_the_document_says() -> None:
    spent = spent_json(Spent(calls=1, tokens=2))

    assert spent is not None and spent.keys() == SpentView.__annotations__.keys()
    assert error_view(None).keys() == FailureView.__annotations__.keys()


RUN = "runs/{run_id:int}"


# -- the same as --json ----------------------------------------------------------------------------------------------


def without_times(lines: Any) -> Any:
    """Runs of a list without how long those take that have not ended."""
    return [{**line, "seconds": 0} for line in lines]


def test_the_list_has_the_runs_that_the_command_line_lists(client: Client) -> None:
    found = fits(client.get("runs"), "runs")

    assert without_times(found["runs"]) == without_times(said("list"))
    assert [run["run_id"] for run in found["runs"]] == [3, 2, 1]
    assert found["next"] is None


def test_a_run_without_its_steps_says_what_show_says(client: Client) -> None:
    for run_id in (1, 2, 3):
        head, shown = fits(client.get(f"runs/{run_id}"), RUN), said("show", run_id)

        both = head.keys() & shown.keys() - {"matrices"}
        if shown["end"]:
            # What only the log knows is left out.
            shown["end"] = {key: value for key, value in shown["end"].items() if key in head["end"]}
        assert {key: head[key] for key in both} == {key: shown[key] for key in both}
        assert shown.keys() - head.keys() == {"steps", "children", "artifacts"}
        assert head["step_count"] == len(shown["steps"])
        assert sum(head["step_counts"].values()) == head["step_count"]


def test_a_whole_run_is_what_show_prints(client: Client) -> None:
    for run_id in (1, 2, 3):
        assert fits(client.get(f"runs/{run_id}/full"), f"{RUN}/full") == said("show", run_id)


ROW = "run_id workflow version status round degraded reason created_at updated_at parent_run_id driver"
STATE = "outputs state data spent budget end"
STEP = (
    "status visits attempts recovered handled output failure failure_route waiting_for warnings up_to_date_since "
    "paused spent budget faked tool_calls progress usage items undone undo_failed children"
)
MATRIX = "status statuses failures combinations attempts usage"


def test_the_fields_of_a_run_are_printed_in_the_order_that_scripts_have_seen(client: Client) -> None:
    """One struct gives all of these; each face has an order of its own, which is part of what it prints."""
    head, whole = client.get("runs/1").json, said("show", 3)
    moment = client.get("runs/1/at/9").json
    with Service(Home(Path(".mulligan"))) as service:
        alone = service.runs.show(1)

    def fields(found: dict[str, Any]) -> str:
        return " ".join(found)

    assert fields(head) == (
        f"{ROW} labels revision {STATE} workspace waiting_for failures failure_count wait_count seq root_run_id "
        "started_by inputs step_count step_counts matrices child_count"
    )
    assert fields(head["matrices"]["sim"]) == "status statuses count"
    assert fields(whole) == (
        f"{ROW} labels revision steps matrices failures {STATE} workspace waiting_for artifacts children"
    )
    assert fields(whole["steps"]["load"]) == f"{STEP} tries"
    assert fields(whole["children"][0]) == f"{ROW} step step_name attempt steps matrices waiting_for children"
    assert fields(whole["children"][0]["steps"]["one"]) == STEP
    in_short = (
        f"run_id status degraded round version revision steps matrices failures {STATE} reason workspace waiting_for"
    )
    assert fields(alone) == fields(moment["run"]) == in_short
    assert fields(alone["matrices"]["sim"]) == "status statuses failures combinations"
    assert fields(moment["run"]["matrices"]["sim"]) == fields(said("show", 1)["matrices"]["sim"]) == MATRIX
    assert fields(said("show", 1, "sim")) == f"run_id name {MATRIX} steps"
    assert fields(said("show", 1, "sim")["steps"][0]) == f"name {STEP}"
    assert fields(said("show", 1, "fetch")) == f"run_id name {STEP} matrix tries"
    assert fields(said("show", 1, "fetch")["waiting_for"][0]) == "kind text place attempt"
    assert fields(said("show", 1)["failures"][0]).endswith("handled recovered allowed failure_route")


@pytest.mark.parametrize("step", ["fetch", "each", "sim", "sim_1"])
def test_a_step_is_what_show_prints(client: Client, step: str) -> None:
    assert fits(client.get(f"runs/1/steps/{step}"), f"{RUN}/steps/{{step}}") == said("show", 1, step)


def test_items_are_those_of_the_command_line(client: Client) -> None:
    for step in ("each", "sim"):
        found = fits(client.get(f"runs/1/steps/{step}/items"), f"{RUN}/steps/{{step}}/items")
        assert found["items"] == said("items", 1, step)
    one = client.get("runs/1/steps/each/items/1")
    assert [one.json] == said("items", 1, "each", "--item", 1)


def test_the_story_is_what_explain_prints(client: Client) -> None:
    assert fits(client.get("runs/1/story"), f"{RUN}/story")["lines"] == said("explain", 1)
    assert client.get("runs/1/story", step="fetch").json["lines"] == said("explain", 1, "fetch")


def test_called_runs_are_those_of_the_whole_list(client: Client) -> None:
    found = fits(client.get("runs/3/children"), f"{RUN}/children")["runs"]
    assert found == [run for run in said("list", "--all") if run["parent_run_id"] == 3]
    assert len(found) == client.get("runs/3").json["child_count"] == 2
    lines = client.get("runs/3/story", tree="true").json["lines"]
    assert lines == said("explain", 3, "--tree")
    assert {line["run_id"] for line in lines} >= {run["run_id"] for run in found}


def test_events_are_those_of_the_command_line(client: Client) -> None:
    found = fits(client.get("runs/1/events", limit=1000), f"{RUN}/events")

    printed = [json.loads(line) for line in mulligan("events", 1, "--json").out.splitlines()]
    assert found["events"] == printed


def test_outputs_data_reports_and_figures_are_those_of_the_command_line(client: Client) -> None:
    assert client.get("runs/2/outputs/pack").json == said("show", 2, "--output", "pack")
    assert client.get("runs/1/outputs/each%5B0%5D").json == said("show", 1, "--output", "each[0]")
    assert fits(client.get("runs/2/data"), f"{RUN}/data")["data"] == said("data", "list", "--run", 2)
    assert client.get("runs/2/data/answer").json == 42
    assert fits(client.get("usage", run=2), "usage")["usage"] == said("usage", 2)
    assert fits(client.get("stats"), "stats")["stats"] == said("stats")
    assert fits(client.get("breakers"), "breakers")["breakers"] == said("breakers")
    assert fits(client.get("workers"), "workers")["workers"] == said("workers")
    assert fits(client.get("pending"), "pending")["pending"] == said("pending")
    report, printed = fits(client.get("runs/3/report.json"), f"{RUN}/report.json"), said("report", 3)
    assert {**report, "as_of": ""} == {**printed, "as_of": ""}


def test_a_picture_and_a_report_are_those_of_the_command_line(client: Client) -> None:
    picture = client.get("runs/1/picture.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.body.decode() == mulligan("graph", "--run", 1, "--format", "svg").out
    report = client.get("runs/3/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "sandbox" in report.headers["content-security-policy"]
    assert b"broken" in report.body


# -- filters and pages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ({"workflow": ["nightly", "daily"]}, [3, 1]),
        ({"status": "failed"}, [3]),
        ({"status": "open"}, [1]),
        ({"status": ["failed", "completed"]}, [3, 2]),
        ({"since": "1h"}, [3, 2, 1]),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"label": "kind=big"}, [2]),
        ({"label": "team=ops", "input": "day=sunday"}, [1]),
        ({"who": "nobody-of-that-name"}, []),
        ({"text": "broken"}, [3]),
        ({"failure": "exit_nonzero"}, [3]),
    ],
)
def test_runs_are_found_by_what_is_known_of_them(client: Client, query: dict[str, Any], runs: list[int]) -> None:
    found = client.get("runs", **query, counts="true").json

    assert [run["run_id"] for run in found["runs"]] == runs
    assert found["total"] == len(runs)
    assert found["statuses"] == {"running": 1, "completed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("path", "entries", "key", "total"),
    [
        ("runs", "runs", "run_id", 3),
        ("runs/1/steps", "steps", "name", 4),
        ("runs/1/steps/each/items", "items", "index", 3),
        ("runs/1/events", "events", "seq", None),
        ("runs/1/story", "lines", "text", None),
        ("pending", "pending", "step", 1),
        ("runs/3/children", "runs", "run_id", 2),
    ],
)
def test_pages_one_by_one_are_the_whole(client: Client, path: str, entries: str, key: str, total: int | None) -> None:
    whole = client.get(path, limit=1000).json[entries]
    pages: list[Any] = []
    cursor = ""
    while cursor is not None:
        page = client.get(path, limit=1, **({"cursor": cursor} if cursor else {})).json
        pages += page[entries]
        cursor = page["next"]

    assert [one[key] for one in pages] == [one[key] for one in whole]
    assert total in (None, len(whole))


def test_events_are_chosen_by_type_and_number(client: Client) -> None:
    failed = client.get("runs/1/events", type=["attempt.failed", "step.parked"]).json["events"]
    assert {one["fact"]["type"] for one in failed} == {"attempt.failed", "step.parked"}
    later = client.get("runs/1/events", type="step.parked", after=failed[-1]["seq"]).json
    assert later == {"run_id": 1, "events": [], "next": None}


def test_steps_are_chosen_by_status_and_name(client: Client) -> None:
    found = client.get("runs/1/steps", status="pending_failed").json
    assert [one["name"] for one in found["steps"]] == ["fetch"]
    assert (found["total"], found["counts"]["pending_failed"]) == (1, 1)
    assert [one["name"] for one in client.get("runs/1/steps", text="sim").json["steps"]] == ["sim_1", "sim_2"]


# -- versions and ranges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["runs/2", "runs/2/steps"])
def test_what_has_not_changed_is_not_sent_again(client: Client, path: str) -> None:
    first = client.get(path)
    again = client.request("GET", path, headers={"If-None-Match": first.headers["etag"]})
    other = client.request("GET", path, headers={"If-None-Match": '"1"'})

    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (other.status, other.body) == (200, first.body)
    assert first.headers["etag"] == f'"{first.json["seq"]}"'


LOG = "runs/2/attempts/pack/1/log"


def test_a_log_is_read_whole_and_by_range(client: Client) -> None:
    whole = client.get(LOG)
    size = len(whole.body)

    assert whole.body.splitlines()[0] == b"line 1"
    assert client.get("runs/1/attempts/fetch/1/log", stream="stderr").body == b"nothing there\n"
    assert client.get("runs/1/attempts/each%5B1%5D.0/1/log").body == b"b\n"
    for asked, part, content in (
        ("bytes=0-3", whole.body[:4], f"bytes 0-3/{size}"),
        ("bytes=5-", whole.body[5:], f"bytes 5-{size - 1}/{size}"),
        ("bytes=-6", whole.body[-6:], f"bytes {size - 6}-{size - 1}/{size}"),
        ("bytes=0-99999", whole.body, f"bytes 0-{size - 1}/{size}"),
    ):
        got = client.request("GET", LOG, headers={"Range": asked})
        assert (got.status, got.body, got.headers["content-range"]) == (206, part, content)
        assert got.headers["content-length"] == str(len(part))


@pytest.mark.parametrize("asked", ["lines=1-2", "bytes=9-2", "bytes=1-2,4-5", "bytes=-", "nonsense"])
def test_a_range_that_is_none_gets_the_whole_log(client: Client, asked: str) -> None:
    got = client.request("GET", LOG, headers={"Range": asked})
    assert (got.status, got.body) == (200, client.get(LOG).body)


def test_a_range_behind_the_end_is_refused(client: Client) -> None:
    got = client.request("GET", LOG, headers={"Range": "bytes=99999-"})
    assert (got.status, got.code) == (416, "request.range")


def test_a_log_that_is_followed_ends_with_its_attempt(client: Client) -> None:
    whole = client.get(LOG).body
    assert client.get(LOG, follow="true").body == whole
    assert client.get(LOG, follow="true", start=7).body == whole[7:]
    assert client.get(LOG, start=7).code == "input.invalid"


def test_a_kept_file_is_read_by_its_hash(client: Client) -> None:
    (kept,) = fits(client.get("runs/2/artifacts"), f"{RUN}/artifacts")["artifacts"]
    assert [kept] == said("show", 2)["artifacts"]

    got = client.get(f"runs/2/artifacts/{kept['sha256']}")
    part = client.request("GET", f"runs/2/artifacts/{kept['sha256']}", headers={"Range": "bytes=3-4"})

    assert (got.status, got.body) == (200, b"content")
    assert "kept.txt" in got.headers["content-disposition"]
    assert (part.status, part.body) == (206, b"te")
    assert client.get(f"runs/1/artifacts/{kept['sha256']}").status == 404


def test_the_failure_handler_of_a_step_is_shown(client: Client) -> None:
    found = fits(client.get("runs/1/steps/fetch/failure_handler"), f"{RUN}/steps/{{step}}/failure_handler")

    assert found["status"] == "pending_failed"
    assert found["triage"] == "unmatched"
    (rule,) = found["rules"]
    assert (rule["exit_codes"], rule["max_retries"], rule["granted"]) == ([4], 2, 0)
    assert rule["recovery_script"] == "echo clean"


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "query", "status", "code"),
    [
        ("runs", {"status": "done"}, 422, "input.invalid"),
        ("runs", {"since": "yesterday"}, 422, "input.invalid"),
        ("runs", {"since": "99999999999d"}, 422, "input.invalid"),
        ("runs", {"limit": "0"}, 422, "input.invalid"),
        ("runs", {"limit": "many"}, 422, "input.invalid"),
        ("runs", {"label": "team"}, 422, "input.invalid"),
        ("runs", {"cursor": "%%%"}, 422, "input.invalid"),
        ("runs", {"cursor": "IngiCg"}, 422, "input.invalid"),
        ("runs/1/events", {"cursor": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"}, 422, "input.invalid"),
        ("runs/1/story", {"cursor": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"}, 422, "input.invalid"),
        ("runs", {"text": "!!!"}, 422, "input.invalid"),
        ("runs", {"workflw": "nightly"}, 422, "input.invalid"),
        ("runs/99", {}, 404, "run.unknown"),
        ("runs/99/steps", {}, 404, "run.unknown"),
        ("runs/99/attempts/pack/1/log", {}, 404, "run.unknown"),
        ("runs/1/steps/fetsh", {}, 404, "step.unknown"),
        ("runs/1/steps/fetch/items", {}, 409, "refused"),
        ("runs/1/steps/each/items/9", {}, 404, "item.unknown"),
        ("runs/1/steps/none/failure_handler", {}, 404, "step.unknown"),
        ("runs/1/events", {"type": "attempt.faild"}, 422, "input.invalid"),
        ("runs/1/events", {"after": "-1"}, 422, "input.invalid"),
        ("runs/1/story", {"step": "none"}, 404, "step.unknown"),
        ("runs/1/outputs/none", {}, 404, "step.unknown"),
        ("runs/1/attempts/fetch/9/log", {}, 404, "attempt.unknown"),
        ("runs/1/attempts/fetch/1/log", {"stream": "stdin"}, 422, "input.invalid"),
        ("runs/1/artifacts/abc", {}, 404, "artifact.unknown"),
        ("runs/1/data/none", {}, 404, "data.missing"),
        ("usage", {}, 422, "input.invalid"),
        ("usage", {"run": "99"}, 404, "run.unknown"),
        ("stats", {"run": "1", "workflow": "nightly"}, 422, "input.invalid"),
        ("pending", {"cursor": "WzEsMl0"}, 422, "input.invalid"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(
    client: Client, path: str, query: dict[str, str], status: int, code: str
) -> None:
    got = client.get(path, **query)

    assert (got.status, got.code) == (status, code), got.json
    assert got.json["detail"]
    assert "Traceback" not in got.json["detail"]


def test_names_with_other_characters_are_percent_encoded(client: Client) -> None:
    got = client.get(f"runs/1/steps/{quote('no/such step', safe='')}")
    assert (got.status, got.code) == (404, "step.unknown")
    assert "no/such step" in got.json["detail"]


def test_a_home_without_runs_lists_none(tmp_path: Path) -> None:
    opened = open_client(Home(tmp_path / "empty"))
    try:
        assert opened.get("runs", counts="true").json == {"runs": [], "next": None, "total": 0, "statuses": {}}
        assert opened.get("pending").json == {"pending": [], "next": None, "total": 0}
        assert opened.get("runs/1").code == "run.unknown"
        with Service(Home(tmp_path / "empty")) as service:
            assert not service.home.is_there
    finally:
        opened.close()
